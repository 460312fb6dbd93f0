//! Making evidence of what a node answered.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::to_raw_value;

use super::{
    Evidence, EvidenceError, Expected, Layout, StorageProof, VERSION, Verified, header,
    layout::GracePeriod,
    record::{Slots, Stop},
    wire::Spelled,
};

/// What evidence is made of.
#[derive(Clone, Copy, Debug)]
pub struct Material<'a> {
    /// The wallet.
    pub wallet: Address,
    /// The registry.
    pub registry: Address,
    /// The chain's id.
    pub chain_id: u64,
    /// The registry's storage layout.
    pub layout: Layout,
    /// The slots that were asked for.
    pub slots: &'a [B256],
    /// The result of `eth_getBlockByHash`, or `eth_getBlockByNumber`: JSON text.
    pub block: &'a str,
    /// The result of `eth_getProof` for `slots` at that block: JSON text.
    pub proof: &'a str,
}

/// The slots that a verdict rests on: those to ask for. `agent` is the id of the wallet's live agent and the length of its operational scope in
/// bytes.
pub fn slots(layout: &Layout, wallet: Address, agent: Option<(U256, usize)>) -> Vec<B256> {
    let mut slots = vec![layout.wallet_slot(wallet)];
    if let GracePeriod::Slot(slot) = layout.attestation_grace_period {
        slots.push(B256::from(slot));
    }
    let Some((id, scope_bytes)) = agent else { return slots };
    let at = |slot: u64| layout.record_slot(id).wrapping_add(U256::from(slot));
    slots.extend(layout.record.slots().into_iter().map(|slot| B256::from(at(slot))));
    if scope_bytes > 31 {
        let scope = B256::from(at(layout.record.operational_scope));
        let first = U256::from_be_bytes(keccak256(scope).0);
        let count = scope_bytes.div_ceil(32);
        slots.extend((0..count).map(|place| B256::from(first.wrapping_add(U256::from(place)))));
    }
    slots
}

impl Material<'_> {
    /// The slots that the verdict rests on by what this proof says they hold: where they are others than those asked for, they are to be asked for.
    ///
    /// # Errors
    ///
    /// [`EvidenceError`] where the proof is none, or holds no agent's record.
    pub fn needed_slots(&self) -> Result<Vec<B256>, EvidenceError> {
        let proof = self.account_proof()?;
        let values = proof.storage_proof.iter().map(|slot| slot.value);
        let mut known: Vec<(B256, U256)> = self.slots.iter().copied().zip(values).collect();
        loop {
            let mut slots = Slots::new(&known);
            let (place, missing) = match slots.read_all(&self.layout, self.wallet) {
                Ok(_) => {
                    let count = slots.read();
                    return Ok(known.into_iter().take(count).map(|(slot, _)| slot).collect());
                }
                Err(Stop::Missing(place, slot)) => (place, slot),
                Err(Stop::Error(error)) => return Err(error),
            };
            known.truncate(place);
            known.push((missing, U256::ZERO));
        }
    }

    fn account_proof(&self) -> Result<AccountProof, EvidenceError> {
        let proof: AccountProof =
            serde_json::from_str(self.proof).map_err(|error| EvidenceError::Malformed(error.to_string()))?;
        match proof.storage_proof.len() == self.slots.len() {
            true => Ok(proof),
            false => Err(EvidenceError::TooManySlots(self.slots.len())),
        }
    }
}

/// Makes a document, and verifies it.
///
/// # Errors
///
/// [`EvidenceError`] where what the node answered proves nothing: it is of another block, for one.
/// [`EvidenceError::OtherSlot`] names the first slot that should have been asked for.
pub fn make(material: &Material<'_>) -> Result<(Evidence, Verified), EvidenceError> {
    let header = header::from_json(material.block).ok_or(EvidenceError::Header)?;
    let block: BlockHash = serde_json::from_str(material.block).map_err(|_| EvidenceError::Header)?;
    let proof: AccountProof =
        serde_json::from_str(material.proof).map_err(|error| EvidenceError::Malformed(error.to_string()))?;
    if proof.storage_proof.len() != material.slots.len() {
        return Err(EvidenceError::TooManySlots(material.slots.len()));
    }
    let mut evidence = Evidence {
        version: VERSION,
        wallet: material.wallet,
        registry: material.registry,
        chain_id: material.chain_id,
        block_hash: block.hash,
        header,
        account_proof: proof.account_proof,
        balance: proof.balance,
        code_hash: proof.code_hash,
        nonce: proof.nonce,
        storage_hash: proof.storage_hash,
        // Nodes write slots in several ways; in which order they are answered does not differ.
        storage_proof: material
            .slots
            .iter()
            .zip(proof.storage_proof)
            .map(|(slot, SlotProof { value, proof })| StorageProof { key: *slot, value, proof })
            .collect(),
        layout: material.layout,
        verdict: Box::default(),
    };
    // It has been chosen by whoever makes the document.
    let verified = evidence.find(&Expected { layout: Some(material.layout), ..Expected::default() })?;
    evidence.verdict =
        to_raw_value(&verified.verdict).map_err(|error| EvidenceError::Malformed(error.to_string()))?;
    Ok((evidence, verified))
}

#[derive(Deserialize)]
struct BlockHash {
    #[serde(deserialize_with = "lenient")]
    hash: B256,
}

/// The result of `eth_getProof` (EIP-1186).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccountProof {
    #[serde(deserialize_with = "lenient_list")]
    account_proof: Vec<Bytes>,
    #[serde(deserialize_with = "lenient")]
    balance: U256,
    #[serde(deserialize_with = "lenient")]
    code_hash: B256,
    #[serde(deserialize_with = "lenient")]
    nonce: u64,
    #[serde(deserialize_with = "lenient")]
    storage_hash: B256,
    storage_proof: Vec<SlotProof>,
}

#[derive(Deserialize)]
struct SlotProof {
    #[serde(deserialize_with = "lenient")]
    value: U256,
    #[serde(deserialize_with = "lenient_list")]
    proof: Vec<Bytes>,
}

/// However the node spells it.
fn lenient<'de, T: Spelled, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::read(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom(T::RULE))
}

fn lenient_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Bytes>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| Bytes::read(text).ok_or_else(|| D::Error::custom(Bytes::RULE))).collect()
}
