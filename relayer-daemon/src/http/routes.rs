//! The paths: bodies in, JSON out. [`crate::relay`] checks relays, [`super::connections`] serves the
//! connections, and `middleware` completes every answer.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use alloy::primitives::{Address, utils::format_ether};
use bytes::{Buf, BufMut as _};
use futures_util::{Stream, StreamExt, future::try_join_all};
use registry_core::{
    eth::address,
    eth::timestamp::Timestamp,
    forward::{DOMAIN_NAME, DOMAIN_VERSION},
};
use serde::Serialize;
use serde_json::json;
use warp::{
    Filter, Rejection, Reply,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    reject::{MethodNotAllowed, Reject},
    reply::Response,
};

use super::{
    client_address::TrustedProxies,
    description::{self, DescriptionParameters},
    readiness::RelayerReadiness,
    shapes,
    waiting::{self, WaitingPlaces},
};
use crate::{
    budget::Budget,
    chain::Chain,
    metrics::gauge_value,
    outcome::{ErrorCode, Failure, RelayOutcome},
    relay::{AcceptedRelay, Relayer, brief_cache::BriefCache, rate_limits::ClientLimit, store_failed},
    sender::{Sender, health::AccountState},
    store::{RelayRecord, Store, control::relay_id, fleet::WEBHOOKS},
};

/// The largest body accepted, bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// Bytes of a too large body that are drained, so that a client that is still writing reads the 413.
const DISCARDED: usize = 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);
/// Time in which a body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The header that names a relay.
pub const RELAY_ID: &str = "x-relay-id";

/// The parts that the handlers share.
#[derive(Debug)]
pub struct App {
    /// The pipeline.
    pub relayer: Arc<Relayer>,
    /// The store with a reader for clients, so that no client holds up the sender.
    pub store: Arc<Store>,
    /// The figures of the store in `/metrics`, which has no rate limit of its own.
    pub facts: FactsCache,
    /// The state behind `/readyz`.
    pub readiness: RelayerReadiness,
    /// The chain's id.
    pub chain_id: u64,
    /// The hash of the settings that daemons of a fleet have alike.
    pub settings_hash: String,
    /// Time that a client waits for the receipt, where it has a place to wait.
    pub relay_wait: Duration,
    /// The places to wait.
    pub places: WaitingPlaces,
    /// The trusted proxies.
    pub proxies: TrustedProxies,
}

/// The store's budget and oldest pending relay, at most a second old.
pub type FactsCache = BriefCache<(), (Budget, Option<u64>)>;

impl App {
    /// Reads the budget, and the time since which the oldest relay is pending.
    async fn facts(&self) -> Result<(Budget, Option<u64>), Failure> {
        let (limit, now) = (self.relayer.terms.spending.daily_wei, self.relayer.clock.now());
        let read = move |store: &Store| Ok((store.budget(limit, now)?, store.oldest_pending()?));
        self.store.run(read).await.map_err(store_failed)
    }

    /// Sets the gauges that are read on demand.
    pub async fn refresh_gauges(&self) {
        let relayer = &self.relayer;
        let now = relayer.clock.now();
        if let Ok((budget, oldest)) = self.facts.get((), self.facts()).await {
            relayer.metrics.budget_limit_wei.set(gauge_value(budget.limit_wei));
            relayer.metrics.budget_used_wei.set(gauge_value(budget.used_wei()));
            let age = oldest.map(|since| now.saturating_sub(since)).unwrap_or_default();
            relayer.metrics.oldest_pending_seconds.set(age.cast_signed());
        }
        for sender in relayer.accounts.senders() {
            let account = sender.account().to_string();
            let pending = i64::try_from(sender.pending()).unwrap_or(i64::MAX);
            relayer.metrics.pending_transactions.with_label_values(&[account.as_str()]).set(pending);
            let ready = i64::from(sender.account_state() == AccountState::Ready);
            relayer.metrics.account_ready.with_label_values(&[account.as_str()]).set(ready);
        }
        if let Some((stats, connects)) = relayer.store.stats() {
            relayer.metrics.saw_store(stats.counts(), stats.seconds(), connects);
        }
        relayer.metrics.ready.set(self.readiness.check().is_ok().into());
        relayer.metrics.queue_depth.set(i64::try_from(relayer.inflight.len()).unwrap_or(i64::MAX));
    }
}

