//! Evidence: a document that proves a verdict, given a trusted hash of its block.
//!
//! ```text
//! block hash --keccak--> header --stateRoot--> accountProof --> codeHash, which the layout is bound to
//!  (trusted)                                        |
//!                                          storageHash --> storageProof of each slot --> record, grace
//!                                                                                             |
//!                                                             header's timestamp ----------> verdict
//! ```
//!
//! [`verify`] follows this path without a network, computes the verdict itself, and refuses a document with
//! another one. A document proves the contents of the registry's storage at that block. The caller must trust
//! the source of the block hash. A header does not hold the chain's id, so `chainId` is the document's claim.
//!
//! The fields are those of `eth_getProof` (EIP-1186), so any library for it can check the proofs.

mod account;
mod compare;
mod error;
mod header;
mod layout;
mod making;
mod partial_trie;
mod reading;
mod record;
mod rlp;
mod trie;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    eth::{json, spelled},
    registry::{agent::Agent, kya::Kya, liability::Liability},
};
pub(crate) use account::Account;
pub use error::EvidenceError;
pub use header::BlockHeader;
pub use layout::{AGENT_REGISTRY_CODE_HASH, FORWARDER_PLACES, Field, GracePeriod, Layout, RecordLayout};
pub use making::{Material, make, slots};
pub(crate) use record::SCOPE_TOO_LONG;
use record::{SlotError, Slots};
pub use trie::ProofError;

/// The version of documents that this crate makes and verifies. Documents are kept for years, so a new shape
/// of the document or of its verdict gets a new number.
pub const VERSION: u32 = 2;

/// The first version: its verdicts have no `liability`. They will always verify.
pub(crate) const WITHOUT_LIABILITY: u32 = 1;

/// The longest provable operational scope in bytes: 128 slots.
pub const MAX_SCOPE_BYTES: usize = 4_096;

/// A document of evidence: the answer of `/kya/:wallet?evidence=1`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Evidence {
    /// The version of this shape, and of the verdict's: 2.
    pub version: u32,
    /// The chain's id. No header holds it: the document claims it.
    pub chain_id: u64,
    /// The wallet that the verdict is about.
    #[serde(with = "json::Checksummed")]
    pub wallet: Address,
    /// The registry. Its account and storage are proved.
    #[serde(with = "json::Checksummed")]
    pub registry: Address,
    /// The block. Everything is proved for its end.
    #[serde(with = "json::Hash")]
    pub block_hash: B256,
    /// The block's header, RLP.
    #[serde(with = "json::Data")]
    pub header: Bytes,
    /// The registry's balance in wei.
    #[serde(with = "json::Quantity")]
    pub balance: U256,
    /// The hash of the registry's code.
    #[serde(with = "json::Hash")]
    pub code_hash: B256,
    /// The registry's nonce.
    #[serde(with = "json::Quantity")]
    pub nonce: u64,
    /// The root of the registry's storage.
    #[serde(with = "json::Hash")]
    pub storage_hash: B256,
    /// The trie nodes from the header's state root to the registry's account.
    #[serde(with = "json::DataList")]
    pub account_proof: Vec<Bytes>,
    /// The slots that the verdict rests on: the wallet's agent id, the grace period, the record's slots in
    /// ascending order, and those of an operational scope of more than 31 bytes. Without an agent, the first
    /// two.
    pub storage_proof: Vec<StorageProof>,
    /// The registry's code, which identifies it as this project's `AgentRegistry`. Absent for other code.
    #[serde(serialize_with = "spelled::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "json::Data"))]
    pub code: Option<Bytes>,
    /// The forwarder that this code trusts: the registry takes the sender of a relayed call from it. Absent
    /// for other code, and in version 1.
    #[serde(serialize_with = "spelled::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "json::Checksummed"))]
    pub forwarder: Option<Address>,
    /// The registry's storage layout.
    pub layout: Layout,
    /// The verdict at the block's time: the answer of `/kya/:wallet`.
    #[cfg_attr(feature = "schema", schemars(with = "Kya"))]
    pub verdict: Box<RawValue>,
    /// Data from an index, which nothing here proves. A verifier does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub indexed: Option<Indexed>,
}

