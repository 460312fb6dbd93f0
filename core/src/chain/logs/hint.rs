//! Events as hints: the few fields that an index trusts. Events of one agent's
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

/// An event of the registry, as listed by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The agent it may be about: the number in its first topic.
    pub(crate) agent: Option<u64>,
    /// The block's height; 0 if the node omits it.
    pub(crate) number: u64,
    /// Tells the event from others; 0 if the node omits its block's hash or its index.
    pub(crate) fingerprint: u64,
}

/// The trusted part of a log: the agent it may be about.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hint {
    topics: Vec<String>,
    block_number: Option<String>,
    block_hash: Option<String>,
    log_index: Option<String>,
    /// Not every node sends it.
    block_timestamp: Option<String>,
}

impl Hint {
    pub(crate) fn number(&self) -> Option<u64> {
        quantity(self.block_number.as_deref()?)
    }

    /// The agent and block of an event that sets a status.
    pub(crate) fn moment(&self) -> Option<(u64, Moment)> {
        let event: B256 = self.topics.first()?.parse().ok()?;
        let sets_status = EVENTS.contains(&event)
            && event != ComplianceAttested::SIGNATURE_HASH
            && event != RevenueReported::SIGNATURE_HASH;
        let seconds = self.block_timestamp.as_deref().and_then(quantity);
        sets_status.then_some((self.agent()?, Moment { number: self.number()?, seconds }))
    }

    pub(crate) fn announced(&self) -> Announced {
        let (agent, number) = (self.agent(), self.number().unwrap_or_default());
        Announced { agent, number, fingerprint: self.fingerprint().unwrap_or_default() }
    }

    fn fingerprint(&self) -> Option<u64> {
        let hash: B256 = self.block_hash.as_deref()?.parse().ok()?;
        let index = quantity(self.log_index.as_deref()?)?;
        let first = hash.0.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        first.map(|hash| hash.wrapping_add(index))
    }

    fn agent(&self) -> Option<u64> {
        let topic: B256 = self.topics.get(1)?.parse().ok()?;
        U256::from_be_bytes(topic.0).try_into().ok()
    }
}

pub(crate) fn quantity(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
