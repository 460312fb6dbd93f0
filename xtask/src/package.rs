//! The browser package: `browser/`, and `evidence`, `liability`, `snapshot`, `gate` and `key` below it,
//! compiled, bound with wasm-bindgen, optimised for size, and laid out for npm.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result};

use crate::build::{core_inputs, print_size, strip};
use crate::fingerprint::{Stamp, lock};
use crate::run::{cargo, command, node_tool, root, run, target_dir, without_paths};
use crate::setup::{WASM_BINDGEN, WASM_TARGET};

/// A wasm module of the package. Pages load each one separately.
struct Module {
    title: &'static str,
    crate_name: &'static str,
    name: &'static str,
    size_limit: usize,
}

const fn module(title: &'static str, crate_name: &'static str, name: &'static str, kib: usize) -> Module {
    Module { title, crate_name, name, size_limit: kib * 1024 }
}

const MODULES: [Module; 6] = [
    module("Browser package: wasm", "registry-browser", "registry", 225),
    module("Browser package, evidence: wasm", "registry-browser-evidence", "evidence", 80),
    module("Browser package, snapshot: wasm", "registry-browser-snapshot", "snapshot", 60),
    module("Browser package, liability: wasm", "registry-browser-liability", "acceptance", 90),
    module("Browser package, gate: wasm", "registry-browser-gate", "decision", 250),
    module("Browser package, key: wasm", "registry-browser-key", "key", 60),
];

impl Module {
    fn file(&self) -> String {
        format!("{}_bg.wasm", self.name)
    }
}

/// The read API's description, which the types of its answers are generated from.
const DESCRIPTION: &str = "edge-api/src/pages/openapi.json";
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// The cargo profile. It optimises for size more than the Worker's: visitors wait for the download.
const PROFILE: &str = "browser";

pub(crate) fn build() -> Result<()> {
    let _turn = lock("package")?;
    let (browser, package) = (root().join("browser"), root().join("browser/pkg"));
    let mut inputs = core_inputs();
    inputs.extend(["host-kit", "xtask/src/package.rs", DESCRIPTION].map(|path| root().join(path)));
    let own = [
        "Cargo.toml",
        "openapi-types.mjs",
        "src",
        "npm",
        "evidence",
        "fetch",
        "gate",
        "key",
        "liability",
        "snapshot",
        "values",
    ];
    inputs.extend(own.map(|path| browser.join(path)));
    let stamp = Stamp::of(root().join("target/xtask/package.stamp"), &inputs)?;
    if !stamp.is_current() || !MODULES.iter().all(|module| package.join(module.file()).is_file()) {
        // Assembled aside, so that a failure leaves the last package as it is.
        let fresh = root().join("target/xtask/package");
        if fresh.exists() {
            fs::remove_dir_all(&fresh)?;
        }
        compile()?;
        // Side by side: each module is optimised by one thread.
        thread::scope(|scope| {
            let bound = MODULES.each_ref().map(|module| scope.spawn(|| bind(module, &fresh)));
            bound.into_iter().try_for_each(|bound| bound.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        for entry in fs::read_dir(browser.join("npm"))? {
            let file = entry?;
            fs::copy(file.path(), fresh.join(file.file_name()))?;
        }
        for licence in LICENCES {
            fs::copy(root().join(licence), fresh.join(licence))?;
        }
        run(command("node")
            .arg(browser.join("openapi-types.mjs"))
            .arg(root().join(DESCRIPTION))
            .arg(fresh.join("registry.d.ts")))?;
        stamp.renewed_by(|| {
            if package.exists() {
                fs::remove_dir_all(&package)?;
            }
            Ok(fs::rename(&fresh, &package)?)
        })?;
    }
    MODULES
        .iter()
        .try_for_each(|module| print_size(module.title, &[package.join(module.file())], module.size_limit))
}

pub(crate) fn wasm() -> impl Iterator<Item = PathBuf> {
    MODULES.iter().map(|module| root().join("browser/pkg").join(module.file()))
}

/// Rewrites the declarations of `init` without the types of the DOM library, which programs for Node do not
/// have.
fn declare_without_dom(module: &Module, package: &Path) -> Result<()> {
    fs::remove_file(package.join(format!("{}.d.ts", module.file())))?;
    let file = package.join(format!("{}.d.ts", module.name));
    let text = fs::read_to_string(&file)?;
    let (before, exports) = text.split_once("export interface InitOutput {").context("InitOutput")?;
    let (_, after) = exports.split_once("\n}\n").context("the end of InitOutput")?;
    let text =
        format!("{before}/** The exports of the wasm module. */\nexport type InitOutput = object;\n{after}");
    let text =
        text.replace("RequestInfo | URL | Response | BufferSource | WebAssembly.Module", "string | object");
    Ok(fs::write(file, text.replace("BufferSource | WebAssembly.Module", "object"))?)
}

/// Compiles all modules at once: by themselves, each set of their dependencies' features would be compiled.
fn compile() -> Result<()> {
    let packages = MODULES.iter().flat_map(|module| ["--package", module.crate_name]);
    let build = ["build", "--target", WASM_TARGET, "--profile", PROFILE];
    run(without_paths(&mut cargo()).args(build).args(packages))
}

fn bind(module: &Module, package: &Path) -> Result<()> {
    let compiled = format!("{}.wasm", module.crate_name.replace('-', "_"));
    run(command(WASM_BINDGEN.path()?)
        .args(["--target", "web", "--out-name", module.name, "--out-dir"])
        .arg(package)
        .arg(target_dir().join(WASM_TARGET).join(PROFILE).join(compiled)))?;
    declare_without_dom(module, package)?;
    let wasm = package.join(module.file());
    // Small functions with one caller stay where they are: inlined, they compress 2 KiB worse.
    let options = ["-Oz", "--converge", "--one-caller-inline-max-function-size", "20", "--debuginfo"];
    run(command(node_tool("wasm-opt")).args(options).arg(&wasm).arg("-o").arg(&wasm))?;
    strip(&wasm, module.name)
}
