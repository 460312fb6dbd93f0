//! Files with secrets.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, ensure};

/// Reads a file that others cannot access. Its group may: systemd and Kubernetes hand secrets over so.
///
/// # Errors
/// If it cannot be read, or others can access it. The text quotes nothing of it.
pub fn read(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let metadata = fs::metadata(file).with_context(|| format!("cannot read {name}"))?;
    let mode = metadata.permissions().mode() & 0o7777;
    ensure!(mode & 0o007 == 0, "{name} has mode {mode:o}: others must not access it, such as with 0600");
    fs::read_to_string(file).with_context(|| format!("cannot read {name}"))
}
