//! Finds what changed since the index's block, with one query.
//!
//! The root of the registry's storage, proved against the newest block's state root, says whether anything
//! did. Events then say what. Whether they tell all of it is proved at the newest block: with the words that
//! the agents' records had before, the storage has to have the root that was seen before. Where events change
//! more of it, storage roots at their blocks show it, if the node has them: between two blocks with events the
//! root has to stay the same. Reorgs are found by comparing the known blocks with canonical headers.
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

use alloy_primitives::{Address, B256, U256};

use super::{
    checkpoint::Checkpoint,
    found::{Changed, Found, FoundChanges, Unexplained},
    state::{KnownCode, Version},
    tip_proof::{TipProof, Told},
};
use crate::{
    chain::{
        Halt, Header, Proof, ProofKey, ProofParts, Query, QueryError, RunError, View,
        logs::{Announced, LogsQuery, merge_moment},
        reader::Registry,
    },
    evidence::{Account, Layout},
    registry::row::{Row, RowDetail},
};

/// Agents that one call usually reads: what `eth_getLogs` calls are weighed against.
const AGENTS_PER_CALL: u64 = 300;
/// `eth_getLogs` calls that are always worth it.
const LOG_CALLS: u64 = 8;
/// Refreshes after which longer log ranges are tried again.
pub(super) const LOG_RANGE_REFRESHES: u32 = 100;
/// Older blocks compared at once in search of the last canonical one.
const OLDER: usize = 16;
/// Ranges of blocks without events that are checked by storage roots; of more, the first and the last one.
const MOST_GAPS: usize = 32;

/// The newest block, and the registry's own figures there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegistryHead {
    pub(super) header: Header,
    /// The number of agents.
    pub(super) total: u64,
    pub(super) grace_seconds: U256,
}

/// An agent's record as the index has it, to be held against its proved slots.
#[derive(Clone, Debug)]
pub(super) struct ExpectedRecord {
    pub(super) id: u64,
    pub(super) row: Row,
    pub(super) full: RowDetail,
}

/// Finds what changed.
#[derive(Clone, Debug)]
pub(super) struct FindChanges {
    pub(super) registry: Address,
    /// The storage layout of code that the operator vouches for.
    pub(super) layout: Option<Layout>,
    /// Code that the operator vouches for to keep all state in its own storage.
    pub(super) self_contained_code: Option<B256>,
    /// The block of the rows, and the registry's version that was seen there, if any.
    pub(super) block: Checkpoint,
    pub(super) version: Option<Version>,
    /// The code that was last read.
    pub(super) code: Option<KnownCode>,
    /// Records to prove.
    pub(super) records: Vec<ExpectedRecord>,
    /// The number of agents, by the rows.
    pub(super) total: u64,
    /// The first block of which events are asked for.
    pub(super) from: u64,
    /// Events that have been read.
    pub(super) seen: BTreeSet<(u64, u64)>,
    /// The time of a block, unix seconds, from which on events are asked for even if nothing has changed.
    pub(super) asks_at: Option<u64>,
    /// The rows may lack events that are late.
    pub(super) is_open: bool,
    /// Events are sometimes late: that they do not tell a change says little.
    pub(super) was_late: bool,
    /// The rows of the agents that had an event, once needed.
    pub(super) before: Option<BTreeMap<u64, Row>>,
    /// The blocks of slices of several blocks, by height; else empty.
    pub(super) pass: Vec<Checkpoint>,
    /// The block of all slices, if they are of one and the node has its state.
    pub(super) pinned: Option<Header>,
    /// Older checkpoints, the highest first, once needed.
    pub(super) older: Option<Vec<Checkpoint>>,
    /// A block known to have an event: a node that returns none has pruned its logs.
    pub(super) known_event: Option<u64>,
    /// Blocks per `eth_getLogs` that the node accepts, and the refreshes since that was detected.
    pub(super) log_range: Option<(u64, u32)>,
    /// Goes by no events.
    pub(super) without_events: bool,
    /// Goes by the events, whether or not they tell all changes.
    pub(super) trusts_events: bool,
}

