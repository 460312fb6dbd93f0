//! `cargo xtask dev`, `deploy-contracts` and `bench`: builds what they need, then executes a program of the
//! `e2e` crate.

use std::panic::resume_unwind;
use std::thread;

use anyhow::Result;

use crate::ports::{DEV_USAGE, ports};
use crate::run::{become_program, cargo, linting_cargo, program, run};
use crate::{build, debian, package, setup};

pub(crate) fn dev(arguments: &[String]) -> Result<()> {
    let options: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--help" | "-h"] = options.as_slice() {
        println!("{DEV_USAGE}");
        return Ok(());
    }
    // The program checks them, too, but the build before it takes minutes.
    ports(&options)?;
    // Side by side: half of the time the modules are linked, which takes one thread.
    thread::scope(|scope| {
        let native = scope.spawn(|| {
            let programs = ["--bin", "devnet", "--bin", "relayer-daemon", "--bin", "kya-gate"];
            run(linting_cargo().args(["all-build", "--quiet"]).args(programs))
        });
        setup::setup()?;
        build::build()?;
        native.join().unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    // The programs that it starts are built.
    become_program(program("devnet")?.arg("dev").args(arguments).env("E2E_BUILT", "1"))
}

/// Deploys to the chain behind `--rpc-url`.
pub(crate) fn deploy_contracts(arguments: &[String]) -> Result<()> {
    setup::setup()?;
    become_program(program("devnet")?.arg("deploy-contracts").args(arguments))
}

/// Measures one subject, and writes its section of `BENCHMARKS.md`.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    setup::setup()?;
    if arguments.first().is_some_and(|subject| subject == "gate") {
        // As an operator builds it.
        let gate = ["-p", "kya-gate", "--bin", "kya-gate"];
        run(cargo().args(["build", "--quiet", "--profile", "native"]).args(gate))?;
        package::build()?;
    } else {
        debian::install(&debian::WRK)?;
        build::build()?;
    }
    become_program(program("bench")?.args(arguments))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn options_and_ports_of_dev_are_checked_before_anything_is_built() {
        let listener = || TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
        let listening = listener();
        let (taken, free) = (port(&listening), port(&listener()));
        let taken_by = |port: &str, what: &str| {
            format!("port {port} is taken: end what listens there, or choose another with --{what}-port")
        };
        let all_free = ["--chain-port", "0", "--guarded-port", "0"];
        for (options, expected) in [
            (["--worker-prot", "3001", "--relayer-port", "0"], DEV_USAGE.to_owned()),
            (["--worker-port", "x", "--relayer-port", "0"], "--worker-port: x is no port".to_owned()),
            (["--worker-port", &taken, "--relayer-port", "0"], taken_by(&taken, "worker")),
            (["--worker-port", "0", "--relayer-port", &taken], taken_by(&taken, "relayer")),
            (["--worker-port", &free, "--relayer-port", &free], taken_by(&free, "relayer")),
        ] {
            let arguments: Vec<String> = all_free.into_iter().chain(options).map(str::to_owned).collect();
            let refused = dev(&arguments).unwrap_err().to_string();
            assert!(refused.starts_with(&expected), "{options:?}: {refused}");
        }
        dev(&["--help".to_owned()]).unwrap();
    }
}
