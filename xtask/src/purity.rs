//! The proof that the core is pure: built for a WebAssembly target that has no standard library at all, a module that
//! drives all of it imports nothing. No clock, no randomness, no host.

use std::fs;

use anyhow::{Result, bail, ensure};

use crate::run::{cargo, run, target_dir};
use crate::setup::BARE_TARGET;
use crate::wasm;

/// What the probe exports; each drives a part of the core. Without them the linker would leave nothing to look at.
const EXPORTS: [&str; 3] = ["read_api", "forward", "window"];

/// Builds the probe and looks at its imports.
pub(crate) fn check() -> Result<()> {
    run(cargo().args(["build", "--quiet", "--release", "--package", "core-probe", "--target", BARE_TARGET]))?;
    let module = fs::read(target_dir().join(BARE_TARGET).join("release/core_probe.wasm"))?;

    let exports = wasm::exports(&module)?;
    for export in EXPORTS {
        ensure!(exports.iter().any(|name| name == export), "the probe does not export {export}: {exports:?}");
    }
    let imports = wasm::imports(&module)?;
    if !imports.is_empty() {
        bail!("registry-core imports {}", imports.join(", "));
    }
    println!("registry-core: no_std, {} KiB of wasm, no imports", module.len() / 1024);
    Ok(())
}
