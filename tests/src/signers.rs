//! Clients in other languages, each with the typed-data function of a library that agents use.
//!
//! ethers comes with the repository's Node tools, eth-account from PyPI.

use std::path::PathBuf;

use alloy::hex;
use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::process::output;
use crate::{npm, python, repo};

#[derive(Debug, Clone)]
pub struct ForeignClient {
    program: PathBuf,
    script: &'static str,
}

impl ForeignClient {
    pub fn ethers() -> Result<Self> {
        let installed = repo::root().join("node_modules/ethers");
        ensure!(installed.exists(), "ethers is missing: run `cargo xtask setup`");
        Ok(Self { program: "node".into(), script: "ethers-client.mjs" })
    }

    pub async fn eth_account() -> Result<Self> {
        let program = python::programs("signers").await?.join("python");
        Ok(Self { program, script: "eth_account_client.py" })
    }

    /// Signs `calldata` for `registry` with `key`, has it relayed, and returns the relayer's answer.
    pub async fn relay(
        &self,
        relayer: &str,
        key: &PrivateKeySigner,
        registry: Address,
        calldata: &[u8],
        gas: u64,
    ) -> Result<Value> {
        let [key, calldata] = [&key.to_bytes()[..], calldata].map(hex::encode_prefixed);
        let mut command = Command::new(&self.program);
        command.arg(script(self.script)).args([relayer, &key, &registry.to_string(), &calldata]);
        printed(command.arg(gas.to_string())).await
    }
}

/// Runs a program of `tests/signers` with Node, and returns the JSON that it prints.
pub async fn node(name: &str, arguments: &[&str]) -> Result<Value> {
    printed(Command::new("node").arg(script(name)).args(arguments)).await
}

/// Runs a program of `tests/signers` with Python, its libraries and this project's package; returns the JSON
/// that it prints.
pub async fn python(name: &str, arguments: &[&str]) -> Result<Value> {
    printed(with_package().await?.arg(script(name)).args(arguments)).await
}

/// Prepares Python with the package of `python/` and no proxy.
pub async fn with_package() -> Result<Command> {
    let mut python = Command::new(python::programs("signers").await?.join("python"));
    python.env("PYTHONPATH", repo::root().join("python/src")).envs(repo::NO_PROXY);
    python.env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
    Ok(python)
}

/// Runs a program of `tests/clients`, with Python or Node by the ending of its name, and returns the JSON
/// that it prints. Missing packages are installed.
pub async fn client(name: &str, arguments: &[&str]) -> Result<Value> {
    let program = match name.strip_suffix(".py") {
        Some(_) => python::programs("clients").await?.join("python"),
        None => "node".into(),
    };
    let script = npm::installed("clients").await?.join(name);
    let mut command = Command::from(repo::command(program));
    command.arg(script).args(arguments).envs(repo::NO_PROXY).kill_on_drop(true);
    printed(&mut command).await
}

/// Runs a program to its end, and returns the JSON that it prints.
pub async fn printed(command: &mut Command) -> Result<Value> {
    serde_json::from_slice(&output(command).await?).context("the program prints JSON")
}

fn script(name: &str) -> PathBuf {
    repo::root().join("tests/signers").join(name)
}
