//! Node programs that only some tests need. Each set is a folder of `tests` with a `package-lock.json`,
//! installed there on first use.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::Result;
use tokio::process::Command;

use crate::process::output;
use crate::repo;

/// Installs a set's packages from npm's registry where needed, and returns the set's folder.
pub async fn installed(set: &str) -> Result<PathBuf> {
    let folder = repo::root().join("tests").join(set);
    fs::create_dir_all(repo::root().join("target/npm"))?;
    let lock = File::create(repo::root().join(format!("target/npm/{set}.lock")))?;
    let _turn = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await??;

    let time = |name: &str| fs::metadata(folder.join(name)).and_then(|file| file.modified()).ok();
    let installed = time("node_modules/.package-lock.json");
    if installed.is_none() || installed < time("package-lock.json") {
        // The packages also have in JavaScript what their installation scripts would compile.
        let mut npm = Command::from(repo::command("npm"));
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder);
        output(&mut npm).await?;
    }
    Ok(folder)
}
