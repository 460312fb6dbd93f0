//! Helpers of the test programs: a scripted node, a host with several of them, a database, random numbers.
#![allow(dead_code, unused_imports)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

pub(crate) mod database;
pub(crate) mod host;
mod node;
pub(crate) mod proofs;
mod questions;
mod quirks;
pub(crate) mod random;
pub(crate) mod recorded;
mod registry;

pub(crate) use node::{CHAIN_ID, Mined, Node, number_of, pinned, signature};
pub(crate) use questions::{ONE_ROUND, TWO_ROUNDS, all_targets, question, run, scan_query};
pub(crate) use quirks::{Fault, IsFaulty, Logs, Proofs, Quirks, Undeployed};
pub(crate) use registry::{PlainRegistry, STATUSES, is_compliant, record, report, shown, time};

use alloy_primitives::{Address, B256};
use serde_json::{Value, json};

/// Names that most test modules use.
pub(crate) mod prelude {
    pub(crate) use super::host::read;
    pub(crate) use super::random::{Random, setting};
    pub(crate) use super::{CHAIN_ID, GRACE, NOW, Node, PlainRegistry, REGISTRY, STATUSES};
    pub(crate) use super::{Fault, Logs, Mined, Proofs, Quirks, Undeployed};
    pub(crate) use super::{ids_in, is_compliant, number_of, pinned, question};
    pub(crate) use super::{record, report, run, shown, time};
    pub(crate) use alloy_primitives::{Address, B256, U256};
    pub(crate) use registry_core::api::{error::Error, question::Question, route::Route};
    pub(crate) use registry_core::chain::{Batch, Endpoints, Failure, Limits, Query, QueryError};
    pub(crate) use registry_core::chain::{Reply, Run, RunError, Step, drive};
    pub(crate) use registry_core::eth::multicall::CANONICAL_ADDRESS;
    pub(crate) use registry_core::eth::{abi::AgentRecord, timestamp::Timestamp};
    pub(crate) use registry_core::registry::error_code::Code;
    pub(crate) use serde_json::{Value, json};
}

pub(crate) const REGISTRY: Address = Address::repeat_byte(0x42);
pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const GRACE: u64 = 604_800;

/// Returns a JSON-RPC response.
pub(crate) fn response(id: &Value, outcome: Result<Value, Value>) -> Value {
    match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    }
}

/// Returns the requests of a batch, or the only one.
pub(crate) fn requests(body: &str) -> Vec<Value> {
    match serde_json::from_str(body).unwrap() {
        Value::Array(requests) => requests,
        request => vec![request],
    }
}

/// Returns the reply with these answers to a batch, or to one request.
pub(crate) fn reply_of(body: &str, mut answers: Vec<Value>) -> Vec<u8> {
    let reply = if body.starts_with('[') { Value::from(answers) } else { answers.remove(0) };
    reply.to_string().into_bytes()
}

/// Returns a block's header as nodes send it, with the members that are read.
pub(crate) fn header(number: u64, [hash, parent]: [B256; 2], seconds: u64) -> Value {
    json!({
        "number": format!("{number:#x}"), "hash": hash, "parentHash": parent,
        "timestamp": format!("{seconds:#x}"),
    })
}

/// Returns the error of a node that takes no batch, or none of that size.
pub(crate) fn batch_too_large() -> Value {
    json!({"code": -32600, "message": "batch too large"})
}

/// Returns the ids of the agents in a list of an answer.
pub(crate) fn ids_in(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|agent| agent["agentId"].as_u64().unwrap()).collect()
}
