//! What ran, how it ended and how long it took: the table at the end of `cargo xtask test`.

use std::io::{BufRead as _, BufReader};
use std::ops::AddAssign;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::run::line;

/// Tests or checks that passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many passed.
    pub(crate) passed: usize,
    /// How many did not.
    pub(crate) failed: usize,
}

impl Tally {
    /// One check that passed.
    pub(crate) const CHECK: Self = Self { passed: 1, failed: 0 };
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

struct Row {
    name: String,
    tally: Tally,
    time: Duration,
}

/// The steps so far.
pub(crate) struct Summary {
    rows: Vec<Row>,
    /// Steps whose name contains none of these are left out; without any, all run.
    only: Vec<String>,
}

impl Summary {
    /// Nothing has run yet.
    pub(crate) fn new(only: &[String]) -> Self {
        Self { rows: Vec::new(), only: only.to_vec() }
    }

    /// Runs a step and notes how it ended. The steps after it run in any case: one failure shall not hide another.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Result<Tally>) {
        if !self.only.is_empty() && !self.only.iter().any(|word| name.contains(word)) {
            return;
        }
        println!("\n=== {name}");
        let started = Instant::now();
        let tally = step().unwrap_or_else(|error| {
            println!("{name}: {error:#}");
            Tally { passed: 0, failed: 1 }
        });
        self.rows.push(Row { name: name.to_owned(), tally, time: started.elapsed() });
    }

    /// Prints the table, and as its last line the sum. Fails if anything did.
    pub(crate) fn finish(self) -> ExitCode {
        let mut sum = Tally::default();
        println!("\n{:<44} {:>7} {:>7} {:>9}", "", "passed", "failed", "seconds");
        for row in &self.rows {
            let Tally { passed, failed } = row.tally;
            println!("{:<44} {passed:>7} {failed:>7} {:>9.1}", row.name, row.time.as_secs_f64());
            sum += row.tally;
        }
        println!("\n{} passed, {} failed", sum.passed, sum.failed);
        if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs a test program, passes its output on, and counts by the lines in which cargo and forge sum up. A program that
/// fails without having counted a failure counts as one.
pub(crate) fn count(command: &mut Command) -> Result<Tally> {
    let text = line(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {text}"))?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            println!("{line}");
            tally += counts(&line).unwrap_or_default();
        }
    }
    if !child.wait()?.success() && tally.failed == 0 {
        println!("{text} failed");
        tally.failed = 1;
    }
    Ok(tally)
}

/// The counts in a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; ...` (cargo, per test program) or
/// `Ran 9 test suites in 9s: 98 tests passed, 0 failed, 0 skipped (98 total tests)` (forge, once).
fn counts(line: &str) -> Option<Tally> {
    let line = line.trim();
    let counts = match line.strip_prefix("test result: ") {
        Some(rest) => rest.split_once(". ")?.1,
        None if line.starts_with("Ran ") && line.contains(" test suites in ") => line.rsplit_once(": ")?.1,
        None => return None,
    };
    let of = |word: &str| {
        counts.split([';', ',']).find_map(|part| {
            let mut words = part.split_whitespace();
            let number = words.next()?.parse().ok()?;
            words.any(|found| found == word).then_some(number)
        })
    };
    Some(Tally { passed: of("passed")?, failed: of("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_test_programs_are_counted() {
        let cargo = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.01s";
        assert_eq!(counts(cargo), Some(Tally { passed: 12, failed: 3 }));
        let forge = "Ran 9 test suites in 9.33s (10.09s CPU time): 98 tests passed, 1 failed, 0 skipped (99 total tests)";
        assert_eq!(counts(forge), Some(Tally { passed: 98, failed: 1 }));
        for other in [
            "test x ... ok",
            "Ran 5 tests for test/A.t.sol:ATest",
            "Suite result: ok. 5 passed; 0 failed",
            "",
        ] {
            assert_eq!(counts(other), None, "{other}");
        }
    }

    #[test]
    fn a_failure_nobody_counted_is_a_failure() {
        let tally =
            count(Command::new("sh").args(["-c", "echo 'test result: ok. 2 passed; 0 failed'; exit 1"]))
                .unwrap();
        assert_eq!(tally, Tally { passed: 2, failed: 1 });
    }
}
