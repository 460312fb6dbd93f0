//! Events as hints: which ones are requested, and the few fields that an index trusts. Events of one agent's
//! history are decoded in [`event_log`](super::event_log).

use alloy_primitives::{B256, U256};
use alloy_sol_types::SolEvent;
use serde::Deserialize;

use crate::eth::abi::IAgentRegistry::{
    AgentReactivated, AgentRegistered, AgentRevoked, AgentSuspended, AgentTerminated, ComplianceAttested,
    RevenueReported,
};

/// Events with the agent as their first topic.
pub(crate) const EVENTS: [B256; 7] = [
    AgentRegistered::SIGNATURE_HASH,
    ComplianceAttested::SIGNATURE_HASH,
    RevenueReported::SIGNATURE_HASH,
    AgentSuspended::SIGNATURE_HASH,
    AgentRevoked::SIGNATURE_HASH,
    AgentReactivated::SIGNATURE_HASH,
    AgentTerminated::SIGNATURE_HASH,
];

/// The block of an event, as listed by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The block's height.
    pub(crate) number: u64,
    /// The block's timestamp in unix seconds; `None` if the node omits it.
    pub(crate) seconds: Option<u64>,
}

/// The trusted part of a log: the agent it may be about.
#[derive(Deserialize)]
pub(crate) struct Hint {
    #[serde(default)]
    topics: Vec<String>,
    #[serde(default, rename = "blockNumber")]
    block_number: Option<String>,
    /// Not every node sends it.
    #[serde(default, rename = "blockTimestamp")]
    block_timestamp: Option<String>,
}

impl Hint {
    pub(crate) fn number(&self) -> Option<u64> {
        quantity(self.block_number.as_deref()?)
    }

    /// The agent and block of an event that sets a status.
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

pub(crate) fn quantity(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