impl Query for FindChanges {
    type Output = Found;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<Found, Halt> {
        let mut code = None;
        let account = self.account(view, &mut code)?;
        let version = account
            .as_ref()
            .map(|account| Version { storage_root: account.storage_root, code_hash: account.code_hash });
        // Without a version, the registry's figures show that the node has the chain and its newest blocks.
        let header = match version {
            Some(_) => view.header()?,
            None => RegistryHead::read(view, self.registry)?.header,
        };
        let changes = self.changes(view, header, version, account.as_ref())?;
        Ok(Found { version, code, changes })
    }

    fn reads_other_blocks(&self) -> bool {
        true
    }
}

impl FindChanges {
    /// The registry's proved account, if its storage root is its version.
    fn account(&self, view: &View, code: &mut Option<KnownCode>) -> Result<Option<Account>, Halt> {
        let layout = self.layout.unwrap_or(Layout::AGENT_REGISTRY);
        let slots = self.records.iter().flat_map(|record| layout.record_slots(record.id)).collect();
        let key = ProofKey { contract: self.registry, slots, parts: ProofParts::Newest };
        let proved = |proof: &Proof| Account::proved(&proof.block, &proof.proof, self.registry, &key.slots);
        let Some(proof) = view.proof(&key)? else { return Ok(None) };
        let mut account = proved(proof);
        if account.is_none() {
            // The node answered the two at different blocks: now the block is pinned.
            let key = ProofKey { parts: ProofParts::Pinned, ..key.clone() };
            account = view.proof(&key)?.and_then(proved);
        }
        let Some(account) = account else { return Ok(None) };
        if let Some(known) = self.code.filter(|code| code.hash == account.code_hash) {
            return Ok(Some(account).filter(|_| known.is_self_contained));
        }
        let key = ProofKey { parts: ProofParts::Evidence, ..key.clone() };
        let Some(proof) = view.proof(&key)? else { return Ok(None) };
        let Some(account) = proved(proof) else { return Ok(None) };
        let has_layout = Layout::is_of(self.layout, &proof.code, account.code_hash);
        let is_self_contained = has_layout || self.self_contained_code == Some(account.code_hash);
        let hash = account.code_hash;
        *code = Some(KnownCode { hash, is_self_contained, has_layout, proves_words: false });
        Ok(Some(account).filter(|_| is_self_contained))
    }

