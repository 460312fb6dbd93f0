//! `cargo xtask build`: the contracts, the browser package, the explorer page and the Worker, each only where its inputs
//! changed.
//!
//! `wrangler` runs this before every start and after every change, several at once in the tests: so it takes turns, and
//! is quick when there is nothing to do.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, write::GzEncoder};

use crate::fingerprint::{Stamp, lock};
use crate::run::{command, node_tool, root, run};
use crate::{explorer, package, setup, wasm};

/// Builds what changed and prints the sizes of what is downloaded.
pub(crate) fn build() -> Result<()> {
    contracts()?;
    package::build()?;
    explorer::build()?;
    let _turn = lock("worker")?;
    WORKERS.iter().try_for_each(worker)?;
    WORKERS.iter().try_for_each(|worker| print_size(worker.name, &[worker.wasm()], worker.size_limit))
}

/// A Worker that is made of `edge-api`.
struct Worker {
    /// What its size is printed as.
    name: &'static str,
    /// Where it comes to, in `edge-api`.
    directory: &'static str,
    /// Arguments for cargo.
    features: &'static [&'static str],
    /// What its files in `target/xtask` are called after.
    stem: &'static str,
    /// The most that its wasm may be, gzipped.
    size_limit: usize,
}

/// The one that answers requests, and the one that keeps the index.
const WORKERS: [Worker; 2] = [
    Worker {
        name: "Worker: wasm",
        directory: "build",
        features: &[],
        stem: "worker",
        size_limit: 300 * 1024,
    },
    Worker {
        name: "Worker of the index: wasm",
        directory: "build-index",
        features: &["--features", "index-object"],
        stem: "index-worker",
        size_limit: 300 * 1024,
    },
];

impl Worker {
    fn directory(&self) -> PathBuf {
        root().join("edge-api").join(self.directory)
    }

    fn wasm(&self) -> PathBuf {
        self.directory().join("index_bg.wasm")
    }
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

/// Compiles one of the Workers.
fn worker(worker: &Worker) -> Result<()> {
    let edge = root().join("edge-api");
    let mut inputs = core_inputs();
    inputs.extend(["Cargo.toml", "src"].map(|path| edge.join(path)));
    inputs.push(root().join("xtask/src/build.rs"));
    let stamp = Stamp::of(root().join(format!("target/xtask/{}.stamp", worker.stem)), &inputs)?;
    if stamp.is_current() && worker.wasm().is_file() && worker.directory().join("index.js").is_file() {
        return Ok(());
    }
    let tools = setup::tools()?;
    run(command(tools.worker_build)
        .args(["--release", "--out-dir", worker.directory])
        .args(worker.features)
        .current_dir(&edge)
        .env("WASM_BINDGEN_BIN", tools.wasm_bindgen)
        .env("WASM_OPT_BIN", node_tool("wasm-opt"))
        .env("ESBUILD_BIN", node_tool("esbuild")))?;

    // worker-build keeps the function names, a third of the size.
    strip(&worker.wasm(), worker.stem)?;
    stamp.set()
}

/// Removes the function names from a module; with them it stays in `target/xtask`, under this stem, to read a stack trace by.
pub(crate) fn strip(module: &Path, stem: &str) -> Result<()> {
    let named = fs::read(module)?;
    fs::write(root().join(format!("target/xtask/{stem}-with-names.wasm")), &named)?;
    Ok(fs::write(module, wasm::without_names(&named)?)?)
}

/// Prints how large these files are together; fails if that is above `limit` bytes, each of them gzipped.
pub(crate) fn print_size(name: &str, files: &[PathBuf], limit: usize) -> Result<()> {
    let (mut raw, mut gzipped) = (0, 0);
    for file in files {
        let content = fs::read(file).with_context(|| format!("{name}: cannot read {}", file.display()))?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&content)?;
        raw += content.len();
        gzipped += encoder.finish()?.len();
    }
    let kib = |bytes: usize| format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024);
    println!("{name}: {}, {} gzipped (limit {})", kib(raw), kib(gzipped), kib(limit));
    if gzipped > limit {
        bail!("{name}: {gzipped} bytes gzipped, above the limit of {limit}");
    }
    Ok(())
}

/// What everything depends on that the core is compiled into.
pub(crate) fn core_inputs() -> Vec<PathBuf> {
    let paths = [
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain.toml",
        "package-lock.json",
        "core/Cargo.toml",
        "core/src",
    ];
    paths.map(|path| root().join(path)).into()
}