/// The socket's peer, put into each request by [`crate::http`].
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The route that answered, put into each response for the metrics.
#[derive(Debug, Clone, Copy)]
pub struct RouteName(pub &'static str);

impl Reject for Failure {}

/// Combines filters: the first one that accepts a request answers it.
macro_rules! first_of {
    ($first:expr $(, $next:expr)*) => { $first$(.or($next).unify())* };
}

/// Returns the filter of all routes.
pub fn routes(app: Arc<App>) -> impl Filter<Extract = (Response,), Error = Infallible> + Clone {
    let description: Arc<str> = description::text(DescriptionParameters {
        chain_id: app.chain_id,
        registry: app.relayer.chain.registry,
        forwarder: app.relayer.chain.forwarder,
        max_gas: app.relayer.terms.rules.max_gas,
    })
    .into();
    let with_app = warp::any().map(move || Arc::clone(&app));
    let read = warp::get().or(warp::head()).unify();
    let get = read.and(with_app.clone());

    let client = client(with_app.clone());
    let relay = warp::path!("relay")
        .and(warp::post())
        .and(with_app)
        .and(client.clone())
        .and(warp::header::headers_cloned())
        .and(warp::body::stream())
        .then(|app: Arc<App>, client: IpAddr, headers: HeaderMap, body| async move {
            answer("relay", post_relay(&app, client, &headers, body).await)
        });
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    let relay_state = warp::path!("relay" / String).and(get.clone()).and(client.clone()).and(query).then(
        |id: String, app: Arc<App>, client: IpAddr, query: String| async move {
            answer("relay_state", relay_state(&app, client, &id, &query).await)
        },
    );
    let nonce = warp::path!("nonce" / String).and(get.clone()).and(client.clone()).then(
        |address: String, app: Arc<App>, client: IpAddr| async move {
            answer("nonce", nonce(&app, client, &address).await)
        },
    );
    let status = warp::path!("status")
        .and(get.clone())
        .and(client)
        .then(|app: Arc<App>, client: IpAddr| async move { answer("status", status(&app, client).await) });
    let domain =
        warp::path!("domain").and(get.clone()).map(|app: Arc<App>| answer("domain", Ok(domain(&app))));
    let live = warp::path!("livez").and(read).map(|| answer("livez", Ok(ok(&json!({ "live": true })))));
    let ready = warp::path!("readyz").and(get.clone()).map(|app: Arc<App>| {
        let answered = match app.readiness.check() {
            Ok(refusing) => {
                ok(&shapes::ReadyBody { ready: true, refusing, accounts: account_states(&app.relayer) })
            }
            // A probe gets one status, whatever the code's own status is.
            Err(failure) => failed_as(StatusCode::SERVICE_UNAVAILABLE, &failure),
        };
        answer("readyz", Ok(answered))
    });
    let openapi =
        warp::path!("openapi.json").and(read).map(move || answer("openapi", Ok(described(&description))));
    let metrics = warp::path!("metrics")
        .and(get)
        .then(|app: Arc<App>| async move { answer("metrics", Ok(metrics(&app).await)) });

    first_of!(relay, relay_state, nonce, status, domain, live, ready, openapi, metrics)
        .recover(|rejection: Rejection| async move { Ok::<_, Infallible>(unmatched(&rejection)) })
        .unify()
}

/// Returns a filter that extracts the client that a request counts for.
fn client(
    with_app: impl Filter<Extract = (Arc<App>,), Error = Infallible> + Clone,
) -> impl Filter<Extract = (IpAddr,), Error = Rejection> + Clone {
    with_app
        .and(warp::ext::get::<Peer>())
        .and(warp::header::headers_cloned())
        .map(|app: Arc<App>, peer: Peer, headers: HeaderMap| app.proxies.client(peer.0.ip(), &headers))
}

/// Charges a read, by the limit of its kind.
fn charge_read(limit: &ClientLimit, client: IpAddr) -> Result<(), Failure> {
    limit.charge(&client).map_err(|wait| Failure::read_limit(limit.count(), wait))
}

async fn post_relay<S, B>(
    app: &App,
    client: IpAddr,
    headers: &HeaderMap,
    body: S,
) -> Result<Response, Failure>
where
    S: Stream<Item = Result<B, warp::Error>>,
    B: Buf,
{
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: usize| length > MAX_BODY + DISCARDED) {
        return Err(Failure::of(ErrorCode::BodyTooLarge));
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, collect(body))
        .await
        .map_err(|_| Failure::of(ErrorCode::BodyTimeout))??;

    let relayer = &app.relayer;
    // A header that is no text holds no key.
    let authorization = headers.get(header::AUTHORIZATION).map(|header| header.to_str().unwrap_or_default());
    let AcceptedRelay { id, waiting, has_key } = relayer.accept(&body, client, authorization).await?;
    let place = app.places.for_relay(!has_key && relayer.policy.current().without_key_share() < 100);
    let limit = place.as_ref().map_or(Duration::ZERO, |_| app.relay_wait);
    let outcome = waiting::outcome_within(waiting, relayer.stopping.clone(), limit).await;
    let mut response = match outcome {
        Some(RelayOutcome::Executed { mined, agent_id }) => {
            ok(&shapes::ExecutedBody::new(id, &mined, agent_id))
        }
        Some(RelayOutcome::Reverted { failure, .. } | RelayOutcome::Dropped { failure }) => failed(&failure),
        None => {
            let record = app.store.run(move |store| store.relay(id)).await.ok().flatten();
            let record = record.unwrap_or(RelayRecord { outcome: None, finality: None, hashes: Vec::new() });
            json_response(StatusCode::ACCEPTED, &shapes::RelayBody::new(id, &record, relayer.chain.head()))
        }
    };
    if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(RELAY_ID, id);
    }
    Ok(response)
}