/// An index's data on an agent at the document's block, which the document does not prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Indexed {
    /// The liability by the events that the index has seen.
    pub liability: Liability,
}

/// A slot, its value, and the proof of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StorageProof {
    /// The slot.
    #[serde(with = "json::Hash")]
    pub key: B256,
    /// Its value.
    #[serde(with = "json::Quantity")]
    pub value: U256,
    /// The trie nodes from `storageHash` to the slot, or to where it would be.
    #[serde(with = "json::DataList")]
    pub proof: Vec<Bytes>,
}

/// A verifier's requirements of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The hash of the block, from a trusted source. Without it a document proves only that it is consistent.
    pub block_hash: Option<B256>,
    /// The chain.
    pub chain_id: Option<u64>,
    /// The registry.
    pub registry: Option<Address>,
    /// The wallet.
    pub wallet: Option<Address>,
    /// The forwarder that the registry's code has to trust. Only this project's code shows its forwarder.
    pub forwarder: Option<Address>,
    /// The layout that the operator vouches for, if the registry's code is not this project's.
    pub layout: Option<Layout>,
}

/// The facts that a verified document proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The verdict, computed from the slots and the block's time.
    pub verdict: Kya,
    /// The block.
    pub block: BlockHeader,
    /// The registry.
    pub registry: Address,
    /// The chain's id, which is the document's claim: no header holds it.
    pub chain_id: u64,
    /// The forwarder that the registry's proved code trusts, if the code is this project's. A basis of
    /// `registered` is only as good as this contract: it names the creator of a relayed registration.
    pub forwarder: Option<Address>,
}

/// Verifies a document of evidence: its JSON text.
///
/// # Errors
///
/// [`EvidenceError`], the first reason found.
pub fn verify(document: &str, expected: &Expected) -> Result<Verified, EvidenceError> {
    Evidence::read(document)?.verify(expected)
}

impl Evidence {
    /// Verifies the document.
    ///
    /// # Errors
    ///
    /// [`EvidenceError`], the first reason found.
    pub fn verify(&self, expected: &Expected) -> Result<Verified, EvidenceError> {
        self.check_subject(expected)?;
        self.check_vouched(expected)?;
        let verified = self.find()?;
        let forwarder = verified.forwarder;
        let stated = if self.version == WITHOUT_LIABILITY { None } else { forwarder };
        if self.forwarder != stated {
            return Err(EvidenceError::Forwarder { code: stated });
        }
        if let Some(expected) = expected.forwarder.filter(|expected| Some(*expected) != forwarder) {
            return Err(EvidenceError::OtherForwarder { code: forwarder, expected });
        }
        // Serialization of texts and numbers cannot fail.
        let found = serde_json::to_string(&verified.verdict).unwrap_or_default();
        match compare::difference(self.verdict.get(), &found) {
            Some(field) => Err(EvidenceError::Verdict { field }),
            None => Ok(verified),
        }
    }

    /// Computes the verdict by the document's layout, regardless of the verdict in the document.
    fn find(&self) -> Result<Verified, EvidenceError> {
        let block = self.header()?;
        self.check_account(&block)?;
        let (agent, grace_seconds) = self.proved_record()?;
        let forwarder = self.check_code()?;
        let as_of = block.as_of();
        let mut verdict =
            Kya::of(self.wallet, agent, grace_seconds, as_of.block_timestamp, as_of).as_proved();
        if self.version == WITHOUT_LIABILITY {
            verdict.liability = None;
        }
        Ok(Verified { verdict, block, registry: self.registry, chain_id: self.chain_id, forwarder })
    }

    fn check_subject(&self, expected: &Expected) -> Result<(), EvidenceError> {
        if let Some(expected) = expected.chain_id.filter(|id| *id != self.chain_id) {
            return Err(EvidenceError::OtherChain { document: self.chain_id, expected });
        }
        if let Some(expected) = expected.registry.filter(|registry| *registry != self.registry) {
            return Err(EvidenceError::OtherRegistry { document: self.registry, expected });
        }
        if let Some(expected) = expected.wallet.filter(|wallet| *wallet != self.wallet) {
            return Err(EvidenceError::OtherWallet { document: self.wallet, expected });
        }
        match expected.block_hash.filter(|hash| *hash != self.block_hash) {
            Some(trusted) => Err(EvidenceError::OtherBlock { document: self.block_hash, trusted }),
            None => Ok(()),
        }
    }

