//! `cargo xtask dev` and `cargo xtask deploy-contracts`: builds what they need, then executes the `devnet`
//! program.

use anyhow::Result;

use crate::run::become_program;
use crate::{build, setup};

/// Runs the whole stack until Ctrl-C.
pub(crate) fn dev(arguments: &[String]) -> Result<()> {
    setup::setup()?;
    build::build()?;
    become_program("devnet", &[&["dev".to_owned()], arguments].concat())
}

/// Deploys to the chain behind `--rpc-url`.
pub(crate) fn deploy_contracts(arguments: &[String]) -> Result<()> {
    setup::setup()?;
    become_program("devnet", &[&["deploy-contracts".to_owned()], arguments].concat())
}
