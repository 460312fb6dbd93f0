//! What a command says: lines for people, one JSON document for programs, and an exit status.

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
    /// Sent, and its end is not known yet: repeat the command, which sends nothing twice.
    Pending = 4,
    /// It was not confirmed.
    NotConfirmed = 5,
}

/// What a command says.
#[derive(Debug)]
pub struct Report {
    /// Lines for people; or the one document that was asked for.
    pub text: String,
    /// The same for programs.
    pub json: Value,
    /// The exit status.
    pub exit: Exit,
    /// Where the calls that it tells of are kept, until it was printed.
    pub told: Option<Told>,
}

/// Calls that were carried out, and the journal that has them, locked.
#[derive(Debug)]
pub struct Told {
    journal: Journal,
    calls: Vec<Bytes>,
}

impl Told {
    /// Forgets the calls: a repetition of the command makes new ones. Errors: the journal cannot be written.
    pub fn forget(&self) -> Result<()> {
        self.journal.forget(&self.calls)
    }
}

impl Report {
    /// Done, in these lines, none of which steers a terminal. Others' words that may have a line feed go
    /// through `plain` before.
    pub fn done(text: impl Into<String>, json: Value) -> Self {
        let text: String = text.into();
        let lines: Vec<String> = text.split('\n').map(plain).collect();
        Self { text: lines.join("\n"), json, exit: Exit::Done, told: None }
    }

    /// The same report, which tells of these calls.
    pub(crate) fn telling_of(self, calls: Vec<Bytes>, journal: Journal) -> Self {
        Self { told: Some(Told { journal, calls }), ..self }
    }

    /// A document that is the same for people and programs, as it is: each byte may be signed.
    pub fn document(text: String) -> Self {
        let json = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()));
        Self { text, json, exit: Exit::Done, told: None }
    }
}

/// Why a command did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status.
    pub exit: Exit,
    /// In words for people.
    pub text: String,
    /// For how long a repetition would be refused, where that is known.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// One that ends with this exit status.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into(), retry_after: None }
    }

    /// A repetition would not change it.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::new(Exit::Refused, text)
    }

    /// An argument is missing.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// It may go better later.
    pub fn try_again(text: impl Into<String>) -> Self {
        Self::new(Exit::TryAgain, text)
    }

    /// It was sent.
    pub fn pending(text: impl Into<String>) -> Self {
        Self::new(Exit::Pending, text)
    }

    /// The document for programs.
    pub fn json(&self) -> Value {
        json!({ "error": self.text, "exit": self.exit as u8 })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.text))
    }
}

/// Others' words within a line: they write nothing on a terminal but themselves, and begin no line.
pub(crate) fn plain(words: &str) -> String {
    let steers = |letter: char| {
        matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || (letter.is_control() && letter != '\t')
    };
    words.chars().map(|letter| if steers(letter) { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

/// Whether a request that is answered with this HTTP status may be answered otherwise later.
pub(crate) const fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..)
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::refused(format!("{error:#}"))
    }
}

/// The result of a command or a part of one.
pub type Result<T, E = Failure> = std::result::Result<T, E>;
