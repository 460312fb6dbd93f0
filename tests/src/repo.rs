//! Where things are in this repository: its root, the Node tools, the compiled contracts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use alloy::primitives::Bytes;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies below the root").to_path_buf()
}

pub fn node_tool(name: &str) -> Result<PathBuf> {
    let path = root().join("node_modules/.bin").join(name);
    ensure!(path.exists(), "{name} is not installed: run `cargo xtask setup`");
    Ok(path)
}

/// A program on the PATH, with the Node that `cargo xtask setup` installs where the machine's is too old.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let own = root().join("target/tools/node/bin");
    if own.is_dir() {
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = [own].into_iter().chain(env::split_paths(&path));
        command.env("PATH", env::join_paths(directories).expect("directories without a colon"));
    }
    command
}

/// Cargo, in the repository's root. Its variables about this package are not for another build: build scripts
/// that read them would run again, and what depends on them would be compiled again, every time.
pub(crate) fn cargo() -> Command {
    let mut cargo = command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_this_package = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    for (name, _) in env::vars_os() {
        if of_this_package.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(root());
    cargo
}

/// One compiled contract. Parts that no test needs are left out of its file, and empty here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Artifact {
    /// What a deployment runs; constructor arguments follow it.
    #[serde(rename = "bytecode")]
    pub creation_code: Bytes,
    /// What lies at the contract's address afterwards, where no immutable is filled in.
    #[serde(rename = "deployedBytecode")]
    pub runtime_code: Bytes,
}

impl Artifact {
    /// Reads `contracts/artifacts/<name>.json`.
    pub fn load(name: &str) -> Result<Self> {
        let path = root().join(format!("contracts/artifacts/{name}.json"));
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }
}
