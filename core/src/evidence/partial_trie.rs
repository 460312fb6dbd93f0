//! The part of a trie that proofs show, with other words in some of its slots: it gives the root from before
//! these changed.
//!
//! The nodes are those of proofs (EIP-1186), found by their hashes. Only words of filled slots are replaced:
//! a slot that was or would become empty changes the trie's shape, and the result is `None`.

use std::collections::HashMap;

use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_rlp::Encodable;
use alloy_trie::{
    Nibbles,
    nodes::{ExtensionNode, LeafNode, RlpNode, TrieNode},
};

use super::trie::decode;

/// Computes the root of the trie with these words in these slots. `None` if the nodes do not hold the slots,
/// or a word is 0.
pub(super) fn root_with<'a>(
    root: B256,
    nodes: impl Iterator<Item = &'a Bytes>,
    slots: &[B256],
    words: &[U256],
) -> Option<B256> {
    if slots.len() != words.len() || words.contains(&U256::ZERO) {
        return None;
    }
    let nodes: HashMap<B256, &[u8]> = nodes.map(|node| (keccak256(node), node.as_ref())).collect();
    let path = |slot: &B256| Nibbles::unpack(keccak256(slot));
    let mut words: Vec<(Nibbles, U256)> = slots.iter().map(path).zip(words.iter().copied()).collect();
    words.sort_unstable();
    words.dedup();
    match words.as_slice() {
        [] => Some(root),
        words => replaced(nodes.get(&root)?, &nodes, words).map(keccak256),
    }
}

/// Computes a node's RLP with these words at these paths below it.
fn replaced(rlp: &[u8], nodes: &HashMap<B256, &[u8]>, words: &[(Nibbles, U256)]) -> Option<Vec<u8>> {
    let child_with = |child: &RlpNode, words: &[(Nibbles, U256)]| {
        let rlp = match child.as_hash() {
            Some(hash) => nodes.get(&hash)?,
            None => child.as_slice(),
        };
        Some(RlpNode::from_rlp(&replaced(rlp, nodes, words)?))
    };
    let below = |words: &[(Nibbles, U256)], nibbles: usize| -> Vec<(Nibbles, U256)> {
        words.iter().map(|(path, word)| (path.slice(nibbles..), *word)).collect()
    };
    match decode(rlp)? {
        TrieNode::EmptyRoot => None,
        TrieNode::Leaf(leaf) => match words {
            [(path, word)] if *path == leaf.key => {
                Some(encoded(&LeafNode::new(leaf.key, alloy_rlp::encode(word))))
            }
            _ => None,
        },
        TrieNode::Extension(ExtensionNode { key, child }) => {
            if key.is_empty() || !words.iter().all(|(path, _)| path.starts_with(&key)) {
                return None;
            }
            let child = child_with(&child, &below(words, key.len()))?;
            Some(encoded(&ExtensionNode::new(key, child)))
        }
        TrieNode::Branch(mut branch) => {
            for words in words.chunk_by(|(one, _), (other, _)| one.first() == other.first()) {
                let nibble = words.first()?.0.first()?;
                if !branch.state_mask.is_bit_set(nibble) {
                    return None;
                }
                let lower = branch.state_mask.get() & ((1_u16 << nibble) - 1);
                let child = branch.stack.get_mut(lower.count_ones() as usize)?;
                *child = child_with(child, &below(words, 1))?;
            }
            Some(encoded(&branch))
        }
    }
}

fn encoded(node: &impl Encodable) -> Vec<u8> {
    let mut rlp = Vec::new();
    node.encode(&mut rlp);
    rlp
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_trie::{HashBuilder, proof::ProofRetainer};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn slot(number: u16) -> B256 {
        B256::from(U256::from(number))
    }

    /// Returns the root of a trie of these words, and the nodes on the paths to these slots.
    fn trie(words: &BTreeMap<u16, u64>, slots: &[u16]) -> (B256, Vec<Bytes>) {
        let path = |number: &u16| Nibbles::unpack(keccak256(slot(*number)));
        let mut leaves: Vec<(Nibbles, u64)> =
            words.iter().map(|(number, word)| (path(number), *word)).collect();
        leaves.sort_unstable();
        let mut builder =
            HashBuilder::default().with_proof_retainer(ProofRetainer::from_iter(slots.iter().map(path)));
        leaves.iter().for_each(|(path, word)| builder.add_leaf(*path, &alloy_rlp::encode(word)));
        let root = builder.root();
        let nodes = builder.take_proof_nodes().into_nodes_sorted();
        (root, nodes.into_iter().map(|(_, node)| node).collect())
    }

    proptest! {
        #[test]
        fn old_words_put_back_give_the_root_of_before_and_of_nothing_else(
            before in prop::collection::btree_map(0_u16..400, 1_u64.., 1..60),
            named in prop::collection::btree_map(0_u16..400, any::<u64>(), 0..12),
            unnamed in prop::option::of((0_u16..400, any::<u64>())),
        ) {
            let set = |words: &mut BTreeMap<u16, u64>, number: u16, word| match word {
                0 => drop(words.remove(&number)),
                word => drop(words.insert(number, word)),
            };
            let mut after = before.clone();
            unnamed.into_iter().chain(named.clone()).for_each(|(number, word)| set(&mut after, number, word));
            let slots: Vec<u16> = named.keys().copied().collect();
            let (old_root, (root, nodes)) = (trie(&before, &[]).0, trie(&after, &slots));
            let words: Vec<U256> =
                slots.iter().map(|number| U256::from(before.get(number).copied().unwrap_or(0))).collect();
            let keys: Vec<B256> = slots.iter().map(|number| slot(*number)).collect();
            let found = root_with(root, nodes.iter(), &keys, &words);
            let is_in_both = |number: &u16| before.contains_key(number) && after.contains_key(number);
            let elsewhere = before.iter().chain(&after).filter(|(number, _)| !named.contains_key(number));
            let is_hidden = elsewhere.into_iter().any(|(number, _)| before.get(number) != after.get(number));
            match found {
                Some(found) => prop_assert_eq!(found == old_root, !is_hidden),
                None => prop_assert!(!slots.iter().all(is_in_both)),
            }
            // Without the root node there is no result.
            if let [_, rest @ ..] = nodes.as_slice() && !slots.is_empty() {
                prop_assert_eq!(root_with(root, rest.iter(), &keys, &words), None);
            }
        }

        #[test]
        fn any_nodes_are_survived(nodes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..4)) {
            let nodes: Vec<Bytes> = nodes.into_iter().map(Bytes::from).collect();
            let root = nodes.first().map(keccak256).unwrap_or_default();
            let _ = root_with(root, nodes.iter(), &[slot(1), slot(2)], &[U256::from(1); 2]);
        }
    }
}
