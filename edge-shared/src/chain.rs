//! The chain, over `fetch`: carries a run's batches to the RPC endpoints and back, and tells it the time.

use core::{pin::pin, time::Duration};
use std::cell::RefCell;

use futures_util::{
    FutureExt as _,
    future::{Either, select},
};
use host_kit::{RpcHost, RpcReply};
use registry_core::{
    chain::{
        Batch, Endpoints, Failure, Freshness, Limits, NodeFeatures, Reply, Update,
        hedge::{self, Hedging, Racer},
    },
    eth::{rpc::endpoint::RpcEndpoint, timestamp::Timestamp},
};
use registry_fetch::{RpcPost, body::BodyReader};
use worker::{
    Delay,
    js_sys::{Object, Reflect},
    wasm_bindgen::JsValue,
    web_sys::{AbortController, AbortSignal},
};

use crate::{settings::WorkerSettings, unix_millis};

thread_local! {
    /// Durations of this instance's requests, and the extra requests that they have earned.
    static HEDGING: RefCell<Hedging> = RefCell::default();
}

/// A Worker instance's knowledge of its endpoints: which one answers, on which chain, and how.
#[derive(Default)]
pub struct KnownEndpoints(RefCell<Option<Endpoints>>);

impl KnownEndpoints {
    /// Creates it empty.
    pub const fn new() -> Self {
        Self(RefCell::new(None))
    }

    /// Returns the copy for a run that begins now, unix milliseconds ([`Endpoints::for_run`]).
    pub fn for_run(&self, settings: &WorkerSettings, now: u64) -> Endpoints {
        let new = || Endpoints::new(settings.rpc.len(), settings.chain_id);
        self.0.borrow_mut().get_or_insert_with(new).for_run(now)
    }

    /// Merges the findings of a run.
    pub fn merge(&self, update: &Update) {
        self.0.borrow_mut().iter_mut().for_each(|known| known.merge(update));
    }

    /// Returns the features that runs have found of each endpoint.
    pub fn features(&self) -> Vec<NodeFeatures> {
        self.0.borrow().iter().flat_map(Endpoints::features).collect()
    }
}

/// Returns the limits of a run.
pub fn limits(settings: &WorkerSettings, now: Timestamp) -> Limits {
    let max_age_seconds = u64::from(settings.max_head_age_seconds);
    let freshness = Freshness { now, max_age_seconds };
    Limits {
        timeout_ms: settings.rpc_timeout_seconds.saturating_mul(1_000),
        deadline_ms: settings.rpc_deadline_seconds.saturating_mul(1_000),
        freshness: (max_age_seconds > 0).then_some(freshness),
        ..Limits::default()
    }
}

/// The Worker as the host of one run.
pub struct FetchHost<'a> {
    /// The settings, which have the endpoints.
    pub settings: &'a WorkerSettings,
    /// Start of the run, unix milliseconds.
    pub began: u64,
    /// Number of requests sent to endpoints.
    pub rpc_calls: &'a mut u32,
    /// Merges the findings about endpoints. A client that disconnects ends this request: its findings until
    /// then are there for the next one.
    pub merge: &'a dyn Fn(&Update),
}

impl RpcHost for FetchHost<'_> {
    const HEDGES: bool = true;

    fn elapsed_ms(&self) -> u32 {
        u32::try_from(unix_millis().saturating_sub(self.began)).unwrap_or(u32::MAX)
    }

    async fn round_trip(&mut self, batch: &Batch, may_hedge: bool) -> Result<RpcReply, Failure> {
        *self.rpc_calls += 1;
        // Boxed, it is a function of its own: V8 takes megabytes to optimize a long one that is polled again
        // and again.
        hedged(self.settings, batch, may_hedge, self.rpc_calls).boxed_local().await
    }

    fn merge(&mut self, update: impl FnOnce() -> Update) {
        (self.merge)(&update());
    }
}

/// Outcome of a round trip.
type RoundTrip = Result<RpcReply, Failure>;

fn is_good(reply: &RoundTrip) -> bool {
    matches!(reply, Ok(RpcReply { status, body, .. }) if hedge::is_good(Reply { status: *status, body }))
}

/// Makes one round trip, hedged: an endpoint that is slower than usual is raced by the next one. The loser is
/// aborted.
async fn hedged(settings: &WorkerSettings, batch: &Batch, may_hedge: bool, rpc_calls: &mut u32) -> RoundTrip {
    let (endpoints, began) = (&settings.rpc, unix_millis());
    let may_hedge = may_hedge && settings.hedges && batch.delay_ms == 0;
    let delay =
        HEDGING.with_borrow_mut(|hedging| may_hedge.then(|| hedging.begin(batch, endpoints.len()))).flatten();
    let reply = race(endpoints, batch, delay, rpc_calls).await;
    if may_hedge && is_good(&reply) {
        let millis = u32::try_from(unix_millis().saturating_sub(began)).unwrap_or(u32::MAX);
        HEDGING.with_borrow_mut(|hedging| hedging.answered(millis));
    }
    reply
}

