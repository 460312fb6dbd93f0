//! Segments of the registry's snapshot: the wallets that have changed since their shards were last made.
//!
//! If each change made its shard anew, many changes would leave a data centre few valid shards. So a change
//! renews nothing at first: its place enters the list of all places. A full list hands half of its places to
//! the lists of its fullest parts, of sixteen; the lowest lists hand theirs to the shards, which are made
//! anew then, many changes at a time. A file of the snapshot has the facts of each list's wallets; those of
//! the list of all places are in the manifest.
//!
//! ```text
//!   change --> all places (in the manifest) --> 16 parts --> 256 parts --> shards
//! ```
//!
//! The widest segment with a wallet has its facts, as of the segment's version or later; without such a
//! segment, its shard has them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    excerpt,
    shard_range::{PLACE_BITS, ShardRange, ShardVersion},
    shard_table::{self, FileSizes},
    store::{Columns, SqlValue, Store, StoreError, ids_as_json, one_number, query},
};

/// Additional bits of each part of a segment, which therefore has two to this power parts.
pub(crate) const FAN_OUT_BITS: u8 = 4;
/// Maximum places in one SQL parameter: a host takes two megabytes.
const RENEWED_AT_ONCE: usize = 10_000;

/// A segment: its places, and the version of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) range: ShardRange,
    pub(crate) version: ShardVersion,
    pub(crate) places: BTreeSet<u64>,
}

/// Notes that the facts of the wallets at these places have changed.
pub(super) fn add(
    store: &impl Store,
    places: BTreeSet<u64>,
    version: ShardVersion,
    sizes: FileSizes,
) -> Result<(), StoreError> {
    if places.is_empty() {
        return Ok(());
    }
    let mut of_shards = Vec::new();
    let mut waiting = vec![(ShardRange::ALL, places)];
    while let Some((range, mut places)) = waiting.pop() {
        places.extend(find(store, range)?.into_iter().flat_map(|segment| segment.places));
        while !has_room(store, &places, sizes)? {
            for (part, handed) in hand_down(&mut places, range.bits + FAN_OUT_BITS) {
                let has_shards =
                    shard_table::bits_at(store, part.start)? >= part.bits + sizes.shard_bits_below;
                match has_shards || find(store, part)?.is_some() {
                    true => waiting.push((part, handed)),
                    false => of_shards.extend(handed),
                }
            }
        }
        put(store, Segment { range, version, places })?;
    }
    shard_table::renew(store, &of_shards, version)
}

/// Returns whether a segment may have these places.
fn has_room(store: &impl Store, places: &BTreeSet<u64>, sizes: FileSizes) -> Result<bool, StoreError> {
    if places.len() > sizes.segment_places {
        return Ok(false);
    }
    // A file has only the newest agents of a wallet.
    let statement = "SELECT sum((SELECT sum(size) FROM (SELECT size FROM agents INDEXED BY agents_by_place \
                     WHERE place = asked.value ORDER BY wallet DESC, id DESC LIMIT ?2))) FROM json_each(?1) AS asked";
    let places: Vec<u64> = places.iter().copied().collect();
    let parameters = [ids_as_json(&places), excerpt::OF_A_WALLET.into()];
    Ok(one_number(store, statement, &parameters)?.unwrap_or(0) <= sizes.shard_bytes)
}

/// Removes the places of the fullest parts, until half are left: parts get many at a time, and not all at
/// once.
fn hand_down(places: &mut BTreeSet<u64>, bits: u8) -> Vec<(ShardRange, BTreeSet<u64>)> {
    let mut parts = BTreeMap::<u64, BTreeSet<u64>>::new();
    for place in places.iter() {
        parts.entry(ShardRange::of(*place, bits).start).or_default().insert(*place);
    }
    let mut parts: Vec<_> = parts.into_iter().map(|(start, of)| (ShardRange { start, bits }, of)).collect();
    parts.sort_by_key(|(_, of)| core::cmp::Reverse(of.len()));
    let (mut left, most) = (places.len(), places.len() / 2);
    let fullest = parts.iter().take_while(|(_, of)| {
        let is_taken = left > most;
        left -= of.len();
        is_taken
    });
    let count = fullest.count();
    parts.truncate(count);
    places.retain(|place| !parts.iter().any(|(part, _)| part.contains_place(*place)));
    parts
}

