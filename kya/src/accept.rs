//! `kya accept`: the liable wallet accepts an agent's registration. docs/liable-person.md says where the
//! document goes.

use alloy::primitives::{Address, B256, Bytes, keccak256};
use anyhow::{Context as _, anyhow};
use clap::Args;
use registry_core::{
    chain::SignerQuery,
    eth::{address, multicall, timestamp::Timestamp},
    gate::AccountQuery,
    liability::{Acceptance, DecimalId, MAX_HEADER_BYTES, Moment},
    registry::kya::KyaAgent,
};
use serde_json::Value;

use crate::{
    attest,
    chain::RpcNode,
    now,
    report::{CommandFailure, Report, Result, say},
    typed::{SignerArguments, of_key},
};

/// Read an agent's record, show it, and sign that its liable wallet accepts it
#[derive(Debug, Args)]
pub struct Accept {
    /// The agent's own wallet.
    #[arg(value_parser = address::parse)]
    agent_wallet: Address,
    #[command(flatten)]
    signer: SignerArguments,
    /// An RPC endpoint of the chain. One with a key belongs into the environment.
    #[arg(long, env = "KYA_RPC_URL", hide_env_values = true)]
    rpc: String,
    /// Multicall3 of the chain.
    #[arg(long, value_name = "0x...", value_parser = address::parse, default_value_t = multicall::CANONICAL_ADDRESS)]
    multicall3: Address,
    /// Days of validity, 366 at most.
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

/// Signs the acceptance, or prints what is to be signed. Errors: there is no such agent, the key is another
/// one, or it is not confirmed.
pub async fn run(arguments: &Accept) -> Result<Report> {
    let Accept { signer, .. } = arguments;
    let (key, signed, now) = (signer.key()?, signer.signed()?, now());
    let node = RpcNode::connect(&arguments.rpc, Some(signer.chain), arguments.multicall3).await?;
    let query = |account, registry| AccountQuery { account, signed: None, registry, now };
    let wallet = arguments.agent_wallet;
    let facts = node.ask(query(wallet, Some(signer.registry))).await?;
    let kya = facts.kya.context("the registry gave no verdict")?;
    let agent = kya.agent.with_context(|| format!("no agent is registered for the wallet {wallet}"))?;
    say(shown(&agent, signer));
    let liable = agent.haftungsperson;
    if let Some(address) = key.as_ref().map(|key| key.address()).filter(|address| *address != liable) {
        return Err(CommandFailure::refused(format!(
            "the key is of {address}, and the liable wallet is {liable}"
        )));
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
            (not_before, not_before + arguments.days * crate::DAY, arguments.terms_hash)
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
    let until = Timestamp::from_seconds(not_after);
    say(format_args!("valid       until {until}\nterms       {terms_hash}\n"));
    if key.is_some() && !arguments.yes {
        attest::typed(&agent.agent_id.0, "You will be liable for this agent")?;
    }
    let scope = &agent.operational_scope;
    let typed = unsigned.typed_data(scope);
    let Some(signature) = signer.sign(&typed, unsigned.digest(scope)).await? else {
        return Ok(Report::document(typed));
    };
    let mut acceptance = Acceptance { signature, ..unsigned };
    let query =
        SignerQuery { block: None, ..SignerQuery::of(&acceptance, keccak256(scope), kya.as_of.block_number) };
    let code = node.ask(query).await?;
    if !code.has_code {
        acceptance.signature = of_key(&acceptance.signature);
    }
    code.check(&acceptance, keccak256(scope)).map_err(|_| match code.has_code {
        true => anyhow!("the liable wallet has code, which does not accept this signature"),
        false => anyhow!("the signature is not the liable wallet's: 65 bytes, low s, v 27 or 28"),
    })?;
    let header = acceptance.to_header();
    if header.len() > MAX_HEADER_BYTES {
        let text = format!("the signature makes a header of more than {MAX_HEADER_BYTES} bytes");
        return Err(CommandFailure::refused(text));
    }
    Ok(Report::document(if arguments.header { header } else { acceptance.to_json() }))
}

/// Renders the record, one line per member that an acceptance pins. Texts of others are quoted, so that none
/// of their lines reads as one of these.
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
