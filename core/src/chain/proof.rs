//! Storage proofs (EIP-1186), each with its block's header, the contract's code and the chain id: the input
//! of evidence.
//!
//! All parts are requested in one batch at the pinned block, after everything else is known. Parts that a
//! reply omits are requested again, so a node that accepts one request per batch serves them one by one.

use alloy_primitives::{Address, B256};

use super::batch;
use crate::eth::rpc::{self, Request};

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

/// A proof that is still incomplete.
#[derive(Clone, Debug)]
pub(super) struct PendingProof {
    pub(super) key: ProofKey,
    block: Option<String>,
    proof: Option<String>,
    code: Option<String>,
    chain_id: Option<u64>,
}

pub(super) const BLOCK: u64 = 0;
const PROOF: u64 = 1;
const CODE: u64 = 2;
const CHAIN_ID: u64 = 3;

impl PendingProof {
    pub(super) const fn new(key: ProofKey) -> Self {
        Self { key, block: None, proof: None, code: None, chain_id: None }
    }

    /// The ids of missing parts, as many as one batch may hold.
    pub(super) fn missing(&self, most: usize) -> Vec<u64> {
        let missing = [
            (BLOCK, self.block.is_none()),
            (PROOF, self.proof.is_none()),
            (CODE, self.code.is_none()),
            (CHAIN_ID, self.chain_id.is_none()),
        ];
        missing.into_iter().filter(|(_, missing)| *missing).map(|(id, _)| id).take(most.max(1)).collect()
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
                Request { id: BLOCK, method, params: format!("[{block},false]") }
            }
            PROOF => {
                let slots: Vec<String> =
                    self.key.slots.iter().map(|slot| format!(r#""{slot:#x}""#)).collect();
                let params = format!(r#"["{contract:#x}",[{}],{at}]"#, slots.join(","));
                Request { id: PROOF, method: "eth_getProof", params }
            }
            CODE => Request { id: CODE, method: "eth_getCode", params: format!(r#"["{contract:#x}",{at}]"#) },
            _ => Request { id: CHAIN_ID, method: "eth_chainId", params: "[]".to_owned() },
        };
        rpc::encode(&ids.iter().map(request).collect::<Vec<_>>())
    }

    /// Keeps a result; false if it is malformed.
    pub(super) fn take(&mut self, id: u64, result: &str) -> bool {
        let (kept, start) = match id {
            BLOCK => (&mut self.block, "{"),
            PROOF => (&mut self.proof, "{"),
            CODE => (&mut self.code, "\"0x"),
            _ => {
                let digits = result.strip_prefix("\"0x").and_then(|digits| digits.strip_suffix('"'));
                self.chain_id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                return self.chain_id.is_some();
            }
        };
        *kept = Some(result.to_owned());
        result.starts_with(start)
    }

    /// The proof, once complete.
    pub(super) fn finished(&self) -> Option<Proof> {
        let (block, proof, code) = (self.block.clone()?, self.proof.clone()?, self.code.clone()?);
        Some(Proof { block, proof, code, chain_id: self.chain_id? })
    }
}
