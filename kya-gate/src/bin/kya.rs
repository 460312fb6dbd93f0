//! What a liable person signs: `kya accept` an agent's registration, `kya domain` that a domain is the person's own.
//!
//! Documents are printed on standard output, everything else on standard error. docs/liable-person.md says where they go.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use alloy_primitives::{Address, B256, Bytes, keccak256};
use anyhow::{Context as _, Result, anyhow, ensure};
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
    liability::{Acceptance, DecimalId, DomainName, LiableWallet},
    registry::kya::KyaAgent,
};
use reqwest::{Client, Url};
use serde_json::json;

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

/// The registry, and the liable wallet's key.
#[derive(Debug, Args)]
struct SignerArguments {
    /// The chain's id.
    #[arg(long, value_name = "ID")]
    chain: u64,
    /// The registry.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    registry: Address,
    /// The file with the liable wallet's private key in hex digits, which others must not be able to read.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
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
    let (key, now) = (Key::read(&signer.key)?, now());
    let rpc = rpc(arguments)?;
    let query = |account, registry| AccountQuery { account, signed: None, registry, now };
    let wallet = arguments.agent_wallet;
    let facts = rpc.ask(query(wallet, Some(signer.registry)), now).await.map_err(|error| anyhow!(error))?;
    let kya = facts.kya.context("the registry gave no verdict")?;
    let agent = kya.agent.with_context(|| format!("no agent is registered for the wallet {wallet}"))?;
    eprint!("{}", shown(&agent, signer));
    let liable = agent.haftungsperson;
    ensure!(key.address == liable, "the key is of {}, and the liable wallet is {liable}", key.address);
    // A verifier compares it with the time of its block, too.
    let not_before = now.min(kya.as_of.block_timestamp).seconds();
    let not_after = not_before + arguments.days * DAY;
    let unsigned = Acceptance {
        chain_id: signer.chain,
        registry: signer.registry,
        agent_id: DecimalId(agent.agent_id.0),
        creator: agent.creator,
        agent_wallet: agent.agent_wallet,
        haftungsperson: liable,
        registered_at: agent.registered_at.seconds(),
        terms_hash: arguments.terms_hash,
        not_before,
        not_after,
        signature: Bytes::new(),
    };
    eprintln!("valid       until {}, {} days", Timestamp::from_seconds(not_after), arguments.days);
    eprintln!("terms       {}", arguments.terms_hash);
    ensure!(arguments.yes || is_confirmed(&agent)?, "nothing was signed");
    let signature = key.sign(unsigned.digest(&agent.operational_scope))?;
    let acceptance = Acceptance { signature, ..unsigned };
    let query = SignerQuery {
        block: None,
        ..SignerQuery::of(&acceptance, keccak256(&agent.operational_scope), kya.as_of.block_number)
    };
    let code = rpc.ask(query, now).await.map_err(|error| anyhow!(error))?;
    code.check(&acceptance, keccak256(&agent.operational_scope))
        .map_err(|_| anyhow!("the liable wallet has code, which does not accept its key's signature"))?;
    Ok(if arguments.header { acceptance.to_header() } else { acceptance.to_json() })
}

fn domain(arguments: &Domain) -> Result<String> {
    let Domain { signer, .. } = arguments;
    let (key, now) = (Key::read(&signer.key)?, now().seconds());
    let name = DomainName::parse(&arguments.domain);
    let name = name.with_context(|| format!("the domain {}", DomainName::RULE))?;
    let unsigned = LiableWallet {
        chain_id: signer.chain,
        registry: signer.registry,
        wallet: key.address,
        not_before: now,
        not_after: now + arguments.days * DAY,
        signature: Bytes::new(),
        legal_name: arguments.legal_name.clone(),
        lei: arguments.lei.clone(),
    };
    let mut entry = json!({
        "chainId": unsigned.chain_id,
        "registry": unsigned.registry,
        "wallet": unsigned.wallet,
        "notBefore": unsigned.not_before,
        "notAfter": unsigned.not_after,
        "signature": key.sign(unsigned.digest(&name))?,
    });
    let claims = [("legalName", &unsigned.legal_name), ("lei", &unsigned.lei)];
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

/// The record, a line for each member that an acceptance pins. Texts of others are quoted, so that no line of them
/// reads as one of these.
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
