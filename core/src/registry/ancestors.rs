//! Responsibility: an agent's ancestors up to the root, each with its status and its liable person.
//!
//! An agent's parent never changes, so the path to the root is walked once, with one round trip per level.
//! The registry is not trusted to be a tree: a path ends at a cycle and at the documented number of levels.

use alloy_primitives::{Address, U256};
use serde::Serialize;

use crate::{
    eth::as_of::AsOf,
    eth::json,
    registry::agent::{Agent, AgentId, Fetched, Status},
    registry::lineage::MAX_LEVELS,
};

/// The answer of `/agent/:id/ancestors`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Ancestors {
    /// The agent asked about.
    pub agent_id: AgentId,
    /// The path from its parent up to the root; empty for a root.
    pub ancestors: Vec<Ancestor>,
    /// The reason that the path ends before the root; absent if it reaches the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The block the registry was read at.
    pub as_of: AsOf,
}

/// An agent above another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Ancestor {
    /// The agent.
    pub agent_id: AgentId,
    /// Its own wallet.
    #[serde(with = "json::Checksummed")]
    pub wallet: Address,
    /// The wallet of the liable person.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// Its status.
    pub status: Status,
    /// Its generation, as registered.
    #[serde(with = "json::Integer")]
    pub generation: U256,
}

impl From<&Agent> for Ancestor {
    fn from(agent: &Agent) -> Self {
        Self {
            agent_id: agent.agent_id,
            wallet: agent.agent_wallet,
            haftungsperson: agent.haftungsperson,
            status: agent.status,
            generation: agent.generation,
        }
    }
}

/// Climbs from `agent` to its root, one fetch a parent. Returns the path, and the reason if it ends early.
///
/// # Errors
///
/// The errors of `fetch`.
pub fn climb<E>(
    agent: &Agent,
    mut fetch: impl FnMut(AgentId) -> Result<Fetched<Agent>, E>,
) -> Result<(Vec<Ancestor>, Option<String>), E> {
    let mut path: Vec<Ancestor> = Vec::new();
    let mut next = agent.parent_agent_id;
    while !next.0.is_zero() {
        let is_known = next == agent.agent_id || path.iter().any(|above| above.agent_id == next);
        if is_known {
            return Ok((path, Some(format!("Agent {next} is its own ancestor"))));
        }
        // The agent itself is the first level.
        if path.len() + 1 == MAX_LEVELS {
            return Ok((path, Some(format!("Depth limit of {MAX_LEVELS} levels reached"))));
        }
        match fetch(next)? {
            Fetched::Found(above) => {
                path.push(Ancestor::from(&*above));
                next = above.parent_agent_id;
            }
            Fetched::Absent => return Ok((path, Some(format!("Agent {next} is not in the registry")))),
            Fetched::Unreadable => return Ok((path, Some(format!("Agent {next} cannot be read")))),
        }
    }
    Ok((path, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::fixture::agent;
    use proptest::prelude::*;
    use std::{collections::BTreeMap, convert::Infallible};

    /// Climbs from `id` in a registry of id -> parent. Returns the ids, the note, and the number of fetches.
    fn above(id: u64, parents: &BTreeMap<u64, u64>) -> (Vec<u64>, Option<String>, usize) {
        let member = |id: u64| {
            let mut agent = agent(id);
            agent.parent_agent_id = AgentId(U256::from(*parents.get(&id)?));
            Some(agent)
        };
        let mut fetches = 0;
        let climbed = climb(&member(id).unwrap(), |id| {
            fetches += 1;
            let found = member(id.0.to::<u64>());
            Ok::<_, Infallible>(found.map_or(Fetched::Absent, |agent| Fetched::Found(Box::new(agent))))
        });
        let Ok((path, note)) = climbed;
        (path.iter().map(|above| above.agent_id.0.to::<u64>()).collect(), note, fetches)
    }

    fn chain(length: u64) -> BTreeMap<u64, u64> {
        (1..=length).map(|id| (id, id - 1)).collect()
    }

    #[test]
    fn the_fifteenth_level_is_the_last_and_says_so_only_if_more_follow() {
        assert_eq!(above(15, &chain(15)), ((1..15).rev().collect(), None, 14));
        let (path, note, fetches) = above(16, &chain(16));
        assert_eq!((path.len(), fetches), (14, 14));
        assert_eq!(note.as_deref(), Some("Depth limit of 15 levels reached"));
    }

    #[test]
    fn a_broken_path_ends_with_the_reason() {
        let (path, note, _) = above(3, &BTreeMap::from([(3, 2), (2, 3)]));
        assert_eq!((path, note.as_deref()), (vec![2], Some("Agent 3 is its own ancestor")));
        let (path, note, _) = above(3, &BTreeMap::from([(3, 2), (2, 9)]));
        assert_eq!((path, note.as_deref()), (vec![2], Some("Agent 9 is not in the registry")));
        let (path, note, _) = above(1, &BTreeMap::from([(1, 1)]));
        assert_eq!((path, note.as_deref()), (vec![], Some("Agent 1 is its own ancestor")));
    }

    proptest! {
        #[test]
        fn any_registry_ends_within_the_levels(parents in prop::collection::vec(0u64..40, 1..40)) {
            let parents: BTreeMap<u64, u64> = (1..).zip(parents).collect();
            let (path, _, fetches) = above(1, &parents);
            prop_assert!(fetches < MAX_LEVELS && path.len() < MAX_LEVELS);
        }
    }
}
