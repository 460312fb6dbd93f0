//! Queries to the chain, with this instance's knowledge of its endpoints.

use std::cell::RefCell;

use edge_shared::{
    chain::{FetchHost, KnownEndpoints, limits, post},
    settings::WorkerSettings,
    unix_millis,
};
use futures_util::future::join_all;
use host_kit::drive;
use registry_core::{
    api::error::Error,
    chain::{Batch, NodeFeatures, NodeProbe, Query, Reply, Run, Update},
    eth::timestamp::Timestamp,
};

thread_local! {
    static ENDPOINTS: KnownEndpoints = const { KnownEndpoints::new() };
    /// Features that probes have found of each endpoint's node, and the time, unix milliseconds, from which
    /// on they probe again for missing ones.
    static PROBED: RefCell<(Vec<NodeFeatures>, u64)> = const { RefCell::new((Vec::new(), 0)) };
}

/// Milliseconds after which a node is probed again for missing features.
const AGAIN_MILLIS: u64 = 60_000;
/// Timeout of an endpoint for a batch of a probe, in milliseconds.
const PROBE_MILLIS: u32 = 1_000;
/// Size limit of a probe's reply: a header with the hashes of its transactions.
const PROBE_BYTES: usize = 1 << 20;

/// Returns the features of the endpoints' nodes, in their order. Unknown ones are probed.
pub(crate) async fn node_features(settings: &WorkerSettings, rpc_calls: &mut u32) -> Vec<NodeFeatures> {
    let now = unix_millis();
    let (mut known, mut again_at) = PROBED.with_borrow(Clone::clone);
    known.resize_with(settings.rpc.len(), NodeFeatures::default);
    if now >= again_at {
        known = known.into_iter().map(NodeFeatures::given).collect();
        again_at = now.saturating_add(AGAIN_MILLIS);
    }
    let probes = known.iter().enumerate().map(|(endpoint, known)| probe(settings, endpoint, *known));
    let (probed, posts): (Vec<NodeFeatures>, Vec<u32>) = join_all(probes).await.into_iter().unzip();
    *rpc_calls += posts.iter().sum::<u32>();
    PROBED.set((probed.clone(), again_at));
    let found = ENDPOINTS
        .with(KnownEndpoints::features)
        .into_iter()
        .chain(core::iter::repeat(NodeFeatures::default()));
    found.zip(probed).map(|(found, probed)| found.or(probed)).collect()
}

/// Returns the known features of a node after a probe, and the requests that it took.
async fn probe(settings: &WorkerSettings, endpoint: usize, known: NodeFeatures) -> (NodeFeatures, u32) {
    let (mut probe, mut posts) = (NodeProbe::new(settings.registry), 0);
    while let Some(body) = probe.body().filter(|_| !known.are_known()) {
        posts += 1;
        let (timeout_ms, max_reply_bytes) = (PROBE_MILLIS, PROBE_BYTES);
        let batch = Batch { endpoint, body, delay_ms: 0, timeout_ms, max_reply_bytes };
        let reply = post(&settings.rpc, &batch).await.ok();
        probe.take(reply.as_ref().map(|reply| Reply { status: reply.status, body: &reply.body }));
    }
    (known.or(probe.found()), posts)
}

/// Runs a query in as few round trips as it needs. `rpc_calls` counts them. `now` is the time by which the
/// age of a block is measured.
pub(crate) async fn ask<Q: Query>(
    query: Q,
    now: Timestamp,
    settings: &WorkerSettings,
    rpc_calls: &mut u32,
) -> Result<Q::Output, Error>
where
    Error: From<Q::Error>,
{
    let endpoints = ENDPOINTS.with(|known| known.for_run(settings, unix_millis()));
    let run = Run::new(query, settings.multicall3, limits(settings, now)).over(endpoints);
    let merge = |update: &Update| ENDPOINTS.with(|known| known.merge(update));
    let mut host = FetchHost { settings, began: unix_millis(), rpc_calls, merge: &merge };
    drive(run, &mut host).await.map_err(|error| Error::from(error).redacted(&settings.redactor))
}
