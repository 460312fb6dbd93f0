//! Finds the changes since the index's block, with one query.
//!
//! The root of the registry's storage, proved against the newest block's state root, says whether anything
//! has changed. Events then say what. A proof at the newest block shows whether they tell everything: with
//! the words that the agents' records had before, the storage has to have the root that was seen before. If
//! events change more than such words, storage roots at their blocks show it, if the node has them: between
//! two blocks with events the root has to stay the same. Reorgs are found by comparing known blocks with
//! canonical headers.
//!
//! ```text
//!   newest block, and the registry's storage root in it --> as the index's: nothing has changed
//!        |
//!   headers of the index's blocks, a block known to have an event, all events since
//!        |
//!        +-- canonical --> the agents' words at the newest block, and the rows' put back
//!        |                 --> else storage roots between the events --+--> the agents that had an event
//!        |                                                             +--> no event tells the change
//!        +-- not: older blocks, 16 at a time, to the last canonical one --> the events since that one, too
//!                                                     |
//!                                                     +-- none: everything is read anew
//! ```

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256};

use super::{
    base::{Base, EventPolicy, ExpectedRecord, SeenRows},
    canonical::{known_canonical, last_canonical},
    checkpoint::Checkpoint,
    explained::{ExplainedHead, StorageRoots, unchanged_version},
    found::{
        ChangeSearchOutcome, ChangeSet, Completeness, ContradictedRecord, EventListing, FoundChanges,
        UnexplainedChanges,
    },
    phase::RegistryVersion,
    registry_head::RegistryHead,
    state::{KnownCode, Provable},
    tip_proof::{TipProof, TipProofOutcome},
};
use crate::{
    chain::{
        Halt, Header, Proof, ProofKey, ProofParts, Query, QueryError, RunError, View,
        logs::{Announced, LogsQuery},
    },
    evidence::{Account, Layout},
    registry::row::Row,
};

/// Agents that one call usually reads: the measure for the number of `eth_getLogs` calls.
const AGENTS_PER_CALL: u64 = 300;
/// `eth_getLogs` calls that are always acceptable.
const LOG_CALLS: u64 = 8;
/// Refreshes after which longer log ranges are tried again.
pub(super) const LOG_RANGE_REFRESHES: u32 = 100;

/// The query for changes.
#[derive(Clone, Debug)]
pub(super) struct FindChanges {
    pub(super) registry: Address,
    /// The storage layout of code that the operator vouches for.
    pub(super) layout: Option<Layout>,
    /// Code that the operator vouches for to keep all state in its own storage.
    pub(super) self_contained_code: Option<B256>,
    /// The oldest block of the rows or slices.
    pub(super) block: Checkpoint,
    pub(super) base: Base,
    pub(super) events: EventPolicy,
    /// The code that was last read.
    pub(super) code: Option<KnownCode>,
    /// The number of agents, by the rows.
    pub(super) total: u64,
    /// The first block of which events are requested.
    pub(super) from: u64,
    /// Events that have been read.
    pub(super) seen: BTreeSet<(u64, u64)>,
    /// Events have been late before, so that a change without an event says little.
    pub(super) was_late: bool,
    /// The rows of the agents that had an event, once needed.
    pub(super) before: Option<BTreeMap<u64, Row>>,
    /// Older checkpoints, the highest first, once needed.
    pub(super) older: Option<Vec<Checkpoint>>,
    /// A block known to have an event: a node that returns none has pruned its logs.
    pub(super) known_event: Option<u64>,
    /// Blocks per `eth_getLogs` that the node accepts, and the refreshes since that was detected.
    pub(super) log_range: Option<(u64, u32)>,
}