    fn header(&self) -> Result<BlockHeader, EvidenceError> {
        let header = BlockHeader::decode(&self.header).ok_or(EvidenceError::Header)?;
        if header.hash != self.block_hash {
            let (header, block_hash) = (header.hash, self.block_hash);
            return Err(EvidenceError::HeaderHash { header, block_hash });
        }
        Ok(header)
    }

    fn check_account(&self, block: &BlockHeader) -> Result<(), EvidenceError> {
        let rlp = trie::lookup(block.state_root, self.registry.as_slice(), &self.account_proof)
            .map_err(EvidenceError::AccountProof)?
            .ok_or(EvidenceError::NoAccount)?;
        let account =
            rlp::fields(&rlp).filter(|fields| fields.len() == 4).ok_or(EvidenceError::BadAccount)?;
        let numbers = [U256::from(self.nonce), self.balance].map(|number| number.to_be_bytes_trimmed_vec());
        let [nonce, balance] = &numbers;
        let stated = [
            ("nonce", nonce.as_slice()),
            ("balance", balance),
            ("storageHash", self.storage_hash.as_slice()),
            ("codeHash", self.code_hash.as_slice()),
        ];
        match account.into_iter().zip(stated).find(|(proved, (_, stated))| proved != stated) {
            Some((_, (field, _))) => Err(EvidenceError::Account { field }),
            None => Ok(()),
        }
    }

    /// Checks that the layout has a trusted source: this crate, for the code in the document, or the
    /// verifier, for a code hash.
    fn check_vouched(&self, expected: &Expected) -> Result<(), EvidenceError> {
        let layout = if self.code.is_some() { Some(Layout::AGENT_REGISTRY) } else { expected.layout };
        match layout == Some(self.layout) {
            true => Ok(()),
            false => Err(EvidenceError::UnknownLayout { code_hash: self.code_hash }),
        }
    }

    /// Checks that the layout belongs to the registry's code. Returns the forwarder that the code trusts, if
    /// it is this project's.
    fn check_code(&self) -> Result<Option<Address>, EvidenceError> {
        let code_hash = self.code_hash;
        match &self.code {
            Some(code) if keccak256(code) != code_hash => Err(EvidenceError::Code { code_hash }),
            Some(code) => self.layout.check(code),
            None if self.layout.code_hash == Some(code_hash) => Ok(None),
            None => Err(EvidenceError::OtherCode { code_hash }),
        }
    }

    /// Reads the wallet's agent and the grace period from proved slots, none of them missing or superfluous.
    fn proved_record(&self) -> Result<(Option<Agent>, U256), EvidenceError> {
        for (place, slot) in self.storage_proof.iter().enumerate() {
            let proved = self.proved(place, slot)?;
            if proved != slot.value {
                return Err(EvidenceError::Value { place, proved, document: slot.value });
            }
        }
        let known: Vec<(B256, U256)> = self.storage_proof.iter().map(|slot| (slot.key, slot.value)).collect();
        let mut slots = Slots::new(&known);
        let read = slots.read_all(&self.layout, self.wallet).map_err(|error| match error {
            SlotError::Missing(place, expected) => EvidenceError::OtherSlot { place, expected },
            SlotError::NoRecord(rule) => EvidenceError::Record(rule),
        })?;
        if slots.read() == known.len() { Ok(read) } else { Err(EvidenceError::TooManySlots(slots.read())) }
    }

    /// Returns the proved value of a slot: a word without leading zeros, in RLP; 0 if there is none.
    fn proved(&self, place: usize, slot: &StorageProof) -> Result<U256, EvidenceError> {
        let found = trie::lookup(self.storage_hash, slot.key.as_slice(), &slot.proof)
            .map_err(|error| EvidenceError::StorageProof { place, error })?;
        // anvil keeps a leaf of zero where other nodes clear the slot; both are 0.
        let Some(rlp) = found else { return Ok(U256::ZERO) };
        rlp::number(&rlp).ok_or(EvidenceError::BadValue { place })
    }
}
