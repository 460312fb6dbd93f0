//! The explorer page: its build by `browser/explorer/build.mjs` where anything changed; its types and tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::build::print_size;
use crate::fingerprint::{Stamp, lock};
use crate::run::{command, node_tool, root, run};

/// Size limit of scripts and styles together, gzipped; the core's wasm has a limit of its own.
const SIZE_LIMIT: usize = 150 * 1024;
const PAGES: &str = "edge-api/src/pages";

/// The inputs of the page. The browser package has to be built.
const INPUTS: [&str; 11] = [
    "browser/explorer/build.mjs",
    "browser/explorer/files.mjs",
    "browser/explorer/index.html",
    "browser/explorer/src",
    "browser/explorer/static",
    "browser/explorer/styles",
    "browser/explorer/tsconfig.json",
    "browser/pkg",
    "package-lock.json",
    "wrangler.toml",
    PAGES,
];

/// Builds `browser/explorer/dist` if anything changed, and prints the size of its scripts and styles.
pub(crate) fn build() -> Result<()> {
    let _turn = lock("explorer")?;
    let dist = explorer().join("dist");
    let stamp = Stamp::of(root().join("target/xtask/explorer.stamp"), &INPUTS.map(|path| root().join(path)))?;
    let outputs = [dist.join("index.html"), root().join("deploy/edge/assets.json")];
    if !stamp.is_current() || !outputs.iter().all(|output| output.is_file()) {
        stamp.renewed_by(|| run(command("node").arg(explorer().join("build.mjs"))))?;
    }
    let mut counted = files(&dist.join("assets"))?;
    counted.retain(|file| file.extension().is_some_and(|extension| extension == "js" || extension == "css"));
    print_size("Explorer: scripts and styles", &counted, SIZE_LIMIT)
}

/// Checks formatting and types of the page's code. The browser package has to be built: the types come from
/// its declarations.
pub(crate) fn check() -> Result<()> {
    run(command(node_tool("prettier")).args([
        "--check",
        "browser/*.mjs",
        "browser/explorer/*.mjs",
        "openapi/src/*.json",
        "browser/explorer/{src,tests}/**/*.{ts,tsx,js}",
    ]))?;
    run(command(node_tool("tsc")).arg("--project").arg(explorer()))
}

/// Runs the tests that need no browser, in Node.
pub(crate) fn test() -> Result<()> {
    let bundles = root().join("target/xtask/explorer-tests");
    if bundles.exists() {
        fs::remove_dir_all(&bundles)?;
    }
    run(command(node_tool("esbuild"))
        .args(files(&explorer().join("tests"))?)
        .args(["--bundle", "--format=esm", "--platform=node", "--out-extension:.js=.mjs"])
        .args(["--loader:.wasm=empty", "--log-level=warning"])
        .arg(format!("--outdir={}", bundles.display())))?;
    run(command("node").arg("--test").args(files(&bundles)?))
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.sort();
    Ok(files)
}

fn explorer() -> PathBuf {
    root().join("browser/explorer")
}
