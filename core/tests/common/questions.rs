//! Questions to nodes.

use registry_core::api::scan::ScanQuery;

use super::prelude::*;

pub(crate) fn question(target: &str) -> Question {
    question_about(Route::parse(target).unwrap())
}

/// A run that asks `target`.
pub(crate) fn run(target: &str) -> Run<Question> {
    Run::new(question(target), CANONICAL_ADDRESS, Limits::default())
}

pub(crate) fn scan_query() -> ScanQuery {
    ScanQuery { registry: REGISTRY, chain: "http://node".to_owned() }
}

pub(super) fn question_about(route: Route) -> Question {
    let now = Timestamp::from_seconds(NOW);
    Question { route, registry: REGISTRY, chain: "http://node".into(), now, scan: None, excerpt: None }
}