async fn race(
    endpoints: &[RpcEndpoint],
    batch: &Batch,
    delay: Option<u32>,
    rpc_calls: &mut u32,
) -> RoundTrip {
    let mut primary = pin!(post(endpoints, batch));
    let Some(delay) = delay else { return primary.await };
    let waiting = pin!(async { Delay::from(Duration::from_millis(delay.into())).await });
    if let Either::Left((reply, _)) = select(&mut primary, waiting).await {
        return reply;
    }
    if !HEDGING.with_borrow_mut(Hedging::take) {
        return primary.await;
    }
    *rpc_calls += 1;
    let endpoint = hedge::next_endpoint(batch, endpoints.len());
    let extra = Batch { endpoint, timeout_ms: batch.timeout_ms.saturating_sub(delay), ..batch.clone() };
    let extra = pin!(post(endpoints, &extra));
    let (racer, first, other) = match select(primary, extra).await {
        Either::Left((first, extra)) => (Racer::Primary, first, extra.boxed_local()),
        Either::Right((first, primary)) => (Racer::Hedge, first, primary.boxed_local()),
    };
    let good = is_good(&first);
    let winner = |other: Option<bool>| match racer {
        Racer::Primary => hedge::winner(Some(good), other),
        Racer::Hedge => hedge::winner(other, Some(good)),
    };
    // The other request is awaited only if the first one's answer is not good.
    if winner(None) == Some(racer) {
        return first;
    }
    let other = other.await;
    if winner(Some(is_good(&other))) == Some(racer) { first } else { other }
}

/// Makes one round trip. Errors: [`Failure`], where there is no reply.
pub async fn post(endpoints: &[RpcEndpoint], batch: &Batch) -> Result<RpcReply, Failure> {
    let endpoint = endpoints.get(batch.endpoint).ok_or(Failure::Unreachable)?;
    let headers = headers(endpoint).map_err(|_| Failure::Unreachable)?;
    let post = RpcPost {
        fetch: &registry_fetch::global(),
        url: &endpoint.url,
        headers: &headers,
        reader: BodyReader::Byob,
    };
    let exchange = async |signal: &AbortSignal| post.send(batch, signal).await;
    let mut aborting =
        AbortOnDrop { controller: AbortController::new().map_err(|_| Failure::Unreachable)?, is_over: false };
    let reply = registry_fetch::round_trip_under(&aborting.controller, batch, exchange).await;
    aborting.is_over = true;
    reply.map(|(status, body)| RpcReply { endpoint: batch.endpoint, status, body })
}

/// Aborts a round trip that is not awaited to its end.
struct AbortOnDrop {
    controller: AbortController,
    is_over: bool,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if !self.is_over {
            self.controller.abort();
        }
    }
}

/// Returns a plain object, not a `Headers`: each object of the runtime that JavaScript has seen keeps
/// kilobytes until V8 collects all.
fn headers(endpoint: &RpcEndpoint) -> Result<Object, JsValue> {
    let headers = Object::new();
    let json = JsValue::from("application/json");
    Reflect::set(&headers, &"Content-Type".into(), &json)?;
    Reflect::set(&headers, &"Accept".into(), &json)?;
    if let Some(authorization) = &endpoint.authorization {
        Reflect::set(&headers, &"Authorization".into(), &authorization.into())?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use alloy_primitives::Address;
    use registry_core::{
        chain::{Halt, Query, QueryError, Run, Step, View},
        eth::abi::IAgentRegistry::nextAgentIdCall,
    };

    use super::*;
    use crate::settings::Variables;

    struct Count;

    impl Query for Count {
        type Output = ();
        type Error = QueryError;

        fn resolve(&self, view: &View) -> Result<(), Halt> {
            view.call(Address::ZERO, &nextAgentIdCall {}).map(drop)
        }
    }

    #[test]
    fn what_an_endpoint_lacked_is_asked_of_it_again_by_one_run_a_minute() {
        let registry = format!("{:#x}", Address::repeat_byte(1));
        let variable = |name: &str| (name == "REGISTRY_ADDRESS").then(|| registry.clone());
        let settings = WorkerSettings::parse(&Variables(&variable)).unwrap();
        let known = KnownEndpoints::new();
        for (now, is_batch) in [(0, true), (1, false), (59_999, false), (60_000, true), (60_001, false)] {
            let mut run = Run::new(Count, settings.multicall3, Limits::default());
            run = run.over(known.for_run(&settings, now));
            let Ok(Step::Send(batch)) = run.step() else { panic!() };
            assert_eq!(batch.body.starts_with('['), is_batch, "{now}");
            if is_batch {
                run.feed(Reply { status: 400, body: b"no batches" }).unwrap();
                known.merge(&run.update());
            }
            assert_eq!(known.features()[0].batch, Some(false));
        }
    }
}
