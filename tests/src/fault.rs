//! Faults of a node or of the network in front of it, and the rules that say when they strike.

use std::time::Duration;

use alloy::primitives::B256;
use anyhow::Result;
use serde_json::{Value, json};

use crate::anvil::{quantity, wall_clock};
use crate::proxy::UpstreamNode;

#[derive(Debug, Clone)]
pub enum NodeFault {
    /// The post gets this HTTP status and body; the node is not asked.
    Status { status: u16, body: String, retry_after: Option<u64> },
    /// The post gets this body with status 200; the node is not asked.
    Garbage(String),
    /// The connection is closed; the node is not asked.
    Refuse,
    /// No answer, ever; the node is not asked.
    Hang,
    /// The node does what it was asked, then the connection is closed.
    LoseAnswer,
    /// The node does what it was asked, and no answer comes.
    HangAfterwards,
    /// The node does what it was asked; half of its answer comes, then the connection is closed.
    HalfAnAnswer,
    /// The answer comes this much later.
    Delay(Duration),
    /// The call gets this JSON-RPC error; the node is not asked.
    Error { code: i64, message: String },
    /// The call gets this result; the node is not asked.
    Result(Value),
    /// The node is behind: it knows no block above `head`, and its `latest` is that one.
    Stale { head: u64 },
    /// The node's answer has no end: a JSON text that goes on until the connection is closed.
    Endless,
    /// The node lists logs only when their block is this old by the wall clock.
    LateLogs(Duration),
    /// The node never lists logs with these topics.
    HiddenLogs(Vec<B256>),
    /// The node proves its newest block alone, as reth does by default.
    NewestProofs,
}

impl NodeFault {
    /// Answers with this HTTP status and a JSON-RPC error body, as providers do.
    pub fn status(status: u16) -> Self {
        let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": format!("http {status}")}});
        Self::Status { status, body: body.to_string(), retry_after: None }
    }

    pub fn page(status: u16, body: &str) -> Self {
        Self::Status { status, body: body.to_owned(), retry_after: None }
    }

    pub fn error(code: i64, message: &str) -> Self {
        Self::Error { code, message: message.into() }
    }

    /// Returns whether the fault strikes one call of a batch alone, and not the whole post.
    pub(crate) fn is_of_call(&self) -> bool {
        matches!(
            self,
            Self::Error { .. }
                | Self::Result(_)
                | Self::Stale { .. }
                | Self::LateLogs(_)
                | Self::HiddenLogs(_)
                | Self::NewestProofs
        )
    }

    /// Answers one call under this fault.
    pub(crate) async fn answer(&self, call: &Value, node: &UpstreamNode) -> Result<Value> {
        match self {
            Self::Error { code, message } => Ok(error(call, *code, message)),
            Self::Result(result) => Ok(json!({"jsonrpc": "2.0", "id": call["id"], "result": result})),
            Self::Stale { head } => stale(call, *head, node).await,
            Self::LateLogs(late) => {
                let newest = wall_clock().saturating_sub(late.as_secs());
                let mut answer = node.ask(call).await?;
                if let Some(logs) = answer["result"].as_array_mut() {
                    logs.retain(|log| quantity(&log["blockTimestamp"]).is_some_and(|time| time <= newest));
                }
                Ok(answer)
            }
            Self::HiddenLogs(topics) => {
                let mut answer = node.ask(call).await?;
                if let Some(logs) = answer["result"].as_array_mut() {
                    logs.retain(|log| {
                        !topics.iter().all(|topic| log["topics"].to_string().contains(&topic.to_string()))
                    });
                }
                Ok(answer)
            }
            Self::NewestProofs => {
                let height = json!({"jsonrpc": "2.0", "id": 0, "method": "eth_blockNumber", "params": []});
                let newest = node.ask(&height).await?["result"].clone();
                match call["params"][2].as_str() {
                    Some("latest") => node.ask(call).await,
                    Some(block) if block == newest => node.ask(call).await,
                    _ => Ok(error(call, -32602, "distance to target block exceeds maximum proof window")),
                }
            }
            _ => node.ask(call).await,
        }
    }
}

fn error(call: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}})
}

/// Answers a call as a node at block `head` would.
async fn stale(call: &Value, head: u64, node: &UpstreamNode) -> Result<Value> {
    let place_of_block = match call["method"].as_str().unwrap_or_default() {
        "eth_blockNumber" => {
            return Ok(json!({"jsonrpc": "2.0", "id": call["id"], "result": format!("{head:#x}")}));
        }
        "eth_getBlockByNumber" => Some(0),
        "eth_call" | "eth_estimateGas" | "eth_getBalance" | "eth_getCode" | "eth_getTransactionCount" => {
            Some(1)
        }
        "eth_getStorageAt" => Some(2),
        _ => None,
    };
    let mut call = call.clone();
    if let Some(place) = place_of_block {
        let block = call["params"][place].clone();
        let is_known = match (block.as_str(), block["blockHash"].as_str()) {
            (_, Some(hash)) => {
                let lookup = json!({"jsonrpc": "2.0", "id": 0, "method": "eth_getBlockByHash", "params": [hash, false]});
                quantity(&node.ask(&lookup).await?["result"]["number"]).is_some_and(|block| block <= head)
            }
            (None | Some("latest" | "pending"), None) => {
                call["params"][place] = format!("{head:#x}").into();
                true
            }
            (Some(_), None) => quantity(&block).is_none_or(|block| block <= head),
        };
        if !is_known {
            return Ok(error(&call, -32000, "header not found"));
        }
    }
    let mut answer = node.ask(&call).await?;
    // The node does not know receipts and transactions of later blocks.
    if quantity(&answer["result"]["blockNumber"]).is_some_and(|block| block > head) {
        answer["result"] = Value::Null;
    }
    Ok(answer)
}

/// A fault, and the calls that it strikes.
#[derive(Debug, Clone)]
pub struct FaultRule {
    method: Option<String>,
    containing: Option<String>,
    skip: usize,
    times: usize,
    every: usize,
    fault: NodeFault,
}

impl FaultRule {
    pub fn any(fault: NodeFault) -> Self {
        Self { method: None, containing: None, skip: 0, times: usize::MAX, every: 1, fault }
    }

    pub fn on(method: &str, fault: NodeFault) -> Self {
        Self { method: Some(method.into()), ..Self::any(fault) }
    }

    /// Strikes only calls with `text` in their parameters, such as a selector or an address.
    pub fn containing(mut self, text: &str) -> Self {
        self.containing = Some(text.to_lowercase());
        self
    }

    /// Strikes one in `calls` matching calls.
    pub fn every(mut self, calls: usize) -> Self {
        self.every = calls;
        self
    }

    /// Lets this many matching calls pass first.
    pub fn after(mut self, calls: usize) -> Self {
        self.skip = calls;
        self
    }

    pub fn once(mut self) -> Self {
        self.times = 1;
        self
    }

    fn matches(&self, call: &Value) -> bool {
        let params = || call["params"].to_string().to_lowercase();
        self.method.as_ref().is_none_or(|method| call["method"] == **method)
            && self.containing.as_ref().is_none_or(|text| params().contains(text))
    }

    /// Returns the fault for one call, if any, and counts the use.
    pub(crate) fn decide(rules: &mut [Self], call: &Value) -> Option<NodeFault> {
        for rule in rules.iter_mut().filter(|rule| rule.times > 0 && rule.matches(call)) {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            rule.skip = rule.every - 1;
            return Some(rule.fault.clone());
        }
        None
    }
}
