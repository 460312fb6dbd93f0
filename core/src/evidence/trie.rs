//! A walk along a Merkle-Patricia proof from the root to a key's value (Yellow Paper, appendix D; EIP-1186).
//!
//! `alloy-trie` decodes the nodes. The walk is stricter than that crate's own: it refuses superfluous nodes,
//! does not panic on paths longer than a key, and returns the value.

use alloy_primitives::{B256, Bytes, keccak256};
use alloy_rlp::Decodable;
use alloy_trie::{
    EMPTY_ROOT_HASH, Nibbles,
    nodes::{RlpNode, TrieNode},
};

/// The reason that a proof proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// A node does not have the hash in its parent, or in the root.
    #[error("node {0} of the proof is not the one that is named before it")]
    Unlinked(usize),
    /// The nodes end before the key's value.
    #[error("the proof is cut short")]
    Truncated,
    /// There are more nodes than needed.
    #[error("the proof has more nodes than it needs")]
    Superfluous,
    /// A node has the right hash, but is not a trie node.
    #[error("node {0} of the proof is no trie node")]
    NoNode(usize),
}

/// Looks up `key`'s hash in the trie with this root. Returns `None` if the proof shows that it has no value.
pub(super) fn lookup(root: B256, key: &[u8], proof: &[Bytes]) -> Result<Option<Vec<u8>>, ProofError> {
    if proof.is_empty() && root == EMPTY_ROOT_HASH {
        return Ok(None);
    }
    let mut path = Nibbles::unpack(keccak256(key));
    let mut link = root;
    for (place, node) in proof.iter().enumerate() {
        if keccak256(node) != link {
            return Err(ProofError::Unlinked(place));
        }
        let found = match step(node, &mut path).ok_or(ProofError::NoNode(place))? {
            Link::Next(hash) => {
                link = hash;
                continue;
            }
            Link::End(found) => found,
        };
        return if place + 1 == proof.len() { Ok(found) } else { Err(ProofError::Superfluous) };
    }
    Err(ProofError::Truncated)
}

/// The target of a node.
enum Link {
    /// The node with this hash.
    Next(B256),
    /// The end: the value, or `None` if the key is proved absent.
    End(Option<Vec<u8>>),
}

/// Follows `path` through a node and its inline nodes, and removes the part that it followed; `None` if the
/// bytes are not a node.
fn step(rlp: &[u8], path: &mut Nibbles) -> Option<Link> {
    // Nodes of less than 32 bytes are inlined into their parents.
    let mut node = decode(rlp)?;
    loop {
        let child = match node {
            TrieNode::EmptyRoot => return Some(Link::End(None)),
            TrieNode::Leaf(leaf) => {
                return Some(Link::End((leaf.key == *path).then_some(leaf.value)));
            }
            TrieNode::Extension(extension) => {
                // An extension without a path could contain itself endlessly.
                if extension.key.is_empty() {
                    return None;
                }
                if !path.starts_with(&extension.key) {
                    return Some(Link::End(None));
                }
                *path = path.slice(extension.key.len()..);
                extension.child
            }
            TrieNode::Branch(branch) => {
                let nibble = path.first()?;
                *path = path.slice(1..);
                let branch = branch.as_ref();
                let child: Option<RlpNode> = branch
                    .children()
                    .find(|(place, _)| *place == nibble)
                    .and_then(|(_, child)| child.cloned());
                match child {
                    Some(child) => child,
                    None => return Some(Link::End(None)),
                }
            }
        };
        match child.as_hash() {
            Some(hash) => return Some(Link::Next(hash)),
            None => node = decode(child.as_slice())?,
        }
    }
}

