//! `kya domain`: the liable wallet's entry in its domain's file. docs/liable-person.md says where it goes.

use alloy::primitives::{Address, Bytes};
use anyhow::anyhow;
use clap::Args;
use registry_core::{
    eth::address,
    liability::{DomainName, LiableWallet, Moment},
};
use serde_json::json;

use crate::{
    now,
    report::{CommandFailure, Report, Result},
    typed::{SignerArguments, of_key},
};

/// Sign that a domain is the liable wallet's own: the wallet's entry in the domain's file
#[derive(Debug, Args)]
pub struct Domain {
    /// The domain, in lower case, with A-labels.
    domain: String,
    #[command(flatten)]
    signer: SignerArguments,
    /// The wallet, where no key is given. A wallet with code has its own tools to sign with.
    #[arg(long, value_name = "0x...", value_parser = address::parse, conflicts_with = "key source")]
    wallet: Option<Address>,
    /// Days of validity, 366 at most.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
    /// The company's name, as the domain claims it.
    #[arg(long)]
    legal_name: Option<String>,
    /// Its Legal Entity Identifier, as the domain claims it.
    #[arg(long)]
    lei: Option<String>,
}

/// Signs the entry, or prints what is to be signed. Errors: the domain is no name, or the signature is
/// another wallet's.
pub async fn run(arguments: &Domain) -> Result<Report> {
    let Domain { signer, .. } = arguments;
    let (key, signed, now) = (signer.key()?, signer.signed()?, now().seconds());
    let name = DomainName::parse(&arguments.domain);
    let name = name.ok_or_else(|| CommandFailure::usage(format!("the domain {}", DomainName::RULE)))?;
    let (not_before, not_after) = match &signed {
        Some(signed) => (signed.number("notBefore")?, signed.number("notAfter")?),
        None => (now, now + arguments.days * crate::DAY),
    };
    let wallet = arguments.wallet.or(key.map(|key| key.address()));
    let wallet = wallet.ok_or_else(|| CommandFailure::usage("--wallet has to be given"))?;
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
    let Some(signature) = signer.sign(&typed, unsigned.digest(&name)).await? else {
        return Ok(Report::document(typed));
    };
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
    Ok(Report::document(entry.to_string()))
}
