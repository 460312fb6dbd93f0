//! The gasless relayer: takes requests that agents signed, checks them, and has the forwarder execute them.
//!
//! A request's way: [`http`] reads it, [`relay`] checks it (rules from `registry_core::forward`, rate limits,
//! budget, chain), [`store`] keeps it, [`sender`] assigns it a nonce, sends it and follows it until it is
//! mined; [`outcome`] says how it ended. The README has the operator's view.
//!
//! Each folder is a layer and imports only from those above it in this list (`core/tests/layers.rs`):
//!
//! | layer | contains |
//! |---|---|
//! | [`process`] | clock, lock file, log, shutdown signal, crash points: what the process has of its system |
//! | [`metrics`], [`keys`] | Prometheus metrics; the keys that pay |
//! | [`signer`] | what signs an account's transactions: such a key, AWS KMS, or a remote signer |
//! | [`telemetry`] | traces and metrics for an OpenTelemetry collector |
//! | [`signatures`] | signatures of webhooks, hashes of API keys |
//! | [`gas`], [`budget`] | gas limits, fees, the daily budget and its shares, as arithmetic |
//! | [`outcome`] | how a relay ends: outcome, failure, error codes |
//! | [`store`] | what survives a restart, in SQLite or Postgres; the leases of a fleet |
//! | [`chain`] | the RPC endpoints, and the typed reads over them |
//! | [`sender`] | the tasks that own the accounts' nonce sequences; which account gets a relay |
//! | [`relay`] | the pipeline of one request |
//! | [`webhooks`] | delivers what has changed to the operator's customers |
//! | [`http`] | connections, routes, readiness, `/openapi.json` |
//! | [`daemon`] | settings, checks at start, and the life of the process |
#![deny(clippy::print_stderr, clippy::print_stdout)] // they panic where the reader is gone: `host_kit::print`

pub mod budget;
pub mod chain;
pub mod daemon;
pub mod gas;
pub mod http;
pub mod keys;
pub mod metrics;
pub mod outcome;
pub mod process;
pub mod relay;
pub mod sender;
pub mod signatures;
pub mod signer;
pub mod store;
pub mod telemetry;
pub mod webhooks;
