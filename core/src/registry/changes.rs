//! Changes of verdicts, and cursors into their list: the answer of `/changes`. The registry's
//! [index](crate::index) finds and keeps the changes.

use core::fmt::{self, Write as _};

use alloy_primitives::Address;
use serde::Serialize;

use crate::{
    eth::as_of::IndexedAt,
    eth::json,
    eth::timestamp::Timestamp,
    registry::agent::{AgentId, Status},
    registry::cursor,
    registry::kya::Decision,
    registry::liability::Basis,
};

/// The retention of changes in seconds: 30 days.
pub const KEPT_SECONDS: u64 = 30 * 86_400;

/// A position in the list of changes: behind the change with that number. A rebuilt index begins a new list;
/// `began` tells cursors of the old one apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// Time at which the list began, unix milliseconds.
    pub began: u64,
    /// Number of changes up to this position.
    pub number: u64,
}

impl Cursor {
    /// Parses the text that [`Display`](fmt::Display) writes; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (began, number) = text.split_once('-')?;
        Some(Self { began: cursor::number(began)?, number: cursor::number(number)? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.began, self.number)
    }
}

json::serialize_as_text!(Cursor);

/// The start of a list of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Since {
    /// The oldest change that is kept.
    Oldest,
    /// Behind the newest change.
    Now,
    /// The newest changes, as many as the limit allows.
    Newest,
    /// Behind this cursor.
    Cursor(Cursor),
}

impl Since {
    /// The rule of [`parse`](Self::parse).
    pub const RULE: &str = "must be the `next` of an earlier answer, now or newest";

    /// Parses a cursor, `now` or `newest`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "now" => Some(Self::Now),
            "newest" => Some(Self::Newest),
            cursor => Cursor::parse(cursor).map(Self::Cursor),
        }
    }
}

/// Formats the parameter's value; empty for [`Since::Oldest`], which is the default.
impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oldest => Ok(()),
            Self::Now => f.write_str("now"),
            Self::Newest => f.write_str("newest"),
            Self::Cursor(cursor) => cursor.fmt(f),
        }
    }
}

/// The status and decision of a verdict on an agent, and the basis of its liability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Standing {
    /// The agent's status.
    pub status: Status,
    /// The decision on its wallet: `provision` while the agent is Active and its attestation current, `deny`
    /// once it has ended, otherwise `request_renewal`.
    pub decision: Decision,
    /// The basis of its liability, as far as the index has seen events. A change between `named` and
    /// `unknown` is one of knowledge alone, and not listed. Absent in changes that are older than this
    /// member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl Standing {
    /// Returns the standing of an agent with this status and basis.
    pub const fn new(status: Status, attestation_current: bool, basis: Option<Basis>) -> Self {
        // The wallet of an ended agent is no longer registered.
        let is_compliant = matches!(status, Status::Active) && attestation_current;
        Self { status, decision: Decision::of(!status.has_ended(), is_compliant), basis }
    }

    /// Removes a basis of `named` or `unknown`, which both say that no act of the liable wallet was seen: the
    /// list has no changes between them.
    #[must_use]
    pub fn listed(self) -> Self {
        Self { basis: self.basis.filter(|basis| !matches!(basis, Basis::Named | Basis::Unknown)), ..self }
    }
}

/// One change of a verdict, or of the basis of an agent's liability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The position after this change: a value for `since`.
    pub cursor: Cursor,
    /// The agent.
    pub agent_id: AgentId,
    /// Its wallet.
    #[serde(with = "json::Checksummed")]
    pub wallet: Address,
    /// Its liable wallet; zero where its record cannot be read.
    #[serde(skip)]
    pub liable: Address,
    /// The verdict before; `null` where the wallet did not have this agent.
    pub from: Option<Standing>,
    /// The verdict after; `null` where a reorg removed the registration of this agent.
    pub to: Option<Standing>,
    /// The block of its event if the node serves events, else the block at which it was found.
    pub block_number: u64,
    /// The second of a lapse, the time stored by a registration or attestation, or the block's time.
    pub time: Timestamp,
}

/// The answer of `/changes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChangeList {
    /// The most changes in an answer: the number requested, capped.
    pub limit: u64,
    /// Changes, oldest first.
    pub data: Vec<Change>,
    /// The value of `since` for the next request.
    pub next: Cursor,
    /// True if there are more changes.
    pub has_more: bool,
    /// The block up to which changes are known.
    pub as_of: IndexedAt,
}

impl ChangeList {
    /// Formats the list as server-sent events (HTML, section 9.2): a `change` for each, with its cursor as
    /// id. A complete list ends with a comment that names the block, and with an id without an event, from
    /// which clients continue even if nothing has changed.
    pub fn events(&self) -> String {
        let mut text = String::with_capacity(64 + self.data.len() * 360);
        for change in &self.data {
            // Serialization of strings and numbers cannot fail, nor can writing to a String.
            let json = serde_json::to_string(change).unwrap_or_default();
            let _ = write!(text, "id: {}\nevent: change\ndata: {json}\n\n", change.cursor);
        }
        if !self.has_more {
            let _ = write!(text, ": block {}\nid: {}\n\n", self.as_of.block_number, self.next);
        }
        text
    }
}

/// The end of a text of [events](ChangeList::events).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventsEnd {
    /// The cursor of the next events.
    pub next: Cursor,
    /// True if the list was complete.
    pub is_newest: bool,
}

impl EventsEnd {
    /// Parses the end of a text that [`ChangeList::events`] wrote; `None` for anything else.
    pub fn of(events: &str) -> Option<Self> {
        let (before, last) = events.rsplit_once("id: ")?;
        let (id, _) = last.split_once('\n')?;
        let is_newest = before.rsplit('\n').nth(1).is_some_and(|line| line.starts_with(": block "));
        Some(Self { next: Cursor::parse(id)?, is_newest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_say_where_to_go_on_and_whether_there_is_more() {
        let cursor = |number| Cursor { began: 1_800_000_000_123, number };
        let change = |number| Change {
            cursor: cursor(number),
            agent_id: AgentId::from(7),
            wallet: Address::repeat_byte(0x11),
            liable: Address::repeat_byte(0x22),
            from: None,
            to: Some(Standing::new(Status::Active, true, Some(Basis::Named))),
            block_number: 9,
            time: Timestamp::from_seconds(5),
        };
        for (numbers, has_more) in [(vec![], false), (vec![4], false), (vec![4, 5], true)] {
            let data: Vec<Change> = numbers.into_iter().map(change).collect();
            let next = data.last().map_or(cursor(3), |change| change.cursor);
            let as_of = IndexedAt { block_number: 12, ..IndexedAt::default() };
            let list = ChangeList { limit: 2, data, next, has_more, as_of };
            let events = list.events();
            assert_eq!(EventsEnd::of(&events), Some(EventsEnd { next, is_newest: !has_more }), "{events}");
            let blocks: Vec<&str> = events.strip_suffix("\n\n").unwrap().split("\n\n").collect();
            assert_eq!(blocks.len(), list.data.len() + usize::from(!has_more));
            for (block, change) in blocks.iter().zip(&list.data) {
                let json = serde_json::to_string(change).unwrap();
                assert_eq!(*block, format!("id: {}\nevent: change\ndata: {json}", change.cursor));
            }
            assert_eq!(events.contains(": block 12\n"), !has_more);
        }
        for bad in ["", "id: ", "id: 1\n\n", ": block 1\n\n"] {
            assert_eq!(EventsEnd::of(bad), None);
        }
    }
}
