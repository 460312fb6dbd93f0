//! Facts about a request's account: whether it has code, whether the code accepts the signature, and the
//! verdict on the wallet. Facts are cached, and forgotten when they change.
//!
//! | | from the chain | with the read API |
//! |---|---|---|
//! | nothing is cached | one round trip for all of it | one to each, at the same time |
//! | the verdict and that there is no code are cached | none | none |
//! | the account has code | one: it is asked about each signature | one |
//!
//! The absence of code is cached for `cache-seconds`. A verdict is cached as long or, while its changes are
//! followed and none after its block was missed, for [`FOLLOWED`]; never beyond the end of its attestation.
//!
//! Requests that need the same facts at the same time share a read: those of one wallet that its key signed,
//! and copies of one request. Those that requests cause have a [budget](budget).

mod api;
mod budget;
mod cache;
mod changes;
mod evidence;
mod flight;
#[cfg(test)]
mod tests;

use std::{
    fmt::Display,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use alloy_primitives::{Address, B256, U256, keccak256};
use futures_util::future::join_all;
use host_kit::native::lock;
use lru::LruCache;
use registry_core::{
    chain::{Query, SignerCode, SignerQuery},
    eth::timestamp::Timestamp,
    gate::{AccountFacts, AccountQuery, AccountState, Allowance, Attempt, AttestedQuery, Verdict},
};
use reqwest::Client;

use crate::{
    metrics::Metrics,
    rpc::Rpc,
    settings::{KyaSource, Settings},
};
pub use api::Api;
use budget::ReadBudget;
pub use budget::ReadCause;
use cache::{AccountCache, CachedAccount};
pub use changes::follow;
use evidence::Proofs;
use flight::SingleFlight;

/// The agents for which the last attestation by the liable wallet is kept.
const AGENTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

/// The time for which a verdict is used while its changes are followed.
const FOLLOWED: Duration = Duration::from_secs(600);

/// Accounts and verdicts, read and cached.
#[derive(Debug)]
pub struct AccountReader {
    /// The chain and the registry of the verdicts (CAIP-10).
    registry: String,
    rpc: Rpc,
    source: VerdictSource,
    cache: AccountCache,
    budget: ReadBudget,
    accounts: SingleFlight<AccountQuestion, KnownAccount>,
    verdicts: SingleFlight<Address, Option<Arc<Verdict>>>,
    proofs: Proofs,
    /// The last attestations by the liable wallets of agents, with the times of the reads.
    attested: Mutex<LruCache<U256, (Option<Timestamp>, Instant)>>,
    metrics: Metrics,
}

#[derive(Debug)]
enum VerdictSource {
    Registry(Address),
    Api(Box<Api>),
}

/// The question of a read about an account, beside the verdict on its wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AccountQuestion {
    /// The presence of code: an account without it has signed if its key has.
    Code(Address),
    /// The presence of code, and its answer on a signature: account, and hash of message and signature.
    Signature(Address, B256),
    /// The presence of a liable wallet's code, without a verdict on it. By cause, as a request that gets no
    /// read must not answer for the operator.
    Signer(Address, ReadCause),
}

/// The facts about the account of an attempt.
#[derive(Debug, Clone, Default)]
pub struct KnownAccount {
    /// The account; `None` where the chain did not answer or was not asked.
    pub state: Option<AccountState>,
    /// The verdict; `None` where its source gave none.
    pub verdict: Option<Arc<Verdict>>,
    /// Time for which the verdict may be passed on.
    pub fresh_for: Duration,
}

impl AccountReader {
    /// Makes a reader with empty caches. Errors: if no HTTP client can be built.
    pub fn new(settings: &Settings, metrics: Metrics) -> Result<Self, reqwest::Error> {
        // A proxy from the environment would see every wallet, a redirect's target the keys in URLs.
        let client = Client::builder()
            .connect_timeout(Duration::from_secs(3))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let rpc = Rpc::new(client.clone(), settings.chain.clone(), metrics.clone());
        let source = match &settings.kya.source {
            KyaSource::Registry => VerdictSource::Registry(settings.kya.registry),
            KyaSource::Api { url, .. } => {
                VerdictSource::Api(Box::new(Api::new(client, url.clone(), settings, metrics.clone())))
            }
        };
        Ok(Self {
            registry: settings.registry(),
            rpc,
            source,
            cache: AccountCache::new(settings.kya.cached),
            budget: ReadBudget::new(settings.chain.reads, metrics.clone()),
            accounts: SingleFlight::default(),
            verdicts: SingleFlight::default(),
            proofs: Proofs::default(),
            attested: Mutex::new(LruCache::new(AGENTS)),
            metrics,
        })
    }

