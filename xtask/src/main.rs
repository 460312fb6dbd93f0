//! `cargo xtask`: sets up, builds, runs and tests the whole project.
//!
//! Only the standard library and two small crates, so that a new clone has it in seconds. What needs the chain lives in
//! the `e2e` crate: `dev` and `deploy-contracts` build that crate's `devnet` program and become it.

mod build;
mod chromium;
mod devnet;
mod explorer;
mod fingerprint;
mod package;
mod purity;
mod run;
mod setup;
mod suite;
mod summary;
mod wasm;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask <command>

  setup                          install what is missing: the wasm target, the Node tools, wasm-bindgen, worker-build
  build                          setup; compile contracts, browser package, explorer and Worker, where changed; print the sizes
  dev                            a local chain with agents to look at, the Worker on port 3000, the relayer on 3001
  test [WORD...]                 everything that is checked, with a summary at the end; with words, the steps named so
  deploy-contracts --rpc-url URL deploy forwarder and registry; the key is read from DEPLOYER_KEY
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<ExitCode> {
    let Some((command, rest)) = arguments.split_first() else {
        print!("{USAGE}");
        return Ok(ExitCode::FAILURE);
    };
    match (command.as_str(), rest) {
        ("setup", []) => setup::setup()?,
        ("build", []) => {
            setup::setup()?;
            build::build()?;
        }
        ("dev", _) => devnet::dev(rest)?,
        ("test", _) => return suite::run_all(rest),
        ("deploy-contracts", _) => devnet::deploy_contracts(rest)?,
        ("help" | "--help" | "-h", _) => print!("{USAGE}"),
        _ => bail!("unknown: {}\n\n{USAGE}", arguments.join(" ")),
    }
    Ok(ExitCode::SUCCESS)
}