    fn changes(
        &self,
        view: &View,
        header: Header,
        version: Option<Version>,
        account: Option<&Account>,
    ) -> Result<FoundChanges, Halt> {
        let block = self.block;
        if header.number < block.number && header.timestamp <= block.seconds {
            // The node lags. A reorg to a lower height has a later timestamp.
            return Err(RunError::BlockUnavailable.into());
        }
        let is_same = version.is_some() && version == self.version;
        let asks_again = self.asks_at.is_some_and(|at| header.timestamp >= at);
        if self.pass.is_empty() && !asks_again && (header.hash == block.hash || is_same) {
            let contradicted =
                account.filter(|_| is_same).and_then(|account| self.contradicted(account, &[]));
            return Ok(match contradicted {
                None => FoundChanges::Nothing(header),
                Some(_) => FoundChanges::Changed(Box::new(Changed {
                    version,
                    is_verified: true,
                    contradicted,
                    was_untrue: !self.is_open,
                    from: header.number.saturating_add(1),
                    ..Changed::until(header)
                })),
            });
        }
        let known = if self.pass.is_empty() { std::slice::from_ref(&block) } else { &self.pass };
        let canonical = known_canonical(view, known, &header);
        if self.without_events {
            return Ok(match canonical? {
                Some(since) if since.number == known.last().map_or(0, |last| last.number) => {
                    let until = self.pinned.unwrap_or(header);
                    FoundChanges::Changed(Box::new(Changed { without_events: true, ..Changed::until(until) }))
                }
                _ => FoundChanges::AnotherChain,
            });
        }
        if version.is_none() || self.trusts_events {
            // It is going to be asked, and shares this round trip.
            self.has_pruned(view, &header).ok();
        }
        let found = view.logs(&self.events(&header, self.from, header.number))?;
        let canonical = canonical?;
        let Ok(found) = found else {
            let is_undone = !self.pass.is_empty() && canonical != self.pass.last().copied();
            return Ok(if is_undone { FoundChanges::AnotherChain } else { FoundChanges::NoEvents });
        };
        let (header, version) = match found.unasked {
            // The node does not serve the newest block's logs yet.
            Some(unasked) if unasked <= block.number + 1 => return Err(RunError::BlockUnavailable.into()),
            Some(unasked) => {
                let (header, root) =
                    (view.header_at(unasked - 1), view.storage_root_at(self.registry, unasked - 1));
                let (header, root) = (header?, root?);
                (header, version.zip(root).map(|(version, storage_root)| Version { storage_root, ..version }))
            }
            None => (header, version),
        };
        let (mut events, mut moments) = (found.events.clone(), found.moments.clone());
        let (mut from, mut undone_since, mut undone_seconds) = (self.from, None, 0);
        match canonical {
            // The last canonical block counts; slices read at later ones are read again.
            Some(since) if since.number < known.last().map_or(0, |last| last.number) => {
                (undone_since, undone_seconds) = (Some(since.number), since.seconds);
            }
            Some(_) => {}
            None if !self.pass.is_empty() => return Ok(FoundChanges::AnotherChain),
            None => {
                let Some(older) = &self.older else { return Ok(FoundChanges::NotCanonical) };
                let Some((since, seconds)) = last_canonical(view, older, &header)? else {
                    return Ok(FoundChanges::AnotherChain);
                };
                let to = header.number.min(from.saturating_sub(1));
                from = from.min(since.saturating_add(1));
                let Ok(earlier) = view.logs(&self.events(&header, from, to))? else {
                    return Ok(FoundChanges::NoEvents);
                };
                events.extend(&earlier.events);
                for (id, moment) in &earlier.moments {
                    merge_moment(&mut moments, *id, *moment);
                }
                (undone_since, undone_seconds) = (Some(since), seconds);
            }
        }
        let told = match undone_since {
            None if self.pass.is_empty() => {
                self.tip_proof(version).map_or(Ok(Told::Unknown), |proof| proof.told(view, &events))?
            }
            _ => Told::Unknown,
        };
        if let Told::Needs(ids) = told {
            return Ok(FoundChanges::Named(ids));
        }
        let explained = match version {
            Some(version) if told == Told::All => {
                let storage_root = Some(version.storage_root);
                Some(Explained { until: header, storage_root, is_verified: true })
            }
            Some(version) => self.explained(view, undone_since, &events, &header, version)?,
            None => Some(Explained { until: header, storage_root: None, is_verified: false }),
        };
        // Of a block with other events, roots do not show that one is missing.
        let is_refuted = |explained: &Explained| told == Told::Less && explained.until.hash == header.hash;
        let explained = explained.and_then(|explained| match is_refuted(&explained) {
            true if self.was_late => Some(Explained { is_verified: false, ..explained }),
            true => None,
            false => Some(explained),
        });
        // Verified roots show by themselves that events are missing. Otherwise the node may have pruned them.
        let is_verified = explained.as_ref().is_some_and(|explained| explained.is_verified);
        if !is_verified && undone_since.is_none() && self.has_pruned(view, &header)? {
            return Ok(FoundChanges::NoEvents);
        }
        let is_incomplete = explained.as_ref().is_none_or(|explained| explained.until.hash != header.hash);
        let seen: BTreeSet<(u64, u64)> =
            events.iter().map(|event| (event.number, event.fingerprint)).collect();
        let explained = match explained {
            _ if is_incomplete && self.trusts_events => {
                Explained { until: header, storage_root: None, is_verified: false }
            }
            Some(explained) => explained,
            None => {
                let ids = events.iter().filter_map(|event| event.agent).collect();
                return Ok(FoundChanges::Unexplained(Unexplained { ids, seen, newest: header }));
            }
        };
        let until = explained.until;
        let is_new = |event: &&Announced| match undone_since {
            Some(_) => true,
            None => event.fingerprint == 0 || !self.seen.contains(&(event.number, event.fingerprint)),
        };
        let announced: Vec<u64> = events.iter().filter_map(|event| event.agent).collect();
        let contradicted = account
            .filter(|_| undone_since.is_none())
            .and_then(|account| self.contradicted(account, &announced));
        events.retain(|event| event.number <= until.number);
        let storage_root = explained
            .storage_root
            .or(version.filter(|_| until.hash == header.hash).map(|version| version.storage_root));
        Ok(FoundChanges::Changed(Box::new(Changed {
            until,
            behind: header.timestamp.saturating_sub(until.timestamp),
            version: version
                .zip(storage_root)
                .map(|(version, storage_root)| Version { storage_root, ..version }),
            is_verified: explained.is_verified,
            proves_words: told == Told::All && !announced.is_empty(),
            newest: header,
            contradicted,
            was_untrue: explained.is_verified && !self.is_open,
            is_incomplete: is_incomplete && self.trusts_events,
            without_events: false,
            undone_since,
            undone_seconds,
            from,
            ids: events.iter().filter(is_new).filter_map(|event| event.agent).collect(),
            events,
            seen,
            moments: moments.into_iter().filter(|(_, moment)| moment.number <= until.number).collect(),
            last_event: found.last.filter(|_| undone_since.is_none()),
            log_range: found.range,
        })))
    }

