//! `cargo xtask bench`: installs the load generator, builds the Workers, then executes the `bench` program.

use anyhow::Result;

use crate::run::become_program;
use crate::{build, debian, setup};

/// Measures one subject, and writes its section of `BENCHMARKS.md`.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    debian::install(&debian::WRK)?;
    setup::setup()?;
    build::build()?;
    become_program("bench", arguments)
}
