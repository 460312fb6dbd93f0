//! A node for tests: answers JSON-RPC bodies from a plain registry, and misbehaves on demand.
#![allow(dead_code)] // each test binary uses its part
#![allow(unused_imports)] // the same
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

pub(crate) mod host;
mod node;
pub(crate) mod proofs;
mod quirks;
mod registry;
pub(crate) mod split_mix;

pub(crate) use node::{CHAIN_ID, Mined, Node, number_of, pinned, question, scan_query, signature};
pub(crate) use quirks::{Logs, Proofs, Quirks, Undeployed};
pub(crate) use registry::{PlainRegistry, record, report};

use alloy_primitives::Address;
use serde_json::{Value, json};

pub(crate) const REGISTRY: Address = Address::repeat_byte(0x42);
pub(crate) const NOW: u64 = 1_800_000_000;

/// A JSON-RPC response.
pub(crate) fn response(id: &Value, outcome: Result<Value, Value>) -> Value {
    match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    }
}

/// The error of a node that takes no batch, or none of that size.
pub(crate) fn batch_too_large() -> Value {
    json!({"code": -32600, "message": "batch too large"})
}

/// The ids of the agents in a list of an answer.
pub(crate) fn ids_in(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|agent| agent["agentId"].as_u64().unwrap()).collect()
}
