//! Ethereum as the registry's readers meet it: ABI, addresses, JSON-RPC, reverts, times.

pub mod abi;
pub mod address;
pub mod as_of;
pub mod json;
pub mod multicall;
pub mod redact;
pub mod rpc;
#[cfg(feature = "schema")]
pub(crate) mod schema;
pub mod timestamp;
