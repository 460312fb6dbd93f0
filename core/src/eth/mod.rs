//! Ethereum: ABI, addresses, blocks, JSON-RPC, reverts, Multicall3, redaction, timestamps.

pub mod abi;
pub mod address;
pub mod as_of;
pub(crate) mod bytes;
pub mod json;
pub mod members;
pub mod multicall;
pub mod redact;
pub mod rpc;
#[cfg(feature = "schema")]
pub(crate) mod schema;
pub(crate) mod spelled;
pub mod timestamp;
pub mod typed_data;
