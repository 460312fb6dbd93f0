//! `cargo xtask bench`: prepares what is measured and what measures, then becomes the `bench` program.

use anyhow::Result;

use crate::run::{become_program, command, node_tool, root, run};
use crate::{build, debian, setup};

/// Measures one subject, and writes its section of `BENCHMARKS.md`.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    load_generator()?;
    setup::setup()?;
    build::build()?;
    // The build leaves out what only tests deploy: a registry of any size is among it.
    run(command(node_tool("forge")).arg("build").current_dir(root().join("contracts")))?;
    become_program("bench", arguments)
}

/// wrk, the machine's own or Debian's package.
pub(crate) fn load_generator() -> Result<()> {
    debian::install("wrk", || debian::on_path("wrk"), "")
}