/// Decodes a node; `None` for other bytes.
pub(super) fn decode(rlp: &[u8]) -> Option<TrieNode> {
    let mut rest = rlp;
    TrieNode::decode(&mut rest).ok().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_rlp::Encodable;
    use alloy_trie::nodes::{ExtensionNode, LeafNode};
    use alloy_trie::{HashBuilder, proof::ProofRetainer, proof::verify_proof};
    use proptest::prelude::*;

    fn rlp(node: &impl Encodable) -> Bytes {
        let mut rlp = Vec::new();
        node.encode(&mut rlp);
        rlp.into()
    }

    fn path(key: &[u8]) -> Nibbles {
        Nibbles::unpack(keccak256(key))
    }

    /// Returns the root of a trie of these keys, each with itself as value, and the proof for `target`.
    fn trie(keys: &[u8], target: u8) -> (B256, Vec<Bytes>) {
        let mut leaves: Vec<(Nibbles, u8)> = keys.iter().map(|key| (path(&[*key]), *key)).collect();
        leaves.sort();
        leaves.dedup();
        let retainer = ProofRetainer::from_iter([path(&[target])]);
        let mut builder = HashBuilder::default().with_proof_retainer(retainer);
        leaves.iter().for_each(|(path, key)| builder.add_leaf(*path, &[*key]));
        let root = builder.root();
        let nodes = builder.take_proof_nodes().into_nodes_sorted();
        (root, nodes.into_iter().map(|(_, node)| node).collect())
    }

    proptest! {
        #[test]
        fn what_is_there_is_found_and_what_is_not_is_absent(keys in prop::collection::vec(any::<u8>(), 1..200), target: u8) {
            let (root, proof) = trie(&keys, target);
            let expected = keys.contains(&target).then(|| vec![target]);
            prop_assert_eq!(lookup(root, &[target], &proof), Ok(expected.clone()));
            prop_assert!(verify_proof(root, path(&[target]), expected, &proof).is_ok());
            // Shorter, longer and reordered proofs are refused.
            let short = proof.get(..proof.len() - 1).unwrap();
            prop_assert_eq!(lookup(root, &[target], short), Err(ProofError::Truncated));
            for again in &proof {
                let long = [proof.as_slice(), std::slice::from_ref(again)].concat();
                prop_assert_eq!(lookup(root, &[target], &long), Err(ProofError::Superfluous));
            }
            if proof.len() > 1 {
                let mut other = proof;
                other.reverse();
                prop_assert_eq!(lookup(root, &[target], &other), Err(ProofError::Unlinked(0)));
            }
        }

        #[test]
        fn any_bytes_under_any_root_are_survived(nodes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..4)) {
            let nodes: Vec<Bytes> = nodes.into_iter().map(Bytes::from).collect();
            let root = nodes.first().map(keccak256).unwrap_or_default();
            let _ = lookup(root, b"key", &nodes);
        }
    }

    #[test]
    fn nothing_is_in_an_empty_trie() {
        assert_eq!(lookup(EMPTY_ROOT_HASH, b"key", &[]), Ok(None));
        assert_eq!(lookup(EMPTY_ROOT_HASH, b"key", &[vec![0x80].into()]), Ok(None));
        let twice: [Bytes; 2] = [vec![0x80].into(), vec![0x80].into()];
        assert_eq!(lookup(EMPTY_ROOT_HASH, b"key", &twice), Err(ProofError::Superfluous));
        assert_eq!(lookup(B256::ZERO, b"key", &[]), Err(ProofError::Truncated));
    }

    #[test]
    fn a_path_that_is_longer_than_a_key_is_no_proof_and_no_panic() {
        let whole = path(b"key");
        let leaf = rlp(&LeafNode::new(whole, vec![1]));
        let extension = rlp(&ExtensionNode::new(whole, RlpNode::word_rlp(&keccak256(&leaf))));
        let root = keccak256(&extension);
        // The leaf's path should be empty by now.
        assert_eq!(lookup(root, b"key", &[extension, leaf]), Ok(None));
    }

    #[test]
    fn nodes_that_stand_in_others_are_followed() {
        // Two leaves that differ in the last nibble alone are so short that their branch holds them.
        let key = path(b"key");
        let last = key.last().unwrap();
        let leaf =
            |value| RlpNode::from_raw_rlp(&rlp(&LeafNode::new(Nibbles::default(), vec![value]))).unwrap();
        let mut children = [(last, 7), ((last + 1) % 16, 8)];
        children.sort_unstable();
        let stack = children.iter().map(|(_, value)| leaf(*value)).collect();
        let mask = children.iter().fold(0, |mask, (nibble, _)| mask | 1 << nibble);
        let branch = rlp(&alloy_trie::nodes::BranchNode::new(stack, alloy_trie::TrieMask::new(mask)));
        let child = RlpNode::from_rlp(&branch);
        assert!(!child.is_hash(), "the branch stands in the extension");
        let extension = rlp(&ExtensionNode::new(key.slice(..63), child));
        let (root, proof) = (keccak256(&extension), [extension]);
        assert_eq!(lookup(root, b"key", &proof), Ok(Some(vec![7])));
        assert_eq!(lookup(root, b"other", &proof), Ok(None));
    }
}
