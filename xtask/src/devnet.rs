//! `cargo xtask dev` and `cargo xtask deploy-contracts`: this process prepares, then becomes the `devnet` program.
//!
//! Becoming it, instead of starting it, leaves one process that Ctrl-C reaches and that decides how everything ends.

use std::os::unix::process::CommandExt as _;

use anyhow::{Context as _, Result};

use crate::run::{cargo, command, root, run};
use crate::{build, setup};

/// Everything up, until Ctrl-C.
pub(crate) fn dev(arguments: &[String]) -> Result<()> {
    setup::setup()?;
    build::build()?;
    become_devnet(&[&["dev".to_owned()], arguments].concat())
}

/// Deploys to the chain behind `--rpc-url`.
pub(crate) fn deploy_contracts(arguments: &[String]) -> Result<()> {
    setup::setup()?;
    build::contracts()?;
    become_devnet(&[&["deploy-contracts".to_owned()], arguments].concat())
}

fn become_devnet(arguments: &[String]) -> Result<()> {
    eprintln!("compiling the local chain's tools");
    run(cargo().args(["build", "--quiet", "--package", "e2e", "--bin", "devnet"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    let error = command(target.join("debug/devnet")).args(arguments).exec();
    Err(error).context("cannot start devnet")
}
