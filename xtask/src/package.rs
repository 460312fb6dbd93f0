//! The browser package: `browser/` compiled, bound for `--target web`, made small, and laid out as npm wants it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::build::{core_inputs, print_size, strip};
use crate::fingerprint::{Stamp, lock};
use crate::run::{cargo, command, node_tool, root, run, target_dir};
use crate::setup::{self, WASM_TARGET};

/// The most the package's wasm may be, gzipped.
const SIZE_LIMIT: usize = 240 * 1024;

/// What the generated files are called after.
const NAME: &str = "registry";
const MODULE: &str = "registry_bg.wasm";

/// The cargo profile: smaller than the Worker's, for what visitors wait for.
const PROFILE: &str = "browser";

/// Builds `browser/pkg`, where anything changed, and prints its size.
pub(crate) fn build() -> Result<()> {
    let _turn = lock("package")?;
    let (browser, package) = (root().join("browser"), root().join("browser/pkg"));
    let module = package.join(MODULE);
    let mut inputs = core_inputs();
    inputs.push(root().join("xtask/src/package.rs"));
    inputs.extend(["Cargo.toml", "src", "npm"].map(|path| browser.join(path)));
    let stamp = Stamp::of(root().join("target/xtask/package.stamp"), &inputs)?;
    if !stamp.is_current() || !module.is_file() {
        // Put together aside, so that what fails leaves the last package as it is.
        let fresh = root().join("target/xtask/package");
        if fresh.exists() {
            fs::remove_dir_all(&fresh)?;
        }
        compile(&fresh)?;
        lay_out(&browser, &fresh)?;
        if package.exists() {
            fs::remove_dir_all(&package)?;
        }
        fs::rename(&fresh, &package)?;
        stamp.set()?;
    }
    print_size("Browser package: wasm", &[module], SIZE_LIMIT)
}

fn compile(package: &Path) -> Result<()> {
    let tools = setup::tools()?;
    run(cargo().args(["build", "--package", "registry-browser"]).args([
        "--target",
        WASM_TARGET,
        "--profile",
        PROFILE,
    ]))?;
    run(command(tools.wasm_bindgen)
        .args(["--target", "web", "--out-name", NAME, "--out-dir"])
        .arg(package)
        .arg(target_dir().join(WASM_TARGET).join(PROFILE).join("registry_browser.wasm")))?;
    let module = package.join(MODULE);
    run(command(node_tool("wasm-opt")).args(["-Oz", "--debuginfo"]).arg(&module).arg("-o").arg(&module))?;
    strip(&module, "package-with-names.wasm")
}

/// Adds the files that are written by hand.
fn lay_out(browser: &Path, package: &Path) -> Result<()> {
    for entry in fs::read_dir(browser.join("npm"))? {
        let path = entry?.path();
        let name = path.file_name().context("an entry has a name")?;
        fs::copy(&path, package.join(name))?;
    }
    Ok(())
}
