//! Where things are in this repository: its root, the Node tools, the compiled contracts.

use std::fs;
use std::path::{Path, PathBuf};

use alloy::hex;
use alloy::json_abi::JsonAbi;
use alloy::primitives::Bytes;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate lies one level below the root")
        .to_path_buf()
}

/// A program of `node_modules/.bin`.
pub fn node_tool(name: &str) -> Result<PathBuf> {
    let path = root().join("node_modules/.bin").join(name);
    ensure!(path.exists(), "{name} is not installed: run `cargo xtask setup`");
    Ok(path)
}

/// One compiled contract, as forge leaves it.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// The compiler's description of the interface.
    pub abi: JsonAbi,
    /// What a deployment runs; constructor arguments follow it.
    pub creation_code: Bytes,
    /// What lies at the contract's address afterwards, where no immutable is filled in.
    pub runtime_code: Bytes,
}

impl Artifact {
    /// Reads `contracts/out/<name>.sol/<name>.json`.
    pub fn load(name: &str) -> Result<Self> {
        let path = root().join(format!("contracts/out/{name}.sol/{name}.json"));
        let text = fs::read_to_string(&path).with_context(|| {
            format!("{name} is not compiled: run `cargo xtask build` ({})", path.display())
        })?;
        let json: Value = serde_json::from_str(&text)?;
        let code = |field: &str| -> Result<Bytes> {
            let text = json[field]["object"].as_str().with_context(|| format!("{name}: no {field}"))?;
            Ok(hex::decode(text).with_context(|| format!("{name}: unlinked {field}"))?.into())
        };
        Ok(Self {
            abi: serde_json::from_value(json["abi"].clone())?,
            creation_code: code("bytecode")?,
            runtime_code: code("deployedBytecode")?,
        })
    }
}
