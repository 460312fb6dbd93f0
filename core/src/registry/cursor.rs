//! Keyset pagination of lists of agents: a cursor names the last agent of a page, so pages stay stable while
//! the registry grows.

use core::fmt;

use crate::eth::json::serialize_as_text;

/// The key that a list is sorted by. Ties are sorted by id, in the same direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// The id, and so the order of registration.
    #[default]
    Id,
    /// The last attestation.
    Attestation,
}

/// The position behind an agent in a list by id or by attestation. Cursors sort as the agents of such a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentCursor {
    /// The agent's last attestation in unix seconds, for a list by attestation.
    pub attested: Option<u64>,
    /// The agent's id; 0 for the start of the list.
    pub id: u64,
}

impl AgentCursor {
    /// The rule of [`parse`](Self::parse).
    pub const RULE: &str = "must be the `next` of an earlier answer to the same question";

    /// Returns the position behind an agent in a list by id.
    pub const fn after(id: u64) -> Self {
        Self { attested: None, id }
    }

    /// Parses the text that [`Display`](fmt::Display) writes; `None` for anything else.
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

serialize_as_text!(AgentCursor);

/// Parses decimal digits. Numbers from 2^53 on are refused: JavaScript stores cannot keep them exactly.
pub(crate) fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number < 1 << 53)
}
