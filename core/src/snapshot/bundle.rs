//! Several shards and segments in one answer, for clients with a copy of the registry: thousands of single
//! requests would be more than a client is allowed in an hour.
//!
//! A request names them and their versions. The answer has, for each in the order of the request, four bytes
//! with the length of its bytes, and these. The length is 0 for one that is not given now: the newest
//! manifest has another version of it, or the answer is full.

use super::{ShardEntry, SnapshotError, wire::ByteReader};

/// Maximum shards and segments of a request.
pub const BUNDLE_MAX: usize = 32;
/// Bytes beyond which no further file is given. A file has some 64 KiB at most, unless one place has more.
pub const BUNDLE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Joins the names of shards and segments for a request.
pub fn bundle_names(entries: &[ShardEntry]) -> String {
    let names: Vec<String> = entries.iter().map(ShardEntry::name).collect();
    names.join(",")
}

/// Parses the output of [`bundle_names`]; `None` for anything else, and for too many names.
pub fn parse_bundle_names(names: &str) -> Option<Vec<ShardEntry>> {
    let names = names.split(',').take(BUNDLE_MAX + 1);
    let entries: Vec<_> = names.map(ShardEntry::parse_name).collect::<Option<_>>()?;
    (entries.len() <= BUNDLE_MAX).then_some(entries)
}

/// An answer that is being made.
#[derive(Debug, Default)]
pub struct Bundle {
    bytes: Vec<u8>,
    given: usize,
    missing: usize,
}

impl Bundle {
    /// Adds the bytes of the next file, if there is room; `None` for one that is not given.
    pub fn push(&mut self, shard: Option<&[u8]>) {
        let has_room = |shard: &&[u8]| self.given == 0 || self.bytes.len() + shard.len() <= BUNDLE_BYTES_MAX;
        let shard = shard.filter(has_room).unwrap_or_default();
        let Ok(length) = u32::try_from(shard.len()) else { return };
        match length {
            0 => self.missing += 1,
            _ => self.given += 1,
        }
        self.bytes.extend(length.to_be_bytes());
        self.bytes.extend_from_slice(shard);
    }

    /// Returns the number of shards and segments that it gives.
    pub const fn given(&self) -> usize {
        self.given
    }

    /// Returns whether it gives all, so that the answer never changes.
    pub const fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Returns its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Splits an answer into the bytes of `count` shards and segments; `None` for one that was not given.
///
/// # Errors
///
/// [`SnapshotError::Damaged`] if the answer ends too early, or has more.
pub fn read_bundle(bytes: &[u8], count: usize) -> Result<Vec<Option<&[u8]>>, SnapshotError> {
    let mut rest = ByteReader(bytes);
    let mut shards = Vec::new();
    for _ in 0..count {
        let length = rest.u32()? as usize;
        shards.push(Some(rest.take(length)?).filter(|shard| !shard.is_empty()));
    }
    if rest.0.is_empty() { Ok(shards) } else { Err(SnapshotError::Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{ShardRange, ShardVersion};

    fn entry(number: u32) -> ShardEntry {
        let range = ShardRange { start: u64::from(number) << 40, bits: 8 };
        ShardEntry { range, version: ShardVersion { block: 300, tag: number } }
    }

    #[test]
    fn names_are_read_as_they_are_written_and_are_not_too_many() {
        let entries: Vec<_> = (0..32).map(entry).collect();
        assert_eq!(parse_bundle_names(&bundle_names(&entries)), Some(entries.clone()));
        let one = bundle_names(&entries[1..2]);
        assert_eq!(one, "01000000000008-000000000000012c00000001");
        let many = [bundle_names(&entries).as_str(), &one].join(",");
        for bad in ["", ",", &one[1..], &[&one, ","].concat(), &one.replace('-', "."), &many] {
            assert_eq!(parse_bundle_names(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_given_is_read_and_what_is_not_is_missing() {
        let mut bundle = Bundle::default();
        for shard in [Some(&b"one"[..]), None, Some(b"three")] {
            bundle.push(shard);
        }
        assert!(!bundle.is_whole());
        assert_eq!(bundle.given(), 2);
        let bytes = bundle.into_bytes();
        assert_eq!(read_bundle(&bytes, 3), Ok(vec![Some(&b"one"[..]), None, Some(b"three")]));
        for cut in 0..bytes.len() {
            assert_eq!(read_bundle(&bytes[..cut], 3), Err(SnapshotError::Damaged));
        }
        assert_eq!(read_bundle(&bytes, 2), Err(SnapshotError::Damaged));
    }

    #[test]
    fn a_full_answer_gives_no_further_shard_and_the_first_one_at_any_size() {
        let (large, half) = (vec![1; BUNDLE_BYTES_MAX + 1], vec![2; BUNDLE_BYTES_MAX / 2]);
        let lengths = |shards: &[&[u8]]| {
            let mut bundle = Bundle::default();
            shards.iter().for_each(|shard| bundle.push(Some(shard)));
            let bytes = bundle.into_bytes();
            let read = read_bundle(&bytes, shards.len()).unwrap();
            read.iter().map(|shard| shard.map_or(0, <[u8]>::len)).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[&large, &half]), [large.len(), 0]);
        assert_eq!(lengths(&[&half, &half, b"small"]), [half.len(), 0, 5]);
    }
}
