//! What is known about a request's account: whether it has code, what the code says about the signature, and
//! the verdict on the wallet. KnownAccount things are cached, and forgotten when they change.
//!
//! | | from the chain | with the read API |
//! |---|---|---|
//! | nothing is cached | one round trip for all of it | one to each, at the same time |
//! | the verdict and that there is no code are cached | none | none |
//! | the account has code | one: it is asked about each signature | one |
//!
//! That an account has no code holds for `cache-seconds`. A verdict holds as long, or while its changes are
//! followed for [`FOLLOWED`]; never beyond the end of its attestation.

mod api;
mod cache;
mod changes;
mod evidence;

use std::{sync::Arc, time::Duration};

use alloy_primitives::Address;
use registry_core::{
    eth::timestamp::Timestamp,
    gate::{AccountFacts, AccountQuery, AccountState, Attempt, Verdict},
};
use reqwest::Client;

use crate::{
    metrics::Metrics,
    rpc::Rpc,
    settings::{KyaSource, Settings},
};
pub use api::Api;
use cache::Cache;
pub use changes::follow;
use evidence::Proofs;

/// How long a verdict is used while its changes are followed.
const FOLLOWED: Duration = Duration::from_secs(600);

/// AccountReader and verdicts, read and cached.
#[derive(Debug)]
pub struct AccountReader {
    rpc: Rpc,
    source: Source,
    cache: Cache,
    proofs: Proofs,
    metrics: Metrics,
}

#[derive(Debug)]
enum Source {
    Registry(Address),
    Api(Api),
}

/// What is known about the account of an attempt.
#[derive(Debug, Clone)]
pub struct KnownAccount {
    /// The account; `None` where the chain did not say.
    pub state: Option<AccountState>,
    /// The verdict; `None` where its source did not give one.
    pub verdict: Option<Arc<Verdict>>,
    /// For how long the verdict may be passed on.
    pub fresh_for: Duration,
}

impl AccountReader {
    /// Nothing known yet.
    ///
    /// # Errors
    /// If no HTTP client can be built.
    pub fn new(settings: &Settings, metrics: Metrics) -> Result<Self, reqwest::Error> {
        // A proxy from the environment would see every wallet, a redirect's target the keys in URLs.
        let client = Client::builder()
            .connect_timeout(Duration::from_secs(3))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let rpc = Rpc::new(client.clone(), settings.chain.clone(), metrics.clone());
        let source = match &settings.kya.source {
            KyaSource::Registry(registry) => Source::Registry(*registry),
            KyaSource::Api { url, .. } => Source::Api(Api::new(client, url.clone(), metrics.clone())),
        };
        Ok(Self { rpc, source, cache: Cache::new(settings.kya.cached), proofs: Proofs::default(), metrics })
    }

    /// What is known about the account of an attempt at `now`, read where it is not cached.
    pub async fn of(&self, attempt: &Attempt, now: Timestamp) -> KnownAccount {
        let wallet = attempt.account.address;
        let cached = self.cache.get(wallet, now);
        if let Some(verdict) = cached.verdict.clone().filter(|_| cached.has_no_code) {
            self.metrics.lookups.with_label_values(&["cache"]).inc();
            let (state, fresh_for) = (Some(AccountState::NoCode), cached.fresh_for);
            return KnownAccount { state, verdict: Some(verdict), fresh_for };
        }
        self.metrics.lookups.with_label_values(&["read"]).inc();
        let reading = self.cache.begin();
        let fresh_for = if cached.verdict.is_some() { cached.fresh_for } else { self.cache.cached() };
        let (state, verdict) = match &self.source {
            Source::Registry(registry) => {
                let wanted = cached.verdict.is_none().then_some(*registry);
                let facts = self.account(attempt, wanted, now).await;
                let read = facts.as_ref().and_then(|facts| facts.kya.as_ref()).map(Verdict::from);
                (facts.map(|facts| facts.state), cached.verdict.or(read.map(Arc::new)))
            }
            Source::Api(api) => {
                let state = async {
                    match cached.has_no_code {
                        true => Some(AccountState::NoCode),
                        false => self.account(attempt, None, now).await.map(|facts| facts.state),
                    }
                };
                let verdict = async {
                    match cached.verdict {
                        Some(verdict) => Some(verdict),
                        None => api.verdict(wallet).await.map(|verdict| self.cache.latest(wallet, verdict)),
                    }
                };
                tokio::join!(state, verdict)
            }
        };
        self.cache.put(wallet, verdict.as_ref(), state, &reading);
        KnownAccount { state, verdict, fresh_for }
    }

    async fn account(
        &self,
        attempt: &Attempt,
        registry: Option<Address>,
        now: Timestamp,
    ) -> Option<AccountFacts> {
        let answer = self.rpc.ask(AccountQuery::of(attempt, registry, now), now).await;
        answer.inspect_err(|error| tracing::warn!(%error, "the chain did not answer")).ok()
    }

    /// Whether chain and source answer, in a word for each.
    ///
    /// # Errors
    /// The part that does not answer.
    pub async fn probe(&self, now: Timestamp) -> Result<String, String> {
        let registry = match &self.source {
            Source::Registry(registry) => Some(*registry),
            Source::Api(_) => None,
        };
        let query = AccountQuery { account: Address::ZERO, signed: None, registry, now };
        let labels = self.rpc.labels();
        self.rpc.ask(query, now).await.map_err(|error| format!("chain: {error}"))?;
        let Source::Api(api) = &self.source else { return Ok(format!("the chain answers at {labels}")) };
        api.verdict(Address::ZERO).await.ok_or("api: it gives no verdict")?;
        Ok(format!("the chain answers at {labels}, the read API at {}", api.label()))
    }
}
