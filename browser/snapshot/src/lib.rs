//! The registry's snapshot in web pages and Node, read without a network, and private look-ups by range.
//!
//! A wasm module of its own beside the package's others: it needs no chain. `npm/local.js` is built on it,
//! downloads the bytes from the API and stores them.

use alloy_primitives::{Address, U256, keccak256};
use registry_browser_values::{error::RegistryError, member::invalid, value::parse};
use registry_core::{
    api::error::Error,
    eth::{address, as_of::AsOf, timestamp::Timestamp},
    registry::kya::{Kya, Past},
    snapshot::{self, Facts, Shard, ShardEntry, ShardRange, SnapshotError},
};
use wasm_bindgen::prelude::*;

/// The manifest of a snapshot: its block, and its shards.
#[wasm_bindgen]
pub struct Manifest(snapshot::Manifest);

#[wasm_bindgen]
impl Manifest {
    /// Reads a manifest's bytes.
    ///
    /// @throws RegistryError with the code INVALID_SNAPSHOT
    #[wasm_bindgen(constructor)]
    pub fn new(bytes: &[u8]) -> Result<Self, RegistryError> {
        Ok(Self(snapshot::Manifest::parse(bytes)?))
    }

    /// The chain's id.
    #[wasm_bindgen(getter, js_name = chainId)]
    pub fn chain_id(&self) -> f64 {
        self.0.identity.chain_id as f64
    }

    /// The registry's address.
    #[wasm_bindgen(getter)]
    pub fn registry(&self) -> String {
        self.0.identity.registry.to_checksum(None)
    }

    /// The block's number.
    #[wasm_bindgen(getter)]
    pub fn block(&self) -> f64 {
        self.0.as_of.block_number as f64
    }

    /// The block's time, unix milliseconds.
    #[wasm_bindgen(getter, js_name = blockTime)]
    pub fn block_time(&self) -> f64 {
        self.0.as_of.block_timestamp.as_millis() as f64
    }

    /// Time at which the API last found the registry's storage root to be this one, in unix milliseconds.
    #[wasm_bindgen(getter, js_name = confirmedAt)]
    pub fn confirmed_at(&self) -> f64 {
        self.0.confirmed_at as f64
    }

    /// The number of agents.
    #[wasm_bindgen(getter)]
    pub fn agents(&self) -> f64 {
        self.0.agents as f64
    }

    /// Returns the names of all segments and shards, as in requests; the shards come last.
    pub fn names(&self) -> Vec<String> {
        self.0.entries().map(|entry| entry.name()).collect()
    }

    /// Returns the names of a wallet's segments, the widest first, and of its shard. The first that holds the
    /// wallet has its verdict; without one it is not registered. Empty where the manifest holds the wallet.
    ///
    /// @throws RegistryError with the code INVALID_PARAMETER
    #[wasm_bindgen(js_name = namesOf)]
    pub fn names_of(&self, wallet: &str) -> Result<Vec<String>, RegistryError> {
        let entries = self.0.entries_of(wallet_of(wallet)?);
        Ok(entries.iter().map(ShardEntry::name).collect())
    }

    /// Checks that bytes are the segment or shard of this name, whole.
    ///
    /// @throws RegistryError with the code INVALID_SNAPSHOT
    pub fn check(&self, name: &str, bytes: Vec<u8>) -> Result<(), RegistryError> {
        Ok(Shard::parse(bytes, &self.0.identity, entry_of(name)?).map(drop)?)
    }

    /// Returns whether a segment or shard holds a wallet. Its bytes must have been checked before.
    ///
    /// @throws RegistryError with the code INVALID_SNAPSHOT
    pub fn holds(&self, name: &str, bytes: Vec<u8>, wallet: &str) -> Result<bool, RegistryError> {
        Ok(Shard::reopen(bytes, entry_of(name)?)?.find(wallet_of(wallet)?)?.is_some())
    }

    /// Returns the verdict on a wallet at `now`, unix milliseconds, from the segment or shard of this name,
    /// with bytes that were checked before, or, without a name, from the manifest; `undefined` where only the
    /// chain can tell.
    ///
    /// @throws RegistryError with the code INVALID_SNAPSHOT
    #[wasm_bindgen(unchecked_return_type = "Kya | undefined")]
    pub fn verdict(
        &self,
        name: Option<String>,
        bytes: Vec<u8>,
        wallet: &str,
        now: f64,
    ) -> Result<JsValue, RegistryError> {
        let wallet = wallet_of(wallet)?;
        let facts = match name {
            Some(name) => Shard::reopen(bytes, entry_of(&name)?)?.find(wallet)?,
            None => self.0.recent(wallet)?,
        };
        let facts = facts.unwrap_or(Facts::Known { agent: None, former: Vec::new() });
        let kya = facts.verdict(wallet, &self.0, Timestamp::from_millis(now as u64));
        kya.map_or(Ok(JsValue::UNDEFINED), |kya| value_of(&kya))
    }

    /// Returns the registered wallets of a segment or shard or, without a name, of the manifest.
    ///
    /// @throws RegistryError with the code INVALID_SNAPSHOT
    pub fn wallets(&self, name: Option<String>, bytes: Vec<u8>) -> Result<Vec<String>, RegistryError> {
        let file = name.map(|name| Shard::reopen(bytes, entry_of(&name)?)).transpose()?;
        let wallets = match &file {
            Some(file) => file.wallets_of(ShardRange::ALL)?,
            None => self.0.wallets_of(&[], ShardRange::ALL)?.into_iter().collect(),
        };
        Ok(wallets.iter().map(|(wallet, _)| wallet.to_checksum(None)).collect())
    }
}

/// Returns the prefix of a wallet's range, as long as a registry of so many agents allows.
///
/// @throws RegistryError with the code INVALID_PARAMETER
#[wasm_bindgen(js_name = rangeOf)]
pub fn range_of(wallet: &str, agents: f64) -> Result<String, RegistryError> {
    let digits = usize::from(snapshot::prefix_digits_max(agents as u64));
    let hash = keccak256(wallet_of(wallet)?).to_string();
    Ok(hash.chars().skip(2).take(digits).collect())
}

/// Returns the verdict at `now`, unix milliseconds, on a wallet that never had an agent. The caller fills in
/// `asOf`.
///
/// @throws RegistryError with the code INVALID_PARAMETER
#[wasm_bindgen(unchecked_return_type = "Kya")]
pub fn unregistered(wallet: &str, now: f64) -> Result<JsValue, RegistryError> {
    let nothing = Past { former: Ok(Vec::new()), ancestors: Ok(Vec::new()) };
    let now = Timestamp::from_millis(now as u64);
    value_of(&Kya::of(wallet_of(wallet)?, None, U256::ZERO, now, AsOf::default()).with_past(nothing))
}

/// The types of documents, which the build puts beside this module.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"import type { Kya } from "./registry.js";"#;

fn wallet_of(text: &str) -> Result<Address, Error> {
    address::parse(text).map_err(|error| invalid("wallet", error.rule()))
}

fn entry_of(name: &str) -> Result<ShardEntry, SnapshotError> {
    ShardEntry::parse_name(name).ok_or(SnapshotError::Format)
}

fn value_of(kya: &Kya) -> Result<JsValue, RegistryError> {
    // Texts and numbers: serialization has nothing to fail on.
    parse(&serde_json::to_string(kya).unwrap_or_default())
}
