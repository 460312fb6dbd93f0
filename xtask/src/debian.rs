//! Debian's packages, for the programs that only tests and measurements need: neither `build` nor `dev` asks for them.

use anyhow::{Context as _, Result, bail};

use crate::fingerprint::lock;
use crate::run::{command, output_of, run};

/// Installs a package where its program is not there and this process may.
///
/// # Errors
/// When it may not, or the program is not there afterwards; `otherwise` is what else the reader can do.
pub(crate) fn install(package: &str, is_there: impl Fn() -> bool, otherwise: &str) -> Result<()> {
    let _turn = lock("debian")?;
    if is_there() {
        return Ok(());
    }
    let may = output_of(command("id").arg("-u")).as_deref() == Some("0");
    if !may || output_of(command("apt-get").arg("--version")).is_none() {
        bail!("{package} is missing: install it (Debian: apt-get install {package}){otherwise}");
    }
    eprintln!("installing Debian's {package}, once");
    let apt = |arguments: &[&str]| {
        run(command("apt-get")
            .args(["-q", "-o", "Dpkg::Use-Pty=0"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&["install", "-y", "--no-install-recommends", package])
        .with_context(|| format!("{package} does not install"))?;
    if !is_there() {
        bail!("{package} was installed, but is not there");
    }
    Ok(())
}

/// Whether a program is on the `PATH`.
pub(crate) fn on_path(program: &str) -> bool {
    output_of(command("sh").args(["-c", "command -v \"$0\"", program])).is_some()
}