impl Query for FindChanges {
    type Output = ChangeSearchOutcome;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<ChangeSearchOutcome, Halt> {
        if let Base::Rows(rows) = &self.base
            && let Some((block, true)) = rows.unsettled
        {
            // It shares this round trip.
            view.header_at(block.number).ok();
        }
        let mut code = None;
        let account = self.account(view, &mut code)?;
        let version = account.as_ref().map(|account| RegistryVersion {
            storage_root: account.storage_root,
            code_hash: account.code_hash,
        });
        // Without a version, the registry's figures show that the node has the chain and its newest blocks.
        let header = match version {
            Some(_) => view.header()?,
            None => RegistryHead::read(view, self.registry)?.header,
        };
        let mut changes = self.changes(view, header, version, account.as_ref())?;
        if let FoundChanges::Changed(changed) = &mut changes {
            changed.ahead = version.map(|version| (header.into(), version));
        }
        Ok(ChangeSearchOutcome { version, code, changes })
    }

    fn reads_other_blocks(&self) -> bool {
        true
    }

    fn reads_proofs(&self) -> bool {
        true
    }
}

impl FindChanges {
    /// Returns the registry's proved account, if its storage root is its version.
    fn account(&self, view: &View, code: &mut Option<KnownCode>) -> Result<Option<Account>, Halt> {
        let layout = self.layout.unwrap_or(Layout::AGENT_REGISTRY);
        let records = self.records();
        let slots = records.iter().flat_map(|record| layout.record_slots(record.id)).collect();
        let key = ProofKey { contract: self.registry, slots, parts: ProofParts::Newest };
        let proved = |proof: &Proof| Account::proved(&proof.block, &proof.proof, self.registry, &key.slots);
        let Some(proof) = view.proof(&key)? else { return Ok(None) };
        let mut account = proved(proof);
        if account.is_none() {
            // The node answered the header and the proof at different blocks: now the block is pinned.
            let key = ProofKey { parts: ProofParts::Pinned, ..key.clone() };
            account = view.proof(&key)?.and_then(proved);
        }
        let Some(account) = account else { return Ok(None) };
        if let Some(known) = self.code.filter(|code| code.hash == account.code_hash) {
            return Ok(Some(account).filter(|_| known.shows >= Provable::Changes));
        }
        let key = ProofKey { parts: ProofParts::Evidence, ..key.clone() };
        let Some(proof) = view.proof(&key)? else { return Ok(None) };
        let Some(account) = proved(proof) else { return Ok(None) };
        let hash = account.code_hash;
        let shows = match Layout::is_of(self.layout, &proof.code, hash) {
            true if self.layout.is_none() => Provable::Events,
            true => Provable::Records,
            _ if self.self_contained_code == Some(hash) => Provable::Changes,
            _ => Provable::Nothing,
        };
        *code = Some(KnownCode { hash, shows });
        Ok(Some(account).filter(|_| shows >= Provable::Changes))
    }

    fn records(&self) -> &[ExpectedRecord] {
        match &self.base {
            Base::Rows(rows) => &rows.records,
            Base::Slices { .. } => &[],
        }
    }

    /// Returns known blocks by height: those of the rows or slices, as far as a reorg could have replaced
    /// them.
    pub(super) fn known(&self) -> Vec<Checkpoint> {
        match &self.base {
            Base::Rows(rows) => {
                let unsettled = rows.unsettled.map(|(block, _)| block);
                unsettled.filter(|it| it.number < self.block.number).into_iter().chain([self.block]).collect()
            }
            Base::Slices { blocks, .. } => blocks.clone(),
        }
    }

