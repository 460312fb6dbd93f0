//! The outcome of a search for changes.

use std::collections::{BTreeMap, BTreeSet};

use super::{checkpoint::Checkpoint, phase::RegistryVersion, state::KnownCode};
use crate::{
    chain::{
        Header,
        logs::{Announced, FoundLogs, StatusMoment, merge_moment},
    },
    registry::row::Row,
};

#[derive(Clone, Debug)]
pub(super) struct ChangeSearchOutcome {
    /// The registry's version at the newest block; `None` if the node serves no proofs, or the code is not
    /// known.
    pub(super) version: Option<RegistryVersion>,
    /// The registry's code, if it was read.
    pub(super) code: Option<KnownCode>,
    pub(super) changes: FoundChanges,
}

#[derive(Clone, Debug)]
pub(super) enum FoundChanges {
    /// Nothing changed up to this block.
    Nothing(Header),
    /// Agents had events, or there is a newer block.
    Changed(Box<ChangeSet>),
    /// The registry has changed in a way that no event tells.
    Unexplained(UnexplainedChanges),
    /// The agents that had an event since the index's block:
    /// [`before`](super::find_changes::FindChanges::before) is needed.
    Named(BTreeSet<u64>),
    /// The node serves no logs, or has pruned them.
    NoEvents,
    /// A reorg replaced the index's block: [`older`](super::find_changes::FindChanges::older) is needed.
    NotCanonical,
    /// No known block is canonical.
    AnotherChain,
}

/// The events of a search that do not tell all changes.
#[derive(Clone, Debug)]
pub(super) struct UnexplainedChanges {
    /// Agents that had an event.
    pub(super) ids: BTreeSet<u64>,
    /// Heights and fingerprints of the events.
    pub(super) seen: BTreeSet<(u64, u64)>,
    pub(super) newest: Header,
}

/// Evidence that the events tell all changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completeness {
    /// Storage roots prove it.
    Roots,
    /// The words of agents' records alone prove it.
    Words,
    /// Nothing is known against it.
    Unproved,
    /// Storage roots disprove it; the rows followed the events all the same.
    Refuted,
    /// Events were not requested.
    Unasked,
}

impl Completeness {
    pub(super) const fn is_proved(self) -> bool {
        matches!(self, Self::Roots | Self::Words)
    }
}

/// An agent without an event, with a proved record that differs from its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContradictedRecord {
    /// Its event may be late or hidden.
    Unannounced(u64),
    /// There is no such event: its row was never true.
    Untrue(u64),
}

impl ContradictedRecord {
    pub(super) const fn id(self) -> u64 {
        match self {
            Self::Unannounced(id) | Self::Untrue(id) => id,
        }
    }
}

/// Changes between the index's block and a later one.
#[derive(Clone, Debug)]
pub(super) struct ChangeSet {
    /// The newest block up to which events tell all changes.
    pub(super) until: Header,
    pub(super) newest: Header,
    /// The registry's version at `until`, if known.
    pub(super) version: Option<RegistryVersion>,
    pub(super) completeness: Completeness,
    /// Current records that a proof has shown to have changed.
    pub(super) records: BTreeMap<u64, Row>,
    pub(super) contradicted: Option<ContradictedRecord>,
    /// The newest canonical checkpoint, if a reorg replaced the index's block.
    pub(super) undone_since: Option<Checkpoint>,
    /// The first block of which events were requested.
    pub(super) from: u64,
    /// Agents that had an event.
    pub(super) ids: BTreeSet<u64>,
    /// The events since that block, in full.
    pub(super) events: Vec<Announced>,
    /// The same events by height and fingerprint.
    pub(super) seen: BTreeSet<(u64, u64)>,
    /// Each agent's last event that set its status.
    pub(super) moments: BTreeMap<u64, StatusMoment>,
    /// The highest block with an event; `None` after a reorg of the index's block.
    pub(super) last_event: Option<u64>,
    /// Blocks of the longest log range that was answered, if one was refused.
    pub(super) log_range: Option<u64>,
    /// The block at which the search began, and the registry's version there, if it was seen: its logs may
    /// not be served yet.
    pub(super) ahead: Option<(Checkpoint, RegistryVersion)>,
}

impl ChangeSet {
    /// Creates an empty set of changes up to a block, as far as that is known without events.
    pub(super) const fn until(
        until: Header,
        version: Option<RegistryVersion>,
        completeness: Completeness,
    ) -> Self {
        Self {
            until,
            newest: until,
            version,
            completeness,
            records: BTreeMap::new(),
            contradicted: None,
            undone_since: None,
            from: until.number.saturating_add(1),
            ids: BTreeSet::new(),
            events: Vec::new(),
            seen: BTreeSet::new(),
            moments: BTreeMap::new(),
            last_event: None,
            log_range: None,
            ahead: None,
        }
    }

    /// Returns whether the agents were read without events.
    pub(super) fn is_without_events(&self) -> bool {
        self.completeness == Completeness::Unasked
    }
}

/// The events that were listed.
pub(super) struct EventListing {
    pub(super) events: Vec<Announced>,
    pub(super) moments: BTreeMap<u64, StatusMoment>,
    /// The first block of which events were requested.
    pub(super) from: u64,
    /// The last canonical block, if a reorg has undone later ones.
    pub(super) undone_since: Option<Checkpoint>,
    pub(super) last: Option<u64>,
    pub(super) range: Option<u64>,
}

impl EventListing {
    pub(super) fn of(found: &FoundLogs, from: u64) -> Self {
        let (events, moments) = (found.events.clone(), found.moments.clone());
        Self { events, moments, from, undone_since: None, last: found.last, range: found.range }
    }

    pub(super) fn extend(&mut self, earlier: &FoundLogs, from: u64) {
        self.from = from;
        self.events.extend(&earlier.events);
        for (id, moment) in &earlier.moments {
            merge_moment(&mut self.moments, *id, *moment);
        }
    }
}
