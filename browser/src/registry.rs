//! The registry for pages: the queries of the read API, each answered straight from the chain.

use host_kit::{RpcHost, RpcReply, drive};
use js_sys::{Array, Date, encode_uri_component};
use registry_browser_values::{
    error::RegistryError,
    member::{invalid, member},
    value::{parse, text_of},
};
use registry_core::{
    api::question::Question,
    api::route::Route,
    chain::{Batch, Endpoints, Failure, Limits, Run, Update},
    eth::as_of::BlockId,
    eth::timestamp::Timestamp,
    registry::kya::WalletInput,
};
use wasm_bindgen::prelude::*;

use crate::{options::ClientOptions, transport::Transport};

/// The agent registry, read straight from its chain. Each answer is of one block, the newest; nothing is
/// cached between answers.
#[wasm_bindgen]
pub struct Registry {
    options: ClientOptions,
}

#[wasm_bindgen]
impl Registry {
    /// Makes a registry on the chain behind an RPC endpoint or a wallet, without asking anything yet.
    ///
    /// @throws RegistryError with the code INVALID_PARAMETER, naming the option and its rule
    #[wasm_bindgen(constructor)]
    pub fn new(
        #[wasm_bindgen(unchecked_param_type = "RegistryOptions")] options: &JsValue,
    ) -> Result<Self, RegistryError> {
        Ok(Self { options: ClientOptions::of(options)? })
    }

    /// Answers a path of the read API, such as `/api/v1/agents?page=2`, with the same document, field by
    /// field. Its `rpc` or `chain` is the endpoint or wallet asked here. Integers beyond
    /// `Number.MAX_SAFE_INTEGER` are BigInts.
    ///
    /// @throws RegistryError with the status and code of the API's answer
    #[wasm_bindgen(unchecked_return_type = "unknown")]
    pub async fn get(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] path: JsValue,
    ) -> Result<JsValue, RegistryError> {
        self.ask(&text_of(&path)).await
    }

    /// Answers as `get`, but with text: the exact body that the API would send.
    ///
    /// @throws RegistryError with the status and code of the API's answer
    #[wasm_bindgen(js_name = getText)]
    pub async fn get_text(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] path: JsValue,
    ) -> Result<String, RegistryError> {
        self.body(&text_of(&path)).await
    }

    /// Returns the verdicts on up to 100 wallets, all at one block, in their order.
    #[wasm_bindgen(js_name = kyaList, unchecked_return_type = "KyaList")]
    pub async fn kya_list(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string[]")] wallets: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "BlockQuery")] query: JsValue,
    ) -> Result<JsValue, RegistryError> {
        let wallets = wallets.dyn_into::<Array>();
        let wallets = wallets.map_err(|_| invalid("wallets", "must be a list of 1 to 100 wallets"))?;
        let wallets = wallets.iter().map(|wallet| WalletInput::parse(&text_of(&wallet))).collect();
        let block = member(&query, "block")
            .map(|block| BlockId::parse(&text_of(&block)).ok_or(invalid("block", BlockId::RULE)))
            .transpose()?;
        parse(&self.answer(Route::kya_list(wallets, block)?).await?)
    }
}

