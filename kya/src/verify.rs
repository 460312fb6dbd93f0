//! `kya verify`: verifies documents of services, gates and liable persons without a network.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use alloy::primitives::{Address, B256, keccak256};
use clap::Subcommand;
use registry_core::{
    eth::{address, timestamp::Timestamp},
    evidence::{self, Expected, Layout, Verified},
    liability::{Acceptance, Moment},
    registry::liability::Basis,
    token::{Jws, KeySet},
};
use serde_json::json;

use crate::{
    report::{CommandFailure, Exit, Report, Result, plain},
    verify_record::{self, VerifyRecord, is_signed},
};

/// Limit on a document's size in bytes, several times that of the largest evidence.
pub(crate) const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Verify without a network: exit status 0 where all is right, 1 where it is not, 2 where a file cannot be
/// read
#[derive(Debug, Subcommand)]
pub enum Verify {
    /// A document of `/kya/:wallet?evidence=1`: does it prove its verdict?
    Evidence(VerifyEvidence),
    /// A gate's records of admissions, a line each
    Record(VerifyRecord),
    /// A verdict token
    Token(VerifyToken),
    /// A liable person's acceptance, by the key of a wallet without code
    Acceptance(VerifyAcceptance),
}

/// Options of `kya verify token`.
#[derive(Debug, clap::Args)]
pub struct VerifyToken {
    /// The token's file; - is standard input.
    file: PathBuf,
    /// The issuer's published keys, a JWK set, from a source you trust.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// The origin that the token has to be for.
    #[arg(long, value_name = "ORIGIN")]
    audience: Option<String>,
    /// The issuer that has to have signed it.
    #[arg(long)]
    issuer: Option<String>,
    /// The time to judge by, in unix seconds; now, where it is not given.
    #[arg(long, value_name = "SECONDS")]
    at: Option<u64>,
}

/// Options of `kya verify acceptance`.
#[derive(Debug, clap::Args)]
pub struct VerifyAcceptance {
    /// The document's file; - is standard input.
    file: PathBuf,
    /// The operational scope of the agent's record, which the wallet signed and the document does not have.
    #[arg(long, value_name = "TEXT")]
    scope: String,
    /// The time to judge by, in unix seconds; now, where it is not given.
    #[arg(long, value_name = "SECONDS")]
    at: Option<u64>,
}

/// Verifies a document, and reports what it shows. The JSON has `right` and, as the case may be, `verdict`,
/// `claims`, `acceptance` or `records`. Errors: a file cannot be read, or is not of its kind: nothing was
/// verified.
pub fn run(command: &Verify) -> Result<Report> {
    let verified = match command {
        Verify::Evidence(arguments) => evidence(arguments),
        Verify::Record(arguments) => verify_record::verify(arguments),
        Verify::Token(arguments) => token(arguments),
        Verify::Acceptance(arguments) => acceptance(arguments),
    };
    match verified {
        Err(VerifyFailure::Refused(reason)) => {
            let json = json!({ "right": false, "error": reason, "exit": Exit::Refused as u8 });
            Ok(Report { exit: Exit::Refused, ..Report::done(plain(&format!("refused: {reason}")), json) })
        }
        Err(VerifyFailure::Unread(failure)) => Err(failure),
        Ok(report) => Ok(report),
    }
}

/// Reason why a document was not verified.
#[derive(Debug)]
pub(crate) enum VerifyFailure {
    /// The document is wrong.
    Refused(String),
    /// A file could not be read.
    Unread(CommandFailure),
}