    /// What a proof at the newest block takes, where the registry has this version.
    fn tip_proof(&self, version: Option<Version>) -> Option<TipProof<'_>> {
        let (newest, seen) = (version?, self.version?);
        let code = self.code.filter(|code| code.hash == newest.code_hash && code.has_layout)?;
        (seen.code_hash == newest.code_hash).then_some(TipProof {
            registry: self.registry,
            layout: self.layout.unwrap_or(Layout::AGENT_REGISTRY),
            block: self.block.number,
            seen: seen.storage_root,
            newest: newest.storage_root,
            before: self.before.as_ref(),
            may_refute: code.proves_words && !self.is_open,
        })
    }

    /// The first agent with proved slots other than its record, apart from those that had events.
    fn contradicted(&self, account: &Account, announced: &[u64]) -> Option<u64> {
        let layout = self.layout.unwrap_or(Layout::AGENT_REGISTRY);
        let mut values = account.values.as_slice();
        for ExpectedRecord { id, row, full } in &self.records {
            let (own, rest) = values.split_at_checked(layout.record_slots(*id).len())?;
            if !announced.contains(id) && !layout.holds(own, row, full) {
                return Some(*id);
            }
            values = rest;
        }
        None
    }

    /// The newest block up to which the events tell all changes; `None` if that is no later one than the
    /// rows'. Where a node does not keep the state of a block, nothing is known against it.
    fn explained(
        &self,
        view: &View,
        undone_since: Option<u64>,
        events: &[Announced],
        newest: &Header,
        version: Version,
    ) -> Result<Option<Explained>, Halt> {
        // Slices of several blocks are those of the first one, and what events tell since.
        let left = undone_since.filter(|_| self.pass.is_empty()).unwrap_or(self.block.number);
        let known = |number: u64| match undone_since {
            _ if number == newest.number => Some(version.storage_root),
            None if number == left => self.version.map(|version| version.storage_root),
            _ => None,
        };
        let root = |number: u64| match known(number) {
            Some(root) => Ok(Some(root)),
            None => view.storage_root_at(self.registry, number),
        };
        let blocks: BTreeSet<u64> = events.iter().map(|event| event.number).collect();
        let mut gaps = gaps(left, blocks.range(left + 1..).copied(), newest.number);
        let mut is_verified = gaps.len() <= MOST_GAPS;
        if !is_verified {
            gaps.drain(1..gaps.len() - 1);
        }
        let roots: Vec<_> = gaps.iter().map(|(from, to)| (*from, root(*from), root(*to))).collect();
        for (from, before, after) in roots {
            let (Some(before), Some(after)) = (before?, after?) else {
                is_verified = false;
                continue;
            };
            if before != after {
                let last_slice = self.pass.last().map_or(0, |slice| slice.number);
                if from < last_slice || (from == left && undone_since.is_none()) {
                    return Ok(None);
                }
                // After a reorg, the rows go back at least to the last canonical block.
                let until = view.header_at(from)?;
                return Ok(Some(Explained { until, storage_root: Some(before), is_verified }));
            }
        }
        let storage_root = Some(version.storage_root);
        Ok(Some(Explained { until: *newest, storage_root, is_verified }))
    }

    /// Whether the node returns no event of the block known to have one.
    fn has_pruned(&self, view: &View, header: &Header) -> Result<bool, Halt> {
        let Some(known) = self.known_event.filter(|number| *number <= header.number) else {
            return Ok(false);
        };
        Ok(!view.logs(&self.events(header, known, known))?.is_ok_and(|found| found.is_any))
    }

    /// The events of blocks `from` to `to`, both inclusive.
    fn events(&self, newest: &Header, from: u64, to: u64) -> LogsQuery {
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

/// The newest block up to which events tell all changes, and its storage root.
struct Explained {
    until: Header,
    storage_root: Option<B256>,
    is_verified: bool,
}

/// The ranges of blocks without events after `left`, each as the block before it and its last one.
fn gaps(left: u64, blocks: impl Iterator<Item = u64>, newest: u64) -> Vec<(u64, u64)> {
    let mut from = left;
    let mut gaps = Vec::new();
    for block in blocks.take_while(|block| *block <= newest) {
        if block - 1 > from {
            gaps.push((from, block - 1));
        }
        from = block;
    }
    if newest > from {
        gaps.push((from, newest));
    }
    gaps
}

impl RegistryHead {
    pub(super) fn read(view: &View, registry: Address) -> Result<Self, Halt> {
        let registry = Registry { view, address: registry };
        let (total, grace, header) = (registry.total(), registry.grace_period(), view.header());
        let (total, grace_seconds) = (total?, grace?);
        let total = u64::try_from(total).map_err(|_| QueryError::TooManyAgents(total))?;
        Ok(Self { header: header?, total, grace_seconds })
    }
}

/// The last of these blocks, by ascending height, that is canonical with all before it.
fn known_canonical(view: &View, blocks: &[Checkpoint], head: &Header) -> Result<Option<Checkpoint>, Halt> {
    let headers: Vec<_> = blocks
        .iter()
        .take_while(|block| block.number <= head.number)
        .map(|block| (block, view.header_at(block.number)))
        .collect();
    let mut last = None;
    for (block, header) in headers {
        if header?.hash != block.hash {
            break;
        }
        last = Some(*block);
    }
    Ok(last)
}

/// The height and time of the highest canonical block of these.
fn last_canonical(view: &View, older: &[Checkpoint], head: &Header) -> Result<Option<(u64, u64)>, Halt> {
    let older: Vec<&Checkpoint> = older.iter().filter(|block| block.number <= head.number).collect();
    for blocks in older.chunks(OLDER) {
        let headers: Vec<_> = blocks.iter().map(|block| view.header_at(block.number)).collect();
        for (block, header) in blocks.iter().zip(headers) {
            if header?.hash == block.hash {
                return Ok(Some((block.number, block.seconds)));
            }
        }
    }
    Ok(None)
}
