//! Facts about a request's account: whether it has code, whether the code accepts the signature, and the
//! verdict on the wallet. As in the daemon, facts that are not cached are read at the same time: from the
//! chain in one round trip, and the verdict from the read API where that is its source.
//!
//! Reads are not shared between requests: a Worker may not wait for a read that another request began.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use alloy_primitives::Address;
use futures_util::future::join;
use host_kit::{RpcHost, RpcReply, drive};
use js_sys::{Date, Function};
use registry_core::{
    chain::{Batch, Endpoints, Failure, Halt, Query, QueryError, Run, SignerCode, SignerQuery, Update, View},
    eth::{as_of::BlockId, redact::Redactor, rpc::endpoint::RpcEndpoint, timestamp::Timestamp},
    gate::{
        API_TIMEOUT_MS, AccountFacts, AccountQuery, AccountState, Allowance, ApiTerms, Attempt, ReadRate,
        Verdict, limits,
    },
};
use registry_fetch::{RpcPost, body::BodyReader, endpoint_headers, get, round_trip};
use wasm_bindgen::prelude::*;

use crate::{
    cache::{CachedWallet, WalletCache},
    settings::{ChainSettings, KyaSettings},
};

/// Accounts and verdicts, read and cached.
pub(crate) struct AccountReader {
    chain: ChainSettings,
    kya: KyaSettings,
    cache: WalletCache,
    /// The state of the RPC endpoints, as runs have learned it.
    endpoints: RefCell<Endpoints>,
    /// The terms on which answers of the read API are verdicts.
    terms: ApiTerms,
    /// The reads that are left to all requests.
    reads: Cell<ReadRate>,
    fetch: Function,
    /// Called with the reason where there was no answer.
    report: Function,
}

/// The facts about the account of an attempt.
#[derive(Default)]
pub(crate) struct KnownAccount {
    /// The account; `None` where the chain did not answer or was not asked.
    pub(crate) state: Option<AccountState>,
    /// The verdict; `None` where its source gave none.
    pub(crate) verdict: Option<Arc<Verdict>>,
}

/// The question of a read about an account, beside the verdict on its wallet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AccountReadKind {
    /// The presence of code: an account without it has signed if its key has.
    Code,
    /// The presence of code, and its answer on the signature.
    Signature,
}

impl AccountReader {
    pub(crate) fn new(chain: ChainSettings, kya: KyaSettings, fetch: Function, report: Function) -> Self {
        let endpoints = RefCell::new(Endpoints::new(chain.endpoints.len(), Some(chain.id)));
        let registry = format!("eip155:{}:{:#x}", chain.id, kya.registry);
        let terms = ApiTerms::new(registry, chain.max_head_age_seconds);
        let reads = Cell::new(ReadRate::new(chain.reads_per_second, 0.0));
        Self { cache: WalletCache::new(kya.cached_ms), chain, kya, endpoints, terms, reads, fetch, report }
    }

    /// Returns the facts about the account of an attempt at `now`, from the cache or by reads, within the
    /// allowances of the request and of all requests.
    pub(crate) async fn of(
        &self,
        attempt: &Attempt,
        allowance: &mut Allowance,
        now: Timestamp,
    ) -> KnownAccount {
        let mut cached = self.cache.get(attempt.account.address, now);
        // A key that did not sign needs no verdict.
        if cached.has_code == Some(false) && (cached.verdict.is_some() || !attempt.is_of_key()) {
            return KnownAccount { state: Some(AccountState::NoCode), verdict: cached.verdict };
        }
        let asks_code = attempt.is_of_key() && cached.has_code != Some(true);
        let mut question = if asks_code { AccountReadKind::Code } else { AccountReadKind::Signature };
        loop {
            if !allowance.take() {
                return KnownAccount::default();
            }
            let known = self.read(attempt, question, &cached, now).await;
            match (known.state, question) {
                // The key signed, but where there is code, the code decides.
                (Some(AccountState::Code { .. }), AccountReadKind::Code) => {
                    question = AccountReadKind::Signature;
                    cached.verdict = known.verdict;
                }
                _ => return known,
            }
        }
    }

