//! The program `evidence`, built from this repository.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Error, Result, ensure};
use tokio::process::Command;

use crate::daemon::compile;

/// Runs it with these arguments: whether it found all to be right, and the lines that it printed.
pub async fn run(arguments: &[&str]) -> Result<(bool, Vec<String>)> {
    let output = Command::new(binary()?).args(arguments).output().await?;
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let text = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8(text)?.lines().map(str::to_owned).collect();
    Ok((output.status.success(), lines))
}

/// The program, built once per process that asks for it.
fn binary() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        compile(["--bin", "evidence"], "evidence", &[]).map_err(|error| format!("{error:#}"))
    });
    built.clone().map_err(Error::msg)
}
