//! Whether the inputs of a step have changed since it last succeeded.
//!
//! By content and not by time: a checkout that touches every file changes nothing.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A stamp file that remembers the fingerprint of a step's inputs.
#[derive(Debug)]
pub(crate) struct Stamp {
    path: PathBuf,
    fingerprint: String,
}

impl Stamp {
    /// The stamp at `path` for these inputs: files, or directories with all that is below them. What does not exist
    /// counts as that.
    pub(crate) fn of(path: PathBuf, inputs: &[PathBuf]) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        for input in inputs {
            add(input, &mut hasher)?;
        }
        Ok(Self { path, fingerprint: format!("{:016x}", hasher.finish()) })
    }

    /// Whether the step succeeded with exactly these inputs.
    pub(crate) fn is_current(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|stored| stored.trim() == self.fingerprint)
    }

    /// Remembers that it did.
    pub(crate) fn set(&self) -> Result<()> {
        if let Some(parent) = self.path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&self.path, &self.fingerprint)
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

/// Waits for its turn: only one process at a time holds the lock of this name. It ends with the file, or the process.
pub(crate) fn lock(name: &str) -> Result<File> {
    let directory = crate::run::root().join("target/xtask");
    fs::create_dir_all(&directory)?;
    let path = directory.join(format!("{name}.lock"));
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}