    async fn read(
        &self,
        attempt: &Attempt,
        question: AccountReadKind,
        cached: &CachedWallet,
        now: Timestamp,
    ) -> KnownAccount {
        let known = match &self.kya.api {
            None => {
                let wanted = cached.verdict.is_none().then_some(self.kya.registry);
                let facts = self.account(attempt, question, wanted, now).await;
                let read = facts.as_ref().and_then(|facts| facts.kya.as_ref()).map(Verdict::from);
                KnownAccount {
                    state: facts.map(|facts| facts.state),
                    verdict: cached.verdict.clone().or(read.map(Arc::new)),
                }
            }
            Some(api) => {
                let state = async {
                    match cached.has_code {
                        Some(false) => Some(AccountState::NoCode),
                        _ => self.account(attempt, question, None, now).await.map(|facts| facts.state),
                    }
                };
                let verdict = async {
                    match &cached.verdict {
                        Some(verdict) => Some(Arc::clone(verdict)),
                        None => self.verdict(api, attempt, now).await.map(Arc::new),
                    }
                };
                let (state, verdict) = join(state, verdict).await;
                KnownAccount { state, verdict }
            }
        };
        self.cache.put(attempt.account.address, &known, cached, now);
        known
    }

    async fn account(
        &self,
        attempt: &Attempt,
        question: AccountReadKind,
        registry: Option<Address>,
        now: Timestamp,
    ) -> Option<AccountFacts> {
        self.take_read(attempt.is_of_key())?;
        let query = match question {
            AccountReadKind::Code => {
                AccountQuery { account: attempt.account.address, signed: None, registry, now }
            }
            AccountReadKind::Signature => AccountQuery::of(attempt, registry, now),
        };
        self.ask(ChainQuery::Account(query), now).await
    }

    /// Returns whether a liable wallet has code and, if so, whether that accepts its signature; `None` where
    /// the chain does not answer, or no read is left.
    pub(crate) async fn signer(&self, query: SignerQuery, now: Timestamp) -> Option<SignerCode> {
        let account = query.account;
        let cached = self.cache.get(account, now);
        let has_code = match cached.has_code {
            Some(has_code) => has_code,
            None => {
                self.take_read(true)?;
                let asked = AccountQuery { account, signed: None, registry: None, now };
                let state = self.ask(ChainQuery::Account(asked), now).await?.state;
                let known = KnownAccount { state: Some(state), verdict: None };
                self.cache.put(account, &known, &cached, now);
                state != AccountState::NoCode
            }
        };
        if !has_code {
            return Some(SignerCode { has_code, accepts: false });
        }
        self.take_read(true)?;
        let newest = SignerQuery { block: None, ..query.clone() };
        let facts = match self.answer(ChainQuery::Signer(query), now).await {
            // No endpoint has the block any more, or none has it yet.
            Err(QueryError::BlockNotAvailable(_)) => {
                self.take_read(true)?;
                self.ask(ChainQuery::Signer(newest), now).await?
            }
            answer => self.heard(answer)?,
        };
        Some(match facts.state {
            AccountState::NoCode => SignerCode { has_code: false, accepts: false },
            AccountState::Code { accepts } => SignerCode { has_code: true, accepts },
        })
    }

    async fn ask(&self, query: ChainQuery, now: Timestamp) -> Option<AccountFacts> {
        let answer = self.answer(query, now).await;
        self.heard(answer)
    }

    async fn answer(&self, query: ChainQuery, now: Timestamp) -> Result<AccountFacts, QueryError> {
        let limits = limits(now, self.chain.max_head_age_seconds);
        let run = Run::new(query, self.chain.multicall3, limits).over(self.endpoints.borrow().clone());
        drive(run, &mut ServiceHost { reader: self, began: Date::now() }).await
    }

