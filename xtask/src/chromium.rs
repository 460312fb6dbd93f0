//! The browser of the browser tests: Chromium, the machine's own or Debian's package.
//!
//! Where it is looked for is the tests' business: they say it.

use anyhow::{Result, bail};

use crate::debian;
use crate::run::{command, output_of};

/// Installs Chromium where none is found and this process may.
pub(crate) fn install() -> Result<()> {
    if let Some(named) = std::env::var_os("CHROMIUM_BIN").filter(|_| !is_there()) {
        bail!("CHROMIUM_BIN names {}, which does not start", named.display());
    }
    debian::install("chromium", is_there, ", or name one in CHROMIUM_BIN")
}

fn is_there() -> bool {
    output_of(command("node").arg("tests/browser/harness/chromium.mjs")).is_some()
}