/// Collects the body, and refuses it as soon as it is too large.
async fn collect<B: Buf>(stream: impl Stream<Item = Result<B, warp::Error>>) -> Result<Vec<u8>, Failure> {
    let mut stream = pin!(stream);
    let mut body = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| Failure::of(ErrorCode::BodyBroken))?;
        if body.len().saturating_add(chunk.remaining()) > MAX_BODY {
            // The answer is the same, drained or not.
            let _ = tokio::time::timeout(DISCARD_TIMEOUT, discard(stream)).await;
            return Err(Failure::of(ErrorCode::BodyTooLarge));
        }
        body.put(chunk);
    }
    Ok(body)
}

/// Drains a body, up to [`DISCARDED`] bytes.
async fn discard<B: Buf>(mut stream: Pin<&mut impl Stream<Item = Result<B, warp::Error>>>) {
    let mut length = 0_usize;
    while let Some(Ok(chunk)) = stream.next().await {
        length = length.saturating_add(chunk.remaining());
        if length > DISCARDED {
            return;
        }
    }
}

async fn relay_state(app: &App, client: IpAddr, id: &str, query: &str) -> Result<Response, Failure> {
    let id = relay_id(id).map_err(|_| Failure::of(ErrorCode::InvalidId))?;
    let wanted = waiting::wanted(query)?;
    charge_read(&app.relayer.limits.polls, client)?;
    let stopping = app.relayer.stopping.clone();
    let place = wanted.and_then(|_| app.places.for_question(client));
    let limit = place.as_ref().map_or(Duration::ZERO, |_| app.relay_wait);
    match waiting::relay(&app.store, id, wanted, limit, stopping).await? {
        Some(record) => Ok(ok(&shapes::RelayBody::new(id, &record, app.relayer.chain.head()))),
        None => Err(Failure::new(ErrorCode::RelayNotFound, format!("Relay not found: {id}"))),
    }
}

async fn nonce(app: &App, client: IpAddr, signer: &str) -> Result<Response, Failure> {
    let address = address::parse(signer).map_err(|_| Failure::of(ErrorCode::InvalidAddress))?;
    charge_read(&app.relayer.limits.reads, client)?;
    let (on_chain, next) = app.relayer.nonces(address).await?;
    Ok(ok(&shapes::NonceBody { address, nonce: on_chain, next }))
}

async fn status(app: &App, client: IpAddr) -> Result<Response, Failure> {
    let relayer = &app.relayer;
    charge_read(&relayer.limits.reads, client)?;
    let now = relayer.clock.now();
    let senders = relayer.accounts.senders();
    let accounts = try_join_all(relayer.configured.iter().map(|account| {
        let sender = senders.iter().find(|sender| sender.account() == *account);
        async move {
            let balance = relayer.balance(*account, sender).await?;
            Ok::<_, Failure>(shapes::AccountBody {
                address: *account,
                state: account_state(relayer, account, sender),
                balance: format_ether(balance),
                balance_wei: balance.to_string(),
                pending: sender.map_or(0, |sender| sender.pending()),
            })
        }
    }));
    let accounts = accounts.await?;
    let fleet = if relayer.store.is_shared() {
        let record = app.store.run(|store| store.fleet()).await.map_err(store_failed)?;
        let leases = record.holders.keys().filter(|account| **account != WEBHOOKS).count();
        let daemon = relayer.store.daemon().map(|daemon| daemon.0.to_string()).unwrap_or_default();
        Some(shapes::FleetBody { daemon, daemons: record.daemons, leases, pending: record.pending })
    } else {
        None
    };
    let first = accounts.first().ok_or(Failure::of(ErrorCode::ShuttingDown))?;
    let (budget, oldest) = app.facts().await?;
    Ok(ok(&shapes::StatusBody {
        relayer: first.address,
        balance: first.balance.clone(),
        balance_wei: first.balance_wei.clone(),
        accounts,
        chain_id: app.chain_id,
        registry: relayer.chain.registry,
        forwarder: relayer.chain.forwarder,
        gas_budget: shapes::GasBudgetBody {
            limit_wei: budget.limit_wei.to_string(),
            used_wei: budget.used_wei().to_string(),
            remaining_wei: budget.remaining_wei().to_string(),
            resets_at: budget.resets_at().map(Timestamp::from_seconds),
        },
        limits: shapes::LimitsBody {
            per_ip_per_hour: relayer.limits.per_ip.count(),
            per_signer_per_hour: relayer.limits.per_signer.count(),
            max_request_gas: relayer.terms.rules.max_gas,
            max_body_bytes: MAX_BODY,
        },
        queue: shapes::QueueBody {
            depth: relayer.inflight.len(),
            oldest_pending_seconds: oldest.map(|since| now.saturating_sub(since)),
        },
        fleet,
        operator: operator(app).await?,
        policy_hash: relayer.policy.current().hash().to_owned(),
        settings_hash: app.settings_hash.clone(),
        version: env!("CARGO_PKG_VERSION"),
    }))
}

