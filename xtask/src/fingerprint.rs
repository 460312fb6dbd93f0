//! Detects whether the inputs of a step have changed since it last succeeded.
//!
//! Compares content, not time: a checkout that touches every file changes nothing.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A stamp file with the fingerprint of a step's inputs.
#[derive(Debug)]
pub(crate) struct Stamp {
    path: PathBuf,
    fingerprint: String,
}

impl Stamp {
    /// Returns the stamp at `path` for these inputs: files, and directories with everything below them. A
    /// missing input has a fingerprint of its own.
    pub(crate) fn of(path: PathBuf, inputs: &[PathBuf]) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        for input in inputs {
            add(input, &mut hasher)?;
        }
        Ok(Self { path, fingerprint: format!("{:016x}", hasher.finish()) })
    }

    /// Returns the stamp of a step in `target/xtask`, with a fingerprint of its inputs.
    pub(crate) fn new(step: &str, fingerprint: String) -> Self {
        let path =
            crate::run::root().join("target/xtask").join(format!("{}.stamp", step.replace([' ', ':'], "_")));
        Self { path, fingerprint }
    }

    /// Returns whether the step last succeeded with exactly these inputs.
    pub(crate) fn is_current(&self) -> bool {
        self.stored().is_some()
    }

    /// Returns the value that was stored when the step last succeeded, if it was with exactly these inputs.
    pub(crate) fn stored(&self) -> Option<String> {
        let stored = fs::read_to_string(&self.path).ok()?;
        let (fingerprint, result) = stored.split_once('\n').unwrap_or((&stored, ""));
        (fingerprint == self.fingerprint).then(|| result.to_owned())
    }

    /// Takes a step that writes outputs, and sets the stamp. The stamp is removed before: a step that fails
    /// or is killed leaves outputs of other inputs than the stamp's.
    pub(crate) fn renewed_by(&self, step: impl FnOnce() -> Result<()>) -> Result<()> {
        self.remove()?;
        step()?;
        self.set()
    }

    pub(crate) fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| self.path.display().to_string())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn set(&self) -> Result<()> {
        self.store("")
    }

    /// Records that the step succeeded, and its result.
    pub(crate) fn store(&self, result: &str) -> Result<()> {
        if let Some(parent) = self.path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&self.path, format!("{}\n{result}", self.fingerprint))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn add(path: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    hasher.write(path.as_os_str().as_encoded_bytes());
    if path.is_dir() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        entries.sort();
        for entry in entries {
            add(&entry, hasher)?;
        }
    } else if path.is_file() {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        hasher.write_usize(bytes.len());
        hasher.write(&bytes);
    }
    hasher.write_u8(0xff);
    Ok(())
}

/// Waits for the lock of this name, which one process holds at a time. Dropping the file or ending the
/// process frees it.
pub(crate) fn lock(name: &str) -> Result<File> {
    let directory = crate::run::root().join("target/xtask");
    fs::create_dir_all(&directory)?;
    let path = directory.join(format!("{name}.lock"));
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_leaves_no_stamp_of_earlier_inputs() {
        let stamp = |inputs: &str| {
            Stamp::new(&format!("test of fingerprints {}", std::process::id()), inputs.to_owned())
        };
        stamp("A").renewed_by(|| Ok(())).unwrap();
        assert!(stamp("A").is_current());
        stamp("B").renewed_by(|| anyhow::bail!("after it has written")).unwrap_err();
        assert!(!stamp("A").is_current() && !stamp("B").is_current());
    }
}
