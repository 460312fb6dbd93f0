//! `cargo xtask bench`: installs the load generator and builds the Workers, or builds the gate; then executes
//! the `bench` program.

use anyhow::Result;

use crate::run::{become_program, cargo, run};
use crate::{build, debian, package, setup};

/// Measures one subject, and writes its section of `BENCHMARKS.md`.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    setup::setup()?;
    if arguments.first().is_some_and(|subject| subject == "gate") {
        // As an operator builds it, with the example that drives its verifier alone.
        let gate = ["-p", "kya-gate", "--bin", "kya-gate", "--example", "verify"];
        run(cargo().args(["build", "--quiet", "--profile", "native"]).args(gate))?;
        package::build()?;
    } else {
        debian::install(&debian::WRK)?;
        build::build()?;
    }
    become_program("bench", arguments)
}
