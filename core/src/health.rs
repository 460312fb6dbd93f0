//! Health: whether the service answers, for people (`/health`).

use alloc::string::String;

use alloy_primitives::Address;
use serde::Serialize;

use crate::json;

/// The answer of `/health`, given only where the chain and the registry answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Always `ok`.
    pub status: &'static str,
    /// The registry's address.
    #[serde(serialize_with = "json::address")]
    pub registry: Address,
    /// The RPC endpoint, scheme and host only.
    pub rpc: String,
}
