//! Clients in other languages, each with its own library's typed-data function: what agents really use.
//!
//! ethers comes with the repository's Node tools. eth-account is installed from PyPI into a virtual environment
//! of its own under `target`, once, when it is first needed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use alloy::hex;
use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::repo;

/// A foreign client: a program that signs one call and has it relayed.
#[derive(Debug, Clone)]
pub struct ForeignClient {
    program: PathBuf,
    script: PathBuf,
}

impl ForeignClient {
    /// Written with ethers.
    ///
    /// # Errors
    /// When the Node tools are not installed.
    pub fn ethers() -> Result<Self> {
        ensure!(
            repo::root().join("node_modules/ethers").exists(),
            "ethers is missing: run `cargo xtask setup`"
        );
        Ok(Self { program: "node".into(), script: script("ethers-client.mjs") })
    }

    /// Written with eth-account.
    ///
    /// # Errors
    /// When Python 3 with its `venv` module is missing, or PyPI cannot be reached the first time.
    pub async fn eth_account() -> Result<Self> {
        Ok(Self { program: python().await?, script: script("eth_account_client.py") })
    }

    /// Signs `calldata` for `registry` with `key`, and has it relayed; the relayer's answer.
    ///
    /// # Errors
    /// When the client fails; the message holds what it said.
    pub async fn relay(
        &self,
        relayer: &str,
        key: &PrivateKeySigner,
        registry: Address,
        calldata: &[u8],
        gas: u64,
    ) -> Result<Value> {
        let output = Command::new(&self.program)
            .arg(&self.script)
            .args([relayer, &hex::encode_prefixed(key.to_bytes()), &registry.to_string()])
            .args([hex::encode_prefixed(calldata), gas.to_string()])
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("{} cannot be started", self.program.display()))?;
        if !output.status.success() {
            bail!("{}: {}", self.script.display(), String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).context("the client prints the relayer's answer")
    }
}

fn script(name: &str) -> PathBuf {
    repo::root().join("tests/signers").join(name)
}

/// The Python of the virtual environment, made if it is not there or was made from other requirements.
async fn python() -> Result<PathBuf> {
    let (venv, requirements) = (repo::root().join("target/venv"), script("requirements.txt"));
    fs::create_dir_all(repo::root().join("target"))?;
    let lock = File::create(repo::root().join("target/venv.lock"))?;
    tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await??;

    let (python, stamp) = (venv.join("bin/python"), venv.join("installed.txt"));
    let wanted = fs::read_to_string(&requirements)?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv)).await?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    run(install.arg(&requirements)).await?;
    fs::write(&stamp, wanted)?;
    Ok(python)
}

async fn run(command: &mut Command) -> Result<()> {
    let program = Path::new(command.as_std().get_program()).display().to_string();
    let output = command.output().await.with_context(|| format!("{program} cannot be started"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
