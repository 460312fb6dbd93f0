//! What a liable person signs: `kya accept` an agent's registration, `kya domain` that a domain is the
//! person's own.
//!
//! Documents are printed on standard output, everything else on standard error. docs/liable-person.md says
//! where they go.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use alloy_primitives::{Address, B256, Bytes, keccak256};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::{Args, Parser};
use k256::ecdsa::SigningKey;
use kya_gate::{
    http::now,
    metrics::Metrics,
    private_file,
    rpc::Rpc,
    settings::{ChainSettings, ReadLimits},
};
use registry_core::{
    chain::SignerQuery,
    eth::{address, multicall, timestamp::Timestamp},
    gate::AccountQuery,
    liability::{Acceptance, DecimalId, DomainName, LiableWallet, MAX_HEADER_BYTES, Moment},
    registry::kya::KyaAgent,
};
use reqwest::{Client, Url};
use serde_json::{Value, json};

const DAY: u64 = 86_400;

/// Signs what a liable person says of an agent and of a domain.
#[derive(Debug, Parser)]
#[command(name = "kya", version)]
enum Command {
    /// Read an agent's record, show it, and sign that its liable wallet accepts it
    Accept(Accept),
    /// Sign that a domain is the liable wallet's own: the wallet's entry in the domain's file
    Domain(Domain),
}

/// The registry, and how the liable wallet signs: by a key in a file, or in two steps with any wallet.
#[derive(Debug, Args)]
struct SignerArguments {
    /// The chain's id.
    #[arg(long, value_name = "ID")]
    chain: u64,
    /// The registry.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    registry: Address,
    #[command(flatten)]
    means: Means,
    /// The wallet's signature of what --signed names.
    #[arg(long, value_name = "0x...", requires = "signed")]
    signature: Option<Bytes>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Means {
    /// The file with the liable wallet's private key in hex digits, which others must not be able to read.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Sign nothing: print what any wallet signs by eth_signTypedData_v4 (EIP-712).
    #[arg(long)]
    typed_data: bool,
    /// The file with what --typed-data printed, which the wallet has signed.
    #[arg(long, value_name = "FILE", requires = "signature")]
    signed: Option<PathBuf>,
}

impl SignerArguments {
    fn key(&self) -> Result<Option<Key>> {
        self.means.key.as_deref().map(Key::read).transpose()
    }

    /// What was signed elsewhere.
    fn signed(&self) -> Result<Option<Signed>> {
        let Some(file) = &self.means.signed else { return Ok(None) };
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        let typed = serde_json::from_str(&text).with_context(|| format!("{name} is no JSON"))?;
        Ok(Some(Signed { typed, signature: self.signature.clone().unwrap_or_default() }))
    }

    /// What is signed is `typed`, and its digest: the signature, or `None` where it is only printed.
    fn sign(&self, typed: &str, digest: B256) -> Result<Option<Bytes>> {
        if let Some(key) = self.key()? {
            return key.sign(digest).map(Some);
        }
        let Some(Signed { typed: found, signature }) = self.signed()? else { return Ok(None) };
        if let Some(member) = difference(&found, &serde_json::from_str(typed)?) {
            bail!("{member} of what was signed differs from the record and from the arguments");
        }
        Ok(Some(signature))
    }
}

/// Typed data that was signed elsewhere.
struct Signed {
    typed: Value,
    signature: Bytes,
}

impl Signed {
    /// A member of the message that is a number.
    fn number(&self, name: &str) -> Result<u64> {
        let number = self.member(name).and_then(Value::as_u64);
        number.with_context(|| format!("message.{name} of what was signed is no number"))
    }

