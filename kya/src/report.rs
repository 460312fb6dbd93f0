//! Report of a command: lines for people, one JSON document for programs, and an exit status.

use std::{fmt, time::Duration};

use alloy::primitives::Bytes;
pub use host_kit::say;
use serde_json::{Value, json};

use crate::journal::Journal;

/// The exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; or what was asked holds.
    Done = 0,
    /// Refused, or it does not hold: a repetition would not change that.
    Refused = 1,
    /// Arguments are missing or wrong.
    Usage = 2,
    /// Nothing was done, or what was begun is kept: repeat the command later.
    TryAgain = 3,
    /// Sent, and not settled yet: repeat the command, which sends nothing twice.
    Pending = 4,
    /// It was not confirmed.
    NotConfirmed = 5,
}

/// Report of a command.
#[derive(Debug)]
pub struct Report {
    /// Lines for people; or the one document that was asked for.
    pub text: String,
    /// JSON document for programs.
    pub json: Value,
    /// The exit status.
    pub exit: Exit,
    /// Calls that the report is about, to be forgotten once it is printed.
    pub told: Option<PrintedCalls>,
}

/// Executed calls, and the locked journal that has them.
#[derive(Debug)]
pub struct PrintedCalls {
    journal: Journal,
    calls: Vec<Bytes>,
}

impl PrintedCalls {
    /// Forgets the calls: a repetition of the command makes new ones. Errors: the journal cannot be written.
    pub fn forget(&self) -> Result<()> {
        self.journal.forget(&self.calls)
    }
}

impl Report {
    /// Creates a successful report. Control characters within its lines are replaced; texts of others that
    /// may have a line feed go through `plain` before.
    pub fn done(text: impl Into<String>, json: Value) -> Self {
        let text: String = text.into();
        let lines: Vec<String> = text.split('\n').map(plain).collect();
        Self { text: lines.join("\n"), json, exit: Exit::Done, told: None }
    }

    /// Attaches the calls that the report is about.
    pub(crate) fn telling_of(self, calls: Vec<Bytes>, journal: Journal) -> Self {
        Self { told: Some(PrintedCalls { journal, calls }), ..self }
    }

    /// Creates a report of one document for people and programs, unchanged: each byte may be signed.
    pub fn document(text: String) -> Self {
        let json = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()));
        Self { text, json, exit: Exit::Done, told: None }
    }
}

/// Failure of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFailure {
    /// The exit status.
    pub exit: Exit,
    /// Text for people.
    pub text: String,
    /// Time for which a repetition would be refused, where that is known.
    pub retry_after: Option<Duration>,
}

impl CommandFailure {
    /// Creates a failure with this exit status.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into(), retry_after: None }
    }

    /// Creates a failure that a repetition would not change.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::new(Exit::Refused, text)
    }

    /// Creates a failure for a missing or wrong argument.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// Creates a failure that may pass later.
    pub fn try_again(text: impl Into<String>) -> Self {
        Self::new(Exit::TryAgain, text)
    }

    /// Creates a failure of a call that was sent and is not settled yet.
    pub fn pending(text: impl Into<String>) -> Self {
        Self::new(Exit::Pending, text)
    }

    /// Returns the document for programs.
    pub fn json(&self) -> Value {
        json!({ "error": self.text, "exit": self.exit as u8 })
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.text))
    }
}

/// Replaces control and direction characters, so that others' text steers no terminal and begins no line.
pub(crate) fn plain(words: &str) -> String {
    let steers = |letter: char| {
        matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || (letter.is_control() && letter != '\t')
    };
    words.chars().map(|letter| if steers(letter) { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

/// Returns whether a request that is answered with this HTTP status may be answered otherwise later.
pub(crate) const fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..)
}

impl From<anyhow::Error> for CommandFailure {
    fn from(error: anyhow::Error) -> Self {
        Self::refused(format!("{error:#}"))
    }
}

/// The result of a command or a part of one.
pub type Result<T, E = CommandFailure> = std::result::Result<T, E>;
