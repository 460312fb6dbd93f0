//! The shards of the registry's snapshot: the wallets of each one, and the version of its content.
//!
//! A shard holds the agents of all wallets with places that begin with certain bits. Together the shards hold
//! all places, each once. At first one shard holds all; a shard of more than 64 KiB is split into halves,
//! alone. Changes enter [segments](super::segments) first, which then renew many shards together.
//!
//! The cost of a write follows the changes: an agent's place, and the places of its descendants if its status
//! changes, because a verdict names ancestors that are not Active. The same holds if its wallets change,
//! which only a reorg does: a verdict says what ties an agent to its parent.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::Address;

use super::{
    excerpt,
    indexed_agent::{self, IndexedAgent},
    postings::Property,
    segments,
    shard_range::{PLACE_BITS, ShardRange, ShardVersion, place},
    shard_table::{FileSizes, read_bits, version},
    store::{
        Columns, SqlValue, Store, StoreError, first_row, ids_as_json, of_ids, one_number, query,
        write_returning,
    },
};
use crate::{registry::agent::Status, registry::lineage::MAX_LEVELS, registry::row::Row};

/// Maximum agents and descendants of which shards are looked up one by one. More are in nearly all shards,
/// and any account may register below another's agent: finding each of a million would exceed the time limit
/// of an invocation.
const MOST_BELOW: u64 = 10_000;

/// The changes of shards in one transaction.
#[derive(Default)]
pub(super) struct ShardChanges {
    /// Bytes added or removed, by each place with new content.
    bytes: BTreeMap<u64, i64>,
    /// Places that an agent has left, because of a reorg or an unreadable record.
    left: Vec<u64>,
    /// Agents with descendants that may have other verdicts now.
    above: Vec<u64>,
}

impl ShardChanges {
    /// Notes that an agent is written; one of `before` and `after` may be missing.
    pub(super) fn note(&mut self, id: u64, before: Option<&IndexedAgent>, after: Option<&IndexedAgent>) {
        let readable = |entry: &&IndexedAgent| entry.row.record_is_readable();
        let is_known_before_and_after = before.is_some() && after.is_some();
        let (before, after) = (before.filter(readable), after.filter(readable));
        if is_known_before_and_after && before.is_some() != after.is_some() {
            // A verdict could not name its status before, or cannot now.
            self.above.push(id);
        }
        if let (Some(before), Some(after)) = (before, after) {
            if facts(before) == facts(after) {
                return;
            }
            if told_below(before) != told_below(after) {
                self.above.push(id);
            }
        }
        if let Some(left) = before.map(|before| before.row.wallet)
            && after.is_none_or(|after| after.row.wallet != left)
        {
            self.left.push(place(left));
        }
        for (entry, sign) in [(before, -1), (after, 1)] {
            if let Some(entry) = entry {
                let size = i64::try_from(indexed_agent::shard_bytes(entry)).unwrap_or(0);
                *self.bytes.entry(place(entry.row.wallet)).or_default() += sign * size;
            }
        }
    }

    /// Notes that the time at which an agent ended may have changed.
    pub(super) fn note_moved(&mut self, entry: &IndexedAgent) {
        if entry.status().is_some_and(Status::has_ended) {
            self.bytes.entry(place(entry.row.wallet)).or_default();
        }
    }

    /// Writes the changes, after the agents.
    pub(super) fn write(
        self,
        store: &impl Store,
        version: ShardVersion,
        sizes: FileSizes,
    ) -> Result<(), StoreError> {
        let mut places: BTreeSet<u64> = self.bytes.keys().copied().collect();
        let changed = self.bytes.into_iter().filter(|(_, bytes)| *bytes != 0);
        let changed: Vec<[SqlValue; 2]> =
            changed.map(|(place, bytes)| [place.into(), SqlValue::Integer(bytes)]).collect();
        let statement = "UPDATE shards SET bytes = shards.bytes + changed.more \
                         FROM (SELECT (SELECT start FROM shards WHERE start <= value->>0 ORDER BY start DESC LIMIT 1) \
                         AS begins, sum(value->>1) AS more FROM json_each(?1) GROUP BY begins) AS changed \
                         WHERE shards.start = changed.begins RETURNING start, bits, bytes";
        // A shard that is returned twice has its last size the last time.
        let mut grown = BTreeMap::new();
        for mut row in write_returning(store, statement, &changed)? {
            grown.insert(row.number()?, (read_bits(&mut row)?, row.number()?));
        }
        for (start, (bits, bytes)) in grown {
            split(store, (ShardRange { start, bits }, bytes), version, sizes)?;
        }
        if !self.above.is_empty() {
            match below(store, &self.above)? {
                Some(below) => places.extend(places_of(store, &below)?),
                None => {
                    segments::clear(store)?;
                    let statement = "UPDATE shards SET block = ?1, tag = ?2";
                    let version = [version.block.into(), u64::from(version.tag).into()];
                    return store.execute(statement, &version).map(drop);
                }
            }
        }
        segments::add(store, places, version, sizes)?;
        segments::renew(store, &self.left, version)
    }
}

