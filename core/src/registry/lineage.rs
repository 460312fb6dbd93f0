//! Lineage: the tree below an agent, grown level by level within the documented bounds.
//!
//! The registry is not trusted to be a tree. An agent that is reached a second time is shown as a leaf, so
//! that cycles end. If there are more agents than a tree may show, those nearer to the root come first, and
//! within a level the children of the first parents. A cut node says how many of its children it shows.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, U256};
use serde::Serialize;

use crate::{
    eth::json::{self, is_false},
    registry::agent::{Agent, AgentId, Fetched, Status},
    registry::liability::ParentBasis,
};

/// The most levels of a tree, the root's included (`service.md` section 8).
pub const MAX_LEVELS: usize = 15;
/// The most children of a node.
pub const MAX_CHILDREN: usize = 50;
/// The most nodes of a tree.
pub const MAX_NODES: usize = 2_000;

/// An agent in a lineage tree (`service.md` section 2); the answer of `/agent/:id/lineage` is the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LineageNode {
    /// The agent.
    pub agent_id: AgentId,
    /// Its own wallet.
    #[serde(with = "json::Checksummed")]
    pub wallet: Address,
    /// Its generation, as registered.
    #[serde(with = "json::Integer")]
    pub generation: U256,
    /// Its status.
    pub status: Status,
    /// Its relation to its parent; absent for a root of the registry, `unknown` for the root of a tree that
    /// has a parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_basis: Option<ParentBasis>,
    /// Its children, in order of registration; empty for a leaf.
    pub children: Vec<LineageNode>,
    /// Present and true if children are left out.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// The reason for what is left out; absent if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Children with unreadable records, which are not shown. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<AgentId>,
}

/// An agent and its direct children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The agent.
    pub agent: Relative,
    /// Its children.
    pub children: Children,
}

/// The part of an agent's record that a tree shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relative {
    /// The agent.
    pub agent_id: AgentId,
    /// Its own wallet.
    pub wallet: Address,
    /// Its generation, as registered.
    pub generation: U256,
    /// Its status.
    pub status: Status,
    /// The wallet that registered it.
    pub creator: Address,
    /// The liable wallet.
    pub liable: Address,
    /// True if it has no parent.
    pub is_root: bool,
}

impl From<&Agent> for Relative {
    fn from(agent: &Agent) -> Self {
        Self {
            agent_id: agent.agent_id,
            wallet: agent.agent_wallet,
            generation: agent.generation,
            status: agent.status,
            creator: agent.creator,
            liable: agent.haftungsperson,
            is_root: agent.parent_agent_id.0.is_zero(),
        }
    }
}

/// An agent's direct children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Children {
    /// Their ids, in order of registration, cut if there are too many to read.
    pub ids: Vec<U256>,
    /// Their number.
    pub total: U256,
}

impl From<Vec<U256>> for Children {
    fn from(ids: Vec<U256>) -> Self {
        Self { total: U256::from(ids.len()), ids }
    }
}

impl Children {
    /// Returns whether `ids` is cut.
    pub fn is_cut(&self) -> bool {
        self.total > U256::from(self.ids.len())
    }

    /// Returns the note beside `shown` children; `None` if these are all.
    pub fn note(&self, shown: usize) -> Option<String> {
        (self.total > U256::from(shown)).then(|| format!("Showing {shown} of {} children", self.total))
    }
}

