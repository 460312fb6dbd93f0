//! Makes manifests, shards and segments from an index.

use std::collections::BTreeMap;

use alloy_primitives::Address;

use super::{Facts, Former, Identity, LiveAgent, Manifest, Shard, ShardEntry, ShardRange, ShardVersion};
use crate::{
    eth::{as_of::AsOf, timestamp::Timestamp},
    index::{
        IndexError, State, Store,
        indexed_agent::IndexedAgent,
        place, segments,
        shards::{self, ShardRows},
    },
    liability::ParentBasis,
    registry::{agent::Status, lineage::MAX_LEVELS, row::Row},
};

/// Minimum bytes of a scope that the index has cut: it cuts at a character boundary, of 256 bytes at most.
const CUT_SCOPE_BYTES: usize = 253;

/// The shards and segments of an index, which stay the same for as long as [`State::writes`] does.
#[derive(Clone, Debug)]
pub struct Shards {
    entries: Vec<ShardEntry>,
    segments: Vec<ShardEntry>,
    /// The version of the widest segment, and its facts.
    recent: Option<(ShardVersion, BTreeMap<Address, Facts>)>,
    /// Every agent's record is readable, so that no other agent has or had a wallet.
    is_whole: bool,
}

impl Shards {
    /// Reads the shards and segments from the index's store.
    ///
    /// # Errors
    ///
    /// [`IndexError::Store`].
    pub fn read(store: &impl Store) -> Result<Self, IndexError> {
        let entry = |(range, version)| ShardEntry { range, version };
        let recent = match segments::find(store, ShardRange::ALL)? {
            Some(segment) => Some((segment.version, facts(&ShardRows::of_places(store, &segment.places)?))),
            None => None,
        };
        Ok(Self {
            entries: shards::all(store)?.into_iter().map(entry).collect(),
            segments: segments::all(store)?.into_iter().map(entry).collect(),
            recent,
            is_whole: shards::is_whole(store)?,
        })
    }

    /// Makes the manifest of the index with the state `state`.
    ///
    /// # Errors
    ///
    /// [`IndexError::Incomplete`] while the index is filled, [`IndexError::Uncovered`] if no storage root was
    /// seen at the rows' block, or an agent cannot be read.
    pub fn manifest(&self, state: &State, identity: Identity) -> Result<Manifest, IndexError> {
        let block = state.block()?;
        let vouched = state.vouched().filter(|_| self.is_whole);
        let (storage_root, confirmed_at) = vouched.ok_or(IndexError::Uncovered)?;
        let block_timestamp = Timestamp::from_seconds(block.seconds);
        let recent = |(version, facts): &(ShardVersion, BTreeMap<Address, Facts>)| {
            let entry = ShardEntry { range: ShardRange::ALL, version: *version };
            Shard::encode(&identity, entry, facts).and_then(Shard::of_manifest)
        };
        Ok(Manifest {
            identity,
            as_of: AsOf { block_number: block.number, block_timestamp, parent_hash: block.parent },
            storage_root,
            grace_seconds: state.grace(),
            confirmed_at,
            agents: state.total,
            listed_after: state.listed_after(),
            shards: self.entries.clone(),
            segments: self.segments.clone(),
            recent: self.recent.as_ref().map(recent).transpose().map_err(|_| IndexError::Uncovered)?,
        })
    }
}

