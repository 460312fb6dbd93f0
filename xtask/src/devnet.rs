//! `cargo xtask dev`, `deploy-contracts` and `bench`: builds what they need, then executes a program of the
//! `e2e` crate.

use std::panic::resume_unwind;
use std::thread;

use anyhow::Result;

use crate::run::{become_program, cargo, linting_cargo, program, run};
use crate::{build, debian, package, setup};

pub(crate) fn dev(arguments: &[String]) -> Result<()> {
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
    // What it starts is built.
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
