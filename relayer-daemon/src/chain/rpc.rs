//! JSON-RPC over several endpoints. Reads have sticky failover: they stay with the last endpoint that
//! answered. Raw transactions go to all endpoints (see `broadcast`).
//!
//! Reads fail over on transport errors and rate limits, since any other JSON-RPC answer proves that a node is
//! alive, and when their endpoint is behind the others ([`Rpc::prefer_freshest`]). A read waits for a silent
//! endpoint once. A method that an endpoint lacks, or an answer of it that cannot be read, is its fault and
//! not the request's: that method alone is asked of the others. Errors that leave this module name no
//! endpoint, since clients see them; the log names it by scheme and host.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use alloy::{
    primitives::U64,
    providers::{Provider, RootProvider},
    rpc::{client::RpcClient, json_rpc::ErrorPayload},
    transports::{RpcError as AlloyError, TransportErrorKind, http::Http},
};
use futures_util::{Stream, future::join_all, stream::FuturesUnordered};
use registry_core::{
    eth::redact::{Redactor, public_origin},
    eth::rpc::read_error::{Action, classify},
};
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::{Value, json, value::RawValue};
use tracing::{Instrument as _, field::Empty};

use super::{
    BlockHeader, Result, RpcError, connection_error::ConnectionError, endpoint::EndpointState,
    optional_method::is_called_missing,
};
use crate::{metrics::Metrics, process::logging::SPANS};

/// Tries of a read, over all endpoints together.
const TRIES: usize = 4;
/// The backoff before the third try; it doubles for the fourth.
const PAUSE: Duration = Duration::from_millis(250);
/// Number of blocks that another endpoint must be ahead for reads to move there.
const STALE_BLOCKS: u64 = 3;
/// Number of seconds that it must be ahead as well, by the blocks' timestamps, since a block may take a
/// fraction of a second. An endpoint that still lacks the highest block of the last comparison is left in any
/// case.
const STALE_SECONDS: u64 = 5;

/// The endpoints. Clones share them.
#[derive(Debug, Clone)]
pub struct Rpc {
    endpoints: Arc<[EndpointState]>,
    current: Arc<AtomicUsize>,
    /// The chain that every endpoint must be of, once that is known.
    chain_id: Arc<OnceLock<u64>>,
    /// The highest block that any endpoint had when their heads were last compared.
    highest_seen: Arc<AtomicU64>,
    redactor: Arc<Redactor>,
    metrics: Metrics,
}