    /// Returns the chain and the registry of the verdicts (CAIP-10).
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the facts about the account of an attempt at `now`, from the cache or by reads, within the
    /// request's allowance and the budget of all requests.
    pub async fn of(&self, attempt: &Attempt, allowance: &mut Allowance, now: Timestamp) -> KnownAccount {
        let wallet = attempt.account.address;
        let cached = self.cache.get(wallet, now);
        if let Some(known) = known(&cached, attempt) {
            self.metrics.lookups.with_label_values(&["cache"]).inc();
            return known;
        }
        let about_signature = || {
            let text = [attempt.hash.as_slice(), &attempt.signature].concat();
            AccountQuestion::Signature(wallet, keccak256(text))
        };
        let mut question = if attempt.is_of_key() && !cached.has_code {
            AccountQuestion::Code(wallet)
        } else {
            about_signature()
        };
        loop {
            if !allowance.take() {
                return KnownAccount::default();
            }
            self.metrics.lookups.with_label_values(&["read"]).inc();
            let read = self.accounts.run(question, self.read(attempt, question, now)).await;
            match (read.state, question) {
                // The key signed, but where there is code, the code decides.
                (Some(AccountState::Code { .. }), AccountQuestion::Code(_)) => question = about_signature(),
                _ => return read,
            }
        }
    }

