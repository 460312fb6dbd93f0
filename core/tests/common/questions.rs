//! Questions to nodes.

use registry_core::api::scan::ScanQuery;

use super::prelude::*;

/// A question of each kind that takes one round trip.
pub(crate) const ONE_ROUND: [&str; 6] = [
    "/health",
    "/api/v1/stats",
    "/api/v1/agents?limit=100",
    "/api/v1/agent/1",
    "/api/v1/agent/1/revenue",
    "/api/v1/kya/0x0000000000000000000000000000000000000001",
];
/// Questions that take two round trips.
pub(crate) const TWO_ROUNDS: [&str; 5] = [
    "/api/v1/stats/detailed",
    "/api/v1/agents?status=Active",
    "/api/v1/agents/compliance",
    "/api/v1/revenue/aggregate",
    "/api/v1/agent/1/lineage",
];

pub(crate) fn all_targets() -> impl Iterator<Item = &'static str> {
    ONE_ROUND.into_iter().chain(TWO_ROUNDS)
}

pub(crate) fn question(target: &str) -> Question {
    question_about(Route::parse(target).unwrap())
}

/// Creates a run that asks `target`.
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
