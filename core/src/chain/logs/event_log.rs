//! Events of certain agents, decoded and checked. If any log of an `eth_getLogs` result does not match the
//! filter, the whole result is malformed.

use alloy_primitives::{Address, B256, U256, hex};
use alloy_sol_types::{SolEvent, SolType};
use serde::Deserialize;

use super::hint::Topics;
use crate::{
    eth::abi::{
        self,
        IAgentRegistry::{
            AgentReactivated, AgentRegistered, AgentRevoked, AgentSuspended, AgentTerminated,
            ComplianceAttested, RevenueReported,
        },
    },
    eth::spelled::quantity,
    registry::agent::AgentId,
    registry::history::AgentEvent,
};

/// Events of certain agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFilter {
    pub(crate) events: Vec<B256>,
    pub(crate) agents: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventLog {
    pub(crate) number: u64,
    pub(crate) index: u64,
    pub(crate) block_hash: B256,
    pub(crate) transaction_hash: B256,
    /// The block's timestamp in unix seconds; `None` if the node omits it.
    pub(crate) seconds: Option<u64>,
    /// Id of the agent that the event is about.
    pub(crate) agent: u64,
    pub(crate) event: AgentEvent,
}

impl EventLog {
    pub(crate) const fn is_registration(&self) -> bool {
        matches!(self.event, AgentEvent::Registered { .. })
    }

    /// Returns the bytes of the texts, which have no length limit.
    pub(crate) const fn text_bytes(&self) -> usize {
        match &self.event {
            AgentEvent::RevenueReported { currency, category, .. } => currency.len() + category.len(),
            AgentEvent::Suspended { reason, .. } | AgentEvent::Revoked { reason, .. } => reason.len(),
            _ => 0,
        }
    }
}

/// A log as nodes encode it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireLog {
    address: String,
    topics: Topics,
    data: String,
    block_number: String,
    block_hash: String,
    transaction_hash: String,
    log_index: String,
    /// Not every node sends it.
    #[serde(default)]
    block_timestamp: Option<String>,
    #[serde(default)]
    removed: bool,
}

/// Decodes an `eth_getLogs` result for these blocks, both inclusive; `None` if any log does not match.
pub(crate) fn parse(
    text: &str,
    registry: Address,
    filter: &LogFilter,
    (from, to): (u64, u64),
) -> Option<Vec<EventLog>> {
    let logs: Vec<WireLog> = serde_json::from_str(text).ok()?;
    logs.into_iter()
        .map(|wire| {
            let is_of_registry = wire.address.parse() == Ok(registry) && !wire.removed;
            let log = wire.decode().filter(|_| is_of_registry)?;
            let is_asked_for = (from..=to).contains(&log.number) && filter.agents.contains(&log.agent);
            is_asked_for.then_some(log)
        })
        .collect()
}

impl WireLog {
    fn decode(self) -> Option<EventLog> {
        let agent = u64::try_from(U256::from_be_bytes(self.topics.get(1)?.0)).ok()?;
        let data = hex::decode(&self.data).ok()?;
        let event = event(&self.topics, &data)?;
        // An attestation carries its block's time.
        let is_attestation = self.topics.get(0) == Some(ComplianceAttested::SIGNATURE_HASH);
        let attested_at = U256::try_from_be_slice(&data).filter(|_| is_attestation);
        let attested_at = attested_at.and_then(|seconds| u64::try_from(seconds).ok());
        Some(EventLog {
            number: quantity(&self.block_number)?,
            index: quantity(&self.log_index)?,
            block_hash: self.block_hash.parse().ok()?,
            transaction_hash: self.transaction_hash.parse().ok()?,
            seconds: self.block_timestamp.as_deref().and_then(quantity).or(attested_at),
            agent,
            event,
        })
    }
}

/// Decodes topics and data. `by` is a topic, so that only three kinds have data that matters here.
fn event(topics: &Topics, data: &[u8]) -> Option<AgentEvent> {
    let account = |position: usize| topics.get(position).map(Address::from_word);
    let by = account(2)?;
    Some(match topics.get(0)? {
        AgentRegistered::SIGNATURE_HASH => {
            let (haftungsperson, parent, generation) = decode::<AgentRegistered>(data)?;
            AgentEvent::Registered {
                creator: account(3)?,
                haftungsperson,
                agent_wallet: by,
                parent_agent_id: AgentId(parent),
                generation,
            }
        }
        RevenueReported::SIGNATURE_HASH => {
            let (amount, currency, category) = decode::<RevenueReported>(data)?;
            AgentEvent::RevenueReported { by, amount, currency, category }
        }
        // Both have a reason and nothing else.
        kind @ (AgentSuspended::SIGNATURE_HASH | AgentRevoked::SIGNATURE_HASH) => {
            let (reason,) = decode::<AgentSuspended>(data)?;
            match kind == AgentSuspended::SIGNATURE_HASH {
                true => AgentEvent::Suspended { by, reason },
                false => AgentEvent::Revoked { by, reason },
            }
        }
        ComplianceAttested::SIGNATURE_HASH => AgentEvent::Attested { by },
        AgentReactivated::SIGNATURE_HASH => AgentEvent::Reactivated { by },
        AgentTerminated::SIGNATURE_HASH => AgentEvent::Terminated { by },
        _ => return None,
    })
}

/// Decodes an event's data, with memory bounded by the data's own size.
fn decode<'a, E: SolEvent>(data: &'a [u8]) -> Option<<E::DataTuple<'a> as SolType>::RustType> {
    E::abi_decode_data_with_config(data, abi::bounded(data)).ok()
}
