//! Pages of agents: the items of a page, and the documented shapes of `/agents`.

use alloy_primitives::U256;
use serde::Serialize;

use crate::{
    eth::as_of::IndexedAt,
    eth::json::{self, is_false},
    registry::agent::AgentId,
    registry::agent_item::{AgentListItem, AgentSummary},
    registry::agent_query::{AgentQuery, Start},
    registry::cursor::AgentCursor,
};

/// A page of a list. Neither field is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Page {
    /// Page number, from 1.
    pub number: u64,
    /// Items per page, from 1.
    pub limit: u64,
}

impl Page {
    /// Returns the number of items before this page; saturates.
    pub const fn skipped(self) -> u128 {
        (self.number as u128).saturating_sub(1).saturating_mul(self.limit as u128)
    }

    /// Returns the number of pages that `total` items take.
    pub fn count(self, total: U256) -> U256 {
        // Limb by limb: the division of two `U256` is 8 KB of code.
        let (limit, mut rest, mut limbs) = (u128::from(self.limit.max(1)), 0, total.into_limbs());
        for limb in limbs.iter_mut().rev() {
            let dividend = rest << 64 | u128::from(*limb);
            // The rest is below the limit, so the quotient is one limb.
            (*limb, rest) = ((dividend / limit) as u64, dividend % limit);
        }
        U256::from_limbs(limbs) + U256::from(rest > 0)
    }

    /// Returns the items of this page.
    pub fn slice<T>(self, items: &[T]) -> &[T] {
        slice(items, self.skipped(), self.limit)
    }
}

/// Returns at most `limit` of `items` from `offset` on; none beyond the end.
pub fn slice<T>(items: &[T], offset: u128, limit: u64) -> &[T] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(items.len());
    let end = start.saturating_add(usize::try_from(limit).unwrap_or(usize::MAX)).min(items.len());
    items.get(start..end).unwrap_or_default()
}

/// The answer of `/agents`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentPage {
    /// Number of agents after filtering.
    #[serde(with = "json::Integer")]
    pub total: U256,
    /// The page's number.
    pub page: u64,
    /// The page size used: the one requested, capped.
    pub limit: u64,
    /// Number of pages.
    #[serde(with = "json::Integer")]
    pub total_pages: U256,
    /// The agents, by ascending id.
    pub data: Vec<AgentListItem>,
    /// Unreadable agents, which are not in the list: without a filter those of this page, else all. Absent
    /// where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<AgentId>,
}

impl AgentPage {
    /// Makes the page with these agents.
    pub fn of(page: Page, total: U256, data: Vec<AgentListItem>) -> Self {
        let total_pages = page.count(total);
        Self { total, page: page.number, limit: page.limit, total_pages, data, unreadable: Vec::new() }
    }
}

/// The answer of `/agents` from an index: filtered by more than a status, searched, sorted or with a cursor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentList {
    /// Number of agents after filtering. Absent, as are `page` and `totalPages`, if the request has a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Present and true where there may be more than `total`.
    #[serde(skip_serializing_if = "is_false")]
    pub total_is_lower_bound: bool,
    /// The page's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<u64>,
    /// The page size used: the one requested, capped.
    pub limit: u64,
    /// Number of pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_pages: Option<u64>,
    /// The agents.
    pub data: Vec<AgentSummary>,
    /// The cursor of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<AgentCursor>,
    /// The block of the answer.
    pub as_of: IndexedAt,
    /// Unreadable agents of the registry, which are in no list. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<AgentId>,
}

impl AgentList {
    /// Makes a page of `query`, with the total number of agents and whether there may be more.
    pub fn of(
        query: &AgentQuery,
        (total, total_is_lower_bound): (u64, bool),
        data: Vec<AgentSummary>,
        next: Option<AgentCursor>,
        as_of: IndexedAt,
    ) -> Self {
        let limit = query.limit;
        let page = match query.start {
            Start::Page(number) => Some(number),
            Start::Cursor(_) => None,
        };
        let total = page.map(|_| total);
        let total_pages = total.map(|total| total.div_ceil(limit.max(1)));
        Self {
            total,
            total_is_lower_bound,
            page,
            limit,
            total_pages,
            data,
            next,
            as_of,
            unreadable: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_page_number_overflows(number in 1u64.., limit in 1u64.., offset: u128) {
            let page = Page { number, limit };
            prop_assert!(page.slice(&[1, 2, 3]).len() <= 3);
            prop_assert!(slice(&[1, 2, 3], offset, limit).len() <= 3);
            prop_assert!(page.count(U256::MAX) >= U256::from(1));
        }
    }
}
