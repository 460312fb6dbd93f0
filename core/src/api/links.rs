//! The `Link` header (RFC 8288) of one page of a list: targets of the other pages.

use std::fmt::Write;

use alloy_primitives::U256;

use crate::{
    api::route::Route,
    registry::agent_query::{AgentQuery, Start},
    registry::compliance::CompliancePage,
    registry::cursor::AgentCursor,
    registry::page::Page,
};

impl Route {
    /// Returns the `Link` header's value for this page of a list of `total` items: `first`, `prev`, `next`
    /// and `last`, as far as they exist, relative to the host. `None` for a route without pages.
    pub fn links(&self, total: U256) -> Option<String> {
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        // First item and size of this page, and the page that begins at an item.
        let (start, limit, at): (u128, u64, &dyn Fn(u128) -> Self) = match self {
            Self::Agents { page, status } => (page.skipped(), page.limit, &|start| {
                let number = start.checked_div(page.limit.into()).unwrap_or_default();
                let number = u64::try_from(number).unwrap_or(u64::MAX).saturating_add(1);
                Self::Agents { page: Page { number, ..*page }, status: *status }
            }),
            Self::Revenue { id, offset, limit } => ((*offset).into(), *limit, &|start| Self::Revenue {
                id: *id,
                offset: u64::try_from(start).unwrap_or(u64::MAX),
                limit: *limit,
            }),
            _ => return None,
        };
        let (total, limit) = (u128::from(total), u128::from(limit));
        let last = total.saturating_sub(1).checked_div(limit)?.saturating_mul(limit);
        let links = [
            ("first", Some(0)),
            // For a page beyond the end, the previous page is the last one.
            ("prev", (start > 0).then(|| start.saturating_sub(limit).min(last))),
            ("next", Some(start.saturating_add(limit)).filter(|next| *next < total)),
            ("last", Some(last)),
        ];
        let links: Vec<String> = links
            .into_iter()
            .filter_map(|(relation, start)| Some(format!("<{}>; rel=\"{relation}\"", at(start?).canonical())))
            .collect();
        Some(links.join(", "))
    }

    /// Returns the `Link` header's value for this page of a list with cursors: `first`, `prev` for a page
    /// with a number, and `next` if there are more. `None` for a route without a cursor.
    pub(crate) fn cursor_links(&self, next: Option<AgentCursor>) -> Option<String> {
        let start = |cursor: Option<_>| cursor.map_or(Start::Page(1), Start::Cursor);
        let at = |start: Start| match self {
            Self::Liable { person, limit, basis, .. } => {
                let (person, limit, basis, cursor) = (*person, *limit, *basis, start.cursor());
                Some(Self::Liable { person, limit, cursor, basis }.canonical())
            }
            // The whole list is its only page.
            Self::Compliance(page) => {
                let page = page.map(|page| CompliancePage { cursor: start.cursor(), ..page });
                Some(Self::Compliance(page).canonical())
            }
            Self::Listing(query) => {
                Some(Self::Listing(Box::new(AgentQuery { start, ..(**query).clone() })).canonical())
            }
            _ => None,
        };
        let mut links = format!("<{}>; rel=\"first\"", at(start(None))?);
        if let Self::Listing(query) = self
            && let Start::Page(number @ 2..) = query.start
        {
            let _ = write!(links, ", <{}>; rel=\"prev\"", at(Start::Page(number - 1))?);
        }
        if next.is_some() {
            let _ = write!(links, ", <{}>; rel=\"next\"", at(start(next))?);
        }
        Some(links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn links(target: &str, total: u64) -> BTreeMap<String, String> {
        let header = Route::parse(target).unwrap().links(U256::from(total)).unwrap();
        let parse = |link: &str| {
            let (target, relation) = link.split_once(">; rel=\"").unwrap();
            (relation.trim_end_matches('"').to_string(), target.trim_start_matches('<').to_string())
        };
        header.split(", ").map(parse).collect()
    }

    #[test]
    fn a_page_in_the_middle_links_all_four_ways_and_keeps_the_filter() {
        let links = links("/api/v1/agents?status=Active&page=3&limit=10", 45);
        let target = |query: &str| format!("/api/v1/agents?{query}limit=10&status=Active");
        assert_eq!(links["first"], target(""));
        assert_eq!(links["prev"], target("page=2&"));
        assert_eq!(links["next"], target("page=4&"));
        assert_eq!(links["last"], target("page=5&"));
        // An offset between two pages is kept.
        let links = self::links("/api/v1/agent/7/revenue?offset=3&limit=5", 20);
        let target = |query: &str| format!("/api/v1/agent/7/revenue?limit=5{query}");
        assert_eq!(links["prev"], target(""));
        assert_eq!((&links["next"], &links["last"]), (&target("&offset=8"), &target("&offset=15")));
    }

    #[test]
    fn the_ends_have_no_link_beyond_them() {
        assert!(!links("/api/v1/agents", 45).contains_key("prev"));
        assert!(!links("/api/v1/agents?page=3", 45).contains_key("next"));
        let beyond = links("/api/v1/agents?page=18446744073709551615", 45);
        assert_eq!((beyond["prev"].as_str(), beyond.get("next")), ("/api/v1/agents?page=3", None));
        assert_eq!(Route::Stats.links(U256::from(9)), None, "what has no pages");
        let empty = links("/api/v1/agents", 0);
        assert_eq!((empty["first"].as_str(), empty["last"].as_str()), ("/api/v1/agents", "/api/v1/agents"));
    }

    proptest! {
        #[test]
        fn following_next_from_the_first_page_meets_every_item_once(total in 1u64..200, limit in 1u64..30) {
            for list in ["/api/v1/agents?", "/api/v1/agent/1/revenue?"] {
                let (mut target, mut pages) = (format!("{list}limit={limit}"), 1);
                while let Some(next) = links(&target, total).get("next") {
                    target.clone_from(next);
                    pages += 1;
                }
                prop_assert_eq!(pages, total.div_ceil(limit));
                prop_assert_eq!(&links(&target, total)["last"], &Route::parse(&target).unwrap().canonical());
            }
        }

        #[test]
        fn any_page_of_any_list_has_links(number in 1u64.., limit in 1u64..=100, offset: u64, total: u64) {
            for target in [format!("/api/v1/agents?page={number}&limit={limit}"), format!("/api/v1/agent/1/revenue?offset={offset}&limit={limit}")] {
                prop_assert!(links(&target, total).len() >= 2);
            }
        }
    }
}
