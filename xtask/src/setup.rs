//! `cargo xtask setup`: everything a build needs that cargo does not fetch by itself. What is there is left alone.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};

use crate::fingerprint::{Stamp, lock};
use crate::run::{cargo, command, output_of, root, run};

/// The oldest Node the tools run on.
const NODE_MAJOR: u32 = 20;

/// The target of the Worker and the browser package.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// The tools of the wasm builds, each at the one version that fits.
#[derive(Debug)]
pub(crate) struct Tools {
    /// wasm-bindgen's command line, at exactly the version of the library in Cargo.lock.
    pub(crate) wasm_bindgen: PathBuf,
    /// worker-build, of the same release as the `worker` crate.
    pub(crate) worker_build: PathBuf,
}

/// Installs what is missing.
pub(crate) fn setup() -> Result<()> {
    let _turn = lock("setup")?;
    prerequisites()?;
    targets()?;
    node_modules()?;
    let wasm_bindgen = tool("wasm-bindgen", "wasm-bindgen-cli", &locked_version("wasm-bindgen")?)?;
    let worker_build = tool("worker-build", "worker-build", &locked_version("worker")?)?;
    eprintln!("ready: {}, {}", wasm_bindgen.display(), worker_build.display());
    // The two share most of their dependencies; with both there, what they were compiled in is only in the way.
    let _ = fs::remove_dir_all(tools_dir().join("build"));
    Ok(())
}

/// The tools, where setup has put them or the PATH has them.
pub(crate) fn tools() -> Result<Tools> {
    let found = |name: &str, package: &str| -> Result<PathBuf> {
        let version = locked_version(package)?;
        find(name, &version).with_context(|| format!("{name} {version} is missing: run `cargo xtask setup`"))
    };
    Ok(Tools {
        wasm_bindgen: found("wasm-bindgen", "wasm-bindgen")?,
        worker_build: found("worker-build", "worker")?,
    })
}

fn prerequisites() -> Result<()> {
    let node = output_of(command("node").arg("--version"))
        .with_context(|| format!("node is missing: install Node {NODE_MAJOR} or later"))?;
    let major = node.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < NODE_MAJOR) {
        bail!("node is too old: {node}, needed is {NODE_MAJOR} or later");
    }
    output_of(command("npm").arg("--version")).context("npm is missing: it comes with Node")?;
    output_of(command("rustup").arg("--version"))
        .context("rustup is missing: install it from https://rustup.rs")?;
    Ok(())
}

fn targets() -> Result<()> {
    let installed = output_of(command("rustup").args(["target", "list", "--installed"]))
        .context("rustup is missing: install it from https://rustup.rs")?;
    if !installed.lines().any(|line| line == WASM_TARGET) {
        run(command("rustup").args(["target", "add", WASM_TARGET]))?;
    }
    Ok(())
}

fn node_modules() -> Result<()> {
    let modules = root().join("node_modules");
    let stamp = Stamp::of(modules.join(".xtask-stamp"), &[root().join("package-lock.json")])?;
    if stamp.is_current() {
        return Ok(());
    }
    // Somebody may have run npm by hand.
    let time = |path: PathBuf| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let installed = time(modules.join(".package-lock.json"));
    if installed.is_some() && installed >= time(root().join("package-lock.json")) {
        return stamp.set();
    }
    output_of(command("npm").arg("--version")).context("npm is missing: it comes with Node")?;
    run(command("npm").args(["ci", "--no-audit", "--no-fund"]))?;
    stamp.set()
}

fn tools_dir() -> PathBuf {
    root().join("target/tools")
}

/// The tool of this version, from setup's directory or the PATH.
fn find(name: &str, version: &str) -> Option<PathBuf> {
    let installed = tools_dir().join("bin").join(name);
    let on_path = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).map(|directory| directory.join(name)).collect::<Vec<_>>());
    std::iter::once(installed).chain(on_path.unwrap_or_default()).find(|candidate| {
        candidate.is_file()
            && output_of(command(candidate).arg("--version"))
                .is_some_and(|printed| printed.split_whitespace().last() == Some(version))
    })
}

fn tool(name: &str, package: &str, version: &str) -> Result<PathBuf> {
    if let Some(found) = find(name, version) {
        return Ok(found);
    }
    eprintln!("installing {package} {version}: this takes a minute or two, once");
    let install = |locked: bool| {
        let mut install = cargo();
        install
            .args(["install", "--quiet", "--bin", name])
            .args(["--root".as_ref(), tools_dir().as_os_str()])
            .args(["--target-dir".as_ref(), tools_dir().join("build").as_os_str()])
            .arg(format!("{package}@{version}"))
            // Compiled once and run for seconds: quick to compile wins.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        if name == "wasm-bindgen" {
            // The default features are a TLS stack for a test runner that is not used here.
            install.arg("--no-default-features");
        }
        if locked {
            // It may fail, and its reasons would only be in the way.
            install.arg("--locked").stderr(Stdio::null());
        }
        run(&mut install)
    };
    // A published lock file can name versions a registry mirror does not have yet; the tool is exact either way.
    install(true).or_else(|_| install(false)).with_context(|| match name {
        "worker-build" => {
            "worker-build needs OpenSSL's headers (Debian: apt install pkg-config libssl-dev)".to_owned()
        }
        _ => format!("{package} {version} does not install"),
    })?;
    find(name, version)
        .with_context(|| format!("{package} was installed, but {name} is not of version {version}"))
}

/// The version of a package in Cargo.lock.
fn locked_version(package: &str) -> Result<String> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("Cargo.lock is missing")?;
    let name = format!("name = \"{package}\"");
    lock.lines()
        .skip_while(|line| *line != name)
        .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
        .map(str::to_owned)
        .with_context(|| format!("{package} is not in Cargo.lock"))
}
