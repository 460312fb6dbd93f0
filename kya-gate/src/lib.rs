//! The gate: a daemon beside a service that its reverse proxy asks about every request. It admits a request
//! that is signed by the wallet it names (ERC-8128), if that wallet's agent is served.
//!
//! Signatures, policies and answers are in `registry_core::gate`. This crate gives them the outside world: a
//! clock, nonces, verdicts and a port. Each module imports only from those above it in this list.
//!
//! | module | contains |
//! |---|---|
//! | [`logging`], [`metrics`] | log lines; Prometheus metrics |
//! | [`settings`] | the configuration file, validated |
//! | [`nonces`] | the spent nonces |
//! | [`signer`] | verdicts as signed tokens |
//! | [`records`], [`refusals`] | the records of admissions; recent refusals |
//! | [`rpc`] | the RPC endpoints, for the core's queries |
//! | [`kya`] | accounts and verdicts: read, cached, and forgotten when they change |
//! | [`domains`] | the files of the domains behind liable wallets |
//! | [`gate`] | the decision on one request |
//! | [`http`] | the port: the proxy's requests, and monitoring |
//! | [`check`], [`explain`], [`serve`] | checks before the start; findings on a wallet; life of the process |
//! | [`layer`] | the gate inside a service, as a `tower` layer |

pub mod check;
pub mod domains;
pub mod explain;
pub mod gate;
pub mod http;
pub mod kya;
pub mod layer;
pub mod logging;
pub mod metrics;
pub mod nonces;
pub mod records;
pub mod refusals;
pub mod rpc;
pub mod serve;
pub mod settings;
pub mod signer;
