//! Node programs that only some tests need: each set in a folder of `tests` with a `package-lock.json`,
//! installed there when it is first needed.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::Result;
use tokio::process::Command;

use crate::process::output;
use crate::repo;

/// The folder of a set, once its packages are installed, which takes npm's registry.
pub async fn installed(set: &str) -> Result<PathBuf> {
    let folder = repo::root().join("tests").join(set);
    fs::create_dir_all(repo::root().join("target/npm"))?;
    let lock = File::create(repo::root().join(format!("target/npm/{set}.lock")))?;
    let _turn = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await??;

    let time = |name: &str| fs::metadata(folder.join(name)).and_then(|file| file.modified()).ok();
    let installed = time("node_modules/.package-lock.json");
    if installed.is_none() || installed < time("package-lock.json") {
        // What they would compile at installation, they also have in JavaScript.
        let mut npm = Command::from(repo::command("npm"));
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder);
        output(&mut npm).await?;
    }
    Ok(folder)
}
