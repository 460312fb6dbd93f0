//! Typed data (EIP-712) that a liable person signs: by a key, or in two steps with any wallet.

use std::{collections::BTreeSet, fs, path::PathBuf};

use alloy::primitives::{Address, B256, Bytes};
use anyhow::{Context as _, anyhow};
use clap::Args;
use registry_core::eth::address;
use serde_json::Value;

use crate::{
    report::Result,
    signer::{KeyOptions, Signer},
};

/// Options of the registry and of the liable wallet's signature: by a key, or in two steps with any wallet.
#[derive(Debug, Args)]
pub(crate) struct SignerArguments {
    /// The chain's id.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) chain: u64,
    /// The registry.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    pub(crate) registry: Address,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    means: TwoStepOptions,
    /// The wallet's signature of the file that --signed names.
    #[arg(long, value_name = "0x...", requires = "signed")]
    signature: Option<Bytes>,
}

#[derive(Debug, Args)]
#[group(multiple = false, conflicts_with = "key source")]
struct TwoStepOptions {
    /// Sign nothing: print what any wallet signs by eth_signTypedData_v4 (EIP-712).
    #[arg(long)]
    typed_data: bool,
    /// The file with what --typed-data printed, which the wallet has signed.
    #[arg(long, value_name = "FILE", requires = "signature")]
    signed: Option<PathBuf>,
}

impl SignerArguments {
    pub(crate) fn key(&self) -> Result<Option<Signer>> {
        let is_given = !self.means.typed_data && self.means.signed.is_none();
        is_given.then(|| self.key.signer()).transpose()
    }

    /// Reads the typed data that was signed elsewhere.
    pub(crate) fn signed(&self) -> Result<Option<SignedTypedData>> {
        let Some(file) = &self.means.signed else { return Ok(None) };
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        let typed = serde_json::from_str(&text).with_context(|| format!("{name} is no JSON"))?;
        Ok(Some(SignedTypedData { typed, signature: self.signature.clone().unwrap_or_default() }))
    }

    /// Signs `typed`, or takes the signature made elsewhere; `None` where `typed` is only printed.
    pub(crate) async fn sign(&self, typed: &str, digest: B256) -> Result<Option<Bytes>> {
        if let Some(key) = self.key()? {
            return key.typed_data(typed, digest).await.map(Some);
        }
        let Some(SignedTypedData { typed: found, signature }) = self.signed()? else { return Ok(None) };
        let wanted = serde_json::from_str(typed).unwrap_or_default();
        if let Some(member) = difference(&found, &wanted) {
            return Err(anyhow!(
                "{member} of what was signed differs from the record and from the arguments"
            )
            .into());
        }
        Ok(Some(signature))
    }
}

/// Typed data that was signed elsewhere.
pub(crate) struct SignedTypedData {
    typed: Value,
    signature: Bytes,
}

impl SignedTypedData {
    /// Returns a member of the message that is a number. Errors: it is none.
    pub(crate) fn number(&self, name: &str) -> Result<u64> {
        let number = self.member(name).and_then(Value::as_u64);
        Ok(number.with_context(|| format!("message.{name} of what was signed is no number"))?)
    }

    pub(crate) fn member(&self, name: &str) -> Option<&Value> {
        self.typed.get("message")?.get(name)
    }
}

/// Converts a key's signature with `v` 0 or 1, as some wallets write it, to 27 or 28, as verifiers require.
pub(crate) fn of_key(signature: &Bytes) -> Bytes {
    match signature.split_last() {
        Some((last @ (0 | 1), rest)) if rest.len() == 64 => [rest, &[27 + last]].concat().into(),
        _ => signature.clone(),
    }
}

/// Returns the path of a member in which two values differ; empty where they themselves do.
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
