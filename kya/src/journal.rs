//! Journal of signed calls that are not settled and printed yet: one file for each signer and registry,
//! written before anything is sent. A command that was killed finds it again and sends the very same bytes,
//! so that no call is executed twice. The file is locked meanwhile: two commands of one signer take turns.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use alloy::primitives::{Address, B256, Bytes};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::{CommandFailure, Result};

/// Longest wait for another command of the same signer.
const PATIENCE: Duration = Duration::from_secs(150);

/// Seconds within which a repeated command is about the earlier call; later it makes a new one.
const REPETITION: u64 = 3_600;

/// A call that was signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournaledCall {
    /// Calldata for the registry.
    pub call: Bytes,
    /// Time of signing in unix seconds, the later of the machine's clock and the chain's.
    pub at: u64,
    /// Relay request or transaction that carries the call.
    pub sent: SentCall,
    /// True if it was executed; its command has not printed that yet.
    #[serde(default)]
    pub is_executed: bool,
}

impl JournaledCall {
    /// Returns whether a command repeated at this time, by the clock of `at`, is about this call.
    pub fn is_recent_at(&self, time: u64) -> bool {
        time <= self.at.saturating_add(REPETITION)
    }
}

/// Form in which a call was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SentCall {
    /// Signed request to a relayer.
    Relay {
        /// The relayer's URL.
        relayer: String,
        /// The request's EIP-712 digest.
        id: B256,
        /// Posted body.
        body: Value,
    },
    /// The signer's own transaction.
    Transaction {
        /// Transaction hash.
        hash: B256,
        /// Transaction nonce.
        nonce: u64,
        /// Encoded transaction (EIP-2718).
        raw: Bytes,
        /// Hashes of the transactions of the same nonce and call that it has replaced, with higher fees. Only
        /// one of all of them is mined.
        #[serde(default)]
        replaced: Vec<B256>,
    },
}

impl SentCall {
    /// Returns the gas of a relayed call.
    pub fn relayed_gas(&self) -> Option<u64> {
        match self {
            Self::Relay { body, .. } => body.pointer("/request/gas")?.as_str()?.parse().ok(),
            Self::Transaction { .. } => None,
        }
    }
}

/// The journal of one signer at one registry, locked.
#[derive(Debug)]
pub struct Journal {
    file: PathBuf,
    _lock: File,
}

impl Journal {
    /// Opens the journal, waiting while another command of the signer holds it. Errors: it cannot be opened,
    /// or is held for too long.
    pub async fn open(directory: &Path, chain: u64, registry: Address, signer: Address) -> Result<Self> {
        let failed = |error: std::io::Error| {
            CommandFailure::try_again(format!("the state directory {}: {error}", directory.display()))
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let file = directory.join(format!("{chain}-{registry:#x}-{signer:#x}.json"));
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(file.with_extension("lock")).map_err(failed)?;
        let began = tokio::time::Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { file, _lock: lock }),
                Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(CommandFailure::try_again(
                        "another kya command of this key is still running",
                    ));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }

    /// Reads the calls that are not settled, or not printed. Errors: the file cannot be read. Nothing may be
    /// sent then: it may name a call in flight.
    pub fn calls(&self) -> Result<Vec<JournaledCall>> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum JournalContent {
            Calls(Vec<JournaledCall>),
            /// Form of an earlier version.
            Call(JournaledCall),
        }
        let bytes = match fs::read(&self.file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(&error)),
        };
        let unreadable = |error| CommandFailure::refused(format!("{}: {error}", self.file.display()));
        Ok(match serde_json::from_slice(&bytes).map_err(unreadable)? {
            JournalContent::Calls(calls) => calls,
            JournalContent::Call(call) => vec![call],
        })
    }

    /// Writes a call that is about to be sent, to survive a power cut. Errors: it cannot be written, and
    /// nothing may be sent.
    pub fn keep(&self, pending: &JournaledCall) -> Result<()> {
        let mut calls = self.calls()?;
        calls.retain(|kept| kept.call != pending.call);
        calls.push(pending.clone());
        self.write(calls)
    }

    /// Marks a call as executed. Errors: the file cannot be written.
    pub fn executed(&self, call: &Bytes) -> Result<()> {
        let mut calls = self.calls()?;
        calls.iter_mut().filter(|kept| kept.call == *call).for_each(|kept| kept.is_executed = true);
        self.write(calls)
    }

    /// Removes calls that failed, or that were executed and printed. Errors: the file cannot be written.
    pub fn forget(&self, calls: &[Bytes]) -> Result<()> {
        let mut kept = self.calls()?;
        kept.retain(|kept| !calls.contains(&kept.call));
        self.write(kept)
    }

    fn write(&self, mut calls: Vec<JournaledCall>) -> Result<()> {
        // The chain's time may be later: no call is forgotten too early.
        let now = crate::now().seconds();
        calls.retain(|kept| !kept.is_executed || kept.is_recent_at(now));
        if calls.is_empty() {
            return match fs::remove_file(&self.file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.failed(&error)),
                _ => Ok(()),
            };
        }
        let temporary = self.file.with_extension("tmp");
        let write = || -> std::io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            file.write_all(&serde_json::to_vec(&calls)?)?;
            file.sync_all()?;
            fs::rename(&temporary, &self.file)?;
            self.file.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
        };
        write().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> CommandFailure {
        CommandFailure::try_again(format!("{}: {error}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Exit;

    #[tokio::test]
    async fn what_was_kept_is_found_until_it_is_told_and_a_file_that_is_none_stops_everything() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Journal::open(directory.path(), 1, Address::ZERO, Address::repeat_byte(1));
        let journal = open().await.unwrap();
        assert!(journal.calls().unwrap().is_empty());
        let sent = SentCall::Transaction {
            hash: B256::ZERO,
            nonce: 3,
            raw: Bytes::from_static(b"raw"),
            replaced: vec![B256::ZERO],
        };
        let at = crate::now().seconds();
        let call = |name: &'static str, at| JournaledCall {
            call: Bytes::from_static(name.as_bytes()),
            at,
            sent: sent.clone(),
            is_executed: false,
        };
        let (old, first, second) = (call("old", at - 4_000), call("first", at), call("second", at));
        for call in [&old, &first] {
            journal.keep(call).unwrap();
            journal.executed(&call.call).unwrap();
        }
        journal.keep(&second).unwrap();
        drop(journal);
        let journal = open().await.unwrap();
        // Calls that were executed long ago are dropped.
        assert_eq!(
            journal.calls().unwrap(),
            [JournaledCall { is_executed: true, ..first.clone() }, second.clone()]
        );
        journal.forget(&[first.call]).unwrap();
        assert_eq!(journal.calls().unwrap(), std::slice::from_ref(&second));
        for _ in 0..2 {
            journal.forget(std::slice::from_ref(&second.call)).unwrap();
        }
        assert!(!journal.file.exists());
        let mut earlier = serde_json::to_value(&second).unwrap();
        earlier.as_object_mut().unwrap().remove("is_executed");
        fs::write(&journal.file, earlier.to_string()).unwrap();
        assert_eq!(journal.calls().unwrap(), [second]);
        fs::write(&journal.file, "{").unwrap();
        assert_eq!(journal.calls().unwrap_err().exit, Exit::Refused);
        assert_eq!(
            Journal::open(&journal.file, 1, Address::ZERO, Address::ZERO).await.unwrap_err().exit,
            Exit::TryAgain
        );
    }
}
