//! Services against their OpenAPI descriptions: schemathesis generates requests, and checks each answer.

use alloy::primitives::Address;
use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::output;
use crate::{python, repo};

/// Values that requests need and no description can give.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Wallets of agents, or signers.
    pub addresses: Vec<Address>,
    /// Cursors of the list of changes.
    pub cursors: Vec<String>,
    /// A shard of the snapshot and its version, as the API names them.
    pub shard: Option<[String; 2]>,
    /// Ids of relays.
    pub relays: Vec<String>,
    /// Bodies of `POST /relay` that can be carried out, each once.
    pub signed: Vec<Value>,
}

/// Tests every operation of the description at `url`/openapi.json, with all checks; schemathesis's report.
pub async fn try_out(url: &str, known: &Known) -> Result<String> {
    let schemathesis = python::programs("openapi").await?.join("schemathesis");
    let settings = repo::root().join("tests/openapi");
    let scratch = TempDir::new()?;
    let known = json!({
        "ethereum-address": known.addresses.iter().map(Address::to_string).collect::<Vec<_>>(),
        "change-cursor": known.cursors,
        "shard": known.shard,
        "relay-id": known.relays,
        "signed": known.signed,
    });
    let mut command = Command::new(schemathesis);
    command
        .arg("--config-file")
        .arg(settings.join("schemathesis.toml"))
        .args(["--no-color", "run", &format!("{url}/openapi.json")])
        .env("SCHEMATHESIS_HOOKS", settings.join("hooks.py"))
        .env("SCHEMATHESIS_KNOWN", known.to_string())
        .current_dir(scratch.path());
    Ok(String::from_utf8(output(&mut command).await?)?)
}
