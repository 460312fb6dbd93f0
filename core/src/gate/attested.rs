//! The query for a liable wallet's attestations of an agent, for hosts without an index of the agent's
//! events.

use alloy_primitives::{Address, U256};
use alloy_sol_types::SolEvent as _;

use crate::{
    chain::{
        Halt, Query, QueryError, View,
        logs::{LogFilter, LogsQuery},
    },
    eth::{
        abi::IAgentRegistry::{ComplianceAttested, RevenueReported},
        as_of::BlockId,
        timestamp::Timestamp,
    },
    registry::history::AgentEvent,
};

/// A query for the attestations and revenue reports of one agent, with one `eth_getLogs` by topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttestedQuery {
    /// The registry.
    pub registry: Address,
    /// The agent's id.
    pub agent: U256,
    /// The liable wallet.
    pub liable: Address,
    /// The verdict's block.
    pub block: u64,
    /// The earliest time that suffices, for hosts that cache answers. The answer may be an earlier time.
    pub since: Timestamp,
}

impl Query for AttestedQuery {
    /// The time of the last event by the liable wallet; `None` where there is none, and where the node
    /// refuses the range or does not give the time.
    type Output = Option<Timestamp>;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<Self::Output, Halt> {
        // A registry counts its ids up from 1: no agent has a larger one.
        let Ok(agent) = u64::try_from(self.agent) else { return Ok(None) };
        let events = vec![ComplianceAttested::SIGNATURE_HASH, RevenueReported::SIGNATURE_HASH];
        let query = LogsQuery {
            registry: self.registry,
            filter: Some(LogFilter { events, agents: vec![agent] }),
            from: 0,
            to: self.block,
            range: None,
            most_calls: 1,
            may_end_early: false,
        };
        let Ok(found) = view.logs(&query)? else { return Ok(None) };
        let by_liable = found.logs.iter().filter(|log| match &log.event {
            AgentEvent::Attested { by } | AgentEvent::RevenueReported { by, .. } => *by == self.liable,
            _ => false,
        });
        Ok(by_liable.filter_map(|log| log.seconds).max().map(Timestamp::from_seconds))
    }

    fn block(&self) -> Option<BlockId> {
        Some(BlockId::Number(self.block))
    }

    fn reads_other_blocks(&self) -> bool {
        true
    }
}
