//! JSON-RPC over several endpoints: reads stick to one that works. Raw transactions go to all (see `broadcast`).
//!
//! Only transport faults and rate limits move the reads on: any other JSON-RPC answer proves that a node
//! lives. A node that is behind the others is left as well, on the sender's word ([`Rpc::prefer_freshest`]).
//! Errors that leave this module name no endpoint, since clients see them; the log names it by scheme and host.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use alloy::{
    primitives::U64,
    providers::{Provider, RootProvider},
    rpc::client::RpcClient,
    transports::{RpcError as AlloyError, TransportErrorKind, http::Http},
};
use futures_util::{Stream, future::join_all, stream::FuturesUnordered};
use registry_core::{
    eth::redact::{Redactor, public_origin},
    eth::rpc::{
        ErrorPayload,
        classify::{Action, classify},
    },
};
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use super::{Header, connection_error::ConnectionError, endpoint::Endpoint};
use crate::metrics::Metrics;

/// How often a read is tried, over all endpoints together.
const TRIES: usize = 4;
/// The pause before the third try; the fourth waits twice as long.
const PAUSE: Duration = Duration::from_millis(250);
/// How many blocks another endpoint must be ahead for reads to move there.
const STALE_BLOCKS: u64 = 3;
/// How many seconds it must be ahead besides, by the blocks' own time, since blocks may take a fraction of one. An
/// endpoint that still lacks what another had at the last look is left in any case.
const STALE_SECONDS: u64 = 5;

