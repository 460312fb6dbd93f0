//! The table at the end of `cargo xtask test`: each step, its result and its time.

use std::io::{BufRead as _, BufReader, Write};
use std::panic::resume_unwind;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::fingerprint::Stamp;
use crate::run::line;

/// Number of lines about a step's failures that the summary repeats.
const MOST_LINES: usize = 60;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// The lines that the step printed about its failures.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    /// One check that passed.
    pub(crate) const CHECK: Self = Self { passed: 1, failed: 0, failures: Vec::new() };

    fn failure(what: String) -> Self {
        Self { passed: 0, failed: 1, failures: vec![what] }
    }
}

/// A step to take.
pub(crate) struct SuiteStep {
    pub(crate) name: String,
    /// Fingerprint of its inputs; while it stays the same, the step need not be repeated.
    pub(crate) fingerprint: Option<String>,
}

struct Row {
    name: String,
    tally: Tally,
    /// `None` where the step was not repeated.
    time: Option<Duration>,
}

pub(crate) struct Summary {
    rows: Vec<Row>,
    /// Only steps with one of these words in their names run; all run if there is none.
    only: Vec<String>,
    /// Words that no step so far has in its name.
    unmet: Vec<String>,
    /// True if steps run whose inputs have not changed.
    repeats: bool,
    started: Instant,
}

impl Summary {
    pub(crate) fn new(only: &[String], repeats: bool) -> Self {
        let [only, unmet] = [only, only].map(<[String]>::to_vec);
        Self { rows: Vec::new(), only, unmet, repeats, started: Instant::now() }
    }

    /// Returns whether a step of one of these names is wanted.
    pub(crate) fn wants_any(&self, names: &[String]) -> bool {
        names.iter().any(|name| self.is_wanted(name))
    }

    /// Runs a step that others need, whether or not it is wanted for itself.
    pub(crate) fn prepare(&mut self, name: &str, step: impl FnOnce() -> Result<Tally>) {
        let only = std::mem::take(&mut self.only);
        self.step(name, None, step);
        self.only = only;
    }

    /// Records a preparation, which is no check.
    pub(crate) fn took(&mut self, name: &str, time: Duration) {
        self.meet(name);
        self.rows.push(Row { name: name.to_owned(), tally: Tally::default(), time: Some(time) });
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.unmet.retain(|word| other.unmet.contains(word));
    }

    /// Runs a step and records its result. A failure does not stop the steps after it: it must not hide
    /// another one.
    pub(crate) fn step(
        &mut self,
        name: &str,
        fingerprint: Option<String>,
        step: impl FnOnce() -> Result<Tally>,
    ) {
        self.meet(name);
        if self.is_wanted(name) {
            println!("\n=== {name}");
            let of = || SuiteStep { name: name.to_owned(), fingerprint: fingerprint.clone() };
            let row = self.row(of, &mut std::io::stdout(), |_| step());
            self.rows.push(row);
        }
    }

