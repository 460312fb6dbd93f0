//! Evidence made from a node's responses.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use serde_json::value::to_raw_value;

use super::{
    Evidence, EvidenceError, Layout, StorageProof, VERSION, Verified, header,
    layout::GracePeriod,
    record::{SlotError, Slots},
};
use crate::{
    eth::members::{FirstError, Members, string},
    eth::spelled::Spelled as _,
};

/// The parts that evidence is made of.
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
    /// The requested slots.
    pub slots: &'a [B256],
    /// The result of `eth_getBlockByHash`, or `eth_getBlockByNumber`: JSON text.
    pub block: &'a str,
    /// The result of `eth_getProof` for `slots` at that block: JSON text.
    pub proof: &'a str,
    /// The result of `eth_getCode` at that block: JSON text.
    pub code: &'a str,
}

/// Returns the slots that a verdict rests on, to be requested. `agent` is the id of the wallet's live agent
/// and the length of its operational scope in bytes.
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
    /// Returns the slots that the verdict rests on, given the values in this proof. If they differ from the
    /// requested ones, the caller requests these.
    ///
    /// # Errors
    ///
    /// [`EvidenceError`] if the proof is malformed or holds no agent's record.
    pub fn needed_slots(&self) -> Result<Vec<B256>, EvidenceError> {
        let storage_proof = self.account_proof()?.storage_proof;
        let mut known: Vec<(B256, U256)> =
            storage_proof.into_iter().map(|slot| (slot.key, slot.value)).collect();
        loop {
            let mut slots = Slots::new(&known);
            let (place, missing) = match slots.read_all(&self.layout, self.wallet) {
                Ok(_) => {
                    let count = slots.read();
                    return Ok(known.into_iter().take(count).map(|(slot, _)| slot).collect());
                }
                Err(SlotError::Missing(place, slot)) => (place, slot),
                Err(SlotError::NoRecord(rule)) => return Err(EvidenceError::Record(rule)),
            };
            known.truncate(place);
            known.push((missing, U256::ZERO));
        }
    }

    /// Returns whether the code has the hash that the proof states.
    pub(crate) fn is_code_of_account(&self) -> bool {
        let stated = self.account_proof().map(|proof| proof.code_hash);
        self.code().is_ok_and(|code| stated == Ok(keccak256(code)))
    }

    fn code(&self) -> Result<Bytes, EvidenceError> {
        let code = string(self.code).and_then(Bytes::read);
        code.ok_or_else(|| EvidenceError::Malformed("eth_getCode gave no bytes".to_owned()))
    }

    fn account_proof(&self) -> Result<AccountProof, EvidenceError> {
        let errors = FirstError::default();
        let mut members = Members::of_answer(self.proof, &errors);
        let answered = members.objects("storageProof");
        let count = answered.len();
        // Nodes spell slots in several ways, but keep the order of the request.
        let slot = |(key, mut members): (&B256, Members<'_>)| {
            let value = members.spelled("value");
            StorageProof { key: *key, value, proof: members.list("proof") }
        };
        let proof = AccountProof {
            account_proof: members.list("accountProof"),
            balance: members.spelled("balance"),
            code_hash: members.spelled("codeHash"),
            nonce: members.spelled("nonce"),
            storage_hash: members.spelled("storageHash"),
            storage_proof: self.slots.iter().zip(answered).map(slot).collect(),
        };
        errors.end()?;
        match count == self.slots.len() {
            true => Ok(proof),
            false => Err(EvidenceError::Malformed("storageProof has other slots than asked for".to_owned())),
        }
    }
}

/// Makes a document, and verifies it.
///
/// # Errors
///
/// [`EvidenceError`] if the responses prove nothing, for example because they are from another block.
/// [`EvidenceError::OtherSlot`] names the first slot that should have been requested. With this error and
/// [`EvidenceError::TooManySlots`] the requested slots themselves are proved.
pub fn make(material: &Material<'_>) -> Result<(Evidence, Verified), EvidenceError> {
    let header = header::from_json(material.block).ok_or(EvidenceError::Header)?;
    let errors = FirstError::default();
    let block_hash = Members::of_answer(material.block, &errors).spelled("hash");
    errors.end()?;
    let (proof, code) = (material.account_proof()?, material.code()?);
    material.layout.check(&code)?;
    let mut evidence = Evidence {
        version: VERSION,
        wallet: material.wallet,
        registry: material.registry,
        chain_id: material.chain_id,
        block_hash,
        header,
        account_proof: proof.account_proof,
        balance: proof.balance,
        code_hash: proof.code_hash,
        nonce: proof.nonce,
        storage_hash: proof.storage_hash,
        storage_proof: proof.storage_proof,
        // The hash alone identifies other code.
        code: material.layout.code_hash.is_none().then_some(code),
        forwarder: None,
        layout: material.layout,
        verdict: Box::default(),
        indexed: None,
    };
    // The maker of the document vouches for the layout.
    let verified = evidence.find()?;
    evidence.forwarder = verified.forwarder;
    evidence.verdict =
        to_raw_value(&verified.verdict).map_err(|error| EvidenceError::Malformed(error.to_string()))?;
    Ok((evidence, verified))
}

/// The result of `eth_getProof` (EIP-1186).
struct AccountProof {
    account_proof: Vec<Bytes>,
    balance: U256,
    code_hash: B256,
    nonce: u64,
    storage_hash: B256,
    storage_proof: Vec<StorageProof>,
}
