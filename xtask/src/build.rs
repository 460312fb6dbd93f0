//! `cargo xtask build`: the browser package, the explorer page and the Workers, each only if its inputs
//! changed.
//!
//! `wrangler` runs this before every start and after every change, and tests start several at once. Therefore
//! a lock serialises the builds, and a build without changes is quick.

use std::fs;
use std::io::Write as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use flate2::{Compression, write::GzEncoder};

use crate::fingerprint::{Stamp, lock};
use crate::run::{command, node_tool, root, run, sources, without_paths};
use crate::setup::{WASM_BINDGEN, WORKER_BUILD};
use crate::{explorer, package};

/// Builds what changed and prints the download sizes.
pub(crate) fn build() -> Result<()> {
    // Side by side: each module is linked by one thread. Their profiles differ, and so their directories.
    thread::scope(|scope| {
        let workers = scope.spawn(workers);
        package::build()?;
        explorer::build()?;
        workers.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn workers() -> Result<()> {
    let _turn = lock("worker")?;
    // Cargo lets one compile after the other; the first one's module is optimised meanwhile.
    thread::scope(|scope| {
        let builds = WORKERS.each_ref().map(|built| scope.spawn(move || worker(built)));
        builds.into_iter().try_for_each(|build| build.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    WORKERS.iter().try_for_each(|worker| print_size(worker.name, &[worker.wasm()], WORKER_SIZE_LIMIT))
}

/// The size limit of each Worker's wasm in bytes, gzipped. `tests/tests/warm_answers.rs` guards the time to
/// the first answer, 60 ms.
const WORKER_SIZE_LIMIT: usize = 512 * 1024;

struct Worker {
    name: &'static str,
    package: &'static str,
    /// The stem of its files in `target/xtask`.
    stem: &'static str,
}

/// The Worker that answers requests, and the Worker that keeps the index.
const WORKERS: [Worker; 2] = [
    Worker { name: "Worker: wasm", package: "edge-api", stem: "worker" },
    Worker { name: "Worker of the index: wasm", package: "edge-index", stem: "index-worker" },
];

/// Directory that a Worker is built in, below that of its crate.
const BUILD: &str = "build";

impl Worker {
    fn directory(&self) -> PathBuf {
        root().join(self.package).join(BUILD)
    }

    fn wasm(&self) -> PathBuf {
        self.directory().join("index_bg.wasm")
    }
}

/// Returns the files of the build that tests run.
pub(crate) fn outputs() -> Vec<PathBuf> {
    let workers = WORKERS.iter().flat_map(|worker| [worker.wasm(), worker.directory().join("index.js")]);
    workers.chain(package::wasm()).collect()
}

fn worker(worker: &Worker) -> Result<()> {
    let package = root().join(worker.package);
    let mut inputs = core_inputs();
    inputs.extend(["Cargo.toml", "src"].map(|path| package.join(path)));
    inputs.extend(
        ["edge-shared", "host-kit", "browser/fetch", "xtask/src/build.rs"].map(|path| root().join(path)),
    );
    let stamp = Stamp::of(root().join(format!("target/xtask/{}.stamp", worker.stem)), &inputs)?;
    if stamp.is_current() && worker.wasm().is_file() && worker.directory().join("index.js").is_file() {
        return Ok(());
    }
    stamp.renewed_by(|| {
        run(without_paths(&mut command(WORKER_BUILD.path()?))
            .args(["--release", "--out-dir", BUILD])
            .current_dir(&package)
            .env("WASM_BINDGEN_BIN", WASM_BINDGEN.path()?)
            .env("WASM_OPT_BIN", node_tool("wasm-opt"))
            .env("ESBUILD_BIN", node_tool("esbuild")))?;
        // worker-build keeps the function names, which are a third of the size.
        strip(&worker.wasm(), worker.stem)
    })
}

/// Removes the function names from a module. A copy with names stays in `target/xtask`, to read stack traces
/// with. Fails if the module still tells a path of this machine.
pub(crate) fn strip(module: &Path, stem: &str) -> Result<()> {
    let named = root().join(format!("target/xtask/{stem}-with-names.wasm"));
    fs::copy(module, &named)?;
    // Without stack IR, which only `-O` implies, the module would grow by 2 KiB. Names of compilers and their
    // features are for linkers.
    run(command(node_tool("wasm-opt"))
        .args(["--strip-debug", "--strip-producers", "--strip-target-features"])
        .args(["--generate-stack-ir", "--optimize-stack-ir", "--shrink-level=2"])
        .args(["-o".as_ref(), module.as_os_str(), named.as_os_str()]))?;
    let bytes = fs::read(module)?;
    let tells = |path: &String| bytes.windows(path.len()).any(|window| window == path.as_bytes());
    match sources().into_iter().find(tells) {
        Some(path) => bail!("{} tells the path {path}", module.display()),
        None => Ok(()),
    }
}

/// Prints the total size of these files. Fails if the total of the gzipped files is above `limit` bytes.
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
    ensure!(gzipped <= limit, "{name}: {gzipped} bytes gzipped, above the limit of {limit}");
    Ok(())
}

/// Returns the inputs of everything that the core is compiled into.
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