    /// Runs a step for each of these items, `lanes` at a time, and records the results in this order. The
    /// output of each is printed in one piece when it ends.
    pub(crate) fn side_by_side<T: Sync>(
        &mut self,
        lanes: usize,
        items: &[&T],
        step_of: impl Fn(&T) -> SuiteStep + Sync,
        run: impl Fn(&T, &mut dyn Write) -> Result<Tally> + Sync,
    ) {
        items.iter().for_each(|item| self.meet(&step_of(item).name));
        let wanted: Vec<&&T> = items.iter().filter(|item| self.is_wanted(&step_of(item).name)).collect();
        let next = AtomicUsize::new(0);
        let this = &*self;
        let lane = || {
            let mut ended = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = wanted.get(place) else { return ended };
                println!("=== {}: started", step_of(item).name);
                let mut output = Vec::new();
                let row = this.row(|| step_of(item), &mut output, |output| run(item, output));
                println!("\n=== {}\n{}", row.name, String::from_utf8_lossy(&output));
                ended.push((place, row));
            }
        };
        let mut ended: Vec<_> = thread::scope(|scope| {
            let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
            lanes
                .into_iter()
                .flat_map(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        ended.sort_by_key(|(place, _)| *place);
        self.rows.extend(ended.into_iter().map(|(_, row)| row));
    }

    /// Takes a step, unless it succeeded before with the same inputs, and measures its time. The inputs may
    /// be known only once it has run.
    fn row<O: Write>(
        &self,
        step: impl Fn() -> SuiteStep,
        output: &mut O,
        run: impl FnOnce(&mut O) -> Result<Tally>,
    ) -> Row {
        let stamp = || {
            let SuiteStep { name, fingerprint } = step();
            fingerprint.map(|fingerprint| Stamp::new(&format!("tests/{name}"), fingerprint))
        };
        let name = step().name;
        if let Some(passed) = stamp().filter(|_| !self.repeats).and_then(|stamp| stamp.stored()) {
            let tally = Tally { passed: passed.parse().unwrap_or(0), ..Tally::default() };
            return Row { name, tally, time: None };
        }
        let started = Instant::now();
        let tally = run(output).unwrap_or_else(|error| {
            // The table reports the error as well.
            let _ = writeln!(output, "{name}: {error:#}");
            Tally::failure(format!("{error:#}"))
        });
        if tally.failed == 0 {
            let stored = stamp().map_or(Ok(()), |stamp| stamp.store(&tally.passed.to_string()));
            // Without a stamp the step is repeated, which is right as well.
            stored.unwrap_or_else(|error| eprintln!("{name}: {error:#}"));
        }
        Row { name, tally, time: Some(started.elapsed()) }
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| name.contains(word))
    }

    fn meet(&mut self, name: &str) {
        self.unmet.retain(|word| !name.contains(word.as_str()));
    }

    /// Prints the table, repeats the failures, and prints the sum as the last line. Fails if any step failed,
    /// and if one of the words is in no step's name.
    pub(crate) fn finish(self) -> ExitCode {
        let (mut passed, mut failed, mut unchanged) = (0, 0, 0);
        println!("\n{:<44} {:>7} {:>7} {:>9}", "", "passed", "failed", "seconds");
        for Row { name, tally, time } in &self.rows {
            let time = match time {
                Some(time) => format!("{:.1}", time.as_secs_f64()),
                None => "unchanged".to_owned(),
            };
            println!("{name:<44} {:>7} {:>7} {time:>9}", tally.passed, tally.failed);
            unchanged += if time == "unchanged" { tally.passed } else { 0 };
            passed += tally.passed;
            failed += tally.failed;
        }
        println!("{:<44} {:>7} {:>7} {:>9.1}", "", "", "", self.started.elapsed().as_secs_f64());
        for Row { name, tally, .. } in self.rows.iter().filter(|row| row.tally.failed > 0) {
            println!("\n=== {name}: {} failed", tally.failed);
            for line in tally.failures.iter().take(MOST_LINES) {
                println!("{line}");
            }
            if tally.failures.len() > MOST_LINES {
                println!("... and {} more lines above", tally.failures.len() - MOST_LINES);
            }
        }
        if unchanged > 0 {
            println!(
                "\n{unchanged} passed in an earlier run, and nothing that they depend on has changed (--all repeats them)"
            );
        }
        println!("\n{passed} passed, {failed} failed");
        // Where the tests do not compile, their steps are not known.
        if failed == 0 && !self.unmet.is_empty() {
            println!("no step is named so: {}", self.unmet.join(" "));
            return ExitCode::FAILURE;
        }
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs a test program, passes its output on, and adds up the summary lines of cargo and forge. A program
/// that fails without such a failure counts as one.
pub(crate) fn count(command: &mut Command, output: &mut dyn Write) -> Result<Tally> {
    let text = line(command);
    let (reader, writer) = std::io::pipe()?;
    let child = command.stdout(writer.try_clone()?).stderr(writer).spawn();
    // Drops the command's write ends: the pipe ends with the last one.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.with_context(|| format!("cannot start {text}"))?;
    let mut tally = Tally::default();
    let mut tells_of_failures = false;
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(output, "{line}")?;
        let line = without_colours(&line);
        tells_of_failures |= opens_failures(&line);
        if let Some((passed, failed)) = counts(&line) {
            tally.passed += passed;
            tally.failed += failed;
            tells_of_failures = false;
        } else if tells_of_failures && !is_of_backtrace(&line) {
            tally.failures.push(line);
        }
    }
    if !child.wait()?.success() && tally.failed == 0 {
        writeln!(output, "{text} failed")?;
        tally.failed += 1;
        tally.failures.push(format!("{text} failed"));
    }
    Ok(tally)
}

/// Removes a terminal's colours, `ESC [ … m`, which programs may be told to write also to a pipe.
pub(crate) fn without_colours(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, text)| text));
    [first].into_iter().chain(rest).collect()
}

/// Returns whether a line opens a report of failures, which ends with the counts: cargo's `---- name stdout
/// ----`, forge's list.
fn opens_failures(line: &str) -> bool {
    (line.starts_with("---- ") && line.ends_with(" ----")) || line == "Failing tests:"
}

/// Returns whether a line belongs to a Rust backtrace: `   0: core::panicking::panic_fmt`, `             at
/// ./src/lib.rs:1:2`.
fn is_of_backtrace(line: &str) -> bool {
    let is_frame =
        |text: &str| text.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    line.starts_with("             at ") || (line.starts_with("  ") && is_frame(line.trim_start()))
}

