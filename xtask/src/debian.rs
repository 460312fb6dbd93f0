//! Debian's packages of the programs that only tests and measurements need; `build` and `dev` need none of
//! them.

use std::thread;
use std::time::Duration;

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

/// The client and the JSON reader of the documentation's commands.
pub(crate) const CURL: Package = package("curl", &["curl", "--version"]);
pub(crate) const JQ: Package = package("jq", &["jq", "--version"]);

/// The maker of Python's virtual environments: Debian has no `ensurepip` in `python3`.
pub(crate) const VENV: Package = package("python3-venv", &["python3", "-c", "import ensurepip"]);

/// The builder of the images.
pub(crate) const BUILDAH: Package = package("buildah", &["buildah", "--version"]);

/// The second browser engine.
pub(crate) const FIREFOX: Package = package("firefox-esr", &["firefox-esr", "--version"]);

/// The browser of the browser tests, which define where it is looked for.
pub(crate) const CHROMIUM: Package = Package {
    otherwise: "; where CHROMIUM_BIN is set, it has to name one that starts",
    ..package("chromium", &["node", "tests/browser/harness/chromium.mjs"])
};

/// Number of times that lists are fetched for a package that does not install.
const ATTEMPTS: u32 = 3;
/// Pause before the second of these attempts; it grows.
const PAUSE: Duration = Duration::from_secs(10);

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
            .args(["-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=5"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"))
    };
    install_by(apt, name, PAUSE).with_context(|| format!("{name} does not install"))?;
    ensure!(is_there(), "{name} was installed, but does not run{otherwise}");
    Ok(())
}

/// Installs a package from the present lists. If that fails it fetches the lists, of which one that is not
/// needed may fail, and tries again.
fn install_by(apt: impl Fn(&[&str]) -> Result<()>, name: &str, pause: Duration) -> Result<()> {
    let install = || apt(&["install", "-y", "--no-install-recommends", name]);
    let mut installed = install();
    for attempt in 0..ATTEMPTS {
        if installed.is_ok() {
            break;
        }
        thread::sleep(pause * attempt);
        if let Err(error) = apt(&["update"]) {
            eprintln!("{error:#}");
        }
        installed = install();
    }
    installed
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::bail;

    use super::*;

    #[test]
    fn a_failure_of_apts_lists_or_of_a_moment_fails_no_installation() {
        // Number of failing installations, whether fetching the lists fails, and the commands that run.
        for (failures, update_fails, expected) in [
            (0, true, "install"),
            (1, true, "install update install"),
            (2, false, "install update install update install"),
            (9, false, "install update install update install update install"),
        ] {
            let ran = RefCell::new(Vec::new());
            let apt = |arguments: &[&str]| {
                ran.borrow_mut().push(arguments[0].to_owned());
                let installs = ran.borrow().iter().filter(|word| *word == "install").count();
                let fails = if arguments[0] == "update" { update_fails } else { installs <= failures };
                if fails { bail!("{arguments:?}") } else { Ok(()) }
            };
            let installed = install_by(apt, "jq", Duration::ZERO);
            assert_eq!(installed.is_ok(), failures < 4, "{installed:?}");
            assert_eq!(ran.borrow().join(" "), expected);
        }
    }
}
