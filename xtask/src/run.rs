//! Starts other programs in the repository's root, with errors that name the command.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};

use crate::node;

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Returns the directory that cargo compiles into, wherever that is configured.
pub(crate) fn target_dir() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| target_dir_of(&mut cargo()).unwrap_or_else(|| root().join("target"))).clone()
}

fn target_dir_of(cargo: &mut Command) -> Option<PathBuf> {
    let metadata = output_of(cargo.args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let (_, rest) = metadata.split_once(r#""target_directory":""#)?;
    Some(rest.split_once('"')?.0.into())
}

pub(crate) fn node_tool(name: &str) -> PathBuf {
    root().join("node_modules/.bin").join(name)
}

/// The variables that `cargo run` sets for this package. A build script that reads one would see a change at
/// every switch between `cargo xtask` and plain cargo, and its dependents would be compiled again.
const OF_THIS_PACKAGE: [&str; 5] =
    ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];

pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    node::prefer_own(&mut command);
    for (name, _) in std::env::vars_os() {
        if OF_THIS_PACKAGE.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns a command of cargo: the one that started this process, if one did.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns a command of cargo for native programs: clippy's driver compiles the workspace's own crates, and
/// so lints them. Every native build uses it, as cargo compiles a crate again under another compiler.
pub(crate) fn linting_cargo() -> Command {
    let mut cargo = cargo();
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    cargo
}

/// Has cargo, if this command starts it, name source files without the directories of this machine: outputs
/// for clients are the same on each.
pub(crate) fn without_paths(command: &mut Command) -> &mut Command {
    let sources: Vec<String> = sources().iter().map(|path| format!("--remap-path-prefix={path}/=")).collect();
    command.env("CARGO_ENCODED_RUSTFLAGS", sources.join("\x1f"))
}

/// Returns the directory that cargo keeps its programs and registries in.
pub(crate) fn cargo_home() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).unwrap_or_default()
}

/// Returns the directories that cargo unpacks crates into, one for each registry, and the repository's root.
pub(crate) fn sources() -> Vec<String> {
    let registries = fs::read_dir(cargo_home().join("registry/src")).into_iter().flatten().flatten();
    let paths = registries.map(|entry| entry.path()).chain([root()]);
    paths.map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Runs a command to the end; its output goes to this process's.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    ensure!(status.success(), "{} failed ({status})", line(command));
    Ok(())
}

/// Compiles a program of the `e2e` crate and returns the command that starts it.
pub(crate) fn program(name: &str) -> Result<Command> {
    eprintln!("compiling {name}");
    run(linting_cargo().args(["all-build", "--quiet", "--bin", name]))?;
    Ok(command(target_dir().join("debug").join(name)))
}

/// Replaces this process with a program; returns only on failure.
///
/// `exec` leaves one process for Ctrl-C, and that process decides how everything ends.
pub(crate) fn become_program(program: &mut Command) -> Result<()> {
    let error = program.exec();
    Err(error).with_context(|| format!("cannot start {}", line(program)))
}

/// Runs a command to the end and returns its output; `None` if it cannot be started or fails.
pub(crate) fn output_of(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the command as a user would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words: Vec<_> = [name].into_iter().chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_directory_is_where_cargos_configuration_has_it() {
        for name in ["CARGO_BUILD_TARGET_DIR", "CARGO_TARGET_DIR"] {
            let mut cargo = cargo();
            cargo.env_remove("CARGO_TARGET_DIR").env(name, "/elsewhere");
            assert_eq!(target_dir_of(&mut cargo).as_deref(), Some(Path::new("/elsewhere")), "{name}");
        }
    }
}