/// Returns the counts in a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; ...` (cargo, per
/// test program) or `Ran 9 test suites in 9s: 98 tests passed, 0 failed, 0 skipped (98 total tests)` (forge,
/// once).
fn counts(line: &str) -> Option<(usize, usize)> {
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
    Some((of("passed")?, of("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tally of a program that prints this and exits with this code.
    fn counted(output: &str, code: u8) -> Tally {
        let arguments = ["-c", "printf %s \"$0\"; exit \"$1\"", output, &code.to_string()];
        count(Command::new("sh").args(arguments), &mut Vec::new()).unwrap()
    }

    #[test]
    fn a_program_that_fails_without_a_counted_failure_is_a_failure() {
        let Tally { passed, failed, failures } = counted("test result: ok. 2 passed; 0 failed\n", 1);
        assert_eq!((passed, failed), (2, 1));
        assert!(failures[0].starts_with("sh -c ") && failures[0].ends_with(" failed"), "{failures:?}");
    }

    #[test]
    fn steps_side_by_side_meet_and_are_listed_in_their_order() {
        let mut summary = Summary::new(&["meet".into(), "fail".into()], true);
        let names = ["meet 1", "meet 2", "fails", "unwanted"].map(String::from);
        let both = std::sync::Barrier::new(2);
        let step_of = |name: &String| SuiteStep { name: name.clone(), fingerprint: None };
        summary.side_by_side(2, &names.each_ref(), step_of, |name, output| {
            if name == "fails" {
                anyhow::bail!("as it should");
            }
            // Passes only if the other step runs at the same time.
            both.wait();
            count(Command::new("sh").args(["-c", "echo 'test result: ok. 2 passed; 0 failed' >&2"]), output)
        });
        let rows: Vec<_> =
            summary.rows.iter().map(|row| (row.name.as_str(), row.tally.passed, row.tally.failed)).collect();
        assert_eq!(rows, [("meet 1", 2, 0), ("meet 2", 2, 0), ("fails", 0, 1)]);
    }

    #[test]
    fn what_passed_with_the_same_inputs_is_not_repeated_and_what_failed_is() {
        let name = format!("test of the summary {}", std::process::id());
        let mut taken = Vec::new();
        for (inputs, repeats, passes) in [
            ("one", false, true),
            ("one", false, true),
            ("one", true, true),
            ("two", false, false),
            ("two", false, true),
        ] {
            let step = || SuiteStep { name: name.clone(), fingerprint: Some(inputs.to_owned()) };
            let tally = Tally { passed: 7, failed: usize::from(!passes), failures: Vec::new() };
            let row = Summary::new(&[], repeats).row(step, &mut Vec::new(), |_| Ok(tally));
            assert_eq!(row.tally.passed, 7, "also of a step that is not repeated");
            taken.push(row.time.is_some());
        }
        assert_eq!(taken, [true, false, true, true, true]);
        Stamp::new(&format!("tests/{name}"), String::new()).remove().unwrap();
    }

    #[test]
    fn a_word_that_is_in_no_steps_name_is_a_failure() {
        let known = ["relayer", "beside", "modules", "setup"].map(|word| (word, true));
        for (word, passes) in [("relayr", false)].into_iter().chain(known) {
            let [mut summary, mut of_modules] = [(); 2].map(|()| Summary::new(&[word.to_owned()], true));
            summary.step("end to end: relayer", None, || Ok(Tally::CHECK));
            let step_of = |name: &String| SuiteStep { name: name.clone(), fingerprint: None };
            summary.side_by_side(1, &[&"beside it".to_owned()], step_of, |_, _| Ok(Tally::CHECK));
            of_modules.took("setup", Duration::ZERO);
            of_modules.step("modules", None, || Ok(Tally::CHECK));
            summary.append(of_modules);
            let expected = if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            assert_eq!(format!("{:?}", summary.finish()), format!("{expected:?}"), "{word}");
        }
    }

    #[test]
    fn both_test_programs_are_counted_and_their_failures_are_kept() {
        let cargo = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nexpected 1\n   \
                     0: b::panicked\n             at ./b.rs:1:2\n\ntest result: FAILED. 12 passed; 3 failed; \
                     0 ignored; 0 measured; 1 filtered out; finished in 0.01s\nafterwards\n";
        let forge = "Ran 5 tests for test/A.t.sol:ATest\nSuite result: ok. 5 passed; 0 failed\n\n\
                     Ran 9 test suites in 9.33s (10.09s CPU time): 98 tests passed, 1 failed, 0 skipped (99 total \
                     tests)\n\nFailing tests:\n[FAIL: no] testB()\n";
        for (printed, passed, failed, failures) in [
            (cargo, 12, 3, &["---- b stdout ----", "expected 1", ""][..]),
            (forge, 98, 1, &["Failing tests:", "[FAIL: no] testB()"]),
            ("Ran 2 test suites in 1s: \x1b[32m3\x1b[0m tests passed, \x1b[31m1\x1b[0m failed\n", 3, 1, &[]),
        ] {
            let failures = failures.iter().map(|line| (*line).to_owned()).collect();
            assert_eq!(counted(printed, 101), Tally { passed, failed, failures });
        }
    }
}
