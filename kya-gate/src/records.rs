//! Records of admissions: a line of a file for each, written before the request is admitted.
//!
//! A line is handed to the operating system before the proxy gets its answer: it survives the end of the
//! process, but not a power failure in the next seconds. A request of which no line could be written is not
//! admitted. The file may be renamed at any time, as log rotation does: the next line goes to a new one.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use host_kit::native::lock;
use registry_core::gate::AdmissionRecord;
use tokio::time::{sleep, timeout};

use crate::settings::RecordSettings;

/// The longest wait of a line for a locked file: any process that may read the file can lock it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between two attempts to lock the file.
const RETRY: Duration = Duration::from_millis(5);
/// The bytes for which there has to be room again after a failure: more than most records take.
const PROBE: usize = 64 * 1024;

/// The file of records.
#[derive(Debug)]
pub struct Records {
    /// True if each record has the proof of its verdict.
    pub evidence: bool,
    path: PathBuf,
    file: Mutex<File>,
    /// True if the last write failed.
    has_failed: AtomicBool,
}

impl Records {
    /// Opens the file, or creates one that only owner and group can read. Errors: if it cannot be written.
    pub fn open(settings: &RecordSettings) -> anyhow::Result<Self> {
        let path = settings.file.clone();
        let file = open(&path).with_context(|| format!("records.file: cannot write {}", path.display()))?;
        let (file, has_failed) = (Mutex::new(file), AtomicBool::new(false));
        Ok(Self { evidence: settings.evidence, path, file, has_failed })
    }

    /// Appends a record. Errors: if it cannot be written, or the file stays locked; the file then keeps no
    /// part of it.
    pub async fn append(&self, record: &AdmissionRecord) -> io::Result<()> {
        self.write(&(record.line() + "\n"), true).await
    }

    /// Checks that a record could be appended now. After a failure, it writes bytes and cuts them off again.
    /// Errors: the reason, in words.
    pub async fn probe(&self) -> Result<(), String> {
        let bytes = if self.has_failed.load(Ordering::Relaxed) { PROBE } else { 0 };
        let written = self.write(&" ".repeat(bytes), false).await;
        written.map_err(|error| format!("records: the file cannot be written: {error}"))
    }

    /// Writes at the end of the file, waiting for its lock; cuts the text off again unless `is_kept`.
    async fn write(&self, text: &str, is_kept: bool) -> io::Result<()> {
        let written = async {
            // A blocking wait would take a thread from all other requests.
            while !self.try_write(text, is_kept)? {
                sleep(RETRY).await;
            }
            Ok(())
        };
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "another process has locked the file"));
        let written: io::Result<()> = timeout(LOCK_TIMEOUT, written).await.unwrap_or_else(late);
        self.has_failed.store(written.is_err(), Ordering::Relaxed);
        written
    }

    /// Writes at the end of the file; returns `false` where another process has locked it.
    fn try_write(&self, text: &str, is_kept: bool) -> io::Result<bool> {
        let mut file = lock(&self.file);
        let place = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
        let open_place = place(&file.metadata()?);
        if !fs::metadata(&self.path).is_ok_and(|at| place(&at) == open_place) {
            *file = open(&self.path)?;
        }
        // Other gates may write to the same file: without the lock, a cut could take their lines with it.
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        let written = append(&mut file, text, is_kept);
        file.unlock()?;
        written.map(|()| true)
    }
}

/// Writes at the end of a file, on a line of its own; cuts the text off again unless `is_kept`.
fn append(file: &mut File, text: &str, is_kept: bool) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut last = *b"\n";
    if let Some(place) = length.checked_sub(1) {
        file.read_exact_at(&mut last, place)?;
    }
    // A process that was killed, or a power failure, leaves a part of a line.
    let end_of_torn = if last == *b"\n" { "" } else { "\n" };
    let written = file.write_all(format!("{end_of_torn}{text}").as_bytes());
    if written.is_err() || !is_kept {
        // A partial line is of no use. Where the cut fails too, the next append starts a new line after it.
        let _ = file.set_len(length);
    }
    written
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use registry_core::{
        eth::timestamp::Timestamp,
        gate::{Grounds, VerifiedBy},
    };
    use std::pin::pin;
    use tokio::time::Instant;

    fn opened(file: &Path) -> Records {
        Records::open(&RecordSettings { file: file.to_owned(), evidence: false }).unwrap()
    }

    fn record() -> AdmissionRecord {
        let grounds = Grounds {
            policy: "api",
            registry: None,
            basis: None,
            acceptance: None,
            account: VerifiedBy::Key,
            signature: &[7],
            base: "base",
            evidence: None,
        };
        AdmissionRecord::new(Timestamp::from_seconds(1), &grounds, "token")
    }

    #[tokio::test]
    async fn a_torn_line_spoils_no_other_one() {
        let directory = tempfile::tempdir().unwrap();
        let (file, record) = (directory.path().join("admissions.jsonl"), record());
        for torn in [r#"{"version":2,"ti"#.to_owned(), " ".repeat(PROBE)] {
            fs::write(&file, &torn).unwrap();
            let records = opened(&file);
            for _ in 0..2 {
                records.probe().await.unwrap();
                records.append(&record).await.unwrap();
            }
            let line = record.line();
            assert_eq!(fs::read_to_string(&file).unwrap(), format!("{torn}\n{line}\n{line}\n"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_waits_for_that_of_another_gate_with_the_same_file_and_for_a_second_at_most() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("admissions.jsonl");
        let (records, record) = (opened(&file), record());
        // Another gate is writing its line, which fails after a part and is cut off again.
        let mut other = open(&file).unwrap();
        other.lock().unwrap();
        other.write_all(b"a part").unwrap();
        let mut appended = pin!(records.append(&record));
        assert!(futures_util::poll!(&mut appended).is_pending(), "it does not wait");
        other.set_len(0).unwrap();
        other.unlock().unwrap();
        appended.await.unwrap();

        // A process that only reads can keep its lock: lines do not wait one after the other.
        other.lock_shared().unwrap();
        let began = Instant::now();
        let late = join_all((0..3).map(|_| records.append(&record))).await;
        assert!(late.iter().all(Result::is_err) && began.elapsed() < LOCK_TIMEOUT * 2, "{late:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), record.line() + "\n");
    }
}
