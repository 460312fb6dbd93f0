//! The browser of the browser tests: Chromium, the machine's own or Debian's package.
//!
//! Only the tests need it, so neither `build` nor `dev` asks for it. Where it is looked for is the tests' business: they say it.

use anyhow::{Context as _, Result, bail};

use crate::fingerprint::lock;
use crate::run::{command, output_of, run};

/// Installs Chromium where none is found and this process may.
pub(crate) fn install() -> Result<()> {
    let _turn = lock("chromium")?;
    if is_there() {
        return Ok(());
    }
    if let Some(named) = std::env::var_os("CHROMIUM_BIN") {
        bail!("CHROMIUM_BIN names {}, which does not start", named.display());
    }
    let may = output_of(command("id").arg("-u")).as_deref() == Some("0");
    if !may || output_of(command("apt-get").arg("--version")).is_none() {
        bail!(
            "the browser tests need Chromium: install it (Debian: apt-get install chromium), or name one in CHROMIUM_BIN"
        );
    }
    eprintln!("installing Debian's chromium, once");
    let apt = |arguments: &[&str]| {
        run(command("apt-get")
            .args(["-q", "-o", "Dpkg::Use-Pty=0"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&["install", "-y", "--no-install-recommends", "chromium"]).context("chromium does not install")?;
    if !is_there() {
        bail!("chromium was installed, but does not start");
    }
    Ok(())
}

fn is_there() -> bool {
    output_of(command("node").arg("tests/browser/harness/chromium.mjs")).is_some()
}
