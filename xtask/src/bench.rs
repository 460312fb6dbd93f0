//! `cargo xtask bench`: prepares what is measured and what measures, then becomes the `bench` program.

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