/// Makes the bytes of a shard or segment; `None` if the index has another version of it by now.
///
/// # Errors
///
/// [`IndexError::Incomplete`] while the index is filled, [`IndexError::Store`], [`IndexError::Uncovered`] for
/// more than 4 GiB.
pub fn shard(
    store: &impl Store,
    state: &State,
    identity: &Identity,
    entry: ShardEntry,
) -> Result<Option<Vec<u8>>, IndexError> {
    state.block()?;
    let (version, places) = match shards::version_of(store, entry.range)? {
        Some(version) => (Some(version), None),
        None => segments::find(store, entry.range)?
            .map_or((None, None), |segment| (Some(segment.version), Some(segment.places))),
    };
    if version != Some(entry.version) {
        return Ok(None);
    }
    let is_shard = places.is_none();
    let mut facts = facts(&match places {
        Some(places) => ShardRows::of_places(store, &places)?,
        None => ShardRows::read(store, entry.range)?,
    });
    // The facts of these wallets have changed since this version.
    let superseded = segments::above(store, entry.range, is_shard)?;
    if !superseded.is_empty() {
        for (wallet, facts) in &mut facts {
            if superseded.contains(&place(*wallet)) {
                *facts = Facts::Superseded;
            }
        }
    }
    Shard::encode(identity, entry, &facts).map(Some).map_err(|_| IndexError::Uncovered)
}

/// Returns the facts that verdicts need, by wallet.
fn facts(read: &ShardRows) -> BTreeMap<Address, Facts> {
    let mut of_wallet = BTreeMap::<Address, Vec<(u64, &IndexedAgent)>>::new();
    // Newest first.
    for (id, entry) in read.agents.iter().rev() {
        of_wallet.entry(entry.row.wallet).or_default().push((*id, entry));
    }
    let known = |agents: Vec<_>| known(read, &agents).unwrap_or(Facts::AskChain);
    of_wallet.into_iter().map(|(wallet, agents)| (wallet, known(agents))).collect()
}

/// Returns the facts of a wallet with these agents, the newest first; `None` if the index lacks some.
fn known(read: &ShardRows, agents: &[(u64, &IndexedAgent)]) -> Option<Facts> {
    let (mut agent, mut former) = (None, Vec::new());
    for (id, entry) in agents {
        let (id, row, status) = (*id, &entry.row, entry.status()?);
        if status.has_ended() {
            let ended_at = read.ends.get(&id).copied().unwrap_or(0);
            former.push(Former { id, status, registered_at: row.registered_at, ended_at });
            continue;
        }
        // A wallet has one live agent.
        if agent.is_some() || entry.full.scope.len() >= CUT_SCOPE_BYTES {
            return None;
        }
        let (attested_at, registered_in) = entry.told_events();
        agent = Some(Box::new(LiveAgent {
            id,
            parent: row.parent,
            creator: row.creator,
            haftungsperson: entry.full.haftungsperson,
            status,
            registered_at: row.registered_at,
            last_attestation: row.last_attestation,
            inactive_ancestors: inactive_ancestors(&read.rows, row.parent)?,
            attested_at,
            registered_in,
            parent_basis: parent_basis(&entry.row, read.rows.get(&row.parent)),
            scope: entry.full.scope.clone(),
        }));
    }
    former.truncate(crate::registry::kya::FORMER_SHOWN + 1);
    Some(Facts::Known { agent, former })
}

/// Returns an agent's tie to its parent; `None` for a root.
fn parent_basis(row: &Row, parent: Option<&IndexedAgent>) -> Option<ParentBasis> {
    let parent = parent.filter(|parent| parent.row.record_is_readable());
    let wallets = parent.map(|parent| [parent.row.creator, parent.row.wallet, parent.full.haftungsperson]);
    (row.parent != 0).then(|| ParentBasis::of(row.creator, wallets))
}

/// Returns the ancestors from a parent up that are not Active; `None` if one is not in the registry, or above
/// the depth limit of a lineage.
fn inactive_ancestors(rows: &BTreeMap<u64, IndexedAgent>, parent: u64) -> Option<Vec<(u64, Status)>> {
    let (mut levels, mut inactive, mut next) = (1, Vec::new(), parent);
    while next != 0 && levels < MAX_LEVELS {
        let row = &rows.get(&next)?.row;
        let status = Status::from_number(row.status)?;
        if status != Status::Active {
            inactive.push((next, status));
        }
        levels += 1;
        next = row.parent;
    }
    (next == 0).then_some(inactive)
}
