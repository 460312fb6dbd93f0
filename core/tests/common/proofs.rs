//! Merkle-Patricia proofs of a plain registry's state, as `eth_getProof` has them (EIP-1186).

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_rlp::Encodable;
use alloy_trie::{EMPTY_ROOT_HASH, HashBuilder, Nibbles, proof::ProofRetainer};
use registry_core::evidence::Layout;
use serde_json::{Value, json};

use super::{PlainRegistry, REGISTRY};

/// The registry's code, which is not this project's.
pub(crate) const CODE: [u8; 1] = [0xfe];

/// Returns the layout that the operator vouches for.
pub(crate) fn layout() -> Layout {
    Layout { code_hash: Some(keccak256(CODE)), ..Layout::AGENT_REGISTRY }
}

/// Hashed keys and values, in RLP.
type Leaves = BTreeMap<B256, Vec<u8>>;

/// Returns the root of a trie, and the nodes on the ways to these keys.
fn trie(leaves: &Leaves, keys: &[&[u8]]) -> (B256, Vec<Vec<Bytes>>) {
    if leaves.is_empty() {
        return (EMPTY_ROOT_HASH, vec![Vec::new(); keys.len()]);
    }
    let paths: Vec<Nibbles> = keys.iter().map(|key| Nibbles::unpack(keccak256(key))).collect();
    let mut builder = HashBuilder::default().with_proof_retainer(ProofRetainer::new(paths.clone()));
    for (key, value) in leaves {
        builder.add_leaf(Nibbles::unpack(key), value);
    }
    let root = builder.root();
    let nodes = builder.take_proof_nodes();
    let nodes_to = |path: &Nibbles| nodes.matching_nodes_sorted(path).into_iter().map(|(_, node)| node);
    (root, paths.iter().map(|path| nodes_to(path).collect()).collect())
}

/// Returns the storage of `AgentRegistry`: records, and in slot 0 a hash of everything but their status and
/// last attestation.
fn storage(registry: &PlainRegistry) -> Leaves {
    let mut leaves = Leaves::new();
    let mut put = |slot: U256, value: U256| {
        if !value.is_zero() {
            leaves.insert(keccak256(B256::from(slot)), alloy_rlp::encode(value));
        }
    };
    let mut rest = registry.clone();
    rest.agents.iter_mut().for_each(|agent| (agent.status, agent.lastAttestation) = (0, 0));
    put(U256::ZERO, keccak256(format!("{rest:?}")).into());
    let number = |address: Address| U256::from_be_bytes(address.into_word().0);
    for agent in &registry.agents {
        let first: U256 =
            keccak256([agent.agentId.to_be_bytes::<32>(), U256::from(6).to_be_bytes()].concat()).into();
        let packed = U256::from(agent.status) << 200
            | U256::from(agent.lastAttestation) << 72
            | U256::from(agent.registeredAt) << 8;
        let words = [
            (1, number(agent.creator)),
            (2, number(agent.haftungsperson)),
            (3, number(agent.agentWallet)),
            (9, packed),
        ];
        for (slot, word) in words {
            put(first.wrapping_add(U256::from(slot)), word);
        }
    }
    leaves
}

/// Returns the state: one account.
fn state(storage_root: B256) -> Leaves {
    let mut account = Vec::new();
    let fields: [&dyn Encodable; 4] = [&1_u64, &U256::ZERO, &storage_root, &keccak256(CODE)];
    alloy_rlp::encode_list::<_, dyn Encodable>(&fields, &mut account);
    Leaves::from([(keccak256(REGISTRY), account)])
}

/// Returns the roots of the registry's storage and of the state.
fn roots(registry: &PlainRegistry) -> (B256, B256) {
    *registry.roots.0.get_or_init(|| {
        let storage_root = trie(&storage(registry), &[]).0;
        (storage_root, trie(&state(storage_root), &[]).0)
    })
}

/// Returns the root of the state with this registry.
pub(crate) fn state_root(registry: &PlainRegistry) -> B256 {
    roots(registry).1
}

/// Returns the result of `eth_getProof` for these slots.
pub(crate) fn proof(registry: &PlainRegistry, slots: &[B256]) -> Value {
    let keys: Vec<&[u8]> = slots.iter().map(|slot| slot.as_slice()).collect();
    let nodes = if keys.is_empty() { Vec::new() } else { trie(&storage(registry), &keys).1 };
    let storage_root = roots(registry).0;
    let of_slot = |(slot, nodes): (&B256, &Vec<Bytes>)| json!({"key": slot, "value": "0x0", "proof": nodes});
    let storage_proof: Vec<Value> = slots.iter().zip(&nodes).map(of_slot).collect();
    let (_, account) = trie(&state(storage_root), &[REGISTRY.as_slice()]);
    json!({
        "address": REGISTRY, "balance": "0x0", "nonce": "0x1", "codeHash": keccak256(CODE),
        "storageHash": storage_root, "accountProof": account[0], "storageProof": storage_proof,
    })
}