/// Why a read has no answer. Names no endpoint.
#[derive(Debug, Clone, Error)]
pub enum RpcError {
    /// No endpoint answered.
    #[error("RPC endpoint unreachable: {0}")]
    Unreachable(String),
    /// An endpoint took too long, and so did the others.
    #[error("RPC timeout")]
    Timeout,
    /// The node answered with an error; a revert is one too.
    #[error("RPC error: {}", .0.message)]
    Node(ErrorPayload),
    /// The node's answer is not what was asked for.
    #[error("RPC answer to {0} makes no sense")]
    Malformed(&'static str),
}

/// The endpoints. Clones share them.
#[derive(Debug, Clone)]
pub struct Rpc {
    endpoints: Arc<[Endpoint]>,
    current: Arc<AtomicUsize>,
    /// The highest block that any endpoint had when their heads were last compared.
    highest_seen: Arc<AtomicU64>,
    redactor: Arc<Redactor>,
    metrics: Metrics,
}

impl Rpc {
    /// Endpoints at these URLs; nothing is asked yet.
    ///
    /// # Errors
    /// If no HTTP client can be built.
    pub fn new(urls: &[Url], timeout: Duration, metrics: Metrics) -> Result<Self, reqwest::Error> {
        // A proxy from the environment would see every transaction; redirects would see the key in the path.
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
                Endpoint::new(provider, public_origin(url.as_str()))
            })
            .collect();
        Ok(Self {
            endpoints,
            current: Arc::default(),
            highest_seen: Arc::default(),
            // A node's error may quote the URL or the host, and clients see node errors.
            redactor: Arc::new(Redactor::new(
                urls.iter().flat_map(|url| [Some(url.as_str()), url.host_str()]).flatten(),
            )),
            metrics,
        })
    }

    /// The endpoint that reads go to, as it may be shown.
    #[must_use]
    pub fn label(&self) -> String {
        self.endpoint(self.current.load(Ordering::Relaxed))
            .map(|endpoint| endpoint.label.clone())
            .unwrap_or_default()
    }

    /// Reads `method`.
    ///
    /// # Errors
    /// [`RpcError`], after what may pass was tried again, on the next endpoint if there is one.
    pub async fn read<R: DeserializeOwned>(
        &self,
        method: &'static str,
        params: impl Into<Value> + Send,
    ) -> Result<R, RpcError> {
        let params: Value = params.into();
        let start = self.current.load(Ordering::Relaxed);
        let mut last = RpcError::Unreachable("no endpoint".to_owned());
        for attempt in 0..TRIES {
            if attempt >= 2 {
                tokio::time::sleep(PAUSE * (1 << (attempt - 2))).await;
            }
            let Some(index) = (start + attempt).checked_rem(self.endpoints.len()) else { break };
            match self.ask(index, method, &params).await {
                Ok(answer) => {
                    self.stick_to(start, index);
                    return serde_json::from_value(answer).map_err(|_| RpcError::Malformed(method));
                }
                Err(Fault::Transport(error)) => last = error,
                Err(Fault::Node(error)) => {
                    if !matches!(classify(&error), Action::Retry | Action::Repin) {
                        return Err(RpcError::Node(error));
                    }
                    last = RpcError::Node(error);
                }
            }
        }
        Err(last)
    }

    /// Reads `method` at every endpoint that does not rest, and returns the answers as they come. The flag says
    /// whether these are all endpoints.
    pub(super) fn read_everywhere<'a, R: DeserializeOwned>(
        &'a self,
        method: &'static str,
        params: &'a Value,
    ) -> (impl Stream<Item = Result<R, RpcError>> + 'a, bool) {
        let awake = self.awake();
        let all = awake.len() == self.endpoints.len();
        let reads = awake.into_iter().map(move |index| async move {
            match self.ask(index, method, params).await {
                Ok(answer) => serde_json::from_value(answer).map_err(|_| RpcError::Malformed(method)),
                Err(Fault::Transport(error)) => Err(error),
                Err(Fault::Node(error)) => Err(RpcError::Node(error)),
            }
        });
        (reads.collect::<FuturesUnordered<_>>(), all)
    }

    /// The endpoints that do not rest; all of them where all rest.
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

    /// Asks every endpoint for its head and moves the reads if theirs is clearly behind. Costs nothing with a
    /// single endpoint.
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

    async fn head(&self, index: usize, latest: &Value) -> Option<Head> {
        let header = self.ask(index, "eth_getBlockByNumber", latest).await.ok()?;
        let Header { number, timestamp, .. } = serde_json::from_value(header).ok()?;
        Some(Head { number: block_number(number?)?, timestamp: timestamp.to() })
    }

    /// The head of each endpoint's chain id, in the order of the settings; an error where it does not answer.
    pub async fn chain_ids(&self) -> Vec<(String, Result<u64, RpcError>)> {
        join_all(self.endpoints.iter().enumerate().map(|(index, endpoint)| async move {
            let id = match self.ask(index, "eth_chainId", &Value::Array(Vec::new())).await {
                Ok(id) => serde_json::from_value::<U64>(id)
                    .map(|id| id.to::<u64>())
                    .map_err(|_| RpcError::Malformed("eth_chainId")),
                Err(Fault::Transport(error)) => Err(error),
                Err(Fault::Node(error)) => Err(RpcError::Node(error)),
            };
            (endpoint.label.clone(), id)
        }))
        .await
    }

    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    pub(super) fn endpoint(&self, index: usize) -> Option<&Endpoint> {
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

    /// One call to one endpoint.
    pub(super) async fn ask(
        &self,
        index: usize,
        method: &'static str,
        params: &Value,
    ) -> Result<Value, Fault> {
        let Some(endpoint) = self.endpoint(index) else {
            return Err(Fault::Transport(RpcError::Unreachable("no endpoint".to_owned())));
        };
        let started = Instant::now();
        let answer = endpoint.provider.client().request::<_, Value>(method, params).await;
        let answer = answer.map_err(|error| self.fault(method, error));
        let result = match &answer {
            Ok(_) => "ok",
            Err(Fault::Node(_)) => "error",
            Err(Fault::Transport(_)) => "fault",
        };
        self.metrics.rpc(method, result, started.elapsed());
        if let Err(Fault::Transport(error)) = &answer {
            tracing::warn!(endpoint = %endpoint.label, method, %error, "RPC call failed");
            if matches!(error, RpcError::Timeout) {
                endpoint.rest();
            }
        }
        answer
    }

    /// An error without anything that may hold a secret: a transport's text has the URL in it, and a
    /// provider's error page may quote the key.
    fn fault(&self, method: &'static str, error: AlloyError<TransportErrorKind>) -> Fault {
        let unreachable = |what: String| Fault::Transport(RpcError::Unreachable(what));
        match error {
            AlloyError::ErrorResp(payload) => Fault::Node(ErrorPayload {
                code: payload.code,
                message: self.redactor.clean(&payload.message).into(),
                // An object may quote the endpoint's URL; a revert's data is a string.
                data: payload.data.filter(|data| data.get().starts_with('"')),
            }),
            AlloyError::Transport(TransportErrorKind::HttpError(http)) => {
                unreachable(format!("HTTP {}", http.status))
            }
            AlloyError::Transport(TransportErrorKind::HttpErrorWithRetryAfter { error, .. }) => {
                unreachable(format!("HTTP {}", error.status))
            }
            AlloyError::Transport(TransportErrorKind::Custom(error)) => {
                match error.downcast_ref::<reqwest::Error>().map(ConnectionError::of) {
                    Some(ConnectionError::TimedOut) => Fault::Transport(RpcError::Timeout),
                    Some(problem) => unreachable(problem.to_string()),
                    None => unreachable("request failed".to_owned()),
                }
            }
            // The answer came but is no JSON-RPC: a proxy's error page, or a connection cut short.
            AlloyError::DeserError { .. } => unreachable(format!("no JSON-RPC answer to {method}")),
            AlloyError::NullResp => Fault::Transport(RpcError::Malformed(method)),
            _ => unreachable("request failed".to_owned()),
        }
    }
}

/// The newest block that an endpoint knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    number: u64,
    /// Unix seconds.
    timestamp: u64,
}

impl Head {
    const fn is_clearly_ahead_of(self, other: Self, seen_before: u64) -> bool {
        self.number >= other.number.saturating_add(STALE_BLOCKS)
            && (self.timestamp >= other.timestamp.saturating_add(STALE_SECONDS) || other.number < seen_before)
    }
}

/// Why one call to one endpoint has no answer.
pub(super) enum Fault {
    /// The endpoint did not answer.
    Transport(RpcError),
    /// The node behind it answered with an error.
    Node(ErrorPayload),
}

/// A block number, if it is one that any chain will reach: the store and the metrics keep signed 64-bit numbers.
pub(super) fn block_number(number: U64) -> Option<u64> {
    let number = number.to::<u64>();
    i64::try_from(number).is_ok().then_some(number)
}
