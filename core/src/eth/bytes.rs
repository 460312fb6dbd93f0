//! Reads packed bytes from the front; every read is checked.

use alloy_primitives::Address;

/// The bytes left to read.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn address(&mut self) -> Option<Address> {
        self.take().map(Address::new)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.number::<8>()
    }

    /// Reads a big-endian number of at most 8 bytes.
    pub(crate) fn number<const N: usize>(&mut self) -> Option<u64> {
        Some(self.take::<N>()?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}
