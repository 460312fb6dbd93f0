//! `cargo xtask setup`: installs missing tools that a build needs and cargo does not fetch.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result};

use crate::fingerprint::{Stamp, lock};
use crate::node;
use crate::run::{cargo, command, output_of, root, run};

/// The target of the Worker and the browser package.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// A tool of the wasm builds.
pub(crate) struct Tool {
    name: &'static str,
    package: &'static str,
    /// The tool's version has to be that of this package in Cargo.lock.
    library: &'static str,
}

pub(crate) const WASM_BINDGEN: Tool =
    Tool { name: "wasm-bindgen", package: "wasm-bindgen-cli", library: "wasm-bindgen" };

pub(crate) const WORKER_BUILD: Tool =
    Tool { name: "worker-build", package: "worker-build", library: "worker" };

pub(crate) fn setup() -> Result<()> {
    let _turn = lock("setup")?;
    node::install()?;
    let targets = output_of(command("rustup").args(["target", "list", "--installed"]))
        .context("rustup is missing: install it from https://rustup.rs")?;
    if !targets.lines().any(|line| line == WASM_TARGET) {
        run(command("rustup").args(["target", "add", WASM_TARGET]))?;
    }
    node_modules()?;
    WASM_BINDGEN.install()?;
    WORKER_BUILD.install()?;
    // Both tools are compiled in one directory, for they share most dependencies; it is not needed
    // afterwards.
    let _ = fs::remove_dir_all(tools_dir().join("build"));
    Ok(())
}

fn node_modules() -> Result<()> {
    let (modules, lock_file) = (root().join("node_modules"), root().join("package-lock.json"));
    let stamp = Stamp::of(modules.join(".xtask-stamp"), std::slice::from_ref(&lock_file))?;
    if stamp.is_current() {
        return Ok(());
    }
    // npm may have been run by hand.
    let time = |path: PathBuf| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let installed = time(modules.join(".package-lock.json"));
    if installed.is_none() || installed < time(lock_file) {
        run(command("npm").args(["ci", "--no-audit", "--no-fund"]))?;
    }
    stamp.set()
}

fn tools_dir() -> PathBuf {
    root().join("target/tools")
}

impl Tool {
    /// Returns the tool's path, in setup's directory or on the PATH.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        let version = self.version()?;
        let installed = tools_dir().join("bin").join(self.name);
        [installed, self.name.into()]
            .into_iter()
            .find(|candidate| {
                output_of(command(candidate).arg("--version"))
                    .is_some_and(|printed| printed.split_whitespace().last() == Some(version.as_str()))
            })
            .with_context(|| format!("{} {version} is missing: run `cargo xtask setup`", self.name))
    }

    fn install(&self) -> Result<()> {
        if self.path().is_ok() {
            return Ok(());
        }
        let package = format!("{}@{}", self.package, self.version()?);
        eprintln!("installing {package}: this takes a minute or two, once");
        let install = |locked: bool| {
            let mut install = cargo();
            install
                .args(["install", "--quiet", "--bin", self.name, &package])
                .args(["--root".as_ref(), tools_dir().as_os_str()])
                .args(["--target-dir".as_ref(), tools_dir().join("build").as_os_str()])
                // Compiled once, and run for half a second at a time: not optimised they compile three times
                // as fast.
                .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
            if self.name == WASM_BINDGEN.name {
                // The default features are a TLS stack for a test runner that is not used here.
                install.arg("--no-default-features");
            }
            if locked {
                // A failure is expected; the attempt without `--locked` prints its errors.
                install.arg("--locked").stderr(Stdio::null());
            }
            run(&mut install)
        };
        // A published lock file can name versions that a registry mirror lacks; the tool's version is exact
        // either way.
        install(true).or_else(|_| install(false)).with_context(|| {
            let headers = "worker-build needs OpenSSL's headers (Debian: apt install pkg-config libssl-dev)";
            format!("{package} does not install; {headers}")
        })?;
        self.path().map(drop)
    }

    /// Returns the version of the library in Cargo.lock.
    fn version(&self) -> Result<String> {
        let lock = fs::read_to_string(root().join("Cargo.lock")).context("Cargo.lock is missing")?;
        let name = format!("name = \"{}\"", self.library);
        lock.lines()
            .skip_while(|line| *line != name)
            .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
            .map(str::to_owned)
            .with_context(|| format!("{} is not in Cargo.lock", self.library))
    }
}