/// Renews every file that may hold a wallet at these places, which an agent has left.
pub(super) fn renew(store: &impl Store, places: &[u64], version: ShardVersion) -> Result<(), StoreError> {
    let statement = "UPDATE segments SET block = ?1, tag = ?2 WHERE EXISTS (SELECT * FROM json_each(?3) \
                     WHERE value >= start AND value < start + (1 << (?4 - bits)))";
    for places in places.chunks(RENEWED_AT_ONCE) {
        let (block, tag) = (version.block.into(), u64::from(version.tag).into());
        store.execute(statement, &[block, tag, ids_as_json(places), u64::from(PLACE_BITS).into()])?;
    }
    shard_table::renew(store, places, version)
}

/// Deletes all segments: every shard is made anew.
pub(super) fn clear(store: &impl Store) -> Result<(), StoreError> {
    store.execute("DELETE FROM segments", &[]).map(drop)
}

fn put(store: &impl Store, Segment { range, version, places }: Segment) -> Result<(), StoreError> {
    if places.is_empty() {
        let key = [u64::from(range.bits), range.start].map(SqlValue::from);
        return store.execute("DELETE FROM segments WHERE bits = ?1 AND start = ?2", &key).map(drop);
    }
    let statement =
        "INSERT OR REPLACE INTO segments (bits, start, block, tag, places) VALUES (?1, ?2, ?3, ?4, ?5)";
    let numbers = [u64::from(range.bits), range.start, version.block, version.tag.into()];
    let [bits, start, block, tag] = numbers.map(SqlValue::from);
    let places = ids_as_json(&places.into_iter().collect::<Vec<_>>());
    store.execute(statement, &[bits, start, block, tag, places]).map(drop)
}

/// Reads the segment of this range, if it has places.
pub(crate) fn find(store: &impl Store, range: ShardRange) -> Result<Option<Segment>, StoreError> {
    Ok(of_ranges(store, &[range])?.pop())
}

/// Reads the places in the range of a shard, or of a segment, that segments above it hold.
pub(crate) fn above(
    store: &impl Store,
    range: ShardRange,
    is_shard: bool,
) -> Result<BTreeSet<u64>, StoreError> {
    // The widest segment is above a shard even if the shard holds all places, too.
    let bits = (0..range.bits + u8::from(is_shard)).step_by(FAN_OUT_BITS.into());
    let ranges: Vec<_> = bits.map(|bits| ShardRange::of(range.start, bits)).collect();
    let segments = of_ranges(store, &ranges)?.into_iter();
    Ok(segments.flat_map(|segment| segment.places).filter(|place| range.contains_place(*place)).collect())
}

fn of_ranges(store: &impl Store, ranges: &[ShardRange]) -> Result<Vec<Segment>, StoreError> {
    let statement = "SELECT bits, start, block, tag, places FROM json_each(?1) AS asked CROSS JOIN segments \
                     WHERE bits = asked.value->>0 AND start = asked.value->>1";
    let asked: Vec<String> = ranges.iter().map(|range| format!("[{},{}]", range.bits, range.start)).collect();
    query(store, statement, &[SqlValue::Text(format!("[{}]", asked.join(",")))], |row| {
        let (range, version) = entry(row)?;
        let places = serde_json::from_str(&row.text()?).map_err(|_| StoreError::corrupt())?;
        Ok(Segment { range, version, places })
    })
}

/// Reads all segments but the widest, which is in the manifest: the wider ones first, each by its places.
pub(crate) fn all(store: &impl Store) -> Result<Vec<(ShardRange, ShardVersion)>, StoreError> {
    let statement = "SELECT bits, start, block, tag FROM segments WHERE bits > 0 ORDER BY bits, start";
    query(store, statement, &[], entry)
}

fn entry(row: &mut Columns) -> Result<(ShardRange, ShardVersion), StoreError> {
    let (bits, start) = (shard_table::read_bits(row)?, row.number()?);
    Ok((ShardRange { start, bits }, shard_table::version(row)?))
}
