//! Storage proofs (EIP-1186), each with its block: the input of evidence, and of an index.
//!
//! All parts are requested in one batch, after everything else is known. Parts that a reply omits are
//! requested again, so a node that accepts one request per batch serves them one by one.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, hex, keccak256};
use serde::Deserialize;

use super::batch;
use crate::eth::{rpc, spelled};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProofKey {
    pub(crate) contract: Address,
    pub(crate) slots: Vec<B256>,
    pub(crate) parts: ProofParts,
}

/// Parts requested with a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofParts {
    /// Block, code and chain id, all of the pinned block.
    Evidence,
    /// The block alone. If none is pinned yet, this batch pins the newest; the proof may then be of another
    /// block. The chain id is requested once per endpoint.
    Newest,
    /// The pinned block alone.
    Pinned,
}

/// A proof as the node returned it, as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The result of `eth_getBlockByHash` or `eth_getBlockByNumber`.
    pub(crate) block: String,
    /// The result of `eth_getProof`.
    pub(crate) proof: String,
    /// The result of `eth_getCode`; empty except in [`ProofParts::Evidence`].
    pub(crate) code: String,
    /// `None` if it was not requested.
    pub(crate) chain_id: Option<u64>,
}

/// The block of a proof.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProofBlock {
    Newest,
    Hash(B256),
    Number(u64),
}

/// A proof that is still incomplete: the results so far, by request id.
#[derive(Clone, Debug)]
pub(super) struct PendingProof {
    pub(super) key: ProofKey,
    /// The ids of its parts.
    parts: &'static [u64],
    results: BTreeMap<u64, String>,
}

pub(super) const BLOCK: u64 = 0;
pub(super) const PROOF: u64 = 1;
const CODE: u64 = 2;
const CHAIN_ID: u64 = 3;

impl PendingProof {
    /// Creates a proof without results. `knows_chain`: the endpoint's chain id was checked before.
    pub(super) const fn new(key: ProofKey, knows_chain: bool) -> Self {
        let parts: &[u64] = match (key.parts, knows_chain) {
            (ProofParts::Evidence, _) => &[BLOCK, PROOF, CODE, CHAIN_ID],
            (ProofParts::Newest, true) | (ProofParts::Pinned, _) => &[BLOCK, PROOF],
            (ProofParts::Newest, false) => &[BLOCK, PROOF, CHAIN_ID],
        };
        Self { key, parts, results: BTreeMap::new() }
    }

    /// Returns the same proof without any result.
    pub(super) fn again(self) -> Self {
        Self { results: BTreeMap::new(), ..self }
    }

    /// Returns the ids of missing parts, as many as one batch may hold.
    pub(super) fn missing(&self, most: usize) -> Vec<u64> {
        self.parts.iter().copied().filter(|id| !self.results.contains_key(id)).take(most.max(1)).collect()
    }

    /// Returns the body that requests the parts `ids` at this block.
    pub(super) fn body(&self, ids: &[u64], block: ProofBlock) -> String {
        let at = match block {
            ProofBlock::Hash(hash) => format!(r#"{{"blockHash":"{hash:#x}"}}"#),
            ProofBlock::Number(number) => batch::block_number(Some(number)),
            ProofBlock::Newest => batch::block_number(None),
        };
        let contract = self.key.contract;
        let request = |id: &u64| match *id {
            BLOCK => {
                let (method, block) = match block {
                    ProofBlock::Hash(hash) => ("eth_getBlockByHash", format!(r#""{hash:#x}""#)),
                    _ => ("eth_getBlockByNumber", at.clone()),
                };
                rpc::request(BLOCK, method, format!("[{block},false]"))
            }
            PROOF => rpc::get_proof(PROOF, contract, &self.key.slots, &at),
            CODE => rpc::request(CODE, "eth_getCode", format!(r#"["{contract:#x}",{at}]"#)),
            _ => rpc::request(CHAIN_ID, "eth_chainId", "[]".to_owned()),
        };
        rpc::encode(&ids.iter().map(request).collect::<Vec<_>>())
    }

    /// Keeps a result; false if it is malformed.
    pub(super) fn take(&mut self, id: u64, result: &str) -> bool {
        self.results.insert(id, result.to_owned());
        match id {
            BLOCK | PROOF => result.starts_with('{'),
            CODE => result.strip_prefix('"').is_some_and(|text| spelled::hex_digits(text).is_some()),
            _ => chain_id(result).is_some(),
        }
    }

    /// Returns the proof, once complete.
    pub(super) fn finished(&self) -> Option<Proof> {
        let part = |id| match self.parts.contains(&id) {
            true => self.results.get(&id).cloned(),
            false => Some(String::new()),
        };
        let (block, proof, code) = (part(BLOCK)?, part(PROOF)?, part(CODE)?);
        Some(Proof { block, proof, code, chain_id: chain_id(&part(CHAIN_ID)?) })
    }
}

/// Returns the state root of a block as the node returned it.
pub(super) fn state_root(block: &str) -> Option<B256> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Block {
        state_root: String,
    }
    serde_json::from_str(block).ok().and_then(|block: Block| block.state_root.parse().ok())
}

/// Returns whether a proof, as the node returned it, begins at this state root; `None` if it is malformed.
pub(super) fn begins_at(state_root: B256, proof: &str) -> Option<bool> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Nodes<'a> {
        #[serde(borrow)]
        account_proof: Vec<&'a str>,
    }
    let Nodes { account_proof } = serde_json::from_str(proof).ok()?;
    Some(keccak256(hex::decode(account_proof.first()?).ok()?) == state_root)
}

impl Proof {
    /// Returns whether the proof begins at the state root of its block. A malformed one counts as such.
    pub(super) fn is_of_its_block(&self) -> bool {
        state_root(&self.block).and_then(|root| begins_at(root, &self.proof)).unwrap_or(true)
    }

    /// Returns whether a known proof answers a request for these parts: evidence has all of them.
    pub(super) fn answers(known: &ProofKey, wanted: &ProofKey) -> bool {
        known == wanted
            || (known.parts == ProofParts::Evidence
                && (known.contract, &known.slots) == (wanted.contract, &wanted.slots))
    }
}

fn chain_id(result: &str) -> Option<u64> {
    spelled::quantity(result.strip_prefix('"')?.strip_suffix('"')?)
}
