//! The gate in a service's own process, for services in JavaScript: `npm/gate.js` is built on it and brings
//! requests, the store of nonces, and `fetch`.
//!
//! `registry-core` decides, step by step; this crate carries out the steps.
//!
//! | file | what it holds |
//! |---|---|
//! | `settings` | the daemon's configuration file |
//! | `accounts`, `cache` | accounts and verdicts, read and cached |

mod accounts;
mod cache;
mod settings;

use std::collections::BTreeMap;

use alloy_primitives::hex;
use futures_util::future::{Either, select};
use gloo_timers::future::TimeoutFuture;
use js_sys::{Array, Date, Function, Promise};
use registry_core::{
    eth::timestamp::Timestamp,
    gate::{
        Allowance, Attempt, Content, DecisionStep, GateAnswer, Outcome, RefusalCode, Request, RequestFault,
        RoutePolicy, Spending, origin_form,
    },
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use accounts::AccountReader;
use settings::{GateSettings, NonceSettings};

/// Milliseconds that a store of nonces may take for an answer.
const STORE_TIMEOUT_MS: u32 = 3_000;

#[wasm_bindgen]
extern "C" {
    /// A store of spent nonces: `nonces.js` describes its duties.
    pub type NonceStore;

    #[wasm_bindgen(method, catch)]
    fn spend(this: &NonceStore, key: &str, created: f64, keep_millis: f64) -> Result<JsValue, JsValue>;
}

/// A gate: its settings, and cached facts about accounts.
#[wasm_bindgen]
pub struct Engine {
    policies: BTreeMap<String, RoutePolicy>,
    accounts: AccountReader,
    capacity: Option<usize>,
    prefix: Option<String>,
    discovery: String,
    registry: String,
}

/// A request as its adapter received it.
#[wasm_bindgen]
pub struct Received {
    method: String,
    target: String,
    /// Pairs of a name in lower case and a value, in the order received.
    fields: Vec<(String, String)>,
}

#[wasm_bindgen]
impl Received {
    /// Makes a request of these field lines: name, value, name, value, and so on.
    #[wasm_bindgen(constructor)]
    pub fn new(method: String, target: String, lines: Vec<String>) -> Self {
        let mut lines = lines.into_iter();
        let mut fields = Vec::new();
        while let (Some(name), Some(value)) = (lines.next(), lines.next()) {
            fields.push((name.to_ascii_lowercase(), value));
        }
        Self { method, target: origin_form(&target).into_owned(), fields }
    }
}

impl Received {
    /// Calls `read` with the request at a policy's origin.
    fn with<T>(&self, policy: &RoutePolicy, content: Content<'_>, read: impl FnOnce(&Request<'_>) -> T) -> T {
        let fields: Vec<(&str, &[u8])> =
            self.fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        read(&Request {
            method: &self.method,
            origin: &policy.origin,
            target: &self.target,
            fields: &fields,
            content,
        })
    }
}

#[wasm_bindgen]
impl Engine {
    /// Makes a gate of a configuration file's text. `rpc` has endpoints in place of the file's, separated by
    /// commas; `report` is called with the reason when a read or the store of nonces fails.
    ///
    /// @throws Error with the setting that cannot be kept
    #[wasm_bindgen(constructor)]
    pub fn new(file: &str, rpc: Option<String>, fetch: Function, report: Function) -> Result<Self, JsError> {
        let settings = GateSettings::parse(file, rpc.as_deref()).map_err(|error| JsError::new(&error))?;
        let discovery = settings.discovery_document();
        let GateSettings { chain, kya, policies, nonces, document } = settings;
        let accounts = AccountReader::new(chain, kya, fetch, report);
        let (capacity, prefix) = match nonces {
            NonceSettings::Memory(capacity) => (capacity, None),
            NonceSettings::Redis(prefix) => (None, Some(prefix)),
        };
        Ok(Self { policies, accounts, capacity, prefix, discovery, registry: document.json() })
    }

    /// Returns whether there is such a policy.
    pub fn has(&self, policy: &str) -> bool {
        self.policies.contains_key(policy)
    }

    /// The most nonces to remember in memory, by the file's setting.
    #[wasm_bindgen(getter)]
    pub fn capacity(&self) -> Option<usize> {
        self.capacity
    }

    /// The prefix of nonces in Redis; `undefined` where the file has no table `[redis]`.
    #[wasm_bindgen(getter)]
    pub fn prefix(&self) -> Option<String> {
        self.prefix.clone()
    }

    /// The document for `/.well-known/erc8128`.
    #[wasm_bindgen(getter)]
    pub fn discovery(&self) -> String {
        self.discovery.clone()
    }

    /// The document for `/.well-known/agent-registry`.
    #[wasm_bindgen(getter)]
    pub fn registry(&self) -> String {
        self.registry.clone()
    }

