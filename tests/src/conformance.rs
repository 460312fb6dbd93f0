//! A service tried against its own description: schemathesis makes requests up, from what the description allows and from
//! what it forbids, and holds each answer against it.

use alloy::primitives::Address;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{python, repo};

/// What a service knows that no description can name.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Wallets of agents, or signers.
    pub addresses: Vec<Address>,
    /// Places in the list of changes.
    pub cursors: Vec<String>,
    /// Ids of relays.
    pub relays: Vec<String>,
    /// Bodies of `POST /relay` that can be carried out, each once.
    pub signed: Vec<Value>,
}

/// Tries every operation of the description at `url`/openapi.json, with all checks. What schemathesis said.
pub async fn try_out(url: &str, known: &Known) -> Result<String> {
    let schemathesis = python::programs("openapi").await?.join("schemathesis");
    let settings = repo::root().join("tests/openapi");
    let scratch = TempDir::new()?;
    let known = json!({
        "ethereum-address": known.addresses.iter().map(Address::to_string).collect::<Vec<_>>(),
        "change-cursor": known.cursors,
        "relay-id": known.relays,
        "signed": known.signed,
    });
    let output = Command::new(schemathesis)
        .arg("--config-file")
        .arg(settings.join("schemathesis.toml"))
        .args(["--no-color", "run", &format!("{url}/openapi.json")])
        .env("SCHEMATHESIS_HOOKS", settings.join("hooks.py"))
        .env("SCHEMATHESIS_KNOWN", known.to_string())
        .current_dir(scratch.path())
        .kill_on_drop(true)
        .output()
        .await
        .context("schemathesis cannot be started")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{said}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(said)
}
