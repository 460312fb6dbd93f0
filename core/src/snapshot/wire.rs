//! Bytes of a snapshot: big-endian numbers, read within bounds, and the seal at the end.
//!
//! The seal is the beginning of a Keccak-256 over the chain's id, the registry's address and all bytes before
//! it. It shows that the bytes are whole and of this registry; it proves nothing about their author.

use alloy_primitives::{Address, Keccak256};

use super::{Identity, SnapshotError};

/// Version of the written format.
pub(super) const FORMAT: u8 = 3;
/// Version 2, without segments: holders keep its files.
pub(super) const WITHOUT_SEGMENTS: u8 = 2;
/// Version 1, without segments and without the ties of liable wallets to agents.
pub(super) const WITHOUT_LIABILITY: u8 = 1;
pub(super) const SEAL: usize = 8;

/// Reads numbers and bytes from the front; every read is checked.
#[derive(Clone, Copy)]
pub(super) struct ByteReader<'a>(pub(super) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], SnapshotError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(SnapshotError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SnapshotError::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, SnapshotError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, SnapshotError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, SnapshotError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads 48 bits.
    pub(super) fn place(&mut self) -> Result<u64, SnapshotError> {
        let bytes: [u8; 6] = self.array()?;
        Ok(bytes.into_iter().fold(0, |place, byte| place << 8 | u64::from(byte)))
    }

    pub(super) fn u64(&mut self) -> Result<u64, SnapshotError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a number of entries, and checks that as many entries of this size follow.
    pub(super) fn count(&mut self, bytes: usize) -> Result<usize, SnapshotError> {
        let count = self.u32()? as usize;
        let is_there = count.checked_mul(bytes).is_some_and(|length| length <= self.0.len());
        if is_there { Ok(count) } else { Err(SnapshotError::Damaged) }
    }

    pub(super) fn address(&mut self) -> Result<Address, SnapshotError> {
        self.array().map(Address::new)
    }

    /// Checks the beginning of a file, and returns the version of its format.
    pub(super) fn begin(&mut self, magic: [u8; 4]) -> Result<u8, SnapshotError> {
        match (self.array::<4>()?, self.byte()?) {
            (found, format @ WITHOUT_LIABILITY..=FORMAT) if found == magic => Ok(format),
            _ => Err(SnapshotError::Format),
        }
    }
}

fn seal_of(identity: &Identity, bytes: &[u8]) -> [u8; SEAL] {
    let mut hasher = Keccak256::new();
    hasher.update(identity.chain_id.to_be_bytes());
    hasher.update(identity.registry);
    hasher.update(bytes);
    let mut seal = [0; SEAL];
    seal.iter_mut().zip(hasher.finalize()).for_each(|(own, byte)| *own = byte);
    seal
}

pub(super) fn seal(identity: &Identity, mut bytes: Vec<u8>) -> Vec<u8> {
    let seal = seal_of(identity, &bytes);
    bytes.extend(seal);
    bytes
}

/// Checks the seal, and returns the bytes before it.
pub(super) fn unseal<'a>(identity: &Identity, bytes: &'a [u8]) -> Result<&'a [u8], SnapshotError> {
    let (content, seal) = bytes.split_last_chunk::<SEAL>().ok_or(SnapshotError::Damaged)?;
    if seal_of(identity, content) == *seal { Ok(content) } else { Err(SnapshotError::Damaged) }
}
