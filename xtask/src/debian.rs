//! Debian's packages of the programs that only tests and measurements need; `build` and `dev` need none of
//! them.

use anyhow::{Context as _, Result, ensure};

use crate::fingerprint::lock;
use crate::run::{command, output_of, run};

/// A program, and Debian's package of it.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// A command that succeeds if the program is installed.
    probe: &'static [&'static str],
    /// The advice where the package cannot be installed.
    otherwise: &'static str,
}

const fn package(name: &'static str, probe: &'static [&'static str]) -> Package {
    Package { name, probe, otherwise: "" }
}

/// The load generator of the measurements.
pub(crate) const WRK: Package = package("wrk", &["sh", "-c", "command -v wrk"]);
/// The reverse proxies of the documentation. nginx's directory is on the PATH of root only.
pub(crate) const NGINX: Package = package("nginx-light", &["sh", "-c", "PATH=$PATH:/usr/sbin nginx -v"]);
pub(crate) const CADDY: Package = package("caddy", &["caddy", "version"]);
/// The server that runs CGI scripts.
pub(crate) const LIGHTTPD: Package = package("lighttpd", &["sh", "-c", "PATH=$PATH:/usr/sbin lighttpd -v"]);
/// The verifier of the relayer's unit file.
pub(crate) const SYSTEMD: Package = package("systemd", &["systemd-analyze", "--version"]);

/// The database of the relayer's fleets. Its programs are on no PATH.
pub(crate) const POSTGRES: Package =
    package("postgresql", &["sh", "-c", "ls /usr/lib/postgresql/*/bin/initdb"]);

/// The server that gates share their nonces through.
pub(crate) const REDIS: Package = package("redis-server", &["redis-server", "--version"]);

/// What the documentation's commands ask and read answers with.
pub(crate) const CURL: Package = package("curl", &["curl", "--version"]);
pub(crate) const JQ: Package = package("jq", &["jq", "--version"]);

/// What makes Python's virtual environments: Debian has no `ensurepip` in `python3`.
pub(crate) const VENV: Package = package("python3-venv", &["python3", "-c", "import ensurepip"]);

/// The builder of the images.
pub(crate) const BUILDAH: Package = package("buildah", &["buildah", "--version"]);

/// The other engine.
pub(crate) const FIREFOX: Package = package("firefox-esr", &["firefox-esr", "--version"]);

/// The browser of the browser tests, which define where they look for it.
pub(crate) const CHROMIUM: Package = Package {
    otherwise: "; where CHROMIUM_BIN is set, it has to name one that starts",
    ..package("chromium", &["node", "tests/browser/harness/chromium.mjs"])
};

/// Installs a package if its program is missing.
///
/// # Errors
/// This process has no rights to install it, or the program is still missing afterwards.
pub(crate) fn install(Package { name, probe, otherwise }: &Package) -> Result<()> {
    let _turn = lock("debian")?;
    let is_there = || {
        probe.split_first().is_some_and(|(program, rest)| output_of(command(program).args(rest)).is_some())
    };
    if is_there() {
        return Ok(());
    }
    let may = output_of(command("id").arg("-u")).as_deref() == Some("0");
    ensure!(
        may && output_of(command("apt-get").arg("--version")).is_some(),
        "{name} is missing: install it (Debian: apt-get install {name}){otherwise}"
    );
    eprintln!("installing Debian's {name}, once");
    let apt = |arguments: &[&str]| {
        run(command("apt-get")
            .args(["-q", "-o", "Dpkg::Use-Pty=0"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&["install", "-y", "--no-install-recommends", name])
        .with_context(|| format!("{name} does not install"))?;
    ensure!(is_there(), "{name} was installed, but does not run{otherwise}");
    Ok(())
}
