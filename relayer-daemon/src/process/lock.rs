//! One process for each key and chain, and for each journal: a file lock that names its holder.
//!
//! The kernel releases the lock when the holder dies. The file stays, with the process id of the last holder,
//! which is valid only while the lock is held, and only in the holder's PID namespace: in another container
//! the same number is another process, most often the own one. So the file names the namespace too.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

/// Number of attempts of a start to take the lock: a concurrent `check` holds it for a moment.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// The reason why the lock is not taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{0} runs with this key or this journal")]
    Held(LockHolder),
    /// It is held in another container, where no signal reaches.
    #[error(
        "the process with this key or this journal runs in another container: drain it there, with SIGUSR1"
    )]
    Elsewhere,
    /// The file cannot be made, locked or written.
    #[error("the lock file cannot be used: {0}")]
    Unusable(io::ErrorKind),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Unusable(error.kind())
    }
}

/// The process that holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHolder {
    /// Its id in its namespace; `None` where the file does not name it.
    pid: Option<Pid>,
    /// True if the id means the same process here.
    is_here: bool,
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) if self.is_here => write!(f, "another process ({})", pid.as_raw_nonzero()),
            Some(_) => f.write_str("a process in another container"),
            None => f.write_str("another process"),
        }
    }
}

impl LockHolder {
    /// Asks it to drain.
    ///
    /// # Errors
    /// Fails if the file does not name it, it is in another container, or it belongs to another user.
    pub fn ask_to_drain(self) -> Result<(), LockError> {
        let pid = self.pid.ok_or(LockError::Unusable(io::ErrorKind::NotFound))?;
        // A process does not wait for its own lock: then the id is another namespace's.
        if !self.is_here || pid.as_raw_nonzero().get().unsigned_abs() == std::process::id() {
            return Err(LockError::Elsewhere);
        }
        kill_process(pid, Signal::USR1).map_err(|error| LockError::Unusable(error.kind()))
    }
}

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub struct ProcessLock {
    _file: File,
}

impl ProcessLock {
    /// Takes the lock at `path`.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let file = open(path)?;
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < TRIES => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(&file)?)),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
        sign(file)
    }

    /// Takes the lock at `path` as soon as it is free.
    pub fn wait(path: &Path) -> Result<Self, LockError> {
        let file = open(path)?;
        file.lock()?;
        sign(file)
    }

    /// Returns the current holder of the lock at `path`. Changes nothing, and creates no file.
    pub fn holder(path: &Path) -> Result<Option<LockHolder>, LockError> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(holder(&file)?)),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    // Not truncated: another process's id may be in it.
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Writes this process's id and namespace into the locked file.
fn sign(mut file: File) -> Result<ProcessLock, LockError> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{} {}", std::process::id(), namespace())?;
    Ok(ProcessLock { _file: file })
}

fn holder(mut file: &File) -> io::Result<LockHolder> {
    let mut text = String::new();
    file.take(128).read_to_string(&mut text)?;
    file.rewind()?;
    let (pid, place) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    Ok(LockHolder { pid: pid.parse().ok().and_then(Pid::from_raw), is_here: place == namespace() })
}

/// Returns the PID namespace of this process and boot in one word, unique to a machine or container.
fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{}@{}", link.display(), boot.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_its_holder_and_once_it_is_dropped_a_waiting_process_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/lock");
        assert_eq!(ProcessLock::holder(&path).unwrap(), None);
        assert!(!path.exists(), "looking makes no file");
        let held = ProcessLock::take(&path).unwrap();
        let text = format!("another process ({})", std::process::id());
        assert_eq!(ProcessLock::holder(&path).unwrap().unwrap().to_string(), text);
        let refused = ProcessLock::take(&path).unwrap_err();
        assert_eq!(refused.to_string(), format!("{text} runs with this key or this journal"));
        thread::scope(|threads| {
            let waiting = threads.spawn(|| ProcessLock::wait(&path).map(drop));
            drop(held);
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(ProcessLock::holder(&path).unwrap(), None);
        ProcessLock::take(&path).unwrap();
    }

    #[test]
    fn who_drains_from_another_container_signals_neither_itself_nor_a_process_of_the_same_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for text in [
            // As a holder in another container, where both are process 1.
            format!("{} pid:[1]@elsewhere", std::process::id()),
            format!("{}", std::process::id()),
            format!("{} pid:[1]@elsewhere", child.id()),
            format!("{} {}", std::process::id(), namespace()),
            String::new(),
        ] {
            fs::write(&path, &text).unwrap();
            let held = File::open(&path).unwrap();
            held.lock().unwrap();
            let holder = ProcessLock::holder(&path).unwrap().unwrap();
            let asked = holder.ask_to_drain();
            let is_refused = matches!(asked, Err(LockError::Elsewhere)) || text.is_empty() && asked.is_err();
            assert!(is_refused, "{text}");
            assert!(!text.is_empty() || holder.to_string() == "another process", "{holder}");
        }
        assert!(child.try_wait().unwrap().is_none(), "a stranger was signalled");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
