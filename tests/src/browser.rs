//! Tests written for Node, most of which drive Chromium: run on a whole stack, and counted like cargo's own.
//!
//! Their harness lies in `tests/browser/harness`. Its reporter prints what libtest prints, to be summed up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::process::Spawn;
use crate::repo;
use crate::stack::Stack;

/// How long a whole run may take before it is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(900);

/// Concurrent browsers; more than two would wait for the processor.
const BROWSERS: usize = 2;

/// The main function of a test program: starts a [`Stack`] and runs the tests of these directories on it, one
/// directory after the other. Words on the command line are filters of test names.
pub async fn main(directories: &[&str]) -> ExitCode {
    // Cargo passes libtest's options, too.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    match on_a_stack(directories, &words).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn on_a_stack(directories: &[&str], words: &[String]) -> Result<bool> {
    let mut stack = Stack::start().await?;
    let mut passed = true;
    for directory in directories {
        passed &= run(&repo::root().join(directory), &stack.describe().await?, words).await?;
    }
    if !passed {
        println!("{}", stack.last_words());
    }
    Ok(passed)
}

/// Runs a directory's `*.test.mjs`, or with `words` the tests named by one of them; whether all passed.
///
/// `E2E_STACK` tells the tests where everything is.
async fn run(directory: &Path, stack: &Value, words: &[String]) -> Result<bool> {
    let files = test_files(directory)?;
    ensure!(!files.is_empty(), "{} has no tests", directory.display());
    let reporter = repo::root().join("tests/browser/harness/reporter.mjs");
    let mut spawn = Spawn::new("node", "node")
        .dir(repo::root())
        .env("E2E_STACK", stack.to_string())
        .args(["--test", &format!("--test-concurrency={BROWSERS}")])
        .arg(format!("--test-reporter={}", reporter.display()))
        .arg("--test-reporter-destination=stdout");
    for word in words {
        spawn = spawn.arg(format!("--test-name-pattern={word}"));
    }
    let mut node = spawn.args(files).show_output().start()?;
    Ok(node.exited(PATIENCE).await?.success())
}

fn test_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>().with_context(|| "cannot be listed")?;
    files.retain(|path| path.to_string_lossy().ends_with(".test.mjs"));
    files.sort();
    Ok(files)
}
