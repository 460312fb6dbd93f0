//! The events of one agent, and cursors into them: the answer of `/agent/:id/history`. The registry's
//! [index](crate::index) finds the events.

use core::fmt;

use alloy_primitives::{Address, B256, U256};
use serde::Serialize;

use crate::{
    eth::as_of::IndexedAt, eth::json, eth::timestamp::Timestamp, registry::agent::AgentId, registry::cursor,
};

/// A position in an agent's history: before the first event of the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HistoryCursor {
    /// The first block of the history; 0 if the event of the registration was not found.
    pub first: u64,
    /// The block of the next event.
    pub block: u64,
    /// The position of the next event in its block.
    pub log_index: u64,
    /// The last child with a registration on an earlier page; 0 for none.
    pub child: u64,
}

impl HistoryCursor {
    /// Parses the text that [`Display`](fmt::Display) writes; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.splitn(4, '-').map(cursor::number);
        let mut next = || numbers.next().flatten();
        Some(Self { first: next()?, block: next()?, log_index: next()?, child: next()? })
    }
}

impl fmt::Display for HistoryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, block, log_index, child } = self;
        write!(f, "{first}-{block}-{log_index}-{child}")
    }
}

json::serialize_as_text!(HistoryCursor);

/// An event of an agent. `by` is the wallet that caused it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum AgentEvent {
    /// The agent was registered, which counts as the first attestation.
    Registered {
        /// The wallet that registered it.
        #[serde(with = "json::Checksummed")]
        creator: Address,
        /// The liable person.
        #[serde(with = "json::Checksummed")]
        haftungsperson: Address,
        /// The agent's own wallet.
        #[serde(with = "json::Checksummed")]
        agent_wallet: Address,
        /// Its parent; 0 is none.
        parent_agent_id: AgentId,
        /// Its depth in the lineage.
        #[serde(with = "json::Integer")]
        generation: U256,
    },
    /// The agent's attestation was renewed.
    Attested {
        /// The wallet that attested.
        #[serde(with = "json::Checksummed")]
        by: Address,
    },
    /// Revenue of the agent was reported.
    RevenueReported {
        /// The wallet that reported it.
        #[serde(with = "json::Checksummed")]
        by: Address,
        /// The amount in cents.
        #[serde(with = "json::Integer")]
        amount: U256,
        /// The currency.
        currency: String,
        /// The category.
        category: String,
    },
    /// A regulator suspended the agent.
    Suspended {
        /// The regulator.
        #[serde(with = "json::Checksummed")]
        by: Address,
        /// The regulator's reason.
        reason: String,
    },
    /// A regulator reinstated the agent.
    Reactivated {
        /// The regulator.
        #[serde(with = "json::Checksummed")]
        by: Address,
    },
    /// A regulator revoked the agent, which is final.
    Revoked {
        /// The regulator.
        #[serde(with = "json::Checksummed")]
        by: Address,
        /// The regulator's reason.
        reason: String,
    },
    /// The agent's own side terminated it, which is final.
    Terminated {
        /// The wallet that terminated it.
        #[serde(with = "json::Checksummed")]
        by: Address,
    },
    /// A child of the agent was registered.
    ChildRegistered {
        /// The child.
        child_agent_id: AgentId,
        /// The wallet that registered the child.
        #[serde(with = "json::Checksummed")]
        creator: Address,
        /// The child's own wallet.
        #[serde(with = "json::Checksummed")]
        agent_wallet: Address,
    },
}

/// One event of an agent's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// The event itself.
    #[serde(flatten)]
    pub event: AgentEvent,
    /// The block of the event.
    pub block_number: u64,
    /// The timestamp of the block.
    pub time: Timestamp,
    /// The transaction.
    #[serde(with = "json::Hash")]
    pub transaction_hash: B256,
    /// The event's position in the block.
    pub log_index: u64,
}

/// The reason that a history is incomplete. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum IncompleteBecause {
    /// The RPC endpoint serves no events.
    NoLogs,
    /// The RPC endpoint serves the events of too few blocks per request; only those from `fromBlock` on were
    /// read.
    LogRange,
    /// The RPC endpoint lacks an event that must exist, such as that of the registration: it has pruned
    /// events.
    EventsMissing,
}

/// The answer of `/agent/:id/history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentHistory {
    /// The agent.
    pub agent_id: AgentId,
    /// True if no event is missing between the registration and the end of this page.
    pub complete: bool,
    /// The reason that it is incomplete; absent if it is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete_because: Option<IncompleteBecause>,
    /// The first block of the history: that of the registration if it is complete. Absent if the endpoint
    /// serves no events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_block: Option<u64>,
    /// The page size used: the one requested, capped.
    pub limit: u64,
    /// Events, oldest first. A page may have fewer than `limit`, even none, and not be the last.
    pub data: Vec<HistoryEvent>,
    /// The cursor of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<HistoryCursor>,
    /// The block up to which events are known.
    pub as_of: IndexedAt,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_what_happened_beside_where_and_when() {
        let (by, currency, category) = (Address::repeat_byte(0x11), "EUR".into(), "api".into());
        let event = HistoryEvent {
            event: AgentEvent::RevenueReported { by, amount: U256::MAX, currency, category },
            block_number: 9,
            time: Timestamp::from_seconds(5),
            transaction_hash: B256::repeat_byte(7),
            log_index: 2,
        };
        let expected = format!(
            r#"{{"event":"revenueReported","by":"0x1111111111111111111111111111111111111111","amount":{},"currency":"EUR","category":"api","blockNumber":9,"time":"1970-01-01T00:00:05.000Z","transactionHash":"0x{}","logIndex":2}}"#,
            U256::MAX,
            "07".repeat(32)
        );
        assert_eq!(serde_json::to_string(&event).unwrap(), expected);
    }
}