    fn changes(
        &self,
        view: &View,
        header: Header,
        version: Option<RegistryVersion>,
        account: Option<&Account>,
    ) -> Result<FoundChanges, Halt> {
        if header.number < self.block.number && header.timestamp <= self.block.seconds {
            // The node lags. A reorg to a lower height has a later timestamp.
            return Err(RunError::BlockUnavailable.into());
        }
        if let Base::Rows(rows) = &self.base
            && self.is_unchanged(view, rows, &header, version)?
        {
            let is_proved = version.is_some() && version == rows.version;
            let contradicted = account.filter(|_| is_proved).and_then(|it| self.contradicted(it, &[], true));
            return Ok(match contradicted {
                None => FoundChanges::Nothing(header),
                Some(_) => FoundChanges::Changed(Box::new(ChangeSet {
                    contradicted,
                    ..ChangeSet::until(header, version, Completeness::Roots)
                })),
            });
        }
        let known = self.known();
        let last_known = known.last().map_or(0, |last| last.number);
        let canonical = known_canonical(view, &known, &header);
        if self.events == EventPolicy::Ignored {
            let is_canonical = canonical?.is_some_and(|since| since.number == last_known);
            let pinned = match &self.base {
                Base::Slices { pinned, .. } => pinned.unwrap_or(header),
                Base::Rows(_) => header,
            };
            let unasked = ChangeSet { from: 0, ..ChangeSet::until(pinned, None, Completeness::Unasked) };
            return Ok(if is_canonical {
                FoundChanges::Changed(unasked.into())
            } else {
                FoundChanges::AnotherChain
            });
        }
        if version.is_none() || self.events == EventPolicy::Trusted {
            // `judged` asks for it, too: here it shares this round trip.
            self.has_pruned(view, &header).ok();
        }
        let found = view.logs(&self.logs(&header, self.from, header.number))?;
        let canonical = canonical?;
        let is_undone = canonical.is_none_or(|since| since.number < last_known);
        let has_slices = matches!(self.base, Base::Slices { .. });
        let Ok(found) = found else {
            return Ok(if has_slices && is_undone {
                FoundChanges::AnotherChain
            } else {
                FoundChanges::NoEvents
            });
        };
        let (header, version, account) = match found.unasked {
            // The node does not serve the newest block's logs yet.
            Some(unasked) if unasked <= self.block.number + 1 => {
                return Err(RunError::BlockUnavailable.into());
            }
            Some(unasked) => {
                let last = unasked - 1;
                let (header, root) = (view.header_at(last), view.storage_root_at(self.registry, last));
                let seen = match &self.base {
                    Base::Rows(rows) => [rows.version.map(|version| (self.block, version)), rows.ahead],
                    Base::Slices { .. } => [None, None],
                };
                let unchanged = unchanged_version(view, seen, version, (self.from, last), &found.events);
                let (header, root, unchanged) = (header?, root?, unchanged?);
                let version = version.zip(root);
                let proved =
                    version.map(|(version, storage_root)| RegistryVersion { storage_root, ..version });
                // The account was proved at the later block, and events of that block are not known yet.
                (header, proved.or(unchanged), None)
            }
            None => (header, version, account),
        };
        let mut listed = EventListing::of(found, self.from);
        if is_undone {
            // The last canonical block counts; slices read at later ones are read again.
            listed.undone_since = match (canonical, &self.older) {
                (Some(since), _) => Some(since),
                (None, _) if has_slices => return Ok(FoundChanges::AnotherChain),
                (None, None) => return Ok(FoundChanges::NotCanonical),
                (None, Some(older)) => last_canonical(view, older, &header)?,
            };
            let Some(since) = listed.undone_since else { return Ok(FoundChanges::AnotherChain) };
            let (first, to) =
                (since.number.saturating_add(1), header.number.min(self.from.saturating_sub(1)));
            if first < self.from {
                let Ok(earlier) = view.logs(&self.logs(&header, first, to))? else {
                    return Ok(FoundChanges::NoEvents);
                };
                if earlier.unasked.is_some() {
                    return Err(RunError::BlockUnavailable.into());
                }
                listed.extend(earlier, first);
            }
        }
        self.judged(view, (header, version, account), listed)
    }

    /// Returns whether the rows are also of this block, and of its chain.
    fn is_unchanged(
        &self,
        view: &View,
        rows: &SeenRows,
        header: &Header,
        version: Option<RegistryVersion>,
    ) -> Result<bool, Halt> {
        let block = &self.block;
        let is_same = header.hash == block.hash || (version.is_some() && version == rows.version);
        let is_replaced = header.hash != block.hash && header.number <= block.number
            || header.parent_hash != block.hash && header.number == block.number + 1;
        if !is_same || is_replaced || rows.asks_at.is_some_and(|at| header.timestamp >= at) {
            return Ok(false);
        }
        match rows.unsettled {
            Some((block, true)) => Ok(known_canonical(view, &[block], header)?.is_some()),
            _ => Ok(true),
        }
    }

