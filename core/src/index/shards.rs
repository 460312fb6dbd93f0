//! The shards of the registry's snapshot: which wallets each one holds, and since which block it is as it is.
//!
//! A shard holds the agents of all wallets with places that begin with certain bits. Together the shards hold
//! all places, each once. At first one shard holds all; a shard of more than 64 KiB is split into its halves,
//! alone. The cost of a write follows what changes: an agent's shard is found by its place, and where an
//! agent's status changes, the shards of its descendants get a new version, because a verdict names ancestors
//! that are not Active. So they do where its wallets change, as only a reorg makes them: a verdict says what
//! ties an agent to its parent.

use std::collections::BTreeMap;

use alloy_primitives::Address;

use super::{
    excerpt,
    indexed_agent::{self, IndexedAgent},
    postings::Property,
    shard_range::{PLACE_BITS, ShardRange, ShardVersion, place},
    store::{
        Columns, SqlValue, Store, StoreError, first_row, ids_as_json, one_number, query, write_returning,
    },
};
use crate::{registry::agent::Status, registry::lineage::MAX_LEVELS, registry::row::Row};

/// The size beyond which a shard is split.
const SHARD_BYTES_MAX: u64 = 64 * 1024;

/// The most agents and descendants to look up the shards of one by one. More are in nearly all shards, and any
/// account may register below another's agent: to find each of a million would take longer than one invocation
/// may.
const MOST_BELOW: u64 = 10_000;

/// What one transaction changes in the shards.
#[derive(Default)]
pub(super) struct ShardChanges {
    /// By place: bytes more, or fewer.
    bytes: BTreeMap<u64, i64>,
    /// Agents with descendants that may have other verdicts now.
    above: Vec<u64>,
}

