//! Storage proofs (EIP-1186), each with its block's header, the contract's code and the chain id: the input
//! of evidence.
//!
//! All parts are requested in one batch at the pinned block, after everything else is known. Parts that a
//! reply omits are requested again, so a node that accepts one request per batch serves them one by one.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256};

use super::batch;
use crate::eth::rpc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProofKey {
    pub(crate) contract: Address,
    pub(crate) slots: Vec<B256>,
}

/// A proof as the node returned it, as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The result of `eth_getBlockByHash` or `eth_getBlockByNumber`.
    pub(crate) block: String,
    /// The result of `eth_getProof`.
    pub(crate) proof: String,
    /// The result of `eth_getCode`.
    pub(crate) code: String,
    pub(crate) chain_id: u64,
}

/// A proof that is still incomplete: the results so far, by request id.
#[derive(Clone, Debug)]
pub(super) struct PendingProof {
    pub(super) key: ProofKey,
    results: BTreeMap<u64, String>,
}

pub(super) const BLOCK: u64 = 0;
const PROOF: u64 = 1;
const CODE: u64 = 2;
const CHAIN_ID: u64 = 3;

impl PendingProof {
    pub(super) const fn new(key: ProofKey) -> Self {
        Self { key, results: BTreeMap::new() }
    }

    /// The ids of missing parts, as many as one batch may hold.
    pub(super) fn missing(&self, most: usize) -> Vec<u64> {
        (BLOCK..=CHAIN_ID).filter(|id| !self.results.contains_key(id)).take(most.max(1)).collect()
    }

    /// The batch that requests the parts `ids` at this block, by hash or by number.
    pub(super) fn body(&self, ids: &[u64], hash: B256, number: Option<u64>) -> String {
        let at = match number {
            Some(number) => batch::block_number(Some(number)),
            None => format!(r#"{{"blockHash":"{hash:#x}"}}"#),
        };
        let contract = self.key.contract;
        let request = |id: &u64| match *id {
            BLOCK => {
                let (method, block) = match number {
                    Some(_) => ("eth_getBlockByNumber", at.clone()),
                    None => ("eth_getBlockByHash", format!(r#""{hash:#x}""#)),
                };
                rpc::request(BLOCK, method, format!("[{block},false]"))
            }
            PROOF => {
                let slots: Vec<String> =
                    self.key.slots.iter().map(|slot| format!(r#""{slot:#x}""#)).collect();
                let params = format!(r#"["{contract:#x}",[{}],{at}]"#, slots.join(","));
                rpc::request(PROOF, "eth_getProof", params)
            }
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
            CODE => result.starts_with("\"0x"),
            _ => chain_id(result).is_some(),
        }
    }

    /// The proof, once complete.
    pub(super) fn finished(&self) -> Option<Proof> {
        let part = |id| self.results.get(&id).cloned();
        let (block, proof, code) = (part(BLOCK)?, part(PROOF)?, part(CODE)?);
        Some(Proof { block, proof, code, chain_id: chain_id(self.results.get(&CHAIN_ID)?)? })
    }
}

fn chain_id(result: &str) -> Option<u64> {
    let digits = result.strip_prefix("\"0x")?.strip_suffix('"')?;
    u64::from_str_radix(digits, 16).ok()
}