    /// Returns an answer, or reports why there is none.
    fn heard(&self, answer: Result<AccountFacts, QueryError>) -> Option<AccountFacts> {
        answer
            .inspect_err(|error| {
                let secrets = self.chain.endpoints.iter().flat_map(RpcEndpoint::secrets);
                let error = Redactor::new(secrets).clean(&error.to_string()).to_string();
                self.tell(&format!("the chain did not answer: {error}"));
            })
            .ok()
    }

    /// Reads the verdict on a wallet; `None` where the API gives no recent one of this registry.
    async fn verdict(&self, api: &str, attempt: &Attempt, now: Timestamp) -> Option<Verdict> {
        self.take_read(attempt.is_of_key())?;
        let verdict = self.verdict_of(api, attempt.account.address, now).await;
        verdict.inspect_err(|error| self.tell(&format!("the read API gave no verdict: {error}"))).ok()
    }

    async fn verdict_of(&self, api: &str, wallet: Address, now: Timestamp) -> Result<Verdict, String> {
        let url = format!("{}/api/v1/kya/{wallet}", api.trim_end_matches('/'));
        let answer =
            get(&self.fetch, &url, ApiTerms::REGISTRY_HEADER, API_TIMEOUT_MS, ApiTerms::LONGEST_ANSWER).await;
        let answer = answer.map_err(|failure| format!("{failure:?}"))?;
        if answer.status != 200 {
            return Err(format!("status {}", answer.status));
        }
        self.terms.check_registry(answer.header.as_deref())?;
        self.terms.verdict(&answer.body, wallet, now)
    }

    /// Takes a read of the rate limit, if one is left. It reads the clock, since a request's second read
    /// comes later than the request.
    fn take_read(&self, is_of_key: bool) -> Option<()> {
        let mut reads = self.reads.get();
        let is_left = reads.take(is_of_key, Date::now() / 1_000.0);
        self.reads.set(reads);
        if !is_left {
            self.tell("no read is left of chain.reads-per-second");
        }
        is_left.then_some(())
    }

    /// Calls `report` with a message.
    pub(crate) fn tell(&self, message: &str) {
        // Errors of the callback are its own affair.
        let _ = self.report.call1(&JsValue::UNDEFINED, &message.into());
    }
}

/// All queries for the chain, as one type: each type of query is compiled with an engine of its own.
enum ChainQuery {
    Account(AccountQuery),
    Signer(SignerQuery),
}

impl Query for ChainQuery {
    type Output = AccountFacts;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<AccountFacts, Halt> {
        match self {
            Self::Account(query) => query.resolve(view),
            Self::Signer(query) => {
                let SignerCode { has_code, accepts } = query.resolve(view)?;
                let state = if has_code { AccountState::Code { accepts } } else { AccountState::NoCode };
                Ok(AccountFacts { state, kya: None })
            }
        }
    }

    fn block(&self) -> Option<BlockId> {
        match self {
            Self::Account(query) => query.block(),
            Self::Signer(query) => query.block(),
        }
    }

    fn is_one_round(&self) -> bool {
        true
    }
}

/// The service's process as the host of one query.
struct ServiceHost<'a> {
    reader: &'a AccountReader,
    began: f64,
}

impl RpcHost for ServiceHost<'_> {
    fn elapsed_ms(&self) -> u32 {
        (Date::now() - self.began) as u32
    }

    async fn round_trip(&mut self, batch: &Batch, _may_hedge: bool) -> Result<RpcReply, Failure> {
        let AccountReader { chain, fetch, .. } = self.reader;
        let endpoint = chain.endpoints.get(batch.endpoint).ok_or(Failure::Unreachable)?;
        let headers = endpoint_headers(endpoint).map_err(|_| Failure::Unreachable)?;
        let post = RpcPost { fetch, url: &endpoint.url, headers: &headers, reader: BodyReader::Default };
        let (status, body) = round_trip(batch, async |signal| post.send(batch, signal).await).await?;
        Ok(RpcReply { endpoint: batch.endpoint, status, body })
    }

    fn merge(&mut self, update: impl FnOnce() -> Update) {
        self.reader.endpoints.borrow_mut().merge(&update());
    }
}
