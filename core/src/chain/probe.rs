//! Probes a node for its features beside `eth_call` at its newest block, for monitors. Runs find out by
//! themselves what they need ([`Endpoints`](super::Endpoints)), and rely on that.
//!
//! A probe sends two batches: the newest and the finalized header, then the requests that may need the newest
//! one's hash or number. If a batch is refused, its requests are sent one by one.

use alloy_primitives::{Address, hex};
use alloy_sol_types::SolCall as _;
use serde::Serialize;

use super::{
    batch::Reply,
    block::Header,
    node_error::{is_about_the_batch, may_pass},
};
use crate::eth::{
    abi::IAgentRegistry::nextAgentIdCall,
    rpc::{
        self, BadReply, ErrorPayload, RpcResult,
        read_error::{Action, classify, is_unclear},
    },
};

/// Features of a node; null while unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeFeatures {
    /// Reads at a block by its hash (EIP-1898); null while unknown.
    pub block_hash: Option<bool>,
    /// Proofs of the newest block (`eth_getProof`); null while unknown.
    pub proofs: Option<bool>,
    /// Logs (`eth_getLogs`); null while unknown.
    pub logs: Option<bool>,
    /// The block `finalized`; null while unknown.
    pub finalized: Option<bool>,
    /// Batches of two requests and more; null while unknown.
    pub batch: Option<bool>,
}

impl NodeFeatures {
    /// Fills unknown features from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            block_hash: self.block_hash.or(other.block_hash),
            proofs: self.proofs.or(other.proofs),
            logs: self.logs.or(other.logs),
            finalized: self.finalized.or(other.finalized),
            batch: self.batch.or(other.batch),
        }
    }

    /// Keeps the features that the node has: a refusal may be temporary.
    #[must_use]
    pub fn given(self) -> Self {
        let is_given = |found: Option<bool>| found.filter(|works| *works);
        Self {
            block_hash: is_given(self.block_hash),
            proofs: is_given(self.proofs),
            logs: is_given(self.logs),
            finalized: is_given(self.finalized),
            batch: is_given(self.batch),
        }
    }

    /// Returns whether all features are known.
    pub fn are_known(&self) -> bool {
        [self.block_hash, self.proofs, self.logs, self.finalized, self.batch].iter().all(Option::is_some)
    }
}

/// A request of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeRequest {
    Newest,
    Finalized,
    CallByHash,
    Proof,
    Logs,
}

/// A probe of one node. Send [`body`](Self::body) until there is none, and [`take`](Self::take) each reply.
#[derive(Debug)]
pub struct NodeProbe {
    registry: Address,
    found: NodeFeatures,
    newest: Option<Header>,
    /// Requests without an answer.
    open: Vec<ProbeRequest>,
    /// Requests are sent one by one.
    is_single: bool,
}

impl NodeProbe {
    /// Creates a probe that uses the registry's account, logs and code.
    pub fn new(registry: Address) -> Self {
        let open = vec![ProbeRequest::Newest, ProbeRequest::Finalized];
        Self { registry, found: NodeFeatures::default(), newest: None, open, is_single: false }
    }

    /// Returns the body of the next requests; `None` at the end.
    pub fn body(&self) -> Option<String> {
        let requests: Vec<rpc::Request> =
            (0..).zip(self.sent()).map(|(id, sent)| self.encode(id, *sent)).collect();
        (!requests.is_empty()).then(|| rpc::encode(&requests))
    }

    /// Returns the features found so far.
    pub const fn found(&self) -> NodeFeatures {
        self.found
    }

    /// Returns the requests of the next batch.
    fn sent(&self) -> &[ProbeRequest] {
        let most = if self.is_single { 1 } else { usize::MAX };
        self.open.get(..most.min(self.open.len())).unwrap_or_default()
    }