    /// Decides what the listed events show.
    fn judged(
        &self,
        view: &View,
        (header, version, account): (Header, Option<RegistryVersion>, Option<&Account>),
        mut listed: EventListing,
    ) -> Result<FoundChanges, Halt> {
        let undone_since = listed.undone_since;
        let told = match undone_since {
            None => self
                .tip_proof(version)
                .map_or(Ok(TipProofOutcome::Unknown), |proof| proof.told(view, &listed.events))?,
            Some(_) => TipProofOutcome::Unknown,
        };
        let whole = |completeness| {
            let storage_root = version.map(|version| version.storage_root);
            Some(ExplainedHead { until: header, storage_root, completeness })
        };
        let mut records = BTreeMap::new();
        let explained = match (told, version) {
            (TipProofOutcome::Needs(ids), _) => return Ok(FoundChanges::Named(ids)),
            (TipProofOutcome::All(proved), Some(_)) => {
                let is_empty = proved.is_empty();
                records = proved;
                whole(if is_empty { Completeness::Roots } else { Completeness::Words })
            }
            (_, None) => whole(Completeness::Unproved),
            (told, Some(version)) => {
                match self.roots(undone_since, &header, version).explained(view, &listed.events)? {
                    // In a block with other events, roots do not show that one is missing.
                    Some(explained)
                        if matches!(told, TipProofOutcome::Less) && explained.until.hash == header.hash =>
                    {
                        self.was_late
                            .then_some(ExplainedHead { completeness: Completeness::Unproved, ..explained })
                    }
                    explained => explained,
                }
            }
        };
        // Verified roots show by themselves that events are missing. Otherwise the node may have pruned them.
        let is_proved = explained.as_ref().is_some_and(|explained| explained.completeness.is_proved());
        if !is_proved && undone_since.is_none() && self.has_pruned(view, &header)? {
            return Ok(FoundChanges::NoEvents);
        }
        let is_whole = explained.as_ref().is_some_and(|explained| explained.until.hash == header.hash);
        let seen = listed.events.iter().map(|event| (event.number, event.fingerprint)).collect();
        let explained = match explained {
            _ if !is_whole && self.events == EventPolicy::Trusted => whole(Completeness::Refuted),
            explained => explained,
        };
        let Some(ExplainedHead { until, storage_root, completeness }) = explained else {
            let ids = listed.events.iter().filter_map(|event| event.agent).collect();
            return Ok(FoundChanges::Unexplained(UnexplainedChanges { ids, seen, newest: header }));
        };
        let is_new = |event: &&Announced| {
            undone_since.is_some()
                || event.fingerprint == 0
                || !self.seen.contains(&(event.number, event.fingerprint))
        };
        let announced: Vec<u64> = listed.events.iter().filter_map(|event| event.agent).collect();
        let contradicted = account
            .filter(|_| undone_since.is_none())
            .and_then(|account| self.contradicted(account, &announced, completeness.is_proved()));
        listed.events.retain(|event| event.number <= until.number);
        listed.moments.retain(|_, moment| moment.number <= until.number);
        let version = version.zip(storage_root);
        Ok(FoundChanges::Changed(Box::new(ChangeSet {
            until,
            newest: header,
            version: version.map(|(version, storage_root)| RegistryVersion { storage_root, ..version }),
            completeness,
            records,
            contradicted,
            undone_since,
            from: listed.from,
            ids: listed.events.iter().filter(is_new).filter_map(|event| event.agent).collect(),
            events: listed.events,
            seen,
            moments: listed.moments,
            last_event: listed.last.filter(|_| undone_since.is_none()),
            log_range: listed.range,
            ahead: None,
        })))
    }

