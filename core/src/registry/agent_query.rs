//! Filter, order and start of a list of agents: the parameters of `/agents` that need an index of the
//! registry.

use alloy_primitives::Address;

use crate::registry::{
    agent::Status,
    cursor::{AgentCursor, SortKey},
};

/// The longest text to search for, in characters.
pub const TEXT_MAX: usize = 200;
/// The last position in a list that page numbers reach; cursors reach further.
pub const NUMBERED_MAX: u64 = 5_000;

/// Conditions on the agents of a list. All that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AgentFilter {
    /// The wallet of the liable person.
    pub haftungsperson: Option<Address>,
    /// The wallet that registered them.
    pub creator: Option<Address>,
    /// Their parent; 0 for roots.
    pub parent: Option<u64>,
    /// Their depth in the lineage.
    pub generation: Option<u64>,
    /// Their status.
    pub status: Option<Status>,
    /// True for compliant agents, false for the others.
    pub compliant: Option<bool>,
    /// Words in their operational scope, separated by single spaces. The last may be the beginning of a word.
    pub text: Option<String>,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sort {
    /// The key to sort by.
    pub key: SortKey,
    /// True if the highest come first.
    pub is_descending: bool,
}

/// The start of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// At the page with this number, counted from 1.
    Page(u64),
    /// Behind this position in the list.
    Cursor(AgentCursor),
}

/// A page of a list of agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentQuery {
    /// Conditions on the agents.
    pub filter: AgentFilter,
    /// The order.
    pub sort: Sort,
    /// The start of the page.
    pub start: Start,
    /// Agents per page.
    pub limit: u64,
}

impl Start {
    /// Returns the cursor; `None` for a page number.
    pub(crate) const fn cursor(self) -> Option<AgentCursor> {
        match self {
            Self::Page(_) => None,
            Self::Cursor(cursor) => Some(cursor),
        }
    }
}

impl Sort {
    /// Returns the order as a query string writes it.
    pub(crate) const fn name(self) -> &'static str {
        match (self.key, self.is_descending) {
            (SortKey::Id, false) => "id",
            (SortKey::Id, true) => "-id",
            (SortKey::Attestation, false) => "attestation",
            (SortKey::Attestation, true) => "-attestation",
        }
    }
}
