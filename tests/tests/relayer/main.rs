//! The relayer, end to end: the real daemon on a real chain, for wiring, kills, nodes, databases and signers.

mod api;
mod budget;
mod chain;
mod check;
mod connections;
mod crash;
mod ctl;
mod drain;
mod errors;
mod fleet;
mod https;
mod keyholders;
mod limits;
mod load;
mod outages;
mod parties;
mod policy;
mod rpc;
mod secrets;
mod signers;
mod stage;
mod telemetry;
mod webhooks;

/// Imports of most tests.
mod prelude {
    pub(crate) use crate::load::number;
    pub(crate) use crate::stage::{
        MISMATCH, PATIENCE, RelayerFixture, agent, answer, post, relayer, start, state, until_executed,
        until_ready_is, until_refusing,
    };
    pub(crate) use alloy::hex;
    pub(crate) use alloy::primitives::{Address, B256, U256};
    pub(crate) use alloy::signers::local::PrivateKeySigner;
    pub(crate) use e2e::anvil::{AnvilOptions, dev_key, wall_clock};
    pub(crate) use e2e::chain::Chain;
    pub(crate) use e2e::client::Client;
    pub(crate) use e2e::daemon::{DaemonOptions, RelayerDaemon};
    pub(crate) use e2e::fault::{FaultRule, NodeFault};
    pub(crate) use e2e::hooks::{HookReply, Receiver};
    pub(crate) use e2e::process::{eventually, free_port, wait_until};
    pub(crate) use e2e::relay::{RelayRequest, attest, register};
    pub(crate) use futures_util::future::join_all;
    pub(crate) use registry_core::eth::abi::IAgentRegistry;
    pub(crate) use rustix::process::Signal;
    pub(crate) use serde_json::{Value, json};
    pub(crate) use std::collections::BTreeSet;
    pub(crate) use std::fs;
    pub(crate) use std::net::Ipv4Addr;
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
    pub(crate) use std::time::{Duration, Instant};
    pub(crate) use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    pub(crate) use tokio::net::TcpStream;
    pub(crate) use tokio::time::{interval, timeout};
}
