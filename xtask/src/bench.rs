//! `cargo xtask bench`: prepares what is measured and what measures, then becomes the `bench` program.

use anyhow::Result;

use crate::run::become_program;
use crate::{build, debian, setup};

/// Measures one subject, and writes its section of `BENCHMARKS.md`.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    load_generator()?;
    setup::setup()?;
    build::build()?;
    become_program("bench", arguments)
}

/// wrk, the machine's own or Debian's package.
pub(crate) fn load_generator() -> Result<()> {
    debian::install("wrk", || debian::on_path("wrk"), "")
}
