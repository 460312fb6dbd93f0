//! `cargo xtask`: sets up, builds, runs and tests the whole project.
//!
//! Only the standard library and two small crates, so that a new clone has it in seconds. Commands that
//! need the chain, `dev`, `deploy-contracts` and `bench`, build a program of the `e2e` crate and execute it.

mod build;
mod debian;
mod devnet;
mod dist;
mod explorer;
mod fingerprint;
mod node;
mod package;
mod ports;
mod programs;
mod run;
mod setup;
mod sources;
mod suite;
mod summary;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask <command>

  setup                          install what is missing: the wasm target, Node 22, the Node tools, wasm-bindgen, worker-build
  build                          setup; compile browser package, explorer and Workers, where changed; print the sizes
  dev                            a local chain with agents to look at, the Worker on port 3000, the relayer on 3001, a
                                 service that the gate guards on 3002; other ports: dev --help
  test [--all] [WORD...]         everything that is checked, with a summary at the end; with words, the steps named so. What
                                 has not changed since it last passed is not repeated, unless with --all or CI set
  bench [api]                    measure the Worker beside its peers and write the figures to BENCHMARKS.md
  bench crowd                    measure memory, KV operations and CPU of an instance before a crowd of clients; BENCHMARKS.md
  bench gate                     measure what asking the gate adds to a request; BENCHMARKS.md
  bench index [AGENTS...]        measure the index at 10,000, 100,000 and 1,000,000 agents and write the figures to BENCHMARKS.md;
                                 at other sizes, and write nothing
  bench snapshot [AGENTS...]     measure verdicts from the snapshot at the same sizes, in the same way
  bench world                    simulate a day of requests over data centres, with and without the snapshot; BENCHMARKS.md
  dist [--allow-dirty] [PART...] what a release consists of, in target/dist: workers, npm, crates, python, binaries,
                                 images, sbom, archives
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
        ("bench", _) => devnet::bench(rest)?,
        ("dist", _) => dist::dist(rest)?,
        ("deploy-contracts", _) => devnet::deploy_contracts(rest)?,
        ("help" | "--help" | "-h", _) => print!("{USAGE}"),
        _ => bail!("unknown: {}\n\n{USAGE}", arguments.join(" ")),
    }
    Ok(ExitCode::SUCCESS)
}
