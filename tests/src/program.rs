//! The workspace's own programs, built by cargo when a test first starts one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::repo;

/// A program of the workspace, `["--bin", …]` or `["--example", …]`, built once per process that asks for it.
///
/// Kept under a `name` of its own: builds with and without a feature write to the same place of cargo's.
pub(crate) fn compiled(program: [&str; 2], name: &'static str, features: &[&str]) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<&str, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
    // The lock is held while it is built: two builds at a time would write to the same file.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let build = || compile(program, name, features).map_err(|error| format!("{error:#}"));
    built.entry(name).or_insert_with(build).clone().map_err(anyhow::Error::msg)
}

fn compile(program: [&str; 2], name: &str, features: &[&str]) -> Result<PathBuf> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Cargo's variables about this package are not for another build: build scripts that read them would run
    // again, and what depends on them would be compiled again, every time.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            cargo.env_remove(&*name);
        }
    }
    let output = cargo
        .current_dir(repo::root())
        .args(["all-build", "--quiet", "--message-format", "json"])
        .args(program)
        .args(features)
        .output()
        .context("cargo cannot be started")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} does not compile:\n{errors}");
    let text = String::from_utf8(output.stdout)?;
    let built = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo names no executable")?;

    let kept = repo::root().join("target/e2e");
    fs::create_dir_all(&kept)?;
    let (draft, path) = (kept.join(format!("{name}.{}", std::process::id())), kept.join(name));
    fs::copy(&built, &draft).with_context(|| format!("cannot copy {}", built.display()))?;
    fs::rename(&draft, &path)?;
    Ok(path)
}