    /// Returns the inputs of a proof at the newest block, at which the registry has this version.
    fn tip_proof(&self, version: Option<RegistryVersion>) -> Option<TipProof<'_>> {
        let Base::Rows(rows) = &self.base else { return None };
        let (newest, seen) = (version?, rows.version?);
        let code =
            self.code.filter(|code| code.hash == newest.code_hash && code.shows >= Provable::Records)?;
        (seen.code_hash == newest.code_hash).then_some(TipProof {
            registry: self.registry,
            layout: self.layout.unwrap_or(Layout::AGENT_REGISTRY),
            block: self.block.number,
            seen: seen.storage_root,
            newest: newest.storage_root,
            before: self.before.as_ref(),
            may_refute: code.shows == Provable::Events && !rows.is_open,
        })
    }

    /// Returns the known storage roots. Slices of several blocks count as rows of the first one, and events
    /// tell the changes since. After a reorg, the rows go back at least to the last canonical block.
    fn roots<'a>(
        &self,
        undone_since: Option<Checkpoint>,
        newest: &'a Header,
        version: RegistryVersion,
    ) -> StorageRoots<'a> {
        let block = self.block.number;
        let (left, seen, whole_after) = match (&self.base, undone_since) {
            (Base::Rows(_), Some(since)) => (since.number, None, 0),
            (Base::Rows(rows), None) => (block, rows.version.map(|version| version.storage_root), block + 1),
            (Base::Slices { blocks, .. }, undone_since) => {
                let last = blocks.last().map_or(0, |last| last.number);
                (block, None, last.max(if undone_since.is_none() { block + 1 } else { 0 }))
            }
        };
        StorageRoots {
            registry: self.registry,
            left,
            seen,
            newest,
            newest_root: version.storage_root,
            whole_after,
        }
    }

    /// Returns the first agent with proved slots that differ from its record. Agents with events are left
    /// out: whether their events tell all changes is proved elsewhere.
    fn contradicted(
        &self,
        account: &Account,
        announced: &[u64],
        is_proved: bool,
    ) -> Option<ContradictedRecord> {
        let Base::Rows(rows) = &self.base else { return None };
        let layout = self.layout.unwrap_or(Layout::AGENT_REGISTRY);
        let mut values = account.values.as_slice();
        for ExpectedRecord { id, row, full } in &rows.records {
            let (own, rest) = values.split_at_checked(layout.record_slots(*id).len())?;
            if !announced.contains(id) && !layout.holds(own, row, full) {
                let is_untrue = is_proved && !rows.is_open;
                return Some(if is_untrue {
                    ContradictedRecord::Untrue(*id)
                } else {
                    ContradictedRecord::Unannounced(*id)
                });
            }
            values = rest;
        }
        None
    }

    /// Returns whether the node returns no event of the block known to have one.
    fn has_pruned(&self, view: &View, header: &Header) -> Result<bool, Halt> {
        let Some(known) = self.known_event.filter(|number| *number <= header.number) else {
            return Ok(false);
        };
        Ok(!view.logs(&self.logs(header, known, known))?.is_ok_and(|found| found.is_any))
    }

    /// Returns the query for events of blocks `from` to `to`, both inclusive.
    fn logs(&self, newest: &Header, from: u64, to: u64) -> LogsQuery {
        let most_calls = self.total / AGENTS_PER_CALL + LOG_CALLS;
        // The node may accept longer ranges by now: one is tried if the shorter one would take too many
        // calls.
        let blocks = newest.number.saturating_sub(self.block.number);
        let fits = |range: u64| blocks.div_ceil(range.max(1)) <= most_calls;
        let range =
            self.log_range.filter(|(range, refreshes)| *refreshes < LOG_RANGE_REFRESHES && fits(*range));
        let range = range.map(|(range, _)| range);
        LogsQuery { registry: self.registry, filter: None, from, to, range, most_calls, may_end_early: false }
    }
}
