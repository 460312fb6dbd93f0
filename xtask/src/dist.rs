//! `cargo xtask dist`: what a release consists of, in `target/dist`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::run::{cargo, command, node_tool, output_of, root, run, without_paths};
use crate::{build, setup};

mod images;

/// The programs for servers and shells.
const PROGRAMS: [&str; 3] = ["relayer-daemon", "kya-gate", "kya"];
/// Static: they run on any Linux of that processor.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];
/// The crates that others build on, each after those that it needs.
pub(crate) const CRATES: [&str; 5] = ["registry-core", "host-kit", "kya", "kya-local", "kya-gate"];
const CONFIGURATIONS: [&str; 2] = ["wrangler.toml", "wrangler.index.toml"];
/// What the configurations name, in the same places below them.
const OF_WORKERS: [&str; 4] = ["edge-api/build", "edge-index/build", "browser/explorer/dist", "deploy/edge"];

/// A part's name, and what makes it.
type Part = (&'static str, fn() -> Result<()>);

/// Makes these parts; all without any. A part that was made before is made anew.
pub(crate) fn dist(parts: &[String]) -> Result<()> {
    const PARTS: [Part; 6] = [
        ("workers", || build_all().and_then(|()| workers())),
        ("npm", || build_all().and_then(|()| npm())),
        ("crates", crates),
        ("python", python),
        ("binaries", binaries),
        ("images", images::images),
    ];
    if let Some(unknown) = parts.iter().find(|part| !PARTS.iter().any(|(name, _)| name == part)) {
        bail!("no part {unknown}: {}", PARTS.map(|(name, _)| name).join(", "));
    }
    fs::create_dir_all(directory())?;
    for (name, make) in PARTS {
        if parts.is_empty() || parts.iter().any(|part| part == name) {
            eprintln!("dist: {name}");
            make().with_context(|| name.to_owned())?;
        }
    }
    sums()
}

fn directory() -> PathBuf {
    root().join("target/dist")
}

fn build_all() -> Result<()> {
    setup::setup()?;
    build::build()
}

/// An empty directory below `target/dist`.
fn fresh(name: &str) -> Result<PathBuf> {
    let directory = directory().join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// Both Workers as they were built, with the explorer, and configurations that build nothing. Returns where they are.
pub(crate) fn workers_of_build() -> Result<PathBuf> {
    let directory = fresh("workers")?;
    for part in OF_WORKERS {
        copy(&root().join(part), &directory.join(part))?;
    }
    for configuration in CONFIGURATIONS {
        let text = fs::read_to_string(root().join(configuration))?;
        let (before, rest) = text.split_once("[build]\n").context("[build]")?;
        let (_, after) = rest.split_once("\n\n").context("the end of [build]")?;
        fs::write(directory.join(configuration), format!("{before}{after}"))?;
    }
    Ok(directory)
}

fn workers() -> Result<()> {
    workers_of_build().map(drop)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::copy(from, to).with_context(|| from.display().to_string())?;
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Bundles what a deployment uploads for each configuration and each environment, where nothing can be built.
/// Needs no account.
pub(crate) fn dry_run() -> Result<()> {
    let workers = workers_of_build()?;
    // The free plan has no index.
    for (config, environment) in [
        ("wrangler.toml", ""),
        ("wrangler.toml", "base-sepolia"),
        ("wrangler.toml", "free"),
        ("wrangler.index.toml", ""),
        ("wrangler.index.toml", "base-sepolia"),
    ] {
        run(command(node_tool("wrangler"))
            .current_dir(&workers)
            .args(["deploy", "--dry-run", "--config", config, "--env", environment, "--outdir"])
            .arg(root().join("target/xtask/dry-run"))
            .env("CI", "true")
            .env("WRANGLER_SEND_METRICS", "false"))?;
    }
    Ok(())
}

fn npm() -> Result<()> {
    let directory = fresh("npm")?;
    run(command("npm")
        .args(["pack", "--silent", "--pack-destination"])
        .arg(directory)
        .current_dir(root().join("browser/pkg")))
}

fn crates() -> Result<()> {
    let directory = fresh("crates")?;
    let packages = CRATES.map(|name| ["-p", name]);
    let target = root().join("target/dist-build");
    run(cargo()
        .args(["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"])
        .arg(&target)
        .args(packages.as_flattened()))?;
    for entry in fs::read_dir(target.join("package"))? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "crate") {
            fs::copy(&file, directory.join(file.file_name().context("a name")?))?;
        }
    }
    Ok(())
}

/// A directory of Python programs, with these packages of PyPI.
fn venv(packages: &[&str]) -> Result<PathBuf> {
    let venv = root().join("target/dist-build/venv");
    if !venv.join("bin/pip").exists() {
        run(command("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    if !packages.is_empty() {
        run(command(venv.join("bin/pip")).args(["install", "--quiet"]).args(packages))?;
    }
    Ok(venv.join("bin"))
}

fn python() -> Result<()> {
    let directory = fresh("python")?;
    run(command(venv(&[])?.join("pip"))
        .args(["wheel", "--quiet", "--no-deps", "--wheel-dir"])
        .arg(directory)
        .arg(root().join("python"))
        .env("SOURCE_DATE_EPOCH", commit_time()?))
}

/// When the commit was made, in unix seconds: the only time that is in what is built.
fn commit_time() -> Result<String> {
    output_of(command("git").args(["log", "-1", "--format=%ct"])).context("the commit's time")
}

/// Links with Zig, which has a C compiler and a libc for each target.
fn binaries() -> Result<()> {
    let directory = fresh("bin")?;
    let tools = venv(&["cargo-zigbuild==0.24.1", "ziglang==0.17.1"])?;
    let path = std::env::join_paths(
        [tools.clone()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let target_dir = root().join("target/dist-build");
    for target in TARGETS {
        run(command("rustup").args(["target", "add", target]))?;
        let programs = PROGRAMS.map(|name| ["--bin", name]);
        let packages = PROGRAMS.map(|name| ["-p", name]);
        run(without_paths(&mut command(tools.join("cargo-zigbuild")))
            .args(["zigbuild", "--locked", "--profile", "dist", "--target", target, "--target-dir"])
            .arg(&target_dir)
            .args(packages.as_flattened())
            .args(programs.as_flattened())
            .env("PATH", &path)
            .env("SOURCE_DATE_EPOCH", commit_time()?))?;
        let to = directory.join(target);
        fs::create_dir_all(&to)?;
        for name in PROGRAMS {
            fs::copy(target_dir.join(target).join("dist").join(name), to.join(name))?;
        }
    }
    Ok(())
}

/// Writes the checksums of all files.
fn sums() -> Result<()> {
    let script =
        "find . -type f ! -name SHA256SUMS -print0 | LC_ALL=C sort -z | xargs -0r sha256sum > SHA256SUMS";
    run(command("sh").args(["-c", script]).current_dir(directory()))?;
    println!("{}", directory().join("SHA256SUMS").display());
    Ok(())
}