impl ShardChanges {
    /// Notes that an agent is written; one of the two may be missing.
    pub(super) fn note(&mut self, id: u64, before: Option<&IndexedAgent>, after: Option<&IndexedAgent>) {
        let readable = |entry: &&IndexedAgent| entry.row.record_is_readable();
        let is_known_before_and_after = before.is_some() && after.is_some();
        let (before, after) = (before.filter(readable), after.filter(readable));
        if is_known_before_and_after && before.is_some() != after.is_some() {
            // Its status was not what a verdict could name, or is not any more.
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
        for (entry, sign) in [(before, -1), (after, 1)] {
            if let Some(entry) = entry {
                let size = i64::try_from(indexed_agent::shard_bytes(entry)).unwrap_or(0);
                *self.bytes.entry(place(entry.row.wallet)).or_default() += sign * size;
            }
        }
    }

    /// Notes that the time at which an agent ended may be another one.
    pub(super) fn note_moved(&mut self, entry: &IndexedAgent) {
        if entry.status().is_some_and(Status::has_ended) {
            self.bytes.entry(place(entry.row.wallet)).or_default();
        }
    }

    /// Writes them, after the agents.
    pub(super) fn write(self, store: &impl Store, version: ShardVersion) -> Result<(), StoreError> {
        let (block, tag) = (SqlValue::from(version.block), SqlValue::from(u64::from(version.tag)));
        let rows: Vec<[SqlValue; 4]> = self
            .bytes
            .into_iter()
            .map(|(place, bytes)| [place.into(), SqlValue::Integer(bytes), block.clone(), tag.clone()])
            .collect();
        let statement = "UPDATE shards SET bytes = shards.bytes + changed.more, block = changed.at, tag = changed.tag \
                         FROM (SELECT (SELECT start FROM shards WHERE start <= value->>0 ORDER BY start DESC LIMIT 1) \
                         AS begins, sum(value->>1) AS more, max(value->>2) AS at, max(value->>3) AS tag \
                         FROM json_each(?1) GROUP BY begins) AS changed \
                         WHERE shards.start = changed.begins RETURNING start, bits, bytes";
        // A shard that is returned twice has its last size the last time.
        let mut sizes = BTreeMap::new();
        for row in write_returning(store, statement, &rows)? {
            let mut row = Columns::of(row);
            sizes.insert(row.number()?, (read_bits(&mut row)?, row.number()?));
        }
        for (start, (bits, bytes)) in sizes {
            split(store, (ShardRange { start, bits }, bytes), version)?;
        }
        if self.above.is_empty() {
            return Ok(());
        }
        let below = below(store, &self.above)?;
        let statement = "UPDATE shards SET block = ?1, tag = ?2 WHERE NOT ?3 OR start IN (SELECT (SELECT start \
                         FROM shards WHERE start <= agents.place ORDER BY start DESC LIMIT 1) \
                         FROM agents WHERE id IN (SELECT value FROM json_each(?4)))";
        let are_known = u64::from(below.is_some()).into();
        let parameters = [block, tag, are_known, ids_as_json(&below.unwrap_or_default())];
        store.execute(statement, &parameters).map(drop)
    }
}

/// Gives shards of later blocks, which are not of the chain any more, the version of this one: their content
/// is as of it, too.
pub(super) fn undo(store: &impl Store, ShardVersion { block, tag }: ShardVersion) -> Result<(), StoreError> {
    let statement = "UPDATE shards SET block = ?1, tag = ?2 WHERE block > ?1";
    store.execute(statement, &[block.into(), u64::from(tag).into()]).map(drop)
}

/// These agents and their descendants; `None` if they are too many.
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

/// What the shards of an agent's descendants tell of it.
fn told_below(entry: &IndexedAgent) -> (u8, u64, [Address; 3]) {
    let Row { status, parent, creator, wallet, .. } = entry.row;
    (status, parent, [creator, wallet, entry.full.haftungsperson])
}

/// What a shard holds of an agent.
fn facts(entry: &IndexedAgent) -> (Row, Address, &str, (u64, u64)) {
    let row = Row { history_is_readable: true, generation: 0, ..entry.row };
    (row, entry.full.haftungsperson, &entry.full.scope, entry.told_events())
}

fn read_bits(row: &mut Columns) -> Result<u8, StoreError> {
    u8::try_from(row.integer()?).ok().filter(|bits| *bits <= PLACE_BITS).ok_or_else(StoreError::corrupt)
}

/// Splits a shard of this many bytes, and its parts, until none is too large. A single place is not split.
fn split(store: &impl Store, shard: (ShardRange, u64), version: ShardVersion) -> Result<(), StoreError> {
    let mut large = vec![shard];
    while let Some((range, bytes)) = large.pop() {
        if bytes <= SHARD_BYTES_MAX || range.bits >= PLACE_BITS {
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
pub(super) fn make(store: &impl Store, version: ShardVersion) -> Result<(), StoreError> {
    let bytes = one_number(store, "SELECT sum(size) FROM agents WHERE place IS NOT NULL", &[])?.unwrap_or(0);
    let is_small = |bits: &u8| bytes >> bits <= SHARD_BYTES_MAX * 3 / 4;
    let bits = (0..PLACE_BITS).find(is_small).unwrap_or(0);
    let range = ShardRange { bits, ..ShardRange::ALL };
    store.execute("DELETE FROM shards", &[])?;
    let statement = "WITH RECURSIVE starts (start) AS (SELECT 0 UNION ALL SELECT start + CAST(?1 AS INTEGER) FROM starts \
                     WHERE start + ?1 < ?2) INSERT INTO shards (start, bits, bytes, block, tag) SELECT start, ?3, \
                     coalesce((SELECT sum(size) FROM agents INDEXED BY agents_by_place \
                     WHERE place >= start AND place < start + ?1), 0), ?4, ?5 FROM starts";
    let (all, tag) = (ShardRange::ALL.end().into(), u64::from(version.tag).into());
    store
        .execute(statement, &[range.end().into(), all, u64::from(bits).into(), version.block.into(), tag])?;
    let large = "SELECT start, bits, bytes FROM shards WHERE bytes > ?1";
    let large = query(store, large, &[SHARD_BYTES_MAX.into()], |row| {
        Ok((ShardRange { start: row.number()?, bits: read_bits(row)? }, row.number()?))
    })?;
    large.into_iter().try_for_each(|shard| split(store, shard, version))
}

pub(crate) use excerpt::is_whole;

/// All shards, by their places.
pub(crate) fn all(store: &impl Store) -> Result<Vec<(ShardRange, ShardVersion)>, StoreError> {
    query(store, "SELECT start, bits, block, tag FROM shards ORDER BY start", &[], |row| {
        let range = ShardRange { start: row.number()?, bits: read_bits(row)? };
        Ok((range, version(row)?))
    })
}

/// The version of a shard; `None` where there is none with these bits.
pub(crate) fn version_of(store: &impl Store, range: ShardRange) -> Result<Option<ShardVersion>, StoreError> {
    let statement = "SELECT block, tag FROM shards WHERE start = ?1 AND bits = ?2";
    let row = first_row(store, statement, &[range.start.into(), u64::from(range.bits).into()])?;
    row.map(|mut row| version(&mut row)).transpose()
}

fn version(row: &mut Columns) -> Result<ShardVersion, StoreError> {
    let (block, tag) = (row.number()?, row.number()?);
    Ok(ShardVersion { block, tag: u32::try_from(tag).map_err(|_| StoreError::corrupt())? })
}

/// What a shard is made of.
#[derive(Debug)]
pub(crate) struct ShardRows {
    /// Agents of its wallets, by ascending id: all, or the newest of each.
    pub(crate) agents: Vec<(u64, IndexedAgent)>,
    /// These and their ancestors, without their scopes.
    pub(crate) rows: BTreeMap<u64, IndexedAgent>,
    /// When some of them ended, in unix seconds.
    pub(crate) ends: BTreeMap<u64, u64>,
}

impl ShardRows {
    /// Reads them. A wallet that had many agents costs no more than those that a verdict shows: a shard of
    /// more than one place is small enough to be read whole, because it would be split otherwise.
    pub(crate) fn read(store: &impl Store, range: ShardRange) -> Result<Self, StoreError> {
        let (statement, parameters) = if range.bits < PLACE_BITS {
            let whole = "SELECT id, record, events FROM agents INDEXED BY agents_by_place WHERE place >= ?1 AND place < ?2";
            (whole, [range.start.into(), range.end().into()])
        } else {
            let newest = "WITH RECURSIVE wallets (wallet) AS \
                          (SELECT min(wallet) FROM agents INDEXED BY agents_by_place WHERE place = ?1 UNION ALL \
                          SELECT (SELECT min(wallet) FROM agents INDEXED BY agents_by_place \
                          WHERE place = ?1 AND wallet > wallets.wallet) FROM wallets WHERE wallet IS NOT NULL) \
                          SELECT agents.id, record, events FROM wallets CROSS JOIN agents INDEXED BY agents_by_place \
                          WHERE agents.place = ?1 AND agents.wallet = wallets.wallet AND agents.id >= \
                          coalesce((SELECT id FROM agents AS newer INDEXED BY agents_by_place WHERE newer.place = ?1 \
                          AND newer.wallet = wallets.wallet ORDER BY id DESC LIMIT 1 OFFSET ?2), 0)";
            (newest, [range.start.into(), (excerpt::OF_A_WALLET - 1).into()])
        };
        let mut agents = query(store, statement, &parameters, IndexedAgent::read_with_events)?;
        agents.sort_unstable_by_key(|(id, _)| *id);
        let of_shard = agents.iter().map(|(id, entry)| (*id, entry.without_scope())).collect();
        let rows = excerpt::with_ancestors(store, of_shard)?;
        let ended =
            agents.iter().filter(|(_, entry)| entry.status().is_some_and(|status| status.has_ended()));
        let ends = super::changes::ended_at(store, &ended.map(|(id, _)| *id).collect::<Vec<_>>())?;
        Ok(Self { agents, rows, ends })
    }
}
