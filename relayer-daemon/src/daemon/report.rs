//! The results of the checks before the start, as `check` prints them.

use std::fmt;

use alloy::primitives::Address;

/// The result of a check for one account.
pub(super) type Found = (Address, Result<String, String>);

/// The mark in front of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// All is well.
    Tick,
    /// The daemon works, without this account or unlike others.
    Warning,
    /// The daemon does not start.
    Cross,
}

/// The results of the checks.
#[derive(Debug, Default)]
pub struct CheckReport {
    lines: Vec<(Mark, &'static str, String)>,
}

impl CheckReport {
    pub(super) fn tick(&mut self, name: &'static str, text: impl fmt::Display) {
        self.lines.push((Mark::Tick, name, text.to_string()));
    }

    pub(super) fn cross(&mut self, name: &'static str, text: impl fmt::Display) {
        self.lines.push((Mark::Cross, name, text.to_string()));
    }

    pub(super) fn warn(&mut self, name: &'static str, text: impl fmt::Display) {
        self.lines.push((Mark::Warning, name, text.to_string()));
    }

    pub(super) fn add(&mut self, name: &'static str, result: Result<String, String>) {
        match result {
            Ok(text) => self.tick(name, text),
            Err(text) => self.cross(name, text),
        }
    }

    /// The value of a good result; a cross for a bad one.
    pub(super) fn pass<T, E: fmt::Display>(&mut self, name: &'static str, result: Result<T, E>) -> Option<T> {
        result.inspect_err(|error| self.cross(name, error)).ok()
    }

    /// The warnings alone, a line each.
    pub fn warnings(&self) -> Self {
        let warnings = self.lines.iter().filter(|(mark, ..)| *mark == Mark::Warning);
        Self { lines: warnings.cloned().collect() }
    }

    /// A line for each account, which names it if there are several. An account that fails is left out, with
    /// a warning; if all fail, each is a cross.
    pub(super) fn accounts(&mut self, name: &'static str, found: &[Found]) {
        let fails = if found.iter().all(|(_, found)| found.is_err()) { Mark::Cross } else { Mark::Warning };
        for (account, found_here) in found {
            let (mark, text) = match found_here {
                Ok(text) => (Mark::Tick, text),
                Err(text) => (fails, text),
            };
            self.lines.push((mark, name, of_account(*account, found.len(), text)));
        }
    }

    /// Returns whether no check failed.
    pub fn is_good(&self) -> bool {
        self.lines.iter().all(|(mark, ..)| *mark != Mark::Cross)
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (mark, name, text) in &self.lines {
            let mark = match mark {
                Mark::Tick => "✓",
                Mark::Warning => "!",
                Mark::Cross => "✗",
            };
            writeln!(f, "{mark} {name:<12} {text}")?;
        }
        Ok(())
    }
}

/// A line's text, which names the account if there are several.
pub(super) fn of_account(account: Address, accounts: usize, text: &str) -> String {
    if accounts > 1 { format!("{account}: {text}") } else { text.to_owned() }
}
