//! Paths of this repository, such as its root, the Node tools and the compiled contracts; and its commands.

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

/// Prefixes of the environment variables that this project's programs, or the libraries and tools that they
/// use, read as settings.
const SETTINGS: [&str; 34] = [
    "AGENT_TTL_",
    "AWS_",
    "BLOCK_RECEIPTS_",
    "BUDGET_SHARE_",
    "CHAIN_ID",
    "CHANGES_",
    "CLOCK_OFFSET_FILE",
    "CLOUDFLARE_ENV",
    "CRASH_AT",
    "CREDENTIALS_DIRECTORY",
    "DAILY_GAS_BUDGET",
    "DOCUMENT_URLS",
    "EVIDENCE_LAYOUT",
    "FORWARDER_ADDRESS",
    "INDEX",
    "JOURNAL_",
    "KYA_",
    "LINEAGE_TTL_",
    "LOG_",
    "MAX_",
    "MCP_",
    "MIGRATE_TO",
    "MULTICALL3_",
    "OTEL_",
    "POLICY_",
    "RATE_LIMIT",
    "REGISTRY_ADDRESS",
    "RELAY",
    "RPC_",
    "SIGNER_",
    "STATE_DIRECTORY",
    "STORE_URL",
    "TRUSTED_PROX",
    "VERDICT_",
];

/// Variables that keep curl and Python from using a proxy; both read the lower-case name first.
pub const NO_PROXY: [(&str, &str); 2] = [("NO_PROXY", "*"), ("no_proxy", "*")];

/// Prepares a program on the PATH, without the settings of the caller's shell: those that a test or `dev`
/// does not set have their defaults.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = with_node(program);
    for (name, _) in env::vars_os().filter(|(name, _)| is_setting(name)) {
        command.env_remove(name);
    }
    command
}

fn is_setting(name: &OsStr) -> bool {
    SETTINGS.iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()))
}

/// Prepares a program on the PATH, with the Node of `cargo xtask setup` first where there is one.
fn with_node(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let own = root().join("target/tools/node/bin");
    if own.is_dir() {
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = [own].into_iter().chain(env::split_paths(&path));
        command.env("PATH", env::join_paths(directories).expect("directories without a colon"));
    }
    command
}

/// Prepares cargo in the repository's root, without its variables about this package: with them build scripts
/// would run again, and their dependents would be compiled again, every time.
pub(crate) fn cargo() -> Command {
    let mut cargo = with_node(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_this_package = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    for (name, _) in env::vars_os() {
        if of_this_package.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(root());
    cargo
}

/// A compiled contract. Parts that no test needs are missing in its file, and empty here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Artifact {
    /// Code that a deployment runs; constructor arguments follow it.
    #[serde(rename = "bytecode")]
    pub creation_code: Bytes,
    /// Code at the contract's address afterwards, except for immutables.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the contents of all files below a path, one after the other.
    fn texts(path: &Path) -> String {
        if path.is_file() {
            return fs::read_to_string(path).unwrap_or_default();
        }
        fs::read_dir(path).unwrap().map(|entry| texts(&entry.unwrap().path())).collect()
    }

    #[test]
    fn every_setting_of_the_programs_is_known() {
        let mut count = 0;
        for (path, before) in [
            ("relayer-daemon/src", "env = \""),
            ("kya/src", "env = \""),
            ("kya-gate/src", "env = \""),
            ("deploy/edge/edge.capnp", "fromEnvironment = \""),
        ] {
            for rest in texts(&root().join(path)).split(before).skip(1) {
                let (name, _) = rest.split_once('"').unwrap();
                assert!(is_setting(name.as_ref()), "{path}: {name}");
                count += 1;
            }
        }
        assert!(count > 60, "{count}");
        for name in ["PATH", "HOME", "TMPDIR", "CARGO_HOME", "RUST_LOG", "E2E_BUILT", "CHROMIUM_BIN"] {
            assert!(!is_setting(name.as_ref()), "{name}");
        }
    }

    #[test]
    fn a_child_has_no_setting_of_the_callers_shell() {
        const SET: [&str; 3] = ["STORE_URL", "KYA_RPC_URL", "CHAIN_ID"];
        if SET.iter().any(|name| env::var_os(name).is_none()) {
            let mut again = Command::new(env::current_exe().unwrap());
            again.args(["--exact", "repo::tests::a_child_has_no_setting_of_the_callers_shell"]);
            let output = again.envs(SET.map(|name| (name, "1"))).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let printed = String::from_utf8(command("env").output().unwrap().stdout).unwrap();
        let names: Vec<&str> = printed.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        assert!(names.contains(&"PATH") && !SET.iter().any(|name| names.contains(name)), "{names:?}");
    }
}
