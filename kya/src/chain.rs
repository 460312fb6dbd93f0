//! Reads of a chain and transactions to it: plain JSON-RPC to one endpoint. Core queries go through
//! [`RpcNode::ask`].

use std::{error::Error as _, time::Duration};

use alloy::{
    primitives::{Address, B256, Bytes, U64, U256},
    sol_types::SolCall,
};
use host_kit::native::{RpcClient, read_body};
use registry_core::{
    chain::{Query, Run},
    eth::{
        abi::{self, IAgentRegistry::attestationGracePeriodCall},
        redact::{Redactor, public_origin},
        rpc::{ErrorPayload, endpoint::RpcEndpoint, revert::Revert},
    },
    gate::limits,
};
use reqwest::{Client, Url, header::AUTHORIZATION};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::report::{CommandFailure, Result};

/// The largest answer that is read, in bytes.
const LARGEST_ANSWER: usize = 4 << 20;

/// Builds an HTTP client that follows no redirects. Errors: it cannot be built.
pub fn client() -> Result<Client> {
    Client::builder()
        .connect_timeout(Duration::from_secs(5))
        .timeout(Duration::from_secs(130))
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| no_client(&error))
}

/// Parses the URL of an argument. Errors: it is no URL, or its scheme is neither http nor https.
pub fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let is_http = matches!(url.scheme(), "http" | "https");
    is_http.then_some(url).ok_or_else(|| "has to be an http or https URL".to_owned())
}

/// Returns the failure to build a client, most often for lack of CA certificates. The cause names no URL.
pub(crate) fn no_client(error: &reqwest::Error) -> CommandFailure {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    CommandFailure::refused(format!("no HTTP client can be built{cause}"))
}

/// An RPC endpoint of one chain.
#[derive(Debug)]
pub struct RpcNode {
    client: Client,
    endpoint: RpcEndpoint,
    queries: RpcClient,
    multicall3: Address,
    redactor: Redactor,
    /// The chain's id.
    pub chain: u64,
}

/// A block.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// Block number.
    pub number: U64,
    /// Block time in unix seconds.
    pub timestamp: U64,
    /// Base fee in wei per gas.
    #[serde(default)]
    pub base_fee_per_gas: U256,
}

/// The part of a receipt that is used here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// 1 if the transaction succeeded.
    pub status: U64,
    /// Number of the transaction's block.
    pub block_number: U64,
    /// Events of the transaction.
    pub logs: Vec<ReceiptLog>,
}

/// An event.
#[derive(Clone, Debug, Deserialize)]
pub struct ReceiptLog {
    /// The emitting contract.
    pub address: Address,
    /// The event's signature hash, and its indexed arguments.
    pub topics: Vec<B256>,
}

impl RpcNode {
    /// Connects to an endpoint, and checks its chain where one is given. Errors: it does not answer, or is on
    /// another chain.
    pub async fn connect(url: &str, chain: Option<u64>, multicall3: Address) -> Result<Self> {
        // Not by the argument's parser: its error would quote the URL and its key.
        let endpoint = RpcEndpoint::parse(url).filter(|endpoint| http_url(&endpoint.url).is_ok());
        let endpoint =
            endpoint.ok_or_else(|| CommandFailure::usage("--rpc has to be an http or https URL"))?;
        let (client, redactor) = (client()?, Redactor::new([url]));
        let queries = RpcClient::new(client.clone(), vec![endpoint.clone()], chain.unwrap_or_default());
        let mut node = Self { client, endpoint, queries, multicall3, redactor, chain: 0 };
        let id: U64 = node.read("eth_chainId", json!([])).await?;
        node.chain = id.to();
        if let Some(chain) = chain.filter(|chain| *chain != node.chain) {
            let found = node.chain;
            return Err(CommandFailure::refused(format!(
                "the RPC endpoint is on chain {found}, not on {chain}"
            )));
        }
        node.queries = RpcClient::new(node.client.clone(), vec![node.endpoint.clone()], node.chain);
        Ok(node)
    }

    /// Runs a query of the core. Errors: the query's, without the endpoint's secrets.
    pub async fn ask<Q: Query>(&self, query: Q) -> Result<Q::Output>
    where
        Q::Error: std::fmt::Display,
    {
        // A record has no setters: an old block shows the same.
        let run = Run::new(query, self.multicall3, limits(crate::now(), 0));
        let answer = self.queries.ask(run, |_| {}).await;
        answer.map_err(|error| CommandFailure::try_again(self.redactor.clean(&error.to_string())))
    }

    /// Removes the endpoint's secrets from a node's text.
    pub fn clean(&self, words: &str) -> String {
        self.redactor.clean(words).to_string()
    }

