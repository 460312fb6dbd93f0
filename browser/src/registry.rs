//! The registry as a page asks it: the questions of the read API, each answered straight from the chain.

use js_sys::{Array, Date, Reflect, encode_uri_component};
use registry_browser_values::{
    error::RegistryError,
    value::{parse, text_of},
};
use registry_core::{
    api::error::Error,
    api::question::Question,
    api::route::Route,
    chain::{Endpoints, Limits, Reply, Run, Step},
    eth::as_of::BlockId,
    eth::timestamp::Timestamp,
    registry::kya::Asked,
};
use wasm_bindgen::prelude::*;

use crate::options::{Options, Settings};

/// The agent registry, read straight from its chain. Nothing is remembered from one question to the next: each answer is of
/// one block, the newest.
#[wasm_bindgen]
pub struct Registry {
    settings: Settings,
}

#[wasm_bindgen]
impl Registry {
    /// A registry on the chain behind an RPC endpoint or a wallet. Asks nothing yet.
    ///
    /// @throws RegistryError with the code INVALID_PARAMETER, naming the option and its rule
    #[wasm_bindgen(constructor)]
    pub fn new(options: &Options) -> Result<Self, RegistryError> {
        Ok(Self { settings: Settings::of(options)? })
    }

    /// The answer to a path of the read API, such as `/api/v1/agents?page=2`: the same document, field by field, with the
    /// endpoint or wallet asked here as its `rpc` or `chain`. Integers beyond `Number.MAX_SAFE_INTEGER` are BigInts.
    ///
    /// @throws RegistryError with the status and code of the API's answer
    #[wasm_bindgen(unchecked_return_type = "unknown")]
    pub async fn get(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] path: JsValue,
    ) -> Result<JsValue, RegistryError> {
        self.ask(&text_of(&path)).await
    }

    /// The same as text: the exact body that the API would send.
    ///
    /// @throws RegistryError with the status and code of the API's answer
    #[wasm_bindgen(js_name = getText)]
    pub async fn get_text(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] path: JsValue,
    ) -> Result<String, RegistryError> {
        self.body(&text_of(&path)).await
    }

    /// Whether chain and registry answer.
    #[wasm_bindgen(unchecked_return_type = "Health")]
    pub async fn health(&self) -> Result<JsValue, RegistryError> {
        self.ask("/health").await
    }

    /// How many agents there are.
    #[wasm_bindgen(unchecked_return_type = "Stats")]
    pub async fn stats(&self) -> Result<JsValue, RegistryError> {
        self.ask("/api/v1/stats").await
    }

    /// Distributions, compliance rate, revenue and the last ten registrations, over the whole registry.
    #[wasm_bindgen(js_name = detailedStats, unchecked_return_type = "DetailedStats")]
    pub async fn detailed_stats(&self) -> Result<JsValue, RegistryError> {
        self.ask("/api/v1/stats/detailed").await
    }

    /// An agent's record, its children's ids and its compliance.
    #[wasm_bindgen(unchecked_return_type = "AgentDetail")]
    pub async fn agent(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Integer | string")] id: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "BlockQuery")] query: JsValue,
    ) -> Result<JsValue, RegistryError> {
        self.ask(&with_query(format!("/api/v1/agent/{}", segment(&id)), &query, &["block"])).await
    }

    /// The agents above an agent, its parent first: who else is liable.
    #[wasm_bindgen(unchecked_return_type = "Ancestors")]
    pub async fn ancestors(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Integer | string")] id: JsValue,
    ) -> Result<JsValue, RegistryError> {
        self.ask(&format!("/api/v1/agent/{}/ancestors", segment(&id))).await
    }

    /// A page of agents.
    #[wasm_bindgen(unchecked_return_type = "AgentPage")]
    pub async fn agents(
        &self,
        #[wasm_bindgen(unchecked_optional_param_type = "AgentsQuery")] query: JsValue,
    ) -> Result<JsValue, RegistryError> {
        self.ask(&with_query("/api/v1/agents".to_owned(), &query, &["page", "limit", "status"])).await
    }

    /// All agents with their compliance, the stalest attestation first; with a query a page of them.
    #[wasm_bindgen(unchecked_return_type = "ComplianceList")]
    pub async fn compliance(
        &self,
        #[wasm_bindgen(unchecked_optional_param_type = "ComplianceQuery")] query: JsValue,
    ) -> Result<JsValue, RegistryError> {
        self.ask(&with_query("/api/v1/agents/compliance".to_owned(), &query, &["limit", "cursor"])).await
    }

    /// The tree below an agent.
    #[wasm_bindgen(unchecked_return_type = "LineageNode")]
    pub async fn lineage(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Integer | string")] id: JsValue,
    ) -> Result<JsValue, RegistryError> {
        self.ask(&format!("/api/v1/agent/{}/lineage", segment(&id))).await
    }

    /// An agent's revenue reports.
    #[wasm_bindgen(unchecked_return_type = "RevenueHistory")]
    pub async fn revenue(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Integer | string")] id: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "RevenueQuery")] query: JsValue,
    ) -> Result<JsValue, RegistryError> {
        let path = format!("/api/v1/agent/{}/revenue", segment(&id));
        self.ask(&with_query(path, &query, &["limit", "offset"])).await
    }

    /// Revenue of the whole registry, by currency and category.
    #[wasm_bindgen(js_name = revenueAggregate, unchecked_return_type = "RevenueAggregate")]
    pub async fn revenue_aggregate(&self) -> Result<JsValue, RegistryError> {
        self.ask("/api/v1/revenue/aggregate").await
    }

    /// The verdict on a wallet: what to do, why, until when, and who is liable.
    #[wasm_bindgen(unchecked_return_type = "Kya")]
    pub async fn kya(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] wallet: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "KyaQuery")] query: JsValue,
    ) -> Result<JsValue, RegistryError> {
        let path = format!("/api/v1/kya/{}", segment(&wallet));
        self.ask(&with_query(path, &query, &["block", "history"])).await
    }

    /// The verdicts on up to 100 wallets, all at one block, in their order.
    #[wasm_bindgen(js_name = kyaList, unchecked_return_type = "KyaList")]
    pub async fn kya_list(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string[]")] wallets: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "BlockQuery")] query: JsValue,
    ) -> Result<JsValue, RegistryError> {
        let rule = "must be a list of 1 to 100 wallets";
        let wallets =
            wallets.dyn_into::<Array>().map_err(|_| Error::InvalidParameter { field: "wallets", rule })?;
        let wallets = wallets.iter().map(|wallet| Asked::parse(&text_of(&wallet))).collect();
        let block = Reflect::get(&query, &"block".into()).unwrap_or(JsValue::UNDEFINED);
        let error = Error::InvalidParameter { field: "block", rule: BlockId::RULE };
        let block = match block.is_undefined() {
            true => None,
            false => Some(BlockId::parse(&text_of(&block)).ok_or(error)?),
        };
        parse(&self.answer(Route::kya_list(wallets, block)?).await?)
    }
}

