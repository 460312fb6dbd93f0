//! `kya verify record records.jsonl --keys jwks.json`: verifies the records of a gate, line by line.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
};

use alloy::primitives::{Address, B256};
use registry_core::{
    eth::{address, timestamp::Timestamp},
    gate::{Admission, AdmissionRecord, ProvedAcceptance, RecordError, Trusted, VerifiedBy},
    registry::liability::Basis,
    token::Key,
};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::{
    report::{CommandFailure, Exit, Report, plain},
    verify::{MAX_BYTES, VerifyFailure, key_set, open},
};

/// Options of `kya verify record`.
#[derive(Debug, clap::Args)]
pub struct VerifyRecord {
    /// The file of records, a line each; - is standard input.
    file: PathBuf,
    /// The issuer's published keys, a JWK set, from a source you trust: the one saved from
    /// `/.well-known/jwks.json` at the time.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Only this line, from 1 on.
    #[arg(long, value_name = "NUMBER")]
    line: Option<u64>,
    /// The hash of a record's block, from a source you trust; once for each block. Without any, evidence only
    /// agrees with itself.
    #[arg(long, value_name = "0x...")]
    block_hash: Vec<B256>,
    /// The registry that the verdicts have to be of. Without it that is the records' own word.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    registry: Option<Address>,
    /// Believe the issuer that an account's code (ERC-1271) accepted a signature, which no later check can
    /// repeat without the chain of that time.
    #[arg(long)]
    trust_code: bool,
}

/// Verifies the records, and reports on each. Errors: there is no record, or a file cannot be read.
pub(crate) fn verify(arguments: &VerifyRecord) -> Result<Report, VerifyFailure> {
    let (keys, records) = (key_set(&arguments.keys)?, arguments.file.display());
    let trusted = Trusted {
        keys: &keys,
        registry: arguments.registry,
        code: arguments.trust_code,
        blocks: &arguments.block_hash,
    };
    let mut source = BufReader::new(open(&arguments.file)?);
    let (mut are_right, mut lines, mut documents) = (true, Vec::new(), Vec::new());
    for number in 1..=arguments.line.unwrap_or(u64::MAX) {
        let mut line = Vec::new();
        let failed =
            |error| CommandFailure::usage(format!("cannot read line {number} of {records}: {error}"));
        let read = (&mut source).take(MAX_BYTES + 1).read_until(b'\n', &mut line).map_err(failed)?;
        if read == 0 {
            break;
        }
        // The rest of a line that is too long is no line of its own.
        let is_too_long = read as u64 > MAX_BYTES && !line.ends_with(b"\n");
        if is_too_long {
            source.skip_until(b'\n').map_err(failed)?;
        }
        if arguments.line.is_some_and(|wanted| wanted != number) {
            continue;
        }
        // Bytes that are not UTF-8, and too many of them, make only their own line wrong.
        let line = str::from_utf8(line.strip_suffix(b"\n").unwrap_or(&line)).ok();
        let line = line.filter(|_| !is_too_long).ok_or(RecordError::Form);
        let verified = line.and_then(|line| AdmissionRecord::verify(line, &trusted, is_signed));
        let (words, entry) = match verified {
            Ok(admission) => (shown(&admission, &trusted), document(number, &admission)),
            Err(error) => {
                are_right = false;
                let entry = json!({ "line": number, "right": false, "error": error.to_string() });
                (format!("refused: {error}"), entry)
            }
        };
        lines.push(plain(&format!("{number}: {words}")));
        documents.push(entry);
    }
    if documents.is_empty() {
        return Err(format!("{records} has no such record").into());
    }
    let exit = if are_right { Exit::Done } else { Exit::Refused };
    let json = json!({ "right": are_right, "records": documents });
    Ok(Report { exit, ..Report::done(lines.join("\n"), json) })
}

/// Returns a verified record as JSON for programs.
fn document(number: u64, admission: &Admission) -> Value {
    json!({
        "line": number, "right": true, "time": admission.time, "policy": admission.policy,
        "policyHash": admission.policy_hash, "method": admission.method, "target": admission.target,
        "wallet": admission.account.address.to_string(), "chainId": admission.account.chain,
        "verifiedBy": admission.verified_by, "registry": admission.registry.map(|it| it.to_string()),
        "basis": admission.basis.map(Basis::name),
        "acceptanceDigest": admission.acceptance.as_ref().map(|it| it.digest), "claims": admission.claims,
        "evidenceBlockHash": admission.proved.as_ref().map(|it| it.block.hash),
    })
}

/// Describes in one line what a record shows, and which parties have to be trusted for it.
fn shown(admission: &Admission, trusted: &Trusted<'_>) -> String {
    let Admission { time, policy, registry, account, verified_by, method, target, claims, proved, .. } =
        admission;
    let (wallet, chain) = (account.address, account.chain);
    let decision = serde_json::to_value(claims.decision).unwrap_or_default();
    let decision = decision.as_str().unwrap_or_default();
    let signed = match verified_by {
        VerifiedBy::Key => "signed by",
        VerifiedBy::Code => "by the issuer's word accepted by the code of",
    };
    let basis = match (&admission.acceptance, admission.basis) {
        (Some(ProvedAcceptance { acceptance, digest, verified_by }), _) => {
            let by = match verified_by {
                VerifiedBy::Key => "its key",
                VerifiedBy::Code => "its code, which is the issuer's word",
            };
            let until = Timestamp::from_seconds(acceptance.not_after);
            format!(" (accepted by {by}, {digest:#x}, until {until})")
        }
        (None, Some(basis)) => format!(" ({})", basis.name()),
        (None, None) => String::new(),
    };
    let liable = claims.liable.map(|liable| format!(", liable {liable}{basis}")).unwrap_or_default();
    let policy = match admission.policy_hash {
        Some(hash) => format!("{policy} ({hash:#x})"),
        None => policy.clone(),
    };
    let (issuer, block) = (&claims.iss, claims.as_of.block_number);
    let registry = match (registry, trusted.registry) {
        (Some(registry), Some(_)) => format!("at the registry {registry} that you gave"),
        (Some(registry), None) => format!("at the registry {registry} by the record's word (--registry)"),
        (None, _) => "at a registry that the record does not name".to_owned(),
    };
    let proof = match proved {
        None => format!("by the word of {issuer}"),
        Some(verified) if trusted.blocks.is_empty() => {
            format!(
                "consistent with evidence: proved if block {block} has the hash {:#x} (--block-hash)",
                verified.block.hash
            )
        }
        Some(verified) if trusted.registry.is_none() => {
            format!("consistent with evidence and the hash {:#x} that you gave", verified.block.hash)
        }
        Some(verified) => format!("proved against the hash {:#x} that you gave", verified.block.hash),
    };
    format!(
        "{time} {method} {target}, {signed} {wallet} of chain {chain}, admitted under {policy} by {issuer}: {decision} at block \
         {block}{liable}, {registry}, {proof}"
    )
}

pub(crate) fn is_signed(key: &Key, text: &str, signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.point()).verify(text.as_bytes(), signature).is_ok()
}
