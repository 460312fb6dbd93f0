//! The results of a daemon's checks before its start, as its `check` prints them.

use std::fmt;

/// The marks in front of lines.
const TICK: char = '✓';
const WARNING: char = '!';
const CROSS: char = '✗';

/// The results of checks, a line each: a mark, the check's name in `WIDTH` columns, a text.
#[derive(Debug, Default)]
pub struct CheckReport<const WIDTH: usize> {
    lines: Vec<(char, &'static str, String)>,
}

impl<const WIDTH: usize> CheckReport<WIDTH> {
    /// Adds a check that passed.
    pub fn tick(&mut self, name: &'static str, text: impl fmt::Display) {
        self.lines.push((TICK, name, text.to_string()));
    }

    /// Adds a check that failed: the daemon does not start.
    pub fn cross(&mut self, name: &'static str, text: impl fmt::Display) {
        self.lines.push((CROSS, name, text.to_string()));
    }

    /// Adds a warning: the daemon works, without something or unlike others.
    pub fn warn(&mut self, name: &'static str, text: impl fmt::Display) {
        self.lines.push((WARNING, name, text.to_string()));
    }

    /// Adds a tick or a cross.
    pub fn add(&mut self, name: &'static str, result: Result<String, String>) {
        match result {
            Ok(text) => self.tick(name, text),
            Err(text) => self.cross(name, text),
        }
    }

    /// Returns the value of a good result; adds a cross for a bad one.
    pub fn pass<T, E: fmt::Display>(&mut self, name: &'static str, result: Result<T, E>) -> Option<T> {
        result.inspect_err(|error| self.cross(name, error)).ok()
    }

    /// Adds the results of further checks.
    pub fn append(&mut self, further: Self) {
        self.lines.extend(further.lines);
    }

    /// Returns the warnings alone.
    #[must_use]
    pub fn warnings(&self) -> Self {
        let warnings = self.lines.iter().filter(|(mark, ..)| *mark == WARNING);
        Self { lines: warnings.cloned().collect() }
    }

    /// Returns whether no check failed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.lines.iter().all(|(mark, ..)| *mark != CROSS)
    }
}

impl<const WIDTH: usize> fmt::Display for CheckReport<WIDTH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (mark, name, text) in &self.lines {
            writeln!(f, "{mark} {name:<WIDTH$} {text}")?;
        }
        Ok(())
    }
}