    /// Returns whether a signature could pass all checks but the account's with some content. If not, the
    /// content need not be read: it makes no difference.
    #[wasm_bindgen(js_name = mayPass)]
    pub fn may_pass(&self, policy: &str, received: &Received) -> bool {
        let Some(policy) = self.policies.get(policy) else { return false };
        let unread = Content::Withheld { is_empty: true };
        received
            .with(policy, unread, |request| matches!(policy.decide(request, now()), DecisionStep::Account(_)))
    }

    /// Decides on a request. Returns the outcome's code, and the answer's status, body and headers, as name,
    /// value, name, value. `content` is the whole content; `undefined` where it was not read. `refusal` is 0,
    /// or a status in place of a decision: 413 for content that is too long, 400 for content that broke off,
    /// and 503 for a decision that took too long.
    ///
    /// @throws Error where there is no such policy
    #[wasm_bindgen(unchecked_return_type = "[string, number, string, ...string[]]")]
    pub async fn decide(
        &self,
        policy: &str,
        received: &Received,
        content: Option<Vec<u8>>,
        nonces: &NonceStore,
        refusal: u16,
    ) -> Result<Array, JsError> {
        let unknown = || JsError::new(&format!("policy.{policy}: is not configured"));
        let policy = self.policies.get(policy).ok_or_else(unknown)?;
        let content = content.as_deref().map_or(Content::Withheld { is_empty: false }, Content::Whole);
        let now = now();
        let mut step = match refusal {
            0 => received.with(policy, content, |request| policy.decide(request, now)),
            400 => DecisionStep::Done(Outcome::Faulty(RequestFault::ContentIncomplete)),
            413 => DecisionStep::Done(Outcome::Faulty(RequestFault::ContentTooLong)),
            _ => DecisionStep::Done(Outcome::Refused(RefusalCode::SignatureVerificationUnavailable)),
        };
        let is_unread = matches!(content, Content::Withheld { .. });
        if is_unread && matches!(step, DecisionStep::Account(_)) {
            // The clock has moved on since `may_pass` found that no content would pass.
            step = DecisionStep::Done(Outcome::Refused(RefusalCode::SignatureVerificationUnavailable));
        }
        let mut allowance = Allowance::of_a_request();
        let outcome = loop {
            step = match step {
                DecisionStep::Account(account) => {
                    let known = self.accounts.of(account.attempt(), &mut allowance, now).await;
                    account.answer(known.state, known.verdict)
                }
                DecisionStep::Acceptance(acceptance) => {
                    let code = self.accounts.signer(acceptance.query(), now).await;
                    acceptance.answer(code)
                }
                // A reader of logs would be a tenth of this module: attestations need a read API with an
                // index.
                DecisionStep::Attested(attested) => attested.answer(None),
                DecisionStep::Nonce(nonce) => {
                    let spending = self.spend(nonces, nonce.attempt(), now).await;
                    nonce.answer(spending)
                }
                DecisionStep::Done(outcome) => break outcome,
            };
        };
        let answer = match policy.observe {
            true => outcome.observed(),
            false => received
                .with(policy, content, |request| outcome.answer(request, &policy.rules, &policy.links)),
        };
        Ok(array(&outcome, answer))
    }
}

impl Engine {
    /// Spends the nonce of an attempt, under the same key and for the same time as a daemon.
    async fn spend(&self, nonces: &NonceStore, attempt: &Attempt, now: Timestamp) -> Spending {
        let keep_millis = attempt.nonce_seconds(now.seconds()).saturating_mul(1_000) as f64;
        let spent = nonces.spend(&hex::encode(attempt.nonce_key()), attempt.created as f64, keep_millis);
        let spent = match spent {
            // A store that never answers counts as unavailable.
            Ok(answer) => {
                let answer = JsFuture::from(Promise::resolve(&answer));
                match select(answer, TimeoutFuture::new(STORE_TIMEOUT_MS)).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(_) => return Spending::Unavailable,
                }
            }
            thrown => thrown,
        };
        let spent = match spent {
            Ok(answer) => answer.as_string(),
            Err(error) => {
                let message = error.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
                self.accounts.tell(&format!("nonces: {}", message.unwrap_or_default()));
                None
            }
        };
        match spent.as_deref() {
            Some("spent") => Spending::Spent,
            Some("reused") => Spending::Reused,
            Some("unknown") => Spending::SignedBeforeStart,
            Some("full") => Spending::Full,
            _ => Spending::Unavailable,
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from_millis(Date::now() as u64)
}

fn array(outcome: &Outcome, answer: GateAnswer) -> Array {
    let head = [JsValue::from(outcome.code()), answer.status.into(), answer.body.into()];
    let headers = answer.headers.into_iter().flat_map(|(name, value)| [name.into(), value.into()]);
    head.into_iter().chain(headers).collect()
}
