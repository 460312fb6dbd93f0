//! What questions take in their path and query.

use openapi::UINT256_MAX;
use serde_json::{Value, json};

use crate::examples;

pub(crate) fn id() -> Value {
    json!({
        "name": "id", "in": "path", "required": true, "description": "The agent's id.",
        "schema": { "type": "integer", "minimum": 0, "maximum": UINT256_MAX }, "example": 1,
    })
}

pub(crate) fn wallet() -> Value {
    json!({
        "name": "wallet", "in": "path", "required": true,
        "description": "An address in lower case, in upper case, or with its EIP-55 checksum; a wrong one is refused.",
        "schema": { "type": "string", "format": "ethereum-address", "pattern": "^0x[0-9a-fA-F]{40}$" },
        "examples": {
            "registered": { "value": examples::WALLET.to_string() },
            "unknown": { "value": examples::STRANGER.to_string() },
        },
    })
}

pub(crate) fn block() -> Value {
    json!({
        "name": "block", "in": "query",
        "description": "Asks at this block, by its number or its hash, and judges at its time. 404 where no RPC endpoint has \
            its state; kept for a day where the block is final.",
        "schema": { "type": "string", "pattern": "^([0-9]{1,19}|0x[0-9a-fA-F]{64})$" },
    })
}

pub(crate) fn cursor() -> Value {
    json!({
        "name": "cursor", "in": "query",
        "description": "Where to go on: the `next` of an earlier answer. The page stays where it is while the registry grows.",
        "schema": { "type": "string", "pattern": "^[0-9]{1,15}$" }, "example": "20",
    })
}

pub(crate) fn history() -> Value {
    json!({
        "name": "history", "in": "query",
        "description": "1: the wallet's past is looked up where it is not at hand. Not together with `block`.",
        "schema": { "type": "string", "enum": ["0", "1"], "default": "0" },
    })
}

pub(crate) fn evidence() -> Value {
    json!({
        "name": "evidence", "in": "query",
        "description": "1: a document to keep, that proves the verdict, instead of the verdict alone. Not together with `block` or \
            `history`.",
        "schema": { "type": "string", "enum": ["0", "1"], "default": "0" },
    })
}

/// An address in the query.
pub(crate) fn address(name: &str, description: &str) -> Value {
    json!({
        "name": name, "in": "query", "description": description,
        "schema": { "type": "string", "format": "ethereum-address", "pattern": "^0x[0-9a-fA-F]{40}$" },
    })
}

/// A whole number in the query that agents are compared with.
pub(crate) fn count_of(name: &str, description: &str) -> Value {
    json!({
        "name": name, "in": "query", "description": description,
        "schema": { "type": "integer", "minimum": 0 }, "example": 1,
    })
}

/// A whole number in the query. It has no maximum: what is too large is cut.
pub(crate) fn count(name: &str, description: &str, minimum: u64, default: u64) -> Value {
    json!({
        "name": name, "in": "query", "description": description,
        "schema": { "type": "integer", "minimum": minimum, "default": default }, "example": minimum,
    })
}
