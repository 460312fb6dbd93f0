//! The one spelling of a question.

use std::fmt::{Display, Write};

use super::{
    AGENTS_LIMIT_DEFAULT, CHANGES_LIMIT_DEFAULT, HISTORY_LIMIT_DEFAULT, REVENUE_LIMIT_DEFAULT, Route,
};
use crate::{
    eth::as_of::BlockId, registry::agent::Status, registry::compliance::CompliancePage,
    registry::kya::WalletInput,
};

impl Route {
    /// The one spelling of this question: defaults left out, the rest in fixed order. Two requests that ask
    /// the same have the same canonical form, and it parses to the same endpoint.
    pub fn canonical(&self) -> String {
        match self {
            Self::Health => "/health".to_string(),
            Self::Stats => "/api/v1/stats".to_string(),
            Self::DetailedStats => "/api/v1/stats/detailed".to_string(),
            Self::Agent { id, block } => at_block(format!("/api/v1/agent/{id}"), *block),
            Self::Ancestors(id) => format!("/api/v1/agent/{id}/ancestors"),
            Self::Agents { page, status } => {
                let mut query = QueryText::new("/api/v1/agents");
                query.push("page", page.number, 1);
                query.push("limit", page.limit, AGENTS_LIMIT_DEFAULT);
                query.push("status", status.map_or("", Status::name), "");
                query.text
            }
            Self::Listing(asked) => {
                let mut query = QueryText::new("/api/v1/agents");
                asked.write(&mut query);
                query.text
            }
            Self::Compliance(page) => {
                let mut query = QueryText::new("/api/v1/agents/compliance");
                if let Some(CompliancePage { limit, cursor }) = page {
                    query.push_some("limit", &Some(limit));
                    query.push_some("cursor", cursor);
                }
                query.text
            }
            Self::Liable { person, limit, cursor } => {
                let mut query = QueryText::new(&format!("/api/v1/liable/{person}"));
                query.push("limit", *limit, AGENTS_LIMIT_DEFAULT);
                query.push("cursor", cursor.map_or(0, |cursor| cursor.id), 0);
                query.text
            }
            Self::Lineage(id) => format!("/api/v1/agent/{id}/lineage"),
            Self::History { id, limit, cursor } => {
                let mut query = QueryText::new(&format!("/api/v1/agent/{id}/history"));
                query.push("limit", *limit, HISTORY_LIMIT_DEFAULT);
                query.push(
                    "cursor",
                    cursor.map_or(String::new(), |cursor| cursor.to_string()),
                    String::new(),
                );
                query.text
            }
            Self::Revenue { id, offset, limit } => {
                let mut query = QueryText::new(&format!("/api/v1/agent/{id}/revenue"));
                query.push("limit", *limit, REVENUE_LIMIT_DEFAULT);
                query.push("offset", *offset, 0);
                query.text
            }
            Self::RevenueAggregate => "/api/v1/revenue/aggregate".to_string(),
            Self::Kya { wallet, history: true, .. } => format!("/api/v1/kya/{wallet}?history=1"),
            Self::Kya { wallet, block, history: false } => at_block(format!("/api/v1/kya/{wallet}"), *block),
            Self::KyaList { wallets, block } => {
                let wallets: Vec<String> = wallets.iter().map(WalletInput::path_segment).collect();
                at_block(format!("/api/v1/kya/{}", wallets.join(",")), *block)
            }
            Self::Evidence(wallet) => format!("/api/v1/kya/{wallet}?evidence=1"),
            Self::Changes { since, limit } => {
                let mut query = QueryText::new("/api/v1/changes");
                query.push("since", since.to_string(), String::new());
                query.push("limit", *limit, CHANGES_LIMIT_DEFAULT);
                query.text
            }
        }
    }
}

/// A path, and the block it is asked at.
fn at_block(path: String, block: Option<BlockId>) -> String {
    match block {
        Some(block) => format!("{path}?block={block}"),
        None => path,
    }
}

/// Builds a canonical query: what equals its default is left out.
pub(crate) struct QueryText {
    text: String,
    separator: char,
}

impl QueryText {
    fn new(path: &str) -> Self {
        Self { text: path.to_string(), separator: '?' }
    }

    pub(crate) fn push<T: Display + PartialEq>(&mut self, name: &str, value: T, default: T) {
        if value != default {
            self.write(name, &value);
        }
    }

    pub(crate) fn push_some<T: Display>(&mut self, name: &str, value: &Option<T>) {
        if let Some(value) = value {
            self.write(name, value);
        }
    }

    fn write(&mut self, name: &str, value: &dyn Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{}{name}={value}", self.separator);
        self.separator = '&';
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::page::Page;
    use proptest::prelude::*;

    fn agents(number: u64, limit: u64, status: Option<Status>) -> Route {
        Route::Agents { page: Page { number, limit }, status }
    }

    #[test]
    fn spellings_of_one_question_share_its_canonical_form() {
        for target in [
            "/api/v1/agents?limit=20&page=1",
            "/api/v1/agents?",
            "/api/v1/agents?page=01&utm=x",
            "/api/v1/agents?p%61ge=%31",
        ] {
            assert_eq!(Route::parse(target).unwrap().canonical(), "/api/v1/agents", "{target}");
        }
        let cut = Route::parse("/api/v1/agents?limit=99999999999999999999999").unwrap();
        assert_eq!(cut, agents(1, 100, None));
        let filtered = Route::parse("/api/v1/agents?status=Revoked&limit=5&page=3").unwrap();
        assert_eq!(filtered.canonical(), "/api/v1/agents?page=3&limit=5&status=Revoked");
    }

    proptest! {
        #[test]
        fn any_target_is_answered_and_canonical_forms_are_stable(target in "(/api/v1/)?[ -~é]{0,40}") {
            if let Ok(endpoint) = Route::parse(&target) {
                prop_assert_eq!(Route::parse(&endpoint.canonical()), Ok(endpoint));
            }
        }

        #[test]
        fn any_page_has_one_canonical_form(number in 1u64.., limit in 1u64..200, status in prop::option::of(0usize..4)) {
            let status = status.map(|index| Status::ALL[index]);
            let endpoint = agents(number, limit.min(100), status);
            prop_assert_eq!(Route::parse(&endpoint.canonical()), Ok(endpoint));
        }
    }
}