/// Methods that each answer with one document. A row names the method, its argument, its query's type and
/// members, the document's type as the API's description has it, and the path. Its doc is an attribute,
/// because wasm-bindgen copies a doc comment among a macro's arguments as a raw string, `r"` included.
macro_rules! documents {
    ($(
        $(#[$doc:meta])*
        fn $name:ident $(as $js_name:ident)? (
            $($argument:ident: $argument_type:literal)?
            $(; $query:literal { $($member:ident),+ })?
        ) -> $document:literal = $path:literal;
    )*) => {
        #[wasm_bindgen]
        impl Registry {$(
            $(#[$doc])*
            #[wasm_bindgen($(js_name = $js_name,)? unchecked_return_type = $document)]
            pub async fn $name(
                &self,
                $(#[wasm_bindgen(unchecked_param_type = $argument_type)] $argument: JsValue,)?
                $(#[wasm_bindgen(unchecked_optional_param_type = $query)] query: JsValue,)?
            ) -> Result<JsValue, RegistryError> {
                $(let $argument = segment(&$argument);)?
                let target = format!($path);
                $(let target = with_query(target, &query, &[$(stringify!($member)),+]);)?
                self.ask(&target).await
            }
        )*}
    };
}

documents! {
    #[doc = "Checks that chain and registry answer."]
    fn health() -> "Health" = "/health";

    #[doc = "The number of agents."]
    fn stats() -> "Stats" = "/api/v1/stats";

    #[doc = "Distributions, compliance rate, revenue and the last ten registrations, over the whole registry."]
    fn detailed_stats as detailedStats() -> "DetailedStats" = "/api/v1/stats/detailed";

    #[doc = "An agent's record, its children's ids and its compliance."]
    fn agent(id: "Integer | string"; "BlockQuery" { block }) -> "AgentDetail" = "/api/v1/agent/{id}";

    #[doc = "The agents above an agent, its parent first: who else is liable."]
    fn ancestors(id: "Integer | string") -> "Ancestors" = "/api/v1/agent/{id}/ancestors";

    #[doc = "A page of agents."]
    fn agents(; "AgentsQuery" { page, limit, status }) -> "AgentPage" = "/api/v1/agents";

    #[doc = "All agents with their compliance, the stalest attestation first; with a query a page of them."]
    fn compliance(; "ComplianceQuery" { limit, cursor }) -> "ComplianceList" =
        "/api/v1/agents/compliance";

    #[doc = "The tree below an agent."]
    fn lineage(id: "Integer | string") -> "LineageNode" = "/api/v1/agent/{id}/lineage";

    #[doc = "An agent's revenue reports."]
    fn revenue(id: "Integer | string"; "RevenueQuery" { limit, offset }) -> "RevenueHistory" =
        "/api/v1/agent/{id}/revenue";

    #[doc = "Revenue of the whole registry, by currency and category."]
    fn revenue_aggregate as revenueAggregate() -> "RevenueAggregate" = "/api/v1/revenue/aggregate";

    #[doc = "The verdict on a wallet: what to do, why, until when, and who is liable."]
    fn kya(wallet: "string"; "KyaQuery" { block, history }) -> "Kya" = "/api/v1/kya/{wallet}";
}

impl Registry {
    async fn ask(&self, target: &str) -> Result<JsValue, RegistryError> {
        parse(&self.body(target).await?)
    }

    /// Returns the body of the answer to a target.
    async fn body(&self, target: &str) -> Result<String, RegistryError> {
        self.answer(Route::parse(target)?).await
    }

    /// Runs a question to its end, and returns the body of the answer.
    async fn answer(&self, endpoint: Route) -> Result<String, RegistryError> {
        let ClientOptions { transport, registry, chain_id, timeout_seconds, multicall3 } = &self.options;
        let began = Date::now();
        let question = Question {
            route: endpoint,
            registry: *registry,
            chain: transport.name(),
            now: Timestamp::from_millis(began as u64),
            scan: None,
            excerpt: None,
        };
        let deadline_ms = timeout_seconds * 1000;
        // Each endpoint gets its share of the time.
        let timeout_ms = deadline_ms / transport.count().max(1) as u32;
        let limits = Limits { deadline_ms, timeout_ms, ..Limits::default() };
        let endpoints = Endpoints::new(transport.count(), *chain_id);
        let run = Run::new(question, *multicall3, limits).over(endpoints);
        let mut host = PageHost { transport, began, thrown: JsValue::UNDEFINED };
        match drive(run, &mut host).await {
            Ok(answer) => Ok(answer.body),
            Err(error) => Err(RegistryError::caused(error.redacted(&transport.redactor()), &host.thrown)),
        }
    }
}

/// The page as the host of one question.
struct PageHost<'a> {
    transport: &'a Transport,
    began: f64,
    /// The last value that the wallet threw, if any.
    thrown: JsValue,
}

impl RpcHost for PageHost<'_> {
    fn elapsed_ms(&self) -> u32 {
        (Date::now() - self.began) as u32
    }

    async fn round_trip(&mut self, batch: &Batch, _may_hedge: bool) -> Result<RpcReply, Failure> {
        self.transport.post(batch, &mut self.thrown).await
    }

    /// Nothing is kept between questions.
    fn merge(&mut self, _update: impl FnOnce() -> Update) {}
}

/// Escapes an argument as one segment of a path.
fn segment(value: &JsValue) -> String {
    encode_uri_component(&text_of(value)).into()
}

/// Adds the members of `query` that are defined to a path.
fn with_query(path: String, query: &JsValue, names: &[&str]) -> String {
    let mut target = path;
    let mut separator = '?';
    for name in names {
        if let Some(value) = member(query, name) {
            target += &format!("{separator}{name}={}", segment(&value));
            separator = '&';
        }
    }
    target
}