    fn member(&self, name: &str) -> Option<&Value> {
        self.typed.get("message")?.get(name)
    }
}

/// The signature of a wallet without code, of which some number the two keys from 0, as verifiers take it.
fn of_key(signature: &Bytes) -> Bytes {
    match signature.split_last() {
        Some((last @ (0 | 1), rest)) if rest.len() == 64 => [rest, &[27 + last]].concat().into(),
        _ => signature.clone(),
    }
}

/// The path of a member that two values differ in.
fn difference(one: &Value, other: &Value) -> Option<String> {
    if let (Value::Object(one), Value::Object(other)) = (one, other) {
        let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        return names.into_iter().find_map(|name| {
            let below =
                difference(one.get(name).unwrap_or(&Value::Null), other.get(name).unwrap_or(&Value::Null))?;
            Some(if below.is_empty() { name.clone() } else { format!("{name}.{below}") })
        });
    }
    (one != other).then(String::new)
}

#[derive(Debug, Args)]
struct Accept {
    /// The agent's own wallet.
    #[arg(value_parser = address::parse)]
    agent_wallet: Address,
    #[command(flatten)]
    signer: SignerArguments,
    /// An RPC endpoint of the chain. One with a key belongs into the environment.
    #[arg(long, env = "KYA_RPC_URL", hide_env_values = true)]
    rpc: Url,
    /// Multicall3 of the chain.
    #[arg(long, value_name = "0x...", value_parser = address::parse, default_value_t = multicall::CANONICAL_ADDRESS)]
    multicall3: Address,
    /// For how many days, 366 at most.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
    /// The Keccak-256 of terms that both sides have.
    #[arg(long, value_name = "0x...", default_value_t)]
    terms_hash: B256,
    /// Sign without asking.
    #[arg(long)]
    yes: bool,
    /// Print the value of the header Liability-Acceptance in place of the document.
    #[arg(long)]
    header: bool,
}

#[derive(Debug, Args)]
struct Domain {
    /// The domain, in lower case, with A-labels.
    domain: String,
    #[command(flatten)]
    signer: SignerArguments,
    /// The wallet, which a key in a file tells by itself. One with code has its own tools to sign with.
    #[arg(long, value_name = "0x...", value_parser = address::parse, conflicts_with = "key")]
    wallet: Option<Address>,
    /// For how many days, 366 at most.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
    /// The company's name, as the domain claims it.
    #[arg(long)]
    legal_name: Option<String>,
    /// Its Legal Entity Identifier, as the domain claims it.
    #[arg(long)]
    lei: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The only provider compiled in; a second call, which cannot happen, would change nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let printed = match Command::parse() {
        Command::Accept(arguments) => accept(&arguments).await,
        Command::Domain(arguments) => domain(&arguments),
    };
    match printed {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("kya: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn accept(arguments: &Accept) -> Result<String> {
    let Accept { signer, .. } = arguments;
    let (key, signed, now) = (signer.key()?, signer.signed()?, now());
    let rpc = rpc(arguments)?;
    let query = |account, registry| AccountQuery { account, signed: None, registry, now };
    let wallet = arguments.agent_wallet;
    let facts = rpc.ask(query(wallet, Some(signer.registry)), now).await.map_err(|error| anyhow!(error))?;
    let kya = facts.kya.context("the registry gave no verdict")?;
    let agent = kya.agent.with_context(|| format!("no agent is registered for the wallet {wallet}"))?;
    eprint!("{}", shown(&agent, signer));
    let liable = agent.haftungsperson;
    if let Some(Key { address, .. }) = &key {
        ensure!(*address == liable, "the key is of {address}, and the liable wallet is {liable}");
    }
    let block_time = kya.as_of.block_timestamp;
    let (not_before, not_after, terms_hash) = match &signed {
        Some(signed) => {
            let (not_before, not_after) = (signed.number("notBefore")?, signed.number("notAfter")?);
            let terms =
                signed.member("termsHash").and_then(Value::as_str).and_then(|terms| terms.parse().ok());
            (not_before, not_after, terms.context("message.termsHash of what was signed is no hash")?)
        }
        None => {
            // A verifier compares it with the time of its block, too.
            let not_before = now.min(block_time).seconds();
            (not_before, not_before + arguments.days * DAY, arguments.terms_hash)
        }
    };
    let unsigned = Acceptance {
        chain_id: signer.chain,
        registry: signer.registry,
        agent_id: DecimalId(agent.agent_id.0),
        creator: agent.creator,
        agent_wallet: agent.agent_wallet,
        haftungsperson: liable,
        registered_at: agent.registered_at.seconds(),
        terms_hash,
        not_before,
        not_after,
        signature: Bytes::new(),
    };
    let moment = Moment { now: now.seconds(), block_time: block_time.seconds() };
    let problem = |problem| anyhow!("the acceptance does not hold: {problem}");
    unsigned.check_time(moment).map_err(problem)?;
    eprintln!("valid       until {}", Timestamp::from_seconds(not_after));
    eprintln!("terms       {terms_hash}");
    ensure!(key.is_none() || arguments.yes || is_confirmed(&agent)?, "nothing was signed");
    let scope = &agent.operational_scope;
    let typed = unsigned.typed_data(scope);
    let Some(signature) = signer.sign(&typed, unsigned.digest(scope))? else { return Ok(typed) };
    let mut acceptance = Acceptance { signature, ..unsigned };
    let query =
        SignerQuery { block: None, ..SignerQuery::of(&acceptance, keccak256(scope), kya.as_of.block_number) };
    let code = rpc.ask(query, now).await.map_err(|error| anyhow!(error))?;
    if !code.has_code {
        acceptance.signature = of_key(&acceptance.signature);
    }
    code.check(&acceptance, keccak256(scope)).map_err(|_| match code.has_code {
        true => anyhow!("the liable wallet has code, which does not accept this signature"),
        false => anyhow!("the signature is not the liable wallet's: 65 bytes, low s, v 27 or 28"),
    })?;
    let header = acceptance.to_header();
    ensure!(
        header.len() <= MAX_HEADER_BYTES,
        "the signature makes a header of more than {MAX_HEADER_BYTES} bytes"
    );
    Ok(if arguments.header { header } else { acceptance.to_json() })
}

fn domain(arguments: &Domain) -> Result<String> {
    let Domain { signer, .. } = arguments;
    let (key, signed, now) = (signer.key()?, signer.signed()?, now().seconds());
    let name = DomainName::parse(&arguments.domain);
    let name = name.with_context(|| format!("the domain {}", DomainName::RULE))?;
    let (not_before, not_after) = match &signed {
        Some(signed) => (signed.number("notBefore")?, signed.number("notAfter")?),
        None => (now, now + arguments.days * DAY),
    };
    let wallet = arguments.wallet.or(key.map(|key| key.address)).context("--wallet has to be given")?;
    let unsigned = LiableWallet {
        chain_id: signer.chain,
        registry: signer.registry,
        wallet,
        not_before,
        not_after,
        signature: Bytes::new(),
        legal_name: arguments.legal_name.clone(),
        lei: arguments.lei.clone(),
    };
    let typed = unsigned.typed_data(&name);
    let Some(signature) = signer.sign(&typed, unsigned.digest(&name))? else { return Ok(typed) };
    let liable = LiableWallet { signature: of_key(&signature), ..unsigned };
    let checked =
        liable.check_time(Moment { now, block_time: now }).and_then(|()| liable.check_signature(&name));
    checked.map_err(|problem| anyhow!("the entry of {wallet} does not hold: {problem}"))?;
    let mut entry = json!({
        "chainId": liable.chain_id,
        "registry": liable.registry,
        "wallet": wallet,
        "notBefore": not_before,
        "notAfter": not_after,
        "signature": liable.signature,
    });
    let claims = [("legalName", &liable.legal_name), ("lei", &liable.lei)];
    for (member, claim) in claims.into_iter().filter_map(|(member, claim)| Some((member, claim.as_ref()?))) {
        if let Some(entry) = entry.as_object_mut() {
            entry.insert(member.to_owned(), json!(claim));
        }
    }
    Ok(entry.to_string())
}

fn rpc(arguments: &Accept) -> Result<Rpc> {
    let client = Client::builder()
        .connect_timeout(Duration::from_secs(3))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()?;
    let chain = ChainSettings {
        id: arguments.signer.chain,
        rpc: vec![arguments.rpc.clone()],
        multicall3: arguments.multicall3,
        // A record has no setters: an old block shows the same.
        max_head_age_seconds: 0,
        reads: ReadLimits { in_flight: 1, per_second: 1 },
    };
    Ok(Rpc::new(client, chain, Metrics::new()?))
}

/// The record, a line for each member that an acceptance pins. Texts of others are quoted, so that no line of
/// them reads as one of these.
fn shown(agent: &KyaAgent, signer: &SignerArguments) -> String {
    let id = agent.agent_id.0;
    format!(
        "chain       {}\nregistry    {}\nagent       {id}, {:?}\nwallet      {}\ncreator     {}\nliable      {}\n\
         registered  {}\nscope       {:?}\n",
        signer.chain,
        signer.registry,
        agent.status,
        agent.agent_wallet,
        agent.creator,
        agent.haftungsperson,
        agent.registered_at,
        agent.operational_scope,
    )
}

fn is_confirmed(agent: &KyaAgent) -> Result<bool> {
    let id = agent.agent_id.to_string();
    eprint!("You will be liable for this agent. Type its id to sign: ");
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(line.trim() == id)
}

/// The liable wallet's key.
struct Key {
    key: SigningKey,
    address: Address,
}

impl Key {
    /// Reads a file that others cannot access. Nothing of it is quoted.
    fn read(file: &Path) -> Result<Self> {
        let name = file.display();
        let key = alloy_primitives::hex::decode(private_file::read(file)?.trim()).ok();
        let key = key.and_then(|key| SigningKey::from_slice(&key).ok());
        let key = key.with_context(|| format!("{name} has no private key in hex digits"))?;
        Ok(Self { address: Address::from_private_key(&key), key })
    }

    fn sign(&self, digest: B256) -> Result<Bytes> {
        let (signature, id) = self.key.sign_prehash_recoverable(digest.as_slice())?;
        Ok([&signature.to_bytes()[..], &[27 + id.to_byte()]].concat().into())
    }
}