/// Grows the tree below `root`, fetching all new agents of one level at a time. Absent agents are left out;
/// unreadable ones are named, but not shown.
///
/// # Errors
///
/// The errors of `fetch`.
pub fn grow<E>(
    root: Member,
    mut fetch: impl FnMut(&[U256]) -> Result<Vec<Fetched<Member>>, E>,
) -> Result<LineageNode, E> {
    let root_id = root.agent.agent_id.0;
    let mut tree =
        Tree { members: BTreeMap::new(), first_shown_by: BTreeMap::new(), unreadable: BTreeSet::new() };
    let mut left = MAX_NODES - 1;
    let mut seen = BTreeSet::from([root_id]);
    tree.members.insert(root_id, root.clone());
    let mut level = Vec::from([root_id]);
    for _ in 1..MAX_LEVELS {
        let mut next = Vec::new();
        for parent in level {
            let children = tree.cut_children(parent, left);
            left -= children.len();
            for child in children {
                if seen.insert(child) {
                    tree.first_shown_by.insert(child, parent);
                    next.push(child);
                }
            }
        }
        if next.is_empty() {
            break;
        }
        for (id, fetched) in next.iter().zip(fetch(&next)?) {
            match fetched {
                Fetched::Found(member) => {
                    tree.members.insert(*id, *member);
                }
                Fetched::Unreadable => {
                    tree.unreadable.insert(*id);
                }
                Fetched::Absent => {}
            }
        }
        level = next;
    }
    Ok(tree.node(tree.members.get(&root_id).unwrap_or(&root), None, 1))
}

struct Tree {
    members: BTreeMap<U256, Member>,
    /// The parent under which an agent is shown in full.
    first_shown_by: BTreeMap<U256, U256>,
    unreadable: BTreeSet<U256>,
}

impl Tree {
    /// Cuts an agent's children to those that are shown, at most `most`.
    fn cut_children(&mut self, id: U256, most: usize) -> Vec<U256> {
        let Some(member) = self.members.get_mut(&id) else { return Vec::new() };
        member.children.ids.truncate(MAX_CHILDREN.min(most));
        member.children.ids.clone()
    }

    /// Makes the node of `member` on `level`, below `parent`. Recursion is at most [`MAX_LEVELS`] deep.
    fn node(&self, member: &Member, parent: Option<&Relative>, level: usize) -> LineageNode {
        let Member { agent, children } = member;
        let mut node = LineageNode::leaf(agent, parent);
        if children.total.is_zero() {
            return node;
        }
        if level == MAX_LEVELS {
            let note = Some(format!("Depth limit of {MAX_LEVELS} levels reached"));
            return LineageNode { truncated: true, note, ..node };
        }
        let id = agent.agent_id.0;
        let mut shown = BTreeSet::new();
        for child_id in &children.ids {
            if self.unreadable.contains(child_id) {
                node.unreadable.push(AgentId(*child_id));
            }
            let Some(child) = self.members.get(child_id) else { continue };
            let in_full = self.first_shown_by.get(child_id) == Some(&id) && shown.insert(child_id);
            node.children.push(if in_full {
                self.node(child, Some(agent), level + 1)
            } else {
                LineageNode::repeated(&child.agent, agent)
            });
        }
        node.note = children.note(children.ids.len());
        node.truncated = node.note.is_some();
        node
    }
}

impl LineageNode {
    fn leaf(agent: &Relative, parent: Option<&Relative>) -> Self {
        let wallets = parent.map(|parent| [parent.creator, parent.wallet, parent.liable]);
        Self {
            agent_id: agent.agent_id,
            wallet: agent.wallet,
            generation: agent.generation,
            status: agent.status,
            parent_basis: (!agent.is_root).then(|| ParentBasis::of(agent.creator, wallets)),
            children: Vec::new(),
            truncated: false,
            note: None,
            unreadable: Vec::new(),
        }
    }