    async fn read(&self, attempt: &Attempt, question: AccountQuestion, now: Timestamp) -> KnownAccount {
        let wallet = attempt.account.address;
        let (cached, reading) = (self.cache.get(wallet, now), self.cache.begin());
        // Another read may have filled the cache meanwhile.
        if let Some(known) = known(&cached, attempt) {
            return known;
        }
        let fresh_for = if cached.verdict.is_some() { cached.fresh_for } else { self.cache.cached() };
        let (state, verdict) = match &self.source {
            VerdictSource::Registry(registry) => {
                let wanted = cached.verdict.is_none().then_some(*registry);
                let facts = self.account(attempt, question, wanted, now).await;
                let read = facts.as_ref().and_then(|facts| facts.kya.as_ref()).map(Verdict::from);
                (facts.map(|facts| facts.state), cached.verdict.or(read.map(Arc::new)))
            }
            VerdictSource::Api(api) => {
                let state = async {
                    match cached.has_no_code {
                        true => Some(AccountState::NoCode),
                        false => self.account(attempt, question, None, now).await.map(|facts| facts.state),
                    }
                };
                let verdict = async {
                    match cached.verdict {
                        Some(verdict) => Some(verdict),
                        None => self.verdicts.run(wallet, self.verdict(api, attempt, now)).await,
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
        question: AccountQuestion,
        registry: Option<Address>,
        now: Timestamp,
    ) -> Option<AccountFacts> {
        let query = match question {
            AccountQuestion::Code(account) | AccountQuestion::Signer(account, _) => {
                AccountQuery { account, signed: None, registry, now }
            }
            AccountQuestion::Signature(..) => AccountQuery::of(attempt, registry, now),
        };
        self.ask(query, cause(attempt), now).await
    }

    /// Answers a query; `None` where the chain does not answer, or the budget is spent.
    async fn ask<Q: Query>(&self, query: Q, cause: ReadCause, now: Timestamp) -> Option<Q::Output>
    where
        Q::Error: Display,
    {
        let _read = self.budget.take(cause)?;
        self.rpc.ask(query, now).await.inspect_err(unanswered).ok()
    }

    async fn verdict(&self, api: &Api, attempt: &Attempt, now: Timestamp) -> Option<Arc<Verdict>> {
        let wallet = attempt.account.address;
        let _read = self.budget.take(cause(attempt))?;
        let verdict = api.verdict(wallet, now).await?;
        Some(self.cache.latest(wallet, verdict))
    }

    /// Returns whether a liable wallet has code and, if so, whether that accepts its signature: at the
    /// query's block or, where no endpoint has that block any more or has it yet, at the newest one. `None`
    /// where the chain does not answer, or the budget is spent.
    pub async fn signer(&self, query: SignerQuery, cause: ReadCause, now: Timestamp) -> Option<SignerCode> {
        if !self.has_code(query.account, cause, now).await? {
            return Some(SignerCode { has_code: false, accepts: false });
        }
        let newest = SignerQuery { block: None, ..query.clone() };
        let at_block = {
            let _read = self.budget.take(cause)?;
            self.rpc.ask_at(query, now).await
        };
        match at_block.transpose() {
            Some(answer) => answer.inspect_err(unanswered).ok(),
            None => self.ask(newest, cause, now).await,
        }
    }

    /// Returns whether a wallet has code; `None` where the chain does not answer, or the budget is spent.
    pub async fn has_code(&self, wallet: Address, cause: ReadCause, now: Timestamp) -> Option<bool> {
        let cached = self.cache.get(wallet, now);
        if cached.has_no_code || cached.has_code {
            return Some(cached.has_code);
        }
        let question = AccountQuestion::Signer(wallet, cause);
        let known = self.accounts.run(question, self.code(wallet, cause, now)).await;
        Some(known.state? != AccountState::NoCode)
    }

    /// Returns the time of the liable wallet's last attestation for an agent, if any. A time is kept for as
    /// long as it suffices, since an id stays with one registration, any other answer for `cache-seconds`.
    /// Errors: the chain does not answer, or the budget is spent.
    pub async fn attested(
        &self,
        query: &AttestedQuery,
        cause: ReadCause,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, String> {
        let known = lock(&self.attested).get(&query.agent).copied();
        if let Some((at, asked)) = known {
            let suffices = at.is_some_and(|at| at >= query.since);
            if suffices || asked.elapsed() < self.cache.cached() {
                return Ok(at);
            }
        }
        let (_read, asked) = (self.budget.take(cause).ok_or("no read is left")?, Instant::now());
        let at = self.rpc.ask(query.clone(), now).await.inspect_err(unanswered)?;
        lock(&self.attested).put(query.agent, (at, asked));
        Ok(at)
    }

    async fn code(&self, account: Address, cause: ReadCause, now: Timestamp) -> KnownAccount {
        let (cached, reading) = (self.cache.get(account, now), self.cache.begin());
        let query = AccountQuery { account, signed: None, registry: None, now };
        let state = match cached.has_no_code {
            true => Some(AccountState::NoCode),
            false => self.ask(query, cause, now).await.map(|facts| facts.state),
        };
        self.cache.put(account, None, state, &reading);
        KnownAccount { state, ..KnownAccount::default() }
    }

    /// Reads the verdict on a wallet, past the cache. Errors: the reason for which there is none.
    pub async fn verdict_now(&self, wallet: Address, now: Timestamp) -> Result<Verdict, String> {
        match &self.source {
            VerdictSource::Api(api) => api.read(wallet, now).await,
            VerdictSource::Registry(registry) => {
                let query = AccountQuery { account: wallet, signed: None, registry: Some(*registry), now };
                let facts = self.rpc.ask(query, now).await?;
                facts.kya.as_ref().map(Verdict::from).ok_or_else(|| "the registry gave none".to_owned())
            }
        }
    }

    /// Asks each endpoint alone. Returns those that do not answer, with the reasons.
    pub async fn silent_endpoints(&self, now: Timestamp) -> Vec<String> {
        let query = || AccountQuery { account: Address::ZERO, signed: None, registry: None, now };
        let ask = async |rpc: Rpc| {
            let answer = rpc.ask(query(), now).await;
            answer.err().map(|error| format!("{}: {error}", rpc.labels()))
        };
        join_all(self.rpc.each().map(ask)).await.into_iter().flatten().collect()
    }

    /// Checks that chain and source answer; returns words for people. Errors: the part that does not answer.
    pub async fn probe(&self, now: Timestamp) -> Result<String, String> {
        let registry = match &self.source {
            VerdictSource::Registry(registry) => Some(*registry),
            VerdictSource::Api(_) => None,
        };
        let query = AccountQuery { account: Address::ZERO, signed: None, registry, now };
        let (registry, labels) = (&self.registry, self.rpc.labels());
        self.rpc.ask(query, now).await.map_err(|error| format!("chain: {error}"))?;
        let VerdictSource::Api(api) = &self.source else {
            return Ok(format!("{registry}: the chain answers at {labels}"));
        };
        api.read(Address::ZERO, now).await.map_err(|error| format!("api: {error}"))?;
        Ok(format!("{registry}: the chain answers at {labels}, the read API at {}", api.label()))
    }
}

fn cause(attempt: &Attempt) -> ReadCause {
    ReadCause::Request { is_of_key: attempt.is_of_key() }
}

fn unanswered(error: &String) {
    tracing::warn!(%error, "the chain did not answer");
}

/// Returns the facts about an attempt's account by the cache alone, where that suffices: a key that did not
/// sign needs no verdict.
fn known(cached: &CachedAccount, attempt: &Attempt) -> Option<KnownAccount> {
    let suffices = cached.has_no_code && (cached.verdict.is_some() || !attempt.is_of_key());
    suffices.then(|| KnownAccount {
        state: Some(AccountState::NoCode),
        verdict: cached.verdict.clone(),
        fresh_for: cached.fresh_for,
    })
}
