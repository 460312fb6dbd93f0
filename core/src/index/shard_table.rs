//! Rows of shards, as [`shards`](super::shards) and [`segments`](super::segments) read and write them, and
//! the sizes of both.

use super::{
    shard_range::{PLACE_BITS, ShardVersion},
    store::{Columns, SqlValue, Store, StoreError, first_row, write},
};

/// The sizes of the snapshot's files.
#[derive(Clone, Copy, Debug)]
pub struct FileSizes {
    /// Bytes beyond which a shard is split, and a segment is full.
    pub shard_bytes: u64,
    /// The most places of a segment.
    pub segment_places: usize,
    /// A part has a segment if its first shard has at least this many bits more; one or more.
    pub shard_bits_below: u8,
}

impl FileSizes {
    /// Shards and segments of at most some 64 KiB, and segments above some eight shards.
    pub const DEFAULT: Self = Self { shard_bytes: 64 * 1024, segment_places: 512, shard_bits_below: 3 };
}

/// Makes the shards of these places anew.
pub(super) fn renew(store: &impl Store, places: &[u64], version: ShardVersion) -> Result<(), StoreError> {
    let places: Vec<[SqlValue; 3]> = places
        .iter()
        .map(|place| [(*place).into(), version.block.into(), u64::from(version.tag).into()])
        .collect();
    let statement = "UPDATE shards SET block = changed.at, tag = changed.tag FROM (SELECT (SELECT start FROM shards \
                     WHERE start <= value->>0 ORDER BY start DESC LIMIT 1) AS begins, max(value->>1) AS at, \
                     max(value->>2) AS tag FROM json_each(?1) GROUP BY begins) AS changed \
                     WHERE shards.start = changed.begins";
    write(store, statement, &places)
}

/// Reads the number of bits of a place's shard.
pub(super) fn bits_at(store: &impl Store, place: u64) -> Result<u8, StoreError> {
    let statement = "SELECT bits FROM shards WHERE start <= ?1 ORDER BY start DESC LIMIT 1";
    first_row(store, statement, &[place.into()])?
        .ok_or_else(StoreError::corrupt)
        .and_then(|mut row| read_bits(&mut row))
}

pub(super) fn read_bits(row: &mut Columns) -> Result<u8, StoreError> {
    u8::try_from(row.integer()?).ok().filter(|bits| *bits <= PLACE_BITS).ok_or_else(StoreError::corrupt)
}

pub(super) fn version(row: &mut Columns) -> Result<ShardVersion, StoreError> {
    let (block, tag) = (row.number()?, row.number()?);
    Ok(ShardVersion { block, tag: u32::try_from(tag).map_err(|_| StoreError::corrupt())? })
}