    fn repeated(agent: &Relative, parent: &Relative) -> Self {
        Self { note: Some("Shown elsewhere in this tree".to_string()), ..Self::leaf(agent, Some(parent)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::fixture::agent;
    use proptest::prelude::*;
    use std::convert::Infallible;

    /// Grows the tree below `root` in a registry of id -> children. Returns it and the number of fetches.
    fn tree(root: u64, registry: &BTreeMap<u64, Vec<u64>>) -> (LineageNode, usize) {
        let member = |id: u64| {
            let children: Vec<U256> = registry.get(&id)?.iter().copied().map(U256::from).collect();
            Some(Member { agent: (&agent(id)).into(), children: children.into() })
        };
        let mut fetches = 0;
        let node = grow(member(root).unwrap(), |ids| {
            fetches += 1;
            let fetched = |id: &U256| {
                member(id.to::<u64>()).map_or(Fetched::Absent, |member| Fetched::Found(Box::new(member)))
            };
            Ok::<_, Infallible>(ids.iter().map(fetched).collect())
        });
        let Ok(node) = node;
        (node, fetches)
    }

    fn size(node: &LineageNode) -> usize {
        1 + node.children.iter().map(size).sum::<usize>()
    }

    fn depth(node: &LineageNode) -> usize {
        1 + node.children.iter().map(depth).max().unwrap_or(0)
    }

    fn chain(len: u64) -> BTreeMap<u64, Vec<u64>> {
        (1..=len).map(|id| (id, if id < len { vec![id + 1] } else { vec![] })).collect()
    }

    #[test]
    fn a_tree_of_more_agents_than_it_may_show_is_cut_level_by_level_and_says_where() {
        // Fifty children each: 1, 50, 2,500.
        let registry: BTreeMap<u64, Vec<u64>> = (1..=3_000)
            .map(|id| (id, (2 + (id - 1) * 50..2 + id * 50).filter(|child| *child <= 3_000).collect()))
            .collect();
        let (root, fetches) = tree(1, &registry);
        assert_eq!((size(&root), depth(&root), fetches), (MAX_NODES, 3, 2));
        assert!(!root.truncated, "all its children are shown");
        let cut: Vec<_> = root.children.iter().filter(|child| child.truncated).collect();
        assert_eq!(cut.len(), 12, "38 are shown whole, one in part, and 11 without children");
        let notes = [cut[0], cut[1]].map(|node| node.note.as_deref().unwrap());
        assert_eq!(notes, ["Showing 49 of 50 children", "Showing 0 of 50 children"]);
        let leaf = &root.children[0].children[0];
        assert_eq!(leaf.note.as_deref(), Some("Showing 0 of 50 children"));
    }

    #[test]
    fn the_fifteenth_level_is_the_last_and_says_so_only_if_more_follow() {
        let (root, fetches) = tree(1, &chain(16));
        assert_eq!((depth(&root), fetches), (15, 14));
        let json = serde_json::to_string(&root).unwrap();
        let last = r#""children":[],"truncated":true,"note":"Depth limit of 15 levels reached""#;
        assert!(json.contains(last) && json.matches("truncated").count() == 1, "{json}");
        let whole = serde_json::to_string(&tree(1, &chain(15)).0).unwrap();
        assert!(!whole.contains("note") && !whole.contains("truncated"), "{whole}");
    }

    #[test]
    fn a_cycle_ends_at_its_first_repetition() {
        let registry = BTreeMap::from([(1, vec![2]), (2, vec![1, 2, 3, 3]), (3, vec![])]);
        let (root, _) = tree(1, &registry);
        assert_eq!(size(&root), 6);
        let notes: Vec<bool> = root.children[0].children.iter().map(|node| node.note.is_some()).collect();
        assert_eq!(notes, [true, true, false, true]);
        // Every agent is a child of every agent: repetitions count as nodes.
        let registry: BTreeMap<u64, Vec<u64>> = (1..=200).map(|id| (id, (1..=200).collect())).collect();
        assert!(size(&tree(1, &registry).0) <= MAX_NODES);
        let (root, _) = tree(1, &BTreeMap::from([(1, vec![2, 9]), (2, vec![])]));
        assert_eq!(size(&root), 2, "a child the registry does not have is left out");
    }

    proptest! {
        #[test]
        fn no_registry_makes_it_hang_or_grow_beyond_its_links(
            links in prop::collection::vec(prop::collection::vec(1u64..40, 0..60), 1..40),
        ) {
            let registry: BTreeMap<u64, Vec<u64>> = (1..).zip(links.clone()).collect();
            let (root, fetches) = tree(1, &registry);
            prop_assert!(fetches < MAX_LEVELS);
            prop_assert!(depth(&root) <= MAX_LEVELS);
            prop_assert!(size(&root) <= 1 + links.iter().map(Vec::len).sum::<usize>());
        }
    }
}
