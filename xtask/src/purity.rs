//! The proof that the core is pure: a WebAssembly module that drives all of it imports nothing. No clock, no randomness, no
//! host.

use std::fs;

use anyhow::{Result, bail, ensure};

use crate::run::{cargo, run, target_dir};
use crate::setup::WASM_TARGET;
use crate::wasm;

/// What the probe exports; each drives a part of the core. Without them the linker would leave nothing to look at.
const EXPORTS: [&str; 3] = ["read_api", "forward", "window"];

/// Builds the probe and looks at its imports.
pub(crate) fn check() -> Result<()> {
    run(cargo().args(["build", "--quiet", "--release", "--package", "core-probe", "--target", WASM_TARGET]))?;
    let module = fs::read(target_dir().join(WASM_TARGET).join("release/core_probe.wasm"))?;

    let exports = wasm::exports(&module)?;
    for export in EXPORTS {
        ensure!(exports.iter().any(|name| name == export), "the probe does not export {export}: {exports:?}");
    }
    let imports = wasm::imports(&module)?;
    if !imports.is_empty() {
        bail!("registry-core imports {}", imports.join(", "));
    }
    println!("registry-core: {} KiB of wasm, no imports", module.len() / 1024);
    Ok(())
}
