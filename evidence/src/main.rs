//! `evidence verify file.json`: verifies a document of `/kya/:wallet?evidence=1` without a network. The exit
//! status is 0 where it proves its verdict, 1 where it does not, and 2 for wrong arguments; one line says
//! why. `evidence verify-admission records.jsonl` does so for a gate's records of admissions.

mod admission;

use std::{
    fs::File,
    io::{self, Read},
    path::PathBuf,
    process::ExitCode,
};

use admission::VerifyAdmission;
use alloy_primitives::{Address, B256};
use clap::{Parser, Subcommand};
use registry_core::{
    eth::address,
    evidence::{self, Expected, Layout, Verified},
    registry::liability::Basis,
};

/// The largest document read, in bytes: several times what the largest evidence is.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Verifies evidence of the agent registry's read API, without a network.
#[derive(Debug, Parser)]
#[command(name = "evidence", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Verify a document: exit status 0 where it proves its verdict, 1 where it does not.
    Verify(Verify),
    /// Verify a gate's records of admissions: exit status 0 where all are right, 1 where one is not.
    VerifyAdmission(VerifyAdmission),
}

#[derive(Debug, clap::Args)]
struct Verify {
    /// The document's file; - is standard input.
    file: PathBuf,
    /// The block's hash, from a source you trust. Without it the document only agrees with itself.
    #[arg(long, value_name = "0x...")]
    block_hash: Option<B256>,
    /// The chain's id that the document has to name; no proof covers it.
    #[arg(long, value_name = "ID")]
    chain_id: Option<u64>,
    /// The registry that the document has to be about.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    registry: Option<Address>,
    /// The forwarder that the registry's code has to trust: by it others than a transaction's sender can be an
    /// agent's creator.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    forwarder: Option<Address>,
    /// The wallet that the document has to be about.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    wallet: Option<Address>,
    /// For a registry of other code than this project's: the file with the layout that you vouch for, as in
    /// the setting EVIDENCE_LAYOUT.
    #[arg(long, value_name = "FILE")]
    layout: Option<PathBuf>,
}

fn main() -> ExitCode {
    let verified = match Arguments::parse().command {
        Command::Verify(arguments) => verify(&arguments).map(|line| {
            println!("{line}");
            true
        }),
        Command::VerifyAdmission(arguments) => admission::verify(&arguments, |line| println!("{line}")),
    };
    match verified {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("refused: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn verify(arguments: &Verify) -> Result<String, String> {
    let layout = match &arguments.layout {
        Some(file) => Some(
            Layout::parse(&read(file)?).map_err(|rule| format!("{}: the layout {rule}", file.display()))?,
        ),
        None => None,
    };
    let expected = Expected {
        block_hash: arguments.block_hash,
        chain_id: arguments.chain_id,
        registry: arguments.registry,
        wallet: arguments.wallet,
        forwarder: arguments.forwarder,
        layout,
    };
    let verified = evidence::verify(&read(&arguments.file)?, &expected).map_err(|error| error.to_string())?;
    Ok(line(&verified, &expected))
}

/// One line about what the document proves, and which source has to be trusted for it.
fn line(verified: &Verified, expected: &Expected) -> String {
    let Verified { verdict, block, registry, chain_id, forwarder: _ } = verified;
    let decision = serde_json::to_value(verdict.decision).unwrap_or_default();
    let (decision, wallet) = (decision.as_str().unwrap_or_default(), verdict.wallet);
    let liable = liable(verified, expected);
    let subject = format!("{decision} for wallet {wallet}{liable} at registry {registry}");
    let hash = block.hash;
    let block = format!("block {} of {}", block.number, verdict.as_of.block_timestamp);
    let chain = match expected.chain_id {
        Some(_) => format!("chain {chain_id}"),
        None => format!("chain {chain_id} by the document's word"),
    };
    match expected.block_hash {
        Some(_) => format!("proved: {subject}, against {block} ({chain}) whose hash {hash:#x} you gave"),
        None => format!(
            "consistent: {subject}, by {block} ({chain}); proved only if a source you trust gives this block the hash \
             {hash:#x} (--block-hash)"
        ),
    }
}

/// The liable wallet, and what ties it to the agent.
fn liable(Verified { verdict, forwarder, .. }: &Verified, expected: &Expected) -> String {
    let Some(liability) = &verdict.liability else { return String::new() };
    let (wallet, basis) = (liability.wallet, liability.basis.name());
    let trusted = match (forwarder, liability.basis) {
        (_, basis) if basis != Basis::Registered => String::new(),
        _ if expected.registry.or(expected.forwarder).is_some() => String::new(),
        (Some(forwarder), _) => {
            format!(" if you trust the forwarder {forwarder} of its code: --registry or --forwarder")
        }
        (None, _) => " if you trust its code's forwarder, if it has one: --registry".to_owned(),
    };
    format!(", liable {wallet} ({basis}{trusted}),")
}

fn read(file: &PathBuf) -> Result<String, String> {
    let name = file.display();
    let source = open(file)?;
    let mut text = String::new();
    let read = source.take(MAX_BYTES + 1).read_to_string(&mut text);
    let bytes = read.map_err(|error| format!("cannot read {name}: {error}"))?;
    if bytes as u64 > MAX_BYTES { Err(format!("{name} is larger than {MAX_BYTES} bytes")) } else { Ok(text) }
}

fn open(file: &PathBuf) -> Result<Box<dyn Read>, String> {
    let name = file.display();
    Ok(if file.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(|error| format!("cannot open {name}: {error}"))?)
    })
}
