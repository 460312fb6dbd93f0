//! End-to-end harness: a real chain, the real Worker, real processes.
//!
//! The tests in `tests/tests` and the `devnet` binary (behind `cargo xtask dev`) start everything through this
//! crate, on free ports and in process groups that end with it. It holds no assertions about the API: those are the tests'.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a harness that is wrong about its surroundings should stop the test at once, and say where"
)]

pub mod anvil;
pub mod chain;
pub mod client;
pub mod deploy;
pub mod documents;
pub mod fault;
pub mod http;
pub mod oracle;
pub mod process;
pub mod proxy;
pub mod repo;
pub mod seed;
pub mod stage;
pub mod story;
pub mod worker;
