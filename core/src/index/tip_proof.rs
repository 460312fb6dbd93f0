//! A proof at the newest block that events tell all changes: nodes need not keep the state of older blocks.
//!
//! An attestation, a suspension and a reactivation change one word of an agent's record. With the earlier
//! words, the newest block's storage has to have the root that was seen before: then nothing else has
//! changed, whatever the node lists.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256, U256};

use crate::{
    chain::{Halt, ProofKey, ProofParts, View, logs::Announced},
    evidence::{Account, Layout},
    registry::row::Row,
};

/// Agents in one proof: some 3 KB each.
const MOST_PROVED: usize = 256;

/// Result of a proof at the newest block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TipProofOutcome {
    /// These agents' records are now as given, and nothing else has changed.
    All(BTreeMap<u64, Row>),
    /// Something has changed that the events do not tell.
    Less,
    /// The events change more of the storage, or the node has no proof.
    Unknown,
    /// The rows of these agents are needed.
    Needs(BTreeSet<u64>),
}

/// Inputs of such a proof.
pub(super) struct TipProof<'a> {
    pub(super) registry: Address,
    pub(super) layout: Layout,
    /// The height of the rows' block.
    pub(super) block: u64,
    /// The storage root that was seen there; `newest` is that of the newest block.
    pub(super) seen: B256,
    pub(super) newest: B256,
    /// The rows of the agents that had an event, once known.
    pub(super) before: Option<&'a BTreeMap<u64, Row>>,
    /// Another root than the seen one means that events are missing: the rows lack no late ones, and such
    /// events have been found to change records' words alone.
    pub(super) may_refute: bool,
}

impl TipProof<'_> {
    /// Checks whether these events tell all changes since the rows' block.
    pub(super) fn told(&self, view: &View, events: &[Announced]) -> Result<TipProofOutcome, Halt> {
        // Late events from before are no changes since, unless their agents had another event.
        let is_new = |event: &&Announced| event.number == 0 || event.number > self.block;
        let ids = events.iter().filter(is_new).map(|event| event.agent.filter(|_| event.is_plain));
        let Some(ids) = ids.collect::<Option<BTreeSet<u64>>>() else { return Ok(TipProofOutcome::Unknown) };
        let refuted = if self.may_refute { TipProofOutcome::Less } else { TipProofOutcome::Unknown };
        if ids.is_empty() {
            return Ok(if self.seen == self.newest {
                TipProofOutcome::All(BTreeMap::new())
            } else {
                TipProofOutcome::Less
            });
        }
        if ids.len() > MOST_PROVED {
            return Ok(TipProofOutcome::Unknown);
        }
        let Some(before) = self.before else { return Ok(TipProofOutcome::Needs(ids)) };
        let Some(rows) = ids.iter().map(|id| before.get(id)).collect::<Option<Vec<_>>>() else {
            return Ok(TipProofOutcome::Unknown);
        };
        let slots: Vec<B256> = ids.iter().flat_map(|id| self.layout.changing_slots(*id)).collect();
        let of_agent = slots.len() / ids.len();
        let key = ProofKey { contract: self.registry, slots, parts: ProofParts::Pinned };
        let Some(proof) = view.proof(&key)? else { return Ok(TipProofOutcome::Unknown) };
        let proved = Account::proved(&proof.block, &proof.proof, self.registry, &key.slots);
        let Some(account) = proved.filter(|account| account.storage_root == self.newest) else {
            return Ok(TipProofOutcome::Unknown);
        };
        let words = account.values.chunks(of_agent).zip(&rows);
        let before: Vec<U256> = words.flat_map(|(words, row)| self.layout.words_with(words, row)).collect();
        if account.root_with(&proof.proof, &key.slots, &before) != Some(self.seen) {
            return Ok(refuted);
        }
        let words = ids.into_iter().zip(account.values.chunks(of_agent).zip(rows));
        let now = words.map(|(id, (words, row))| Some((id, self.layout.row_with(words, row)?)));
        Ok(now.collect::<Option<_>>().map_or(TipProofOutcome::Unknown, TipProofOutcome::All))
    }
}