/// Returns the operator's orders in force, and the last one.
async fn operator(app: &App) -> Result<shapes::OperatorBody, Failure> {
    let orders = app.relayer.orders.current();
    let last = app.store.run(|store| store.last_operation()).await.map_err(store_failed)?;
    Ok(shapes::OperatorBody {
        intake: if orders.paused_since.is_some() { shapes::Intake::Paused } else { shapes::Intake::Open },
        paused_since: orders.paused_since.map(Timestamp::from_seconds),
        cordoned: orders.cordoned.keys().map(Address::to_string).collect(),
        last_order: last
            .map(|order| shapes::OrderBody { command: order.command, at: Timestamp::from_seconds(order.at) }),
    })
}

/// Returns the state of an account, which may be another daemon's.
fn account_state(relayer: &Relayer, account: &Address, sender: Option<&Arc<Sender<Chain>>>) -> AccountState {
    let elsewhere = || match relayer.orders.current().cordoned.contains_key(account) {
        true => AccountState::Cordoned,
        false => AccountState::Elsewhere,
    };
    sender.map_or_else(elsewhere, |sender| sender.account_state())
}

fn account_states(relayer: &Relayer) -> Vec<shapes::AccountStateBody> {
    let senders = relayer.accounts.senders();
    let state = |account: &Address| {
        let sender = senders.iter().find(|sender| sender.account() == *account);
        shapes::AccountStateBody { address: *account, state: account_state(relayer, account, sender) }
    };
    relayer.configured.iter().map(state).collect()
}

fn domain(app: &App) -> Response {
    ok(&shapes::DomainBody {
        name: DOMAIN_NAME,
        version: DOMAIN_VERSION,
        chain_id: app.chain_id,
        verifying_contract: app.relayer.chain.forwarder,
    })
}

async fn metrics(app: &App) -> Response {
    app.refresh_gauges().await;
    let text = app.relayer.metrics.render();
    warp::reply::with_header(text, header::CONTENT_TYPE, "text/plain; version=0.0.4").into_response()
}

fn described(description: &str) -> Response {
    warp::reply::with_header(description.to_owned(), header::CONTENT_TYPE, "application/json").into_response()
}

fn ok(body: &impl Serialize) -> Response {
    json_response(StatusCode::OK, body)
}

fn json_response(status: StatusCode, body: &impl Serialize) -> Response {
    warp::reply::with_status(warp::reply::json(body), status).into_response()
}

fn failed(failure: &Failure) -> Response {
    let status = StatusCode::from_u16(failure.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    failed_as(status, failure)
}

fn failed_as(status: StatusCode, failure: &Failure) -> Response {
    let mut response =
        json_response(status, &shapes::FailureBody { error: failure.message(), code: failure.code });
    if let Some(seconds) = failure.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response.extensions_mut().insert(FailureCode(failure.code));
    response
}

/// The code of a failed answer, for the metrics.
#[derive(Debug, Clone, Copy)]
pub struct FailureCode(pub ErrorCode);

/// Returns the methods that a path has, for `Allow`.
pub fn allowed(path: &str) -> &'static str {
    if path.trim_end_matches('/') == "/relay" { "POST, OPTIONS" } else { "GET, HEAD, OPTIONS" }
}

fn answer(route: &'static str, result: Result<Response, Failure>) -> Response {
    let mut response = result.unwrap_or_else(|failure| failed(&failure));
    response.extensions_mut().insert(RouteName(route));
    response
}

fn unmatched(rejection: &Rejection) -> Response {
    let code = if rejection.is_not_found() {
        ErrorCode::NotFound
    } else if rejection.find::<MethodNotAllowed>().is_some() {
        ErrorCode::MethodNotAllowed
    } else {
        ErrorCode::BadRequest
    };
    answer("none", Err(Failure::of(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_changes_no_methods() {
        for (path, first) in
            [("/relay", "POST"), ("/relay/", "POST"), ("/relay/0x12", "GET"), ("/status/", "GET")]
        {
            assert!(allowed(path).starts_with(first), "{path}");
        }
    }
}