impl From<String> for VerifyFailure {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

impl From<CommandFailure> for VerifyFailure {
    fn from(failure: CommandFailure) -> Self {
        Self::Unread(failure)
    }
}

pub(crate) fn key_set(file: &Path) -> Result<KeySet> {
    KeySet::parse(&read(file, CommandFailure::usage)?)
        .map_err(|error| CommandFailure::usage(format!("{}: {error}", file.display())))
}

fn token(arguments: &VerifyToken) -> Result<Report, VerifyFailure> {
    let keys = key_set(&arguments.keys)?;
    let text = read(&arguments.file, VerifyFailure::Refused)?;
    let token = Jws::parse(text.trim()).map_err(|error| format!("it {error}"))?;
    let key = keys.find(&token.kid).ok_or_else(|| format!("there is no key {:?}", token.kid))?;
    if !is_signed(key, token.signing_input, &token.signature) {
        return Err(format!("the key {:?} did not sign this", token.kid).into());
    }
    let claims = &token.claims;
    let now = arguments.at.unwrap_or_else(|| crate::now().seconds());
    if now >= claims.exp {
        return Err(format!("it has expired at {}", Timestamp::from_seconds(claims.exp)).into());
    }
    for (name, wanted, found) in [
        ("audience", &arguments.audience, claims.aud.as_deref()),
        ("issuer", &arguments.issuer, Some(claims.iss.as_str())),
    ] {
        if let Some(wanted) = wanted.as_deref().filter(|wanted| Some(*wanted) != found) {
            return Err(format!("its {name} is {}, not {wanted}", found.unwrap_or("not stated")).into());
        }
    }
    let decision = serde_json::to_value(claims.decision).unwrap_or_default();
    let (decision, liability) = (decision.as_str().unwrap_or_default(), claims.liability.as_ref());
    let liable = liability.map(|it| format!(", liable {} ({})", it.wallet, it.basis.name()));
    let text = format!(
        "signed: {decision} for {}{} at block {}, by the word of {} until {}",
        claims.sub,
        liable.unwrap_or_default(),
        claims.as_of.block_number,
        claims.iss,
        Timestamp::from_seconds(claims.exp),
    );
    Ok(Report::done(plain(&text), json!({ "right": true, "claims": claims })))
}

fn acceptance(arguments: &VerifyAcceptance) -> Result<Report, VerifyFailure> {
    let name = arguments.file.display();
    let acceptance = Acceptance::from_json(read(&arguments.file, VerifyFailure::Refused)?.trim());
    let acceptance = acceptance.map_err(|problem| format!("{name}: {problem}"))?;
    let now = arguments.at.unwrap_or_else(|| crate::now().seconds());
    let checked = acceptance.check_time(Moment { now, block_time: now });
    let checked = checked.and_then(|()| acceptance.check_signature_of(keccak256(&arguments.scope)));
    checked.map_err(|problem| format!("the acceptance does not hold: {problem}"))?;
    let Acceptance { agent_id, haftungsperson, agent_wallet, registry, chain_id, not_after, .. } =
        &acceptance;
    let text = format!(
        "signed: {haftungsperson} accepts agent {agent_id}, wallet {agent_wallet}, of registry {registry} on chain {chain_id}, until \
         {}; whether this is the registry's record, the chain says",
        Timestamp::from_seconds(*not_after)
    );
    Ok(Report::done(text, json!({ "right": true, "acceptance": acceptance })))
}

/// Options of `kya verify evidence`.
#[derive(Debug, clap::Args)]
pub struct VerifyEvidence {
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
    /// The forwarder that the registry's code has to trust: through it an account other than the
    /// transaction's sender can be an agent's creator.
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

fn evidence(arguments: &VerifyEvidence) -> Result<Report, VerifyFailure> {
    let layout = match &arguments.layout {
        Some(file) => {
            let wrong = |rule| CommandFailure::usage(format!("{}: the layout {rule}", file.display()));
            Some(Layout::parse(&read(file, CommandFailure::usage)?).map_err(wrong)?)
        }
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
    let document = read(&arguments.file, VerifyFailure::Refused)?;
    let verified = evidence::verify(&document, &expected).map_err(|error| error.to_string())?;
    let Verified { verdict, block, registry, chain_id, forwarder } = &verified;
    let json = json!({
        "right": true, "proved": expected.block_hash.is_some(), "blockHash": block.hash, "chainId": chain_id,
        "registry": registry.to_string(), "forwarder": forwarder.map(|it| it.to_string()), "verdict": verdict,
    });
    Ok(Report::done(line(&verified, &expected), json))
}

/// Describes in one line what the document proves, and which source has to be trusted for it.
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

/// Describes the liable wallet and its tie to the agent.
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

/// Reads a file's text. `no_text` makes the error of bytes that are not UTF-8: in a document they are wrong.
fn read<E: From<CommandFailure>>(file: &Path, no_text: impl FnOnce(String) -> E) -> Result<String, E> {
    let (name, mut bytes) = (file.display(), Vec::new());
    let read = open(file)?.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    let read = read.map_err(|error| CommandFailure::usage(format!("cannot read {name}: {error}")))?;
    match read as u64 > MAX_BYTES {
        true => Err(CommandFailure::usage(format!("{name} is larger than {MAX_BYTES} bytes")).into()),
        false => String::from_utf8(bytes).map_err(|_| no_text(format!("{name} is not UTF-8"))),
    }
}

pub(crate) fn open(file: &Path) -> Result<Box<dyn Read>> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let failed = |error| CommandFailure::usage(format!("cannot open {}: {error}", file.display()));
    Ok(Box::new(File::open(file).map_err(failed)?))
}
