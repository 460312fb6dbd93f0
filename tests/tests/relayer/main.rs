//! The relayer, end to end: the real daemon on a real chain, one module per promise it keeps.
//!
//! One test binary, so that the daemon is built once and linking does not cost more than the tests. Every
//! test has a chain, a journal and a daemon of its own.

mod accounts;
mod api;
mod audit;
mod block_times;
mod budget;
mod chain;
mod check;
mod connections;
mod crash;
mod drain;
mod errors;
mod faults;
mod fleet;
mod https;
mod key_rotation;
mod keyholders;
mod limits;
mod load;
mod nonces;
mod outages;
mod policy;
mod readiness;
mod receipts;
mod reverts;
mod rpc;
mod secrets;
mod several_signers;
mod signers;
mod soak;
mod telemetry;
mod webhooks;
