//! End-to-end harness: a real chain, the real Worker, real processes.
//!
//! The tests in `tests/tests` and the `devnet` binary (behind `cargo xtask dev`) start everything through
//! this crate, on free ports and in process groups that end with it.
//!
//! Functions that return a `Result` fail where a tool is missing, a process ends early, a node refuses, or a
//! time-out passes; the error quotes the process's log. The others panic where a test cannot go on.

pub mod anvil;
pub mod browser;
pub mod chain;
pub mod client;
pub mod daemon;
pub mod deploy;
pub mod fault;
pub mod gate;
pub mod guarded;
pub mod hooks;
pub mod http;
pub mod keyholders;
pub mod kya;
pub mod ledger;
pub mod load;
pub mod npm;
pub mod ops;
pub mod postgres;
pub mod process;
mod program;
pub mod proxy;
pub mod python;
pub mod redis;
pub mod relay;
pub mod repo;
pub mod reverse_proxies;
pub mod seed;
pub mod server;
pub mod servers;
pub mod signed_requests;
pub mod signers;
pub mod stack;
pub mod stage;
pub mod stored;
pub mod story;
pub mod synthetic;
pub mod tls;
pub mod usage;
pub mod verdict_tokens;
pub mod worker;