/// Reads the places of agents' wallets.
fn places_of(store: &impl Store, ids: &[u64]) -> Result<Vec<u64>, StoreError> {
    let places = of_ids(store, "SELECT place FROM agents WHERE place IS NOT NULL AND id", &[], ids)?;
    places.into_iter().map(|mut row| row.number()).collect()
}

/// Gives shards and segments of later blocks, which a reorg has undone, the version of this block: their
/// content is also as of it.
pub(super) fn undo(store: &impl Store, ShardVersion { block, tag }: ShardVersion) -> Result<(), StoreError> {
    ["shards", "segments"].iter().try_for_each(|table| {
        let statement = format!("UPDATE {table} SET block = ?1, tag = ?2 WHERE block > ?1");
        store.execute(&statement, &[block.into(), u64::from(tag).into()]).map(drop)
    })
}

/// Returns these agents and their descendants; `None` if they are too many.
fn below(store: &impl Store, above: &[u64]) -> Result<Option<Vec<u64>>, StoreError> {
    let statement = "SELECT DISTINCT member.value FROM json_each(?1) AS parent CROSS JOIN postings \
                     CROSS JOIN json_each(postings.ids) AS member WHERE postings.kind = ?2 \
                     AND postings.key = unhex(printf('%016x', parent.value)) LIMIT ?3";
    let (mut all, mut level) = (Vec::new(), above.to_vec());
    for _ in 0..MAX_LEVELS {
        all.extend_from_slice(&level);
        if level.is_empty() {
            break;
        }
        let parameters = [ids_as_json(&level), Property::Parent.into(), MOST_BELOW.into()];
        level = query(store, statement, &parameters, Columns::number)?;
        if (all.len() + level.len()) as u64 >= MOST_BELOW {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// Returns the facts about an agent that its descendants' shards contain.
fn told_below(entry: &IndexedAgent) -> (u8, u64, [Address; 3]) {
    let Row { status, parent, creator, wallet, .. } = entry.row;
    (status, parent, [creator, wallet, entry.full.haftungsperson])
}

/// Returns the facts about an agent in its shard.
fn facts(entry: &IndexedAgent) -> (Row, Address, &str, (u64, u64)) {
    let row = Row { history_is_readable: true, generation: 0, ..entry.row };
    (row, entry.full.haftungsperson, &entry.full.scope, entry.told_events())
}

/// Splits a shard of this many bytes, and its parts, until none is too large. A single place is not split.
fn split(
    store: &impl Store,
    shard: (ShardRange, u64),
    version: ShardVersion,
    sizes: FileSizes,
) -> Result<(), StoreError> {
    let mut large = vec![shard];
    while let Some((range, bytes)) = large.pop() {
        if bytes <= sizes.shard_bytes || range.bits >= PLACE_BITS {
            continue;
        }
        let lower = ShardRange { bits: range.bits + 1, ..range };
        let upper = ShardRange { start: lower.end(), ..lower };
        let statement =
            "SELECT sum(size) FROM agents INDEXED BY agents_by_place WHERE place >= ?1 AND place < ?2";
        let of_upper = one_number(store, statement, &[upper.start.into(), upper.end().into()])?.unwrap_or(0);
        let statement =
            "INSERT OR REPLACE INTO shards (start, bits, bytes, block, tag) VALUES (?1, ?2, ?3, ?4, ?5)";
        for part in [(lower, bytes.saturating_sub(of_upper)), (upper, of_upper)] {
            let (ShardRange { start, bits }, bytes) = part;
            let (bits, tag) = (u64::from(bits), u64::from(version.tag));
            let values = [start, bits, bytes, version.block, tag].map(SqlValue::from);
            store.execute(statement, &values)?;
            large.push(part);
        }
    }
    Ok(())
}

/// Makes the shards of all agents, at the end of the first fill.
pub(super) fn make(store: &impl Store, version: ShardVersion, sizes: FileSizes) -> Result<(), StoreError> {
    let bytes = one_number(store, "SELECT sum(size) FROM agents WHERE place IS NOT NULL", &[])?.unwrap_or(0);
    let is_small = |bits: &u8| bytes >> bits <= sizes.shard_bytes * 3 / 4;
    let bits = (0..PLACE_BITS).find(is_small).unwrap_or(0);
    let range = ShardRange { bits, ..ShardRange::ALL };
    segments::clear(store)?;
    store.execute("DELETE FROM shards", &[])?;
    let statement = "WITH RECURSIVE starts (start) AS (SELECT 0 UNION ALL SELECT start + CAST(?1 AS INTEGER) FROM starts \
                     WHERE start + ?1 < ?2) INSERT INTO shards (start, bits, bytes, block, tag) SELECT start, ?3, \
                     coalesce((SELECT sum(size) FROM agents INDEXED BY agents_by_place \
                     WHERE place >= start AND place < start + ?1), 0), ?4, ?5 FROM starts";
    let (all, tag) = (ShardRange::ALL.end().into(), u64::from(version.tag).into());
    store
        .execute(statement, &[range.end().into(), all, u64::from(bits).into(), version.block.into(), tag])?;
    let large = "SELECT start, bits, bytes FROM shards WHERE bytes > ?1";
    let large = query(store, large, &[sizes.shard_bytes.into()], |row| {
        Ok((ShardRange { start: row.number()?, bits: read_bits(row)? }, row.number()?))
    })?;
    large.into_iter().try_for_each(|shard| split(store, shard, version, sizes))
}

pub(crate) use excerpt::is_whole;

/// Reads all shards, by their places.
pub(crate) fn all(store: &impl Store) -> Result<Vec<(ShardRange, ShardVersion)>, StoreError> {
    query(store, "SELECT start, bits, block, tag FROM shards ORDER BY start", &[], |row| {
        let range = ShardRange { start: row.number()?, bits: read_bits(row)? };
        Ok((range, version(row)?))
    })
}

/// Reads the version of a shard; `None` if there is none with these bits.
pub(crate) fn version_of(store: &impl Store, range: ShardRange) -> Result<Option<ShardVersion>, StoreError> {
    let statement = "SELECT block, tag FROM shards WHERE start = ?1 AND bits = ?2";
    let row = first_row(store, statement, &[range.start.into(), u64::from(range.bits).into()])?;
    row.map(|mut row| version(&mut row)).transpose()
}

/// Rows from which a shard or segment is made.
#[derive(Debug)]
pub(crate) struct ShardRows {
    /// Agents of its wallets, by ascending id: all, or the newest of each.
    pub(crate) agents: Vec<(u64, IndexedAgent)>,
    /// The agents and their ancestors, without their scopes.
    pub(crate) rows: BTreeMap<u64, IndexedAgent>,
    /// Known ends of these agents, in unix seconds.
    pub(crate) ends: BTreeMap<u64, u64>,
}

impl ShardRows {
    /// Reads the rows of a shard. A wallet with many agents costs no more than those that a verdict shows: a
    /// shard of more than one place is small enough to be read whole, because it would be split otherwise.
    pub(crate) fn read(store: &impl Store, range: ShardRange) -> Result<Self, StoreError> {
        if range.bits >= PLACE_BITS {
            return Self::of_places(store, &[range.start]);
        }
        let whole = "SELECT id, record, events FROM agents INDEXED BY agents_by_place WHERE place >= ?1 AND place < ?2";
        let parameters = [range.start.into(), range.end().into()];
        Self::with_others(store, query(store, whole, &parameters, IndexedAgent::read_with_events)?)
    }

    /// Reads the rows of the wallets at these places.
    pub(crate) fn of_places<'a>(
        store: &impl Store,
        places: impl IntoIterator<Item = &'a u64>,
    ) -> Result<Self, StoreError> {
        let newest = "WITH RECURSIVE wallets (place, wallet) AS (SELECT value, (SELECT min(wallet) FROM agents \
                      INDEXED BY agents_by_place WHERE place = value) FROM json_each(?1) UNION ALL \
                      SELECT place, (SELECT min(wallet) FROM agents INDEXED BY agents_by_place \
                      WHERE place = wallets.place AND wallet > wallets.wallet) FROM wallets WHERE wallet IS NOT NULL) \
                      SELECT agents.id, record, events FROM wallets CROSS JOIN agents INDEXED BY agents_by_place \
                      WHERE agents.place = wallets.place AND agents.wallet = wallets.wallet AND agents.id >= \
                      coalesce((SELECT id FROM agents AS newer INDEXED BY agents_by_place WHERE newer.place = wallets.place \
                      AND newer.wallet = wallets.wallet ORDER BY id DESC LIMIT 1 OFFSET ?2), 0)";
        let places: Vec<u64> = places.into_iter().copied().collect();
        let parameters = [ids_as_json(&places), (excerpt::OF_A_WALLET - 1).into()];
        Self::with_others(store, query(store, newest, &parameters, IndexedAgent::read_with_events)?)
    }

    fn with_others(store: &impl Store, mut agents: Vec<(u64, IndexedAgent)>) -> Result<Self, StoreError> {
        agents.sort_unstable_by_key(|(id, _)| *id);
        let of_shard = agents.iter().map(|(id, entry)| (*id, entry.without_scope())).collect();
        let rows = excerpt::with_ancestors(store, of_shard)?;
        let ended =
            agents.iter().filter(|(_, entry)| entry.status().is_some_and(|status| status.has_ended()));
        let ends = super::changes::ended_at(store, &ended.map(|(id, _)| *id).collect::<Vec<_>>())?;
        Ok(Self { agents, rows, ends })
    }
}
