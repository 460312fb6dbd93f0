//! Errors of verdicts, updates and spot checks.

use std::{io, time::Duration};

use registry_core::{api, snapshot::SnapshotError};

/// The reason why there is no verdict, no update or no spot check.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The local copy is too old for a verdict, or nothing is held yet. An update mends it.
    #[error("what is held of the registry is too old: {}", age.map_or("there is nothing, or it is of a time to come".to_owned(), |age| format!("{} s", age.as_secs())))]
    Stale {
        /// Age of the copy; `None` while nothing is held yet, and where this computer's clock was set back
        /// since it came.
        age: Option<Duration>,
    },
    /// The API offers an older block than the one held, which verdicts still use while it is not too old.
    #[error("the service went back from block {held} to block {offered}")]
    WentBack {
        /// The block held.
        held: u64,
        /// The block offered.
        offered: u64,
    },
    /// The snapshot does not hold all of this wallet, such as a scope that is too long for the index: ask the
    /// API or the chain.
    #[error("only the chain can tell")]
    AskChain,
    /// An option breaks its rule.
    #[error("{0}")]
    Option(&'static str),
    /// Another process, or another `LocalKya` of this one, has the file open.
    #[error("the file is in use")]
    InUse,
    /// The file cannot be read or written.
    #[error("the file: {0}")]
    File(#[from] io::Error),
    /// The API cannot be reached, or breaks off.
    #[error("the service cannot be reached: {0}")]
    Unreachable(String),
    /// The API refuses.
    #[error("the service answers with status {status}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The API's `Retry-After`, if it has one.
        retry_after: Option<Duration>,
    },
    /// The API's bytes, or the file's, are not what they have to be.
    #[error("{0}")]
    Snapshot(#[from] SnapshotError),
    /// The caller's own chain endpoint gives no evidence of a verdict.
    #[error("the chain: {0}")]
    Chain(#[from] api::error::Error),
}
