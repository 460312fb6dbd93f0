//! The program `evidence`, built from this repository.

use anyhow::{Result, ensure};
use tokio::process::Command;

use crate::program;

/// Runs it with these arguments: whether it found all to be right, and the lines that it printed.
pub async fn run(arguments: &[&str]) -> Result<(bool, Vec<String>)> {
    let program = program::compiled(["--bin", "evidence"])?;
    let output = Command::new(program).args(arguments).output().await?;
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let text = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8(text)?.lines().map(str::to_owned).collect();
    Ok((output.status.success(), lines))
}
