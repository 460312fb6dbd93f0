//! A contract's account and slots at a block, proved against the block's state root (EIP-1186). They show an
//! index that a registry's storage has not changed, and that a record from its getters is the stored one.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use serde::Deserialize;

use super::{
    Layout,
    layout::{Field, RecordLayout},
    partial_trie, rlp, trie,
};
use crate::registry::row::{Row, RowDetail};

/// A contract's proved account, and the proved values of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// The root of its storage, which changes if and only if the storage does.
    pub(crate) storage_root: B256,
    pub(crate) code_hash: B256,
    /// The values in the order of the requested slots.
    pub(crate) values: Vec<U256>,
}

/// The part of a block that proofs start from.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateRoot {
    state_root: B256,
}

/// The trie nodes in an `eth_getProof` result; its other members follow from them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProofNodes {
    account_proof: Vec<Bytes>,
    #[serde(default)]
    storage_proof: Vec<SlotNodes>,
}

#[derive(Deserialize)]
struct SlotNodes {
    proof: Vec<Bytes>,
}

impl Account {
    /// Reads the account in the results of `eth_getBlockBy…` and of `eth_getProof` for these slots; `None`
    /// if the proof is not of this block, for example because a node answered the two at different blocks.
    pub(crate) fn proved(block: &str, proof: &str, contract: Address, slots: &[B256]) -> Option<Self> {
        let StateRoot { state_root } = serde_json::from_str(block).ok()?;
        let ProofNodes { account_proof, storage_proof } = serde_json::from_str(proof).ok()?;
        let account = trie::lookup(state_root, contract.as_slice(), &account_proof).ok()??;
        let [_nonce, _balance, storage_root, code_hash] = rlp::fields(&account)?.try_into().ok()?;
        let storage_root = B256::try_from(storage_root).ok()?;
        let code_hash = B256::try_from(code_hash).ok()?;
        if storage_proof.len() != slots.len() {
            return None;
        }
        let value = |(slot, nodes): (&B256, &SlotNodes)| match trie::lookup(
            storage_root,
            slot.as_slice(),
            &nodes.proof,
        )
        .ok()?
        {
            Some(word) => rlp::number(&word),
            None => Some(U256::ZERO),
        };
        let values = slots.iter().zip(&storage_proof).map(value).collect::<Option<_>>()?;
        Some(Self { storage_root, code_hash, values })
    }

    /// Computes the root of the contract's storage with other words in these slots, which `proof` proves;
    /// `None` if the words would add or remove slots.
    pub(crate) fn root_with(&self, proof: &str, slots: &[B256], words: &[U256]) -> Option<B256> {
        let ProofNodes { storage_proof, .. } = serde_json::from_str(proof).ok()?;
        let nodes = storage_proof.iter().flat_map(|slot| &slot.proof);
        partial_trie::root_with(self.storage_root, nodes, slots, words)
    }
}

impl Layout {
    /// Returns whether the registry with this code, a JSON text, keeps its state in its own storage: true for
    /// this project's code, and for code that the operator vouches for.
    pub(crate) fn is_of(configured: Option<Self>, code: &str, code_hash: B256) -> bool {
        let code = serde_json::from_str::<Bytes>(code).ok().filter(|code| keccak256(code) == code_hash);
        code.is_some_and(|code| configured.unwrap_or(Self::AGENT_REGISTRY).check(&code).is_ok())
    }

    /// Returns the slots of an agent's addresses, times and status, in ascending order.
    pub(crate) fn record_slots(&self, id: u64) -> Vec<B256> {
        let first = self.record_slot(U256::from(id));
        let slots = self.record.fixed_slots();
        slots.into_iter().map(|slot| B256::from(first.wrapping_add(U256::from(slot)))).collect()
    }

    /// Returns the slots that attestations, suspensions and reactivations change: those of the status and of
    /// the last attestation.
    pub(crate) fn changing_slots(&self, id: u64) -> Vec<B256> {
        let first = self.record_slot(U256::from(id));
        let slots = self.record.changing_slots().into_iter();
        slots.map(|slot| B256::from(first.wrapping_add(U256::from(slot)))).collect()
    }

    /// Writes the status and the attestation of this record into these words of the
    /// [`changing_slots`](Self::changing_slots).
    pub(crate) fn words_with(&self, words: &[U256], row: &Row) -> Vec<U256> {
        let RecordLayout { status, last_attestation, .. } = self.record;
        let fields = [(status, U256::from(row.status)), (last_attestation, U256::from(row.last_attestation))];
        let with = |(slot, word): (u64, &U256)| {
            let of_slot = fields.iter().filter(|(field, _)| field.slot == slot);
            of_slot.fold(*word, |word, (field, number)| field.put(word, *number))
        };
        self.record.changing_slots().into_iter().zip(words).map(with).collect()
    }

    /// Returns this record with the status and the attestation in these words of the
    /// [`changing_slots`](Self::changing_slots); `None` for numbers that no record has.
    pub(crate) fn row_with(&self, words: &[U256], row: &Row) -> Option<Row> {
        let slots = self.record.changing_slots();
        let number = |field: Field| {
            let of_slot = slots.iter().zip(words).find(|(slot, _)| **slot == field.slot);
            of_slot.map(|(_, word)| field.of(*word))
        };
        let status = u8::try_from(number(self.record.status)?).ok()?;
        let last_attestation = u64::try_from(number(self.record.last_attestation)?).ok()?;
        Some(Row { status, last_attestation, ..*row })
    }

    /// Returns whether the proved values of [`record_slots`](Self::record_slots) are those of this record.
    pub(crate) fn holds(&self, values: &[U256], row: &Row, full: &RowDetail) -> bool {
        let RecordLayout {
            creator,
            haftungsperson,
            agent_wallet,
            status,
            registered_at,
            last_attestation,
            ..
        } = self.record;
        let slots = self.record.fixed_slots();
        let address = |address: Address| U256::from_be_bytes(address.into_word().0);
        let fields = [
            (creator, address(row.creator)),
            (haftungsperson, address(full.haftungsperson)),
            (agent_wallet, address(row.wallet)),
            (status, U256::from(row.status)),
            (registered_at, U256::from(row.registered_at)),
            (last_attestation, U256::from(row.last_attestation)),
        ];
        fields.into_iter().all(|(field, expected)| {
            let word = slots.iter().position(|slot| *slot == field.slot).and_then(|place| values.get(place));
            word.is_some_and(|word| field.of(*word) == expected)
        })
    }
}