    fn encode(&self, id: u64, request: ProbeRequest) -> rpc::Request {
        let contract = self.registry;
        let header = |tag| rpc::request(id, "eth_getBlockByNumber", format!(r#"["{tag}",false]"#));
        let (number, hash) = self.newest.map(|newest| (newest.number, newest.hash)).unwrap_or_default();
        match request {
            ProbeRequest::Newest => header("latest"),
            ProbeRequest::Finalized => header("finalized"),
            ProbeRequest::CallByHash => {
                let call = hex::encode_prefixed(nextAgentIdCall {}.abi_encode());
                let params =
                    format!(r#"[{{"to":"{contract:#x}","data":"{call}"}},{{"blockHash":"{hash:#x}"}}]"#);
                rpc::request(id, "eth_call", params)
            }
            ProbeRequest::Proof => rpc::get_proof(id, contract, &[], r#""latest""#),
            ProbeRequest::Logs => {
                let range = format!(r#""fromBlock":"{number:#x}","toBlock":"{number:#x}""#);
                rpc::request(id, "eth_getLogs", format!(r#"[{{"address":"{contract:#x}",{range}}}]"#))
            }
        }
    }

    /// Takes the reply to the last body; `None` where there is none, which ends the probe.
    pub fn take(&mut self, reply: Option<Reply<'_>>) {
        let sent = self.sent().to_vec();
        let ids: Vec<u64> = (0..sent.len() as u64).collect();
        let Some(reply) = reply else { return self.open.clear() };
        let mut outcomes = match rpc::decode(reply.body, &ids) {
            Ok(outcomes) => outcomes,
            Err(refused) => {
                let is_refusal = match refused {
                    BadReply::Refused(error) => is_lasting(&error, reply.status),
                    BadReply::Malformed => is_about_the_batch(reply.status),
                };
                match (sent.as_slice(), is_refusal) {
                    ([request], true) if *request != ProbeRequest::Newest => {
                        self.open.retain(|open| open != request);
                        self.note(*request, Some(false));
                    }
                    ([_, _, ..], true) => {
                        // It may be about batches, where none was answered before.
                        self.found.batch.get_or_insert(false);
                        self.is_single = true;
                    }
                    _ => self.open.clear(),
                }
                return;
            }
        };
        if sent.len() > 1 {
            // A node may answer the first request alone.
            self.found.batch = Some(outcomes.len() > 1);
            self.is_single = outcomes.len() == 1;
        }
        let is_answered = !outcomes.is_empty();
        for (id, request) in (0..).zip(sent) {
            if let Some(outcome) = outcomes.remove(&id) {
                self.open.retain(|open| *open != request);
                self.learn(request, outcome, reply.status);
            }
        }
        if !is_answered {
            self.open.clear();
        }
    }

    fn learn(&mut self, request: ProbeRequest, outcome: RpcResult<'_>, status: u16) {
        let works = match (request, outcome) {
            (ProbeRequest::Newest, Err(_)) => return,
            (_, Err(error)) => match classify(&error) {
                // The contract ran.
                Action::Revert => Some(true),
                // The machine lags behind the one that named the block.
                Action::Repin if matches!(request, ProbeRequest::CallByHash | ProbeRequest::Logs) => None,
                _ => is_lasting(&error, status).then_some(false),
            },
            (ProbeRequest::Newest, Ok(text)) => {
                self.newest = serde_json::from_str(text).ok();
                if self.newest.is_some() {
                    self.open.extend([ProbeRequest::CallByHash, ProbeRequest::Proof, ProbeRequest::Logs]);
                }
                return;
            }
            (ProbeRequest::Finalized | ProbeRequest::Proof, Ok(text)) => Some(text.starts_with('{')),
            (ProbeRequest::Logs, Ok(text)) => Some(text.starts_with('[')),
            (ProbeRequest::CallByHash, Ok(_)) => Some(true),
        };
        self.note(request, works);
    }

    const fn note(&mut self, request: ProbeRequest, works: Option<bool>) {
        match request {
            ProbeRequest::Newest => {}
            ProbeRequest::Finalized => self.found.finalized = works,
            ProbeRequest::CallByHash => self.found.block_hash = works,
            ProbeRequest::Proof => self.found.proofs = works,
            ProbeRequest::Logs => self.found.logs = works,
        }
    }
}

/// Returns whether an error is about the request, and not transient.
fn is_lasting(error: &ErrorPayload, status: u16) -> bool {
    !may_pass(status) && (classify(error) != Action::Retry || is_unclear(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Script of a node: a result, an error, or nothing for a method.
    type NodeScript = fn(&str) -> Option<Result<Value, (i64, &'static str)>>;

    fn header() -> Value {
        json!({ "number": "0x5", "hash": format!("{:#x}", alloy_primitives::B256::repeat_byte(5)),
            "parentHash": format!("{:#x}", alloy_primitives::B256::ZERO), "timestamp": "0x9",
            "stateRoot": format!("{:#x}", alloy_primitives::B256::ZERO) })
    }

    fn good(method: &str) -> Option<Result<Value, (i64, &'static str)>> {
        Some(Ok(match method {
            "eth_getLogs" => json!([]),
            "eth_call" => json!("0x01"),
            "eth_getProof" => json!({}),
            _ => header(),
        }))
    }

    /// The status with which a node, or a gateway before it, refuses a batch.
    type BatchRefusal = fn(&[Value]) -> Option<u16>;

    /// Returns what a probe finds and its number of posts; `most` requests of a batch are answered.
    fn found(node: NodeScript, most: usize, refusal: BatchRefusal) -> ([Option<bool>; 5], usize) {
        let (mut probe, mut posts) = (NodeProbe::new(Address::ZERO), 0);
        while let Some(body) = probe.body() {
            posts += 1;
            let requests: Vec<Value> = match serde_json::from_str(&body).unwrap() {
                Value::Array(requests) => requests,
                one => vec![one],
            };
            if let Some(status) = refusal(&requests) {
                probe.take(Some(Reply { status, body: b"no" }));
                continue;
            }
            let answer = |request: &Value| {
                let outcome = match (request["method"].as_str().unwrap(), &request["params"][0]) {
                    ("eth_getBlockByNumber", tag) if tag == "finalized" => node("finalized"),
                    (method, _) => node(method),
                };
                Some(match outcome? {
                    Ok(result) => json!({ "id": request["id"], "result": result }),
                    Err((code, message)) => {
                        json!({ "id": request["id"], "error": { "code": code, "message": message } })
                    }
                })
            };
            let answers: Vec<Value> = requests.iter().take(most).filter_map(answer).collect();
            let body = json!(answers).to_string();
            probe.take((!answers.is_empty()).then_some(Reply { status: 200, body: body.as_bytes() }));
        }
        let NodeFeatures { block_hash, proofs, logs, finalized, batch } = probe.found();
        ([block_hash, proofs, logs, finalized, batch], posts)
    }

    #[test]
    fn a_node_is_found_to_lack_what_it_refuses_in_any_words_and_nothing_that_it_is_too_busy_for() {
        const YES: Option<bool> = Some(true);
        const NO: Option<bool> = Some(false);
        let lacks: NodeScript = |method| match method {
            "eth_call" => Some(Err((-32700, "Cannot wrap a \"object\" as a json-rpc type"))),
            "eth_getProof" => Some(Err((-32601, "the method eth_getProof does not exist"))),
            "eth_getLogs" => Some(Err((-32601, "no"))),
            "finalized" => Some(Ok(Value::Null)),
            method => good(method),
        };
        let busy: NodeScript = |method| match method {
            "eth_getBlockByNumber" => good(method),
            _ => Some(Err((-32005, "rate limit"))),
        };
        let odd: NodeScript = |method| match method {
            "eth_call" => Some(Err((3, "execution reverted"))),
            "finalized" => Some(Err((-39001, "Unknown block"))),
            "eth_getLogs" => Some(Err((-32000, "header not found"))),
            "eth_getProof" => Some(Ok(Value::Null)),
            method => good(method),
        };
        let none: BatchRefusal = |_| None;
        let no_proofs: BatchRefusal =
            |batch| batch.iter().any(|request| request["method"] == "eth_getProof").then_some(405);
        for (what, node, most, refusal, expected, posts) in [
            ("good", good as NodeScript, 9, none, [YES; 5], 2),
            ("lacks", lacks, 9, none, [NO, NO, NO, NO, YES], 2),
            ("busy", busy, 9, none, [None, None, None, None, YES], 2),
            ("odd", odd, 9, none, [YES, NO, None, NO, YES], 2),
            ("no batches", good, 9, |batch| (batch.len() > 1).then_some(400), [YES, YES, YES, YES, NO], 6),
            // A batch that is refused for one of its requests says nothing of batches.
            ("no proofs", good, 9, no_proofs, [YES, NO, YES, YES, YES], 5),
            ("the first alone", good, 1, none, [YES, YES, YES, YES, NO], 5),
            ("overloaded", good, 9, |batch| (batch.len() > 1).then_some(503), [None; 5], 1),
            ("silent", |_| None, 9, none, [None; 5], 1),
        ] {
            assert_eq!(found(node, most, refusal), (expected, posts), "{what}");
        }
    }
}
