//! Which agents a list is of, in which order, and where it begins: the parameters of `/agents` that only an index of the registry can
//! answer.

use alloy_primitives::Address;

use crate::registry::{
    agent::Status,
    cursor::{AgentCursor, SortKey},
};

/// Characters that a text to search for may have at most.
pub const TEXT_MAX: usize = 200;
/// Up to this agent of a list pages are found by their number; cursors go further.
pub const NUMBERED_MAX: u64 = 5_000;

/// Which agents. All that are set have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AgentFilter {
    /// With this person liable.
    pub haftungsperson: Option<Address>,
    /// Registered by this wallet.
    pub creator: Option<Address>,
    /// Children of this agent; 0 for roots.
    pub parent: Option<u64>,
    /// So deep in the lineage.
    pub generation: Option<u64>,
    /// In this state.
    pub status: Option<Status>,
    /// Compliant, or not.
    pub compliant: Option<bool>,
    /// With these words in their operational scope, separated by single spaces; the last may be the beginning of one.
    pub text: Option<String>,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sort {
    /// By what.
    pub key: SortKey,
    /// The highest first.
    pub is_descending: bool,
}

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// The page of this number, from 1.
    Page(u64),
    /// Behind a place in the list.
    Cursor(AgentCursor),
}

/// A page of a list of agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentQuery {
    /// Which agents.
    pub filter: AgentFilter,
    /// In which order.
    pub sort: Sort,
    /// Where it begins.
    pub start: Start,
    /// Agents per page.
    pub limit: u64,
}

impl Start {
    /// The cursor; none where it is a page's number.
    pub(crate) const fn cursor(self) -> Option<AgentCursor> {
        match self {
            Self::Page(_) => None,
            Self::Cursor(cursor) => Some(cursor),
        }
    }
}

impl Sort {
    /// Its spelling in a query string.
    pub(crate) const fn name(self) -> &'static str {
        match (self.key, self.is_descending) {
            (SortKey::Id, false) => "id",
            (SortKey::Id, true) => "-id",
            (SortKey::Attestation, false) => "attestation",
            (SortKey::Attestation, true) => "-attestation",
        }
    }
}
