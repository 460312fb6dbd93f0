//! Where things are in this repository: its root, the Node tools, the compiled contracts.

use std::fs;
use std::path::{Path, PathBuf};

use alloy::json_abi::JsonAbi;
use alloy::primitives::Bytes;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

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

/// One compiled contract. Parts that no test needs are left out of its file, and empty here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Artifact {
    /// The compiler's description of the interface.
    pub abi: JsonAbi,
    /// What a deployment runs; constructor arguments follow it.
    #[serde(rename = "bytecode")]
    pub creation_code: Bytes,
    /// What lies at the contract's address afterwards, where no immutable is filled in.
    #[serde(rename = "deployedBytecode")]
    pub runtime_code: Bytes,
}

impl Artifact {
    /// Reads `contracts/artifacts/<name>.json`.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn load(name: &str) -> Result<Self> {
        let path = root().join(format!("contracts/artifacts/{name}.json"));
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }
}
