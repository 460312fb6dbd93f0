//! What a search for changes starts from: the index's rows or slices, and how far it relies on events.

use super::{checkpoint::Checkpoint, phase::RegistryVersion};
use crate::{
    chain::Header,
    registry::row::{Row, RowDetail},
};

/// An agent's record as the index has it, to be compared with its proved slots.
#[derive(Clone, Debug)]
pub(super) struct ExpectedRecord {
    pub(super) id: u64,
    pub(super) row: Row,
    pub(super) full: RowDetail,
}

/// State from which a search for changes starts.
#[derive(Clone, Debug)]
pub(super) enum Base {
    Rows(Box<SeenRows>),
    Slices {
        /// The slices' blocks, by height.
        blocks: Vec<Checkpoint>,
        /// The block of all slices, if they are of one and the node has its state.
        pinned: Option<Header>,
    },
}

/// Rows of one block.
#[derive(Clone, Debug)]
pub(super) struct SeenRows {
    /// The registry's version that was seen at their block, if any.
    pub(super) version: Option<RegistryVersion>,
    /// The version of a later block that was seen with the last search.
    pub(super) ahead: Option<(Checkpoint, RegistryVersion)>,
    /// The last block that changed the rows, unless it is confirmed, and whether that is due.
    pub(super) unsettled: Option<(Checkpoint, bool)>,
    /// Records to prove.
    pub(super) records: Vec<ExpectedRecord>,
    /// Block time, in unix seconds, from which on events are requested even if nothing has changed.
    pub(super) asks_at: Option<u64>,
    /// The rows may lack late events.
    pub(super) is_open: bool,
}

/// The role of events in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventPolicy {
    /// Events have to tell all changes.
    Checked,
    /// The search follows events, whether or not they tell all changes.
    Trusted,
    /// Events are not requested.
    Ignored,
}
