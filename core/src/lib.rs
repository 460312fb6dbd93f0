//! The agent registry's rules: everything that can be decided without a network, and nothing else.
//!
//! No I/O, no clock, no async, no global state; native and wasm32. A host parses a request with
//! [`api::route`], puts the resulting [`api::question::Question`] into a [`chain::Run`], moves the run's
//! bytes to an RPC endpoint and back, and sends the resulting [`api::document::Document`]. Errors carry their
//! status and body ([`api::error`]); rate limits are arithmetic over counts that the host keeps
//! ([`host::rate_limit`]).
//!
//! The modules are layers: each imports only from those above it in this list, as `tests/layers.rs` checks.
//!
//! | layer | content |
//! |---|---|
//! | [`eth`] | Ethereum: ABI, addresses, blocks, JSON-RPC, reverts, Multicall3, redaction, timestamps |
//! | [`forward`] | forward requests (ERC-2771): parsing, the EIP-712 digest, the relayer's rules |
//! | [`registry`] | agents, compliance, lineage, KYA, revenue, lists, cursors: pure functions over records |
//! | [`liability`] | liability for agents: bases, signed acceptances, domains |
//! | [`chain`] | the RPC engine, the lens, and the registry read through them |
//! | [`evidence`] | Merkle proofs of verdicts, and the documents made of them |
//! | [`index`] | the whole registry in SQL, and its upkeep |
//! | [`snapshot`] | the registry in shards: the facts for verdicts, by wallet |
//! | [`token`] | verdicts as signed tokens (JWS): claims, signing input, keys |
//! | [`gate`] | signed HTTP requests (ERC-8128), and policies for their agents; a cargo feature |
//! | [`api`] | the read API: routes, errors, documents, questions, scans, health |
//! | [`host`] | state of hosts between requests: rate-limit windows, shared reads, leases |

pub mod api;
pub mod chain;
pub mod eth;
pub mod evidence;
pub mod forward;
#[cfg(feature = "gate")]
pub mod gate;
pub mod host;
pub mod index;
pub mod liability;
pub mod registry;
pub mod snapshot;
pub mod token;

/// The types of addresses, hashes and numbers in this crate's signatures.
pub use alloy_primitives;
