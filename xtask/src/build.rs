//! `cargo xtask build`: the contracts and the Worker, each only where its inputs changed.
//!
//! `wrangler` runs this before every start and after every change, several at once in the tests: so it takes turns, and
//! is quick when there is nothing to do.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, write::GzEncoder};

use crate::fingerprint::{Stamp, lock};
use crate::run::{command, node_tool, root, run};
use crate::{setup, wasm};

/// The most the Worker's wasm may be, gzipped.
const SIZE_LIMIT: usize = 256 * 1024;

/// Builds what changed and prints the Worker's size.
pub(crate) fn build() -> Result<()> {
    contracts()?;
    let _turn = lock("worker")?;
    worker()?;
    size()
}

/// Compiles the contracts alone, without their tests.
pub(crate) fn contracts() -> Result<()> {
    let _turn = lock("contracts")?;
    let contracts = root().join("contracts");
    let inputs = [contracts.join("src"), contracts.join("foundry.toml"), root().join("package-lock.json")];
    let stamp = Stamp::of(root().join("target/xtask/contracts.stamp"), &inputs)?;
    if stamp.is_current() && contracts.join("out/AgentRegistry.sol/AgentRegistry.json").is_file() {
        return Ok(());
    }
    run(command(node_tool("forge")).args(["build", "--skip", "test"]).current_dir(&contracts))?;
    stamp.set()
}

/// Compiles the Worker to `edge-api/build`.
fn worker() -> Result<()> {
    let edge = root().join("edge-api");
    let mut inputs: Vec<PathBuf> = [
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain.toml",
        "package-lock.json",
        "core/Cargo.toml",
        "core/src",
    ]
    .map(|path| root().join(path))
    .into();
    inputs.extend(["Cargo.toml", "src"].map(|path| edge.join(path)));
    inputs.push(root().join("xtask/src/build.rs"));
    let stamp = Stamp::of(root().join("target/xtask/worker.stamp"), &inputs)?;
    if stamp.is_current() && wasm_path().is_file() && edge.join("build/index.js").is_file() {
        return Ok(());
    }
    let tools = setup::tools()?;
    run(command(tools.worker_build)
        .arg("--release")
        .current_dir(&edge)
        .env("WASM_BINDGEN_BIN", tools.wasm_bindgen)
        .env("WASM_OPT_BIN", node_tool("wasm-opt"))
        .env("ESBUILD_BIN", node_tool("esbuild")))?;

    // worker-build keeps the function names, a third of the size. They stay here, to read a stack trace by.
    let named = fs::read(wasm_path())?;
    fs::write(root().join("target/xtask/worker-with-names.wasm"), &named)?;
    fs::write(wasm_path(), wasm::without_names(&named)?)?;
    stamp.set()
}

fn size() -> Result<()> {
    let module = fs::read(wasm_path()).context("the Worker's wasm is missing")?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&module)?;
    let gzipped = encoder.finish()?.len();
    let kib = |bytes: usize| format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024);
    println!("Worker: {} of wasm, {} gzipped (limit {})", kib(module.len()), kib(gzipped), kib(SIZE_LIMIT));
    if gzipped > SIZE_LIMIT {
        bail!("the Worker's wasm is {gzipped} bytes gzipped, above the limit of {SIZE_LIMIT}");
    }
    Ok(())
}

fn wasm_path() -> PathBuf {
    root().join("edge-api/build/index_bg.wasm")
}
