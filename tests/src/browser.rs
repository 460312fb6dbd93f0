//! Tests written for Node, most of them with Chromium, that run on a whole stack and count like cargo's own.
//!
//! Their harness is in `tests/browser/harness`. One Node process runs them with one browser; its reporter
//! prints lines like libtest's, so that results can be summed up.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::process::{Process, Spawn};
use crate::repo;
use crate::stack::Stack;

const PATIENCE: Duration = Duration::from_secs(3_600);

/// Serves as a test program's main function: starts a [`Stack`] and runs the tests of these directories on
/// it, one after the other. Words on the command line are filters of test names.
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

/// Runs the directories' `*.test.mjs`, or the tests that match one of `words`; returns whether all passed.
///
/// `E2E_STACK` gives the tests the addresses of the stack's parts.
async fn on_a_stack(directories: &[&str], words: &[String]) -> Result<bool> {
    let mut stack = Stack::start().await?;
    let harness = repo::root().join("tests/browser/harness");
    let spawn = Spawn::new("node", "node")
        .dir(repo::root())
        .env("E2E_STACK", stack.describe().await?.to_string())
        .arg(format!("--test-reporter={}", harness.join("reporter.mjs").display()))
        .arg("--test-reporter-destination=stdout")
        .args(words.iter().map(|word| format!("--test-name-pattern={word}")))
        .arg(harness.join("run.mjs"))
        .args(directories);
    have_passed(spawn.show_output().start()?, PATIENCE, || println!("{}", stack.last_words())).await
}

/// Waits until the tests end; returns whether all passed. Calls `explain` where they failed or hang.
async fn have_passed(mut tests: Process, within: Duration, explain: impl FnOnce()) -> Result<bool> {
    let passed = tests.exited(within).await.map(|status| status.success());
    if !matches!(passed, Ok(true)) {
        explain();
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tests_that_fail_or_hang_are_explained() {
        for (script, within, expected, is_explained) in [
            ("exit 0", PATIENCE, Some(true), false),
            ("exit 1", PATIENCE, Some(false), true),
            ("sleep 3600", Duration::ZERO, None, true),
        ] {
            let tests = Spawn::new("tests", "sh").arg("-c").arg(script).start().unwrap();
            let mut explained = false;
            let passed = have_passed(tests, within, || explained = true).await;
            assert_eq!((passed.ok(), explained), (expected, is_explained), "{script}");
        }
    }
}