impl Registry {
    async fn ask(&self, target: &str) -> Result<JsValue, RegistryError> {
        parse(&self.body(target).await?)
    }

    /// The body of the answer to a target.
    async fn body(&self, target: &str) -> Result<String, RegistryError> {
        self.answer(Route::parse(target)?).await
    }

    /// The body of the answer: drives the question to its end.
    async fn answer(&self, endpoint: Route) -> Result<String, RegistryError> {
        let Settings { transport, registry, chain_id, timeout_seconds, multicall3 } = &self.settings;
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
        let mut run = Run::new(question, *multicall3, limits).over(endpoints);

        let mut thrown = JsValue::UNDEFINED;
        let outcome = loop {
            run.passed((Date::now() - began) as u32);
            let fed = match run.step() {
                Ok(Step::Done(answer)) => break Ok(answer),
                Ok(Step::Send(batch)) => match transport.post(&batch).await {
                    Ok(answer) => {
                        thrown = answer.thrown;
                        run.feed(Reply { status: answer.status, body: &answer.body })
                    }
                    Err(failure) => run.fail(failure),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = fed {
                break Err(error);
            }
        };
        match outcome {
            Ok(answer) => Ok(answer.body),
            Err(error) => Err(RegistryError::caused(error.redacted(&transport.redactor()), &thrown)),
        }
    }
}

/// An argument as one segment of a path: whatever it holds, it stays one.
fn segment(value: &JsValue) -> String {
    encode_uri_component(&text_of(value)).into()
}

/// A path with those members of `query` that are there.
fn with_query(path: String, query: &JsValue, names: &[&str]) -> String {
    let mut target = path;
    let mut separator = '?';
    for name in names {
        let value = Reflect::get(query, &(*name).into()).unwrap_or(JsValue::UNDEFINED);
        if !value.is_undefined() {
            target.push(separator);
            target.push_str(name);
            target.push('=');
            target.push_str(&segment(&value));
            separator = '&';
        }
    }
    target
}
