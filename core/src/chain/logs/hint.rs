//! Events as hints: which of them are asked for, and as much of each as an index believes of any agent's. What it tells of one agent's
//! events is decoded in [`event_log`](super::event_log).

use alloy_primitives::{B256, U256};
use alloy_sol_types::SolEvent;
use serde::Deserialize;

use crate::eth::abi::IAgentRegistry::{
    AgentReactivated, AgentRegistered, AgentRevoked, AgentSuspended, AgentTerminated, ComplianceAttested,
    RevenueReported,
};

/// Events whose first topic is the agent they are about.
pub(crate) const EVENTS: [B256; 7] = [
    AgentRegistered::SIGNATURE_HASH,
    ComplianceAttested::SIGNATURE_HASH,
    RevenueReported::SIGNATURE_HASH,
    AgentSuspended::SIGNATURE_HASH,
    AgentRevoked::SIGNATURE_HASH,
    AgentReactivated::SIGNATURE_HASH,
    AgentTerminated::SIGNATURE_HASH,
];

/// When an event was, as the node that lists it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The height of its block.
    pub(crate) number: u64,
    /// The time of its block, unix seconds; `None` where the node does not say.
    pub(crate) seconds: Option<u64>,
}

/// As much of a log as is believed: whom it may be about.
#[derive(Deserialize)]
pub(crate) struct Hint {
    #[serde(default)]
    topics: Vec<String>,
    #[serde(default, rename = "blockNumber")]
    block_number: Option<String>,
    /// Not in every node's logs.
    #[serde(default, rename = "blockTimestamp")]
    block_timestamp: Option<String>,
}

impl Hint {
    pub(crate) fn number(&self) -> Option<u64> {
        quantity(self.block_number.as_deref()?)
    }

    /// Whose status it set, and when.
    pub(crate) fn moment(&self) -> Option<(u64, Moment)> {
        let event: B256 = self.topics.first()?.parse().ok()?;
        let sets_status =
            event != ComplianceAttested::SIGNATURE_HASH && event != RevenueReported::SIGNATURE_HASH;
        let seconds = self.block_timestamp.as_deref().and_then(quantity);
        sets_status.then_some((self.agent()?, Moment { number: self.number()?, seconds }))
    }

    pub(crate) fn agent(&self) -> Option<u64> {
        let topic: B256 = self.topics.get(1)?.parse().ok()?;
        U256::from_be_bytes(topic.0).try_into().ok()
    }
}

/// A number, as JSON-RPC writes it.
pub(crate) fn quantity(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
