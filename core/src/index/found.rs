//! The outcome of a search for changes.

use std::collections::{BTreeMap, BTreeSet};

use super::state::{KnownCode, Version};
use crate::chain::{
    Header,
    logs::{Announced, Moment},
};

/// The outcome of the search.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The registry's version at the newest block; `None` if the node serves no proofs, or the code is not
    /// known.
    pub(super) version: Option<Version>,
    /// The registry's code, if it was read.
    pub(super) code: Option<KnownCode>,
    pub(super) changes: FoundChanges,
}

/// What was found of changes.
#[derive(Clone, Debug)]
pub(super) enum FoundChanges {
    /// Nothing changed up to this block.
    Nothing(Header),
    /// Agents had events, or there is a newer block.
    Changed(Box<Changed>),
    /// The registry has changed in a way that no event tells.
    Unexplained(Unexplained),
    /// The agents that had an event since the index's block: [`before`](super::find_changes::FindChanges::before) is needed.
    Named(BTreeSet<u64>),
    /// The node serves no logs, or has pruned them.
    NoEvents,
    /// A reorg replaced the index's block: [`older`](super::find_changes::FindChanges::older) is needed.
    NotCanonical,
    /// No known block is canonical.
    AnotherChain,
}

/// What is known where events do not tell all changes.
#[derive(Clone, Debug)]
pub(super) struct Unexplained {
    /// Agents that had an event.
    pub(super) ids: BTreeSet<u64>,
    /// The events.
    pub(super) seen: BTreeSet<(u64, u64)>,
    /// The newest block.
    pub(super) newest: Header,
}

/// What changed between the index's block and a later one.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    /// The newest block up to which events tell all changes.
    pub(super) until: Header,
    /// Seconds from that block to the newest.
    pub(super) behind: u64,
    /// The registry's version there, if known.
    pub(super) version: Option<Version>,
    /// It is proved that the events tell all changes.
    pub(super) is_verified: bool,
    /// The words of agents' records alone show it.
    pub(super) proves_words: bool,
    /// The newest block.
    pub(super) newest: Header,
    /// An agent without an event whose proved record is another one than its row: its event is late or hidden.
    pub(super) contradicted: Option<u64>,
    /// There is no such event: its row was never true.
    pub(super) was_untrue: bool,
    /// Storage roots show that they do not.
    pub(super) is_incomplete: bool,
    /// Events were not gone by.
    pub(super) without_events: bool,
    /// The newest canonical checkpoint, if a reorg replaced the index's block.
    pub(super) undone_since: Option<u64>,
    /// Its time, unix seconds.
    pub(super) undone_seconds: u64,
    /// The first block of which events were asked for.
    pub(super) from: u64,
    /// Agents that had an event.
    pub(super) ids: BTreeSet<u64>,
    /// The events since that block, in full.
    pub(super) events: Vec<Announced>,
    /// The same by height and fingerprint.
    pub(super) seen: BTreeSet<(u64, u64)>,
    /// Each agent's last event that set its status.
    pub(super) moments: BTreeMap<u64, Moment>,
    /// The highest block with an event; `None` after a reorg of the index's block.
    pub(super) last_event: Option<u64>,
    /// Blocks of the longest log range that was answered, if one was refused.
    pub(super) log_range: Option<u64>,
}

impl Changed {
    /// Nothing, up to a block.
    pub(super) fn until(until: Header) -> Self {
        Self {
            until,
            behind: 0,
            version: None,
            is_verified: false,
            proves_words: false,
            newest: until,
            contradicted: None,
            was_untrue: false,
            is_incomplete: false,
            without_events: false,
            undone_since: None,
            undone_seconds: 0,
            from: 0,
            ids: BTreeSet::new(),
            events: Vec::new(),
            seen: BTreeSet::new(),
            moments: BTreeMap::new(),
            last_event: None,
            log_range: None,
        }
    }
}
