//! A place in a list of agents, for pages that stay where they are while the registry grows: behind the agent that it names, in the
//! list's order.

use core::fmt;

use serde::{Serialize, Serializer};

/// What a list is sorted by; agents that are equal in that, by id in the same direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// The id, which is the order of registration: the registry counts ids up.
    #[default]
    Id,
    /// The last attestation.
    Attestation,
}

/// Behind an agent in a list by id, or by attestation; they are ordered as the agents are in such a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentCursor {
    /// When it last attested, unix seconds, in a list by attestation.
    pub attested: Option<u64>,
    /// The agent's id; 0 is before the first.
    pub id: u64,
}

impl AgentCursor {
    /// The rule that [`parse`](Self::parse) holds texts to.
    pub const RULE: &str = "must be the `next` of an earlier answer to the same question";

    /// Behind an agent in a list by id.
    pub const fn after(id: u64) -> Self {
        Self { attested: None, id }
    }

    /// Reads what [`Display`](fmt::Display) writes; `None` for anything else.
    pub fn parse(text: &str, key: SortKey) -> Option<Self> {
        match key {
            SortKey::Id => number(text).map(Self::after),
            SortKey::Attestation => {
                let (attested, id) = text.split_once('-')?;
                Some(Self { attested: Some(number(attested)?), id: number(id)? })
            }
        }
    }
}

impl fmt::Display for AgentCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attested {
            Some(attested) => write!(f, "{attested}-{}", self.id),
            None => self.id.fmt(f),
        }
    }
}

impl Serialize for AgentCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Decimal digits below 2^53: more is no id, and no integer to a store in JavaScript.
pub(crate) fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number < 1 << 53)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_are_written_and_nothing_else_is_one() {
        for id in [0, 7, (1 << 53) - 1] {
            for (attested, key) in [(None, SortKey::Id), (Some(id), SortKey::Attestation)] {
                let cursor = AgentCursor { attested, id };
                assert_eq!(AgentCursor::parse(&cursor.to_string(), key), Some(cursor));
            }
        }
        for bad in ["", "-1", "+1", "x", "1.0", "9007199254740992", "99999999999999999999999"] {
            assert_eq!(AgentCursor::parse(bad, SortKey::Id), None, "{bad}");
        }
    }
}