impl Rpc {
    /// Creates the endpoints at these URLs. Makes no call.
    ///
    /// # Errors
    /// If no HTTP client can be built.
    pub fn new(urls: &[Url], timeout: Duration, metrics: Metrics) -> Result<Self, reqwest::Error> {
        // A proxy from the environment would see every transaction, a redirect's target the key in the path.
        let client = reqwest::Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout.min(Duration::from_secs(5)))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let endpoints = urls
            .iter()
            .map(|url| {
                // A bare provider: no fillers, so none that counts nonces on its own.
                let transport = Http::with_client(client.clone(), url.clone());
                let provider = RootProvider::new(RpcClient::new(transport, false));
                EndpointState::new(provider, public_origin(url.as_str()))
            })
            .collect();
        Ok(Self {
            endpoints,
            current: Arc::default(),
            chain_id: Arc::default(),
            highest_seen: Arc::default(),
            // Clients see node errors, which may quote the URL or the host.
            redactor: Arc::new(Redactor::new(
                urls.iter().flat_map(|url| [Some(url.as_str()), url.host_str()]).flatten(),
            )),
            metrics,
        })
    }

    /// Returns the public label of the endpoint that reads use.
    pub fn label(&self) -> String {
        self.endpoint(self.current.load(Ordering::Relaxed))
            .map(|endpoint| endpoint.label.clone())
            .unwrap_or_default()
    }

    /// Calls `method`, with retry and failover; returns the error of the last try.
    pub async fn read<R: DeserializeOwned>(
        &self,
        method: &'static str,
        params: impl Into<Value> + Send,
    ) -> Result<R> {
        let params: Value = params.into();
        let start = self.current.load(Ordering::Relaxed);
        let order = self.order(start, method);
        let is_first_avoided = order.first() != Some(&start);
        // Endpoints that are at fault for this method, which another try does not change.
        let mut unfit = BTreeSet::new();
        let mut last = RpcError::Unreachable("no endpoint".to_owned());
        let mut silent = BTreeSet::new();
        for attempt in 0..TRIES {
            let is_left = |index: &usize| !unfit.contains(index) && !silent.contains(index);
            let left: Vec<usize> = order.iter().copied().filter(is_left).collect();
            let Some(index) = attempt.checked_rem(left.len()).and_then(|place| left.get(place)) else {
                break;
            };
            if attempt >= 2 && unfit.is_empty() {
                tokio::time::sleep(PAUSE * (1 << (attempt - 2))).await;
            }
            match self.ask(*index, method, &params).await {
                Ok(answer) => match parse(&answer, method) {
                    Ok(answer) => {
                        if unfit.is_empty() && !is_first_avoided {
                            self.stick_to(start, *index);
                        }
                        return Ok(answer);
                    }
                    Err(error) => {
                        self.avoid(*index, method, &error);
                        unfit.insert(*index);
                        last = error;
                    }
                },
                Err(RpcError::Node(error)) if is_final(&error) => {
                    if !is_called_missing(method, &error) {
                        return Err(RpcError::Node(error));
                    }
                    last = RpcError::Node(error);
                    self.avoid(*index, method, &last);
                    unfit.insert(*index);
                }
                Err(error) => {
                    if matches!(error, RpcError::Timeout) {
                        silent.insert(*index);
                    }
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Returns the endpoints in the order in which a method is asked of them: from the current one on, those
    /// that are avoided for it last.
    fn order(&self, start: usize, method: &'static str) -> Vec<usize> {
        let count = self.endpoints.len();
        let mut order: Vec<usize> =
            (0..count).filter_map(|place| start.saturating_add(place).checked_rem(count)).collect();
        order.sort_by_key(|index| self.endpoint(*index).is_some_and(|endpoint| endpoint.is_avoided(method)));
        order
    }

    fn avoid(&self, index: usize, method: &'static str, error: &RpcError) {
        if self.endpoints.len() > 1
            && let Some(endpoint) = self.endpoint(index)
            && endpoint.avoid(method)
        {
            tracing::warn!(endpoint = %endpoint.label, method, %error, "others are asked for this method first");
        }
    }

    /// Calls `method` at every endpoint that does not rest, and returns the answers as they come. The flag
    /// says whether these are all endpoints.
    pub(super) fn read_everywhere<'a, R: DeserializeOwned>(
        &'a self,
        method: &'static str,
        params: &'a Value,
    ) -> (impl Stream<Item = Result<R>> + 'a, bool) {
        let awake = self.awake();
        let all = awake.len() == self.endpoints.len();
        let reads = awake
            .into_iter()
            .map(move |index| async move { parse(&self.ask(index, method, params).await?, method) });
        (reads.collect::<FuturesUnordered<_>>(), all)
    }

    /// Returns the endpoints that do not rest; all endpoints if all rest.
    pub(super) fn awake(&self) -> Vec<usize> {
        let awake: Vec<usize> = self
            .endpoints
            .iter()
            .enumerate()
            .filter(|(_, endpoint)| !endpoint.is_resting())
            .map(|(index, _)| index)
            .collect();
        if awake.is_empty() { (0..self.endpoints.len()).collect() } else { awake }
    }

    /// Compares the endpoints' heads, if there are several, and moves the reads if theirs is clearly behind.
    pub async fn prefer_freshest(&self) {
        if self.endpoints.len() < 2 {
            return;
        }
        let latest = json!(["latest", false]);
        let heads = join_all((0..self.endpoints.len()).map(|index| self.head(index, &latest))).await;
        let current = self.current.load(Ordering::Relaxed);
        let here = heads.get(current).copied().flatten();
        let best = heads.iter().enumerate().filter_map(|(index, head)| Some(((*head)?, index))).max();
        let Some((head, index)) = best else { return };
        let seen_before = self.highest_seen.swap(head.number, Ordering::Relaxed);
        if here.is_none_or(|here| head.is_clearly_ahead_of(here, seen_before)) {
            self.stick_to(current, index);
        }
    }

    async fn head(&self, index: usize, latest: &Value) -> Option<EndpointHead> {
        const METHOD: &str = "eth_getBlockByNumber";
        let header = self.ask(index, METHOD, latest).await.ok()?;
        let BlockHeader { number, timestamp, .. } = parse(&header, METHOD).ok()?;
        Some(EndpointHead { number: block_number(number?)?, timestamp: timestamp.to() })
    }

    /// Reads each endpoint's label and chain id, in the order of the settings. One that limits its rate, or
    /// does not answer at once, is asked again.
    pub async fn chain_ids(&self) -> Vec<(String, Result<u64>)> {
        let ids = self.endpoints.iter().enumerate().map(|(index, endpoint)| async move {
            let mut id = self.chain_id(index).await;
            for attempt in 0..TRIES.saturating_sub(1) {
                match &id {
                    Err(RpcError::Node(error)) if is_final(error) => break,
                    Err(RpcError::Unreachable(_) | RpcError::Node(_)) => {}
                    Ok(_) | Err(RpcError::Timeout | RpcError::Malformed(_)) => break,
                }
                tokio::time::sleep(PAUSE * (1 << attempt)).await;
                id = self.chain_id(index).await;
            }
            (endpoint.label.clone(), id)
        });
        join_all(ids).await
    }

    async fn chain_id(&self, index: usize) -> Result<u64> {
        const METHOD: &str = "eth_chainId";
        let id: U64 = parse(&self.call(index, METHOD, &json!([])).await?, METHOD)?;
        Ok(id.to())
    }

    /// Requires every endpoint to be of this chain from now on: one that has not said so, because it was
    /// down, is asked before its first other call.
    pub fn expect_chain(&self, chain_id: u64) {
        let _ = self.chain_id.set(chain_id);
    }

    /// Makes sure that an endpoint is of the expected chain. One of another chain rests, and is asked again.
    async fn is_right(&self, index: usize, endpoint: &EndpointState) -> Result<()> {
        let Some(expected) = self.chain_id.get().copied() else { return Ok(()) };
        if endpoint.is_known_of(expected) {
            return Ok(());
        }
        let found = self.chain_id(index).await?;
        if found == expected {
            endpoint.is_of(expected);
            return Ok(());
        }
        tracing::error!(endpoint = %endpoint.label, found, expected, "RPC endpoint of another chain: not used");
        endpoint.rest();
        Err(RpcError::Unreachable("of another chain".to_owned()))
    }

    pub(super) fn endpoints(&self) -> &[EndpointState] {
        &self.endpoints
    }

    pub(super) fn endpoint(&self, index: usize) -> Option<&EndpointState> {
        self.endpoints.get(index)
    }

    fn stick_to(&self, before: usize, index: usize) {
        if before == index {
            return;
        }
        let moved = self.current.compare_exchange(before, index, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok()
            && let Some(endpoint) = self.endpoint(index)
        {
            tracing::warn!(endpoint = %endpoint.label, "reads moved to another RPC endpoint");
        }
    }

    /// Makes one call to one endpoint of the right chain, without retry.
    pub(super) async fn ask(
        &self,
        index: usize,
        method: &'static str,
        params: &Value,
    ) -> Result<Box<RawValue>> {
        if let Some(endpoint) = self.endpoint(index) {
            self.is_right(index, endpoint).await?;
        }
        self.call(index, method, params).await
    }

    async fn call(&self, index: usize, method: &'static str, params: &Value) -> Result<Box<RawValue>> {
        let Some(endpoint) = self.endpoint(index) else {
            return Err(RpcError::Unreachable("no endpoint".to_owned()));
        };
        let started = Instant::now();
        let span = tracing::info_span!(target: SPANS, "rpc", "otel.kind" = "client", method, endpoint = %endpoint.label, error = Empty);
        let answer = endpoint.provider.client().request::<_, Box<RawValue>>(method, params).into_future();
        let answer = answer.instrument(span.clone()).await;
        if answer.is_err() {
            span.record("error", true);
        }
        let answer = answer.map_err(|error| self.error(method, error));
        let result = match &answer {
            Ok(_) => "ok",
            Err(RpcError::Node(_)) => "error",
            Err(error) => {
                tracing::warn!(endpoint = %endpoint.label, method, %error, "RPC call failed");
                if matches!(error, RpcError::Timeout) {
                    endpoint.rest();
                }
                "fault"
            }
        };
        self.metrics.rpc(method, result, started.elapsed());
        answer
    }

    /// Strips an error of secrets: a transport's text has the URL, a provider's error page may have the key.
    fn error(&self, method: &'static str, error: AlloyError<TransportErrorKind>) -> RpcError {
        RpcError::Unreachable(match error {
            AlloyError::ErrorResp(payload) => {
                let message = self.redactor.clean(&payload.message).into();
                return RpcError::Node(ErrorPayload { message, ..payload });
            }
            AlloyError::Transport(
                TransportErrorKind::HttpError(error)
                | TransportErrorKind::HttpErrorWithRetryAfter { error, .. },
            ) => format!("HTTP {}", error.status),
            AlloyError::Transport(TransportErrorKind::Custom(error)) => {
                match error.downcast_ref::<reqwest::Error>().map(ConnectionError::of) {
                    Some(ConnectionError::TimedOut) => return RpcError::Timeout,
                    Some(problem) => problem.to_string(),
                    None => "request failed".to_owned(),
                }
            }
            // An answer that is no JSON-RPC: a proxy's error page, or a connection cut short.
            AlloyError::DeserError { .. } => format!("no JSON-RPC answer to {method}"),
            AlloyError::NullResp => return RpcError::Malformed(method),
            _ => "request failed".to_owned(),
        })
    }
}

/// Returns whether another try of the same request gets the same error.
fn is_final(error: &ErrorPayload) -> bool {
    !matches!(classify(error), Action::Retry | Action::Repin)
}

/// Reads an answer: from its text, since an answer may be large.
fn parse<R: DeserializeOwned>(answer: &RawValue, method: &'static str) -> Result<R> {
    serde_json::from_str(answer.get()).map_err(|_| RpcError::Malformed(method))
}

/// The newest block that an endpoint knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EndpointHead {
    number: u64,
    /// Unix seconds.
    timestamp: u64,
}

impl EndpointHead {
    const fn is_clearly_ahead_of(self, other: Self, seen_before: u64) -> bool {
        self.number >= other.number.saturating_add(STALE_BLOCKS)
            && (self.timestamp >= other.timestamp.saturating_add(STALE_SECONDS) || other.number < seen_before)
    }
}

/// Returns a block number if it fits the signed 64-bit numbers of the store and the metrics.
pub(super) fn block_number(number: U64) -> Option<u64> {
    let number = number.to::<u64>();
    i64::try_from(number).is_ok().then_some(number)
}
