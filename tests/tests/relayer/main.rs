//! The relayer, end to end: the real daemon on a real chain. What is here is wiring, kills, and what no one
//! here wrote: nodes, databases, signers, clients. Rules, orders of faults and formats are in
//! `relayer-daemon`'s and the core's own tests.
//!
//! One test binary, so that the daemon is built once and linking does not cost more than the tests.

mod accounts;
mod api;
mod budget;
mod chain;
mod check;
mod connections;
mod crash;
mod drain;
mod errors;
mod fleet;
mod https;
mod keyholders;
mod limits;
mod load;
mod outages;
mod policy;
mod rpc;
mod secrets;
mod signers;
mod soak;
mod stage;
mod telemetry;
mod webhooks;
