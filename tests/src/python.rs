//! Python programs from PyPI, each set in a virtual environment of its own under `target`, made on first use.
//! A set is a folder of `tests` with a `requirements.txt` that pins everything.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::Result;
use tokio::process::Command;

use crate::process::output;
use crate::repo;

/// Returns the folder with a set's programs and `python`. Where it is missing or has other requirements, this
/// creates it, which needs Python 3 with its `venv` module, and PyPI.
pub async fn programs(set: &str) -> Result<PathBuf> {
    let venvs = repo::root().join("target/venv");
    fs::create_dir_all(&venvs)?;
    let lock = File::create(venvs.join(format!("{set}.lock")))?;
    let _turn = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await??;

    let venv = venvs.join(set);
    let (programs, stamp) = (venv.join("bin"), venv.join("installed.txt"));
    let requirements = repo::root().join("tests").join(set).join("requirements.txt");
    let wanted = fs::read_to_string(&requirements)?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(programs);
    }
    output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv)).await?;
    let mut install = Command::new(programs.join("python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    output(install.arg(&requirements)).await?;
    fs::write(&stamp, wanted)?;
    Ok(programs)
}
