//! The canonical form of a route: one text for all spellings of a request.

use std::fmt::Display;

use super::{
    AGENTS_LIMIT_DEFAULT, CHANGES_LIMIT_DEFAULT, HISTORY_LIMIT_DEFAULT, REVENUE_LIMIT_DEFAULT, Route,
};
use crate::registry::{
    agent::Status, changes::Since, compliance::CompliancePage, kya::WalletInput, liability::Basis,
};

impl Route {
    /// Returns the canonical form: defaults left out, the rest in fixed order. Requests for the same answer
    /// share it, and it parses to the same route.
    pub fn canonical(&self) -> String {
        let mut query = QueryText { text: self.path(), separator: '?' };
        match self {
            Self::Health
            | Self::Stats
            | Self::DetailedStats
            | Self::Ancestors(_)
            | Self::Lineage(_)
            | Self::RevenueAggregate
            | Self::KyaRange(_)
            | Self::Compliance(None) => {}
            Self::Agent { block, .. }
            | Self::KyaList { block, .. }
            | Self::Kya { block, history: false, .. } => query.push_some("block", block),
            Self::Agents { page, status } => {
                query.push("page", page.number, 1);
                query.push("limit", page.limit, AGENTS_LIMIT_DEFAULT);
                query.push_some("status", &status.map(Status::name));
            }
            Self::Listing(asked) => asked.write(&mut query),
            Self::Compliance(Some(CompliancePage { limit, cursor })) => {
                query.push_some("limit", &Some(limit));
                query.push_some("cursor", cursor);
            }
            Self::Liable { limit, cursor, basis, .. } => {
                query.push("limit", *limit, AGENTS_LIMIT_DEFAULT);
                query.push_some("cursor", &cursor.map(|cursor| cursor.id));
                query.push_some("basis", &basis.map(Basis::name));
            }
            Self::History { limit, cursor, .. } => {
                query.push("limit", *limit, HISTORY_LIMIT_DEFAULT);
                query.push_some("cursor", cursor);
            }
            Self::Revenue { offset, limit, .. } => {
                query.push("limit", *limit, REVENUE_LIMIT_DEFAULT);
                query.push("offset", *offset, 0);
            }
            Self::Kya { history: true, .. } => query.push("history", 1, 0),
            Self::Evidence(_) => query.push("evidence", 1, 0),
            Self::Changes { since, limit, liable } => {
                query.push_some("since", &Some(since).filter(|since| **since != Since::Oldest));
                query.push("limit", *limit, CHANGES_LIMIT_DEFAULT);
                query.push_some("liable", liable);
            }
        }
        query.text
    }

    /// Returns the pattern with its parameters' values.
    fn path(&self) -> String {
        let pattern = self.pattern();
        match self {
            Self::Agent { id, .. }
            | Self::Ancestors(id)
            | Self::Lineage(id)
            | Self::History { id, .. }
            | Self::Revenue { id, .. } => pattern.replace(":id", &id.to_string()),
            Self::Kya { wallet, .. } | Self::Evidence(wallet) | Self::Liable { person: wallet, .. } => {
                pattern.replace(":wallet", &wallet.to_checksum(None))
            }
            Self::KyaRange(prefix) => pattern.replace(":prefix", &prefix.to_string()),
            Self::KyaList { wallets, .. } => {
                let wallets: Vec<String> = wallets.iter().map(WalletInput::path_segment).collect();
                [pattern, "/", &wallets.join(",")].concat()
            }
            _ => pattern.to_owned(),
        }
    }
}

/// A builder of canonical queries, which leaves out values that equal their defaults.
pub(super) struct QueryText {
    text: String,
    separator: char,
}

impl QueryText {
    pub(super) fn push(&mut self, name: &str, value: u64, default: u64) {
        self.push_some(name, &(value != default).then_some(value));
    }

    pub(super) fn push_some<T: Display>(&mut self, name: &str, value: &Option<T>) {
        if let Some(value) = value {
            self.text += &format!("{}{name}={value}", self.separator);
            self.separator = '&';
        }
    }
}