    /// Calls a method; the inner result is the node's. Errors: there is no answer, or it is no JSON-RPC.
    pub async fn request(&self, method: &str, params: Value) -> Result<Result<Value, ErrorPayload>> {
        let silent = |_| {
            let origin = public_origin(&self.endpoint.url);
            CommandFailure::try_again(format!("the RPC endpoint {origin} does not answer"))
        };
        let question = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let mut request = self.client.post(&self.endpoint.url).header("content-type", "application/json");
        if let Some(authorization) = &self.endpoint.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let response =
            request.body(question).timeout(Duration::from_secs(15)).send().await.map_err(silent)?;
        let body = read_body(response, LARGEST_ANSWER).await.map_err(silent)?.unwrap_or_default();
        #[derive(Deserialize)]
        struct RpcAnswer {
            result: Option<Box<RawValue>>,
            error: Option<ErrorPayload>,
        }
        let answer: Option<RpcAnswer> = serde_json::from_slice(&body).ok();
        match answer {
            Some(RpcAnswer { error: Some(error), .. }) => Ok(Err(error)),
            Some(RpcAnswer { result, .. }) => {
                let result = result.and_then(|result| serde_json::from_str(result.get()).ok());
                Ok(Ok(result.unwrap_or_default()))
            }
            None => Err(CommandFailure::try_again(format!(
                "the RPC endpoint's answer to {method} is no JSON-RPC"
            ))),
        }
    }

    /// Calls a method that only reads. Errors: the node gives no result, or one that cannot be read.
    pub async fn read<T: for<'a> Deserialize<'a>>(&self, method: &str, params: Value) -> Result<T> {
        let failed = |why: &str| {
            CommandFailure::try_again(format!(
                "the RPC endpoint refused {method}: {}",
                self.redactor.clean(why)
            ))
        };
        let result = self.request(method, params).await?.map_err(|error| failed(&error.message))?;
        serde_json::from_value(result).map_err(|_| failed("its answer cannot be read"))
    }

    /// Calls a function of a contract at the latest block; the inner error is its revert. Errors: there is no
    /// answer, or the contract does not have the function.
    pub async fn call<C: SolCall>(&self, to: Address, call: &C) -> Result<Result<C::Return, Revert>> {
        self.call_at(to, call, "latest").await
    }

    /// Calls a function of a contract at the block of a tag. Errors: those of [`call`](Self::call).
    pub async fn call_at<C: SolCall>(
        &self,
        to: Address,
        call: &C,
        tag: &str,
    ) -> Result<Result<C::Return, Revert>> {
        let params = json!([{ "to": to, "data": Bytes::from(call.abi_encode()) }, tag]);
        let other_contract = || {
            let chain = self.chain;
            CommandFailure::refused(format!(
                "{to} on chain {chain} is no contract with {}: which is the registry?",
                C::SIGNATURE
            ))
        };
        let data = match self.request("eth_call", params).await? {
            Ok(data) => data,
            Err(error) => {
                return match Revert::from_error(&error) {
                    // A contract without the function reverts without a message, the registry with one.
                    Some(Revert { message: None }) => Err(other_contract()),
                    Some(revert) => Ok(Err(revert)),
                    None => {
                        let why = self.redactor.clean(&error.message);
                        Err(CommandFailure::try_again(format!("eth_call: {why}")))
                    }
                };
            }
        };
        let data: Bytes = serde_json::from_value(data).unwrap_or_default();
        abi::decode_returns::<C>(&data).map(Ok).map_err(|_| other_contract())
    }

    /// Reads the seconds for which an attestation holds in this registry. Errors: it cannot be read.
    pub async fn grace_period(&self, registry: Address) -> Result<u64> {
        let grace = self.call(registry, &attestationGracePeriodCall {}).await?;
        let grace =
            grace.map_err(|revert| CommandFailure::refused(format!("the registry refuses: {revert}")))?;
        Ok(grace.saturating_to())
    }

    /// Reads the block of a tag. Errors: there is none.
    pub async fn block(&self, tag: &str) -> Result<Block> {
        self.read("eth_getBlockByNumber", json!([tag, false])).await
    }

    /// Reads the receipt of a transaction; `None` while it is not mined. Errors: there is no answer.
    pub async fn receipt(&self, hash: B256) -> Result<Option<Receipt>> {
        self.read("eth_getTransactionReceipt", json!([hash])).await
    }

    /// Reads the number of an account's transactions at this tag. Errors: there is no answer.
    pub async fn transaction_count(&self, account: Address, tag: &str) -> Result<u64> {
        let count: U64 = self.read("eth_getTransactionCount", json!([account, tag])).await?;
        Ok(count.to())
    }
}
