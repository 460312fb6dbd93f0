//! The agent registry's rules: everything that can be decided without a network, and nothing else.
//!
//! No I/O, no clock, no async, no global state; native and wasm32. A host parses a request with
//! [`route`], puts the resulting [`read_api::Question`] into a [`run::Run`], moves the run's bytes to an RPC
//! endpoint and back, and sends the [`response::Document`] that comes out. Errors say whose fault they are and carry their
//! status and body ([`error`]); rate limits are arithmetic over counts the host keeps ([`window`]).

pub mod abi;
pub mod address;
pub mod agent;
pub mod ancestors;
pub mod as_of;
pub mod cache;
pub mod changes;
pub mod compliance;
pub mod cursor;
pub mod error;
pub mod evidence;
pub mod filter;
#[cfg(test)]
mod fixture;
pub mod forward;
pub mod health;
pub mod history;
pub mod index;
pub mod json;
pub mod kya;
pub mod lens;
pub mod liable;
pub mod lineage;
mod links;
pub mod multicall;
pub mod page;
pub mod read_api;
pub mod redact;
pub mod response;
pub mod revenue;
pub mod route;
pub mod rpc;
pub mod run;
pub mod scan;
#[cfg(feature = "schema")]
mod schema;
pub mod stats;
pub mod timestamp;
pub mod window;
