//! Events of certain agents, as `eth_getLogs` lists them, decoded and checked. What a node lists for one filter and does not match it
//! makes its reply malformed: no part of it is believed.

use alloy_primitives::{Address, B256, U256, hex};
use alloy_sol_types::{SolEvent, SolType, abi::AbiDecoderConfig};
use serde::Deserialize;

use super::hint::quantity;
use crate::{
    eth::abi::IAgentRegistry::{
        AgentReactivated, AgentRegistered, AgentRevoked, AgentSuspended, AgentTerminated, ComplianceAttested,
        RevenueReported,
    },
    registry::agent::AgentId,
    registry::history::Event,
};

/// Which events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) events: Vec<B256>,
    /// Whom they are about.
    pub(crate) agents: Vec<u64>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventLog {
    pub(crate) number: u64,
    pub(crate) index: u64,
    pub(crate) block_hash: B256,
    pub(crate) transaction_hash: B256,
    /// The time of the block, unix seconds; `None` where the node does not say.
    pub(crate) seconds: Option<u64>,
    /// Whom it is about.
    pub(crate) agent: u64,
    pub(crate) event: Event,
}

impl EventLog {
    pub(crate) const fn is_registration(&self) -> bool {
        matches!(self.event, Event::Registered { .. })
    }

    /// Bytes of its texts: what may be long in it.
    pub(crate) const fn text_bytes(&self) -> usize {
        match &self.event {
            Event::RevenueReported { currency, category, .. } => currency.len() + category.len(),
            Event::Suspended { reason, .. } | Event::Revoked { reason, .. } => reason.len(),
            _ => 0,
        }
    }
}

/// A log as nodes write it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    address: String,
    topics: Vec<String>,
    data: String,
    block_number: String,
    block_hash: String,
    transaction_hash: String,
    log_index: String,
    /// Not in every node's logs.
    #[serde(default)]
    block_timestamp: Option<String>,
    #[serde(default)]
    removed: bool,
}

/// The events in the result of an `eth_getLogs` about these blocks, both included; `None` where it is no such result.
pub(crate) fn parse(
    text: &str,
    registry: Address,
    filter: &Filter,
    (from, to): (u64, u64),
) -> Option<Vec<EventLog>> {
    let logs: Vec<Wire> = serde_json::from_str(text).ok()?;
    logs.into_iter()
        .map(|wire| {
            let is_of_registry = wire.address.parse() == Ok(registry) && !wire.removed;
            let log = wire.decode().filter(|_| is_of_registry)?;
            let is_asked_for = (from..=to).contains(&log.number) && filter.agents.contains(&log.agent);
            is_asked_for.then_some(log)
        })
        .collect()
}

impl Wire {
    fn decode(self) -> Option<EventLog> {
        let topics: Vec<B256> = self.topics.iter().map(|topic| topic.parse().ok()).collect::<Option<_>>()?;
        let agent = u64::try_from(U256::from_be_bytes(topics.get(1)?.0)).ok()?;
        let data = hex::decode(&self.data).ok()?;
        let event = event(&topics, &data)?;
        Some(EventLog {
            number: quantity(&self.block_number)?,
            index: quantity(&self.log_index)?,
            block_hash: self.block_hash.parse().ok()?,
            transaction_hash: self.transaction_hash.parse().ok()?,
            seconds: self.block_timestamp.as_deref().and_then(quantity),
            agent,
            event,
        })
    }
}

/// What the topics and data of an event say. `by` is a topic, so that only three kinds have data that matters here.
fn event(topics: &[B256], data: &[u8]) -> Option<Event> {
    let account = |position: usize| topics.get(position).map(|word| Address::from_word(*word));
    let by = account(2)?;
    Some(match *topics.first()? {
        AgentRegistered::SIGNATURE_HASH => {
            let (haftungsperson, parent, generation) = decode::<AgentRegistered>(data)?;
            Event::Registered {
                creator: account(3)?,
                haftungsperson,
                agent_wallet: by,
                parent_agent_id: AgentId(parent),
                generation,
            }
        }
        RevenueReported::SIGNATURE_HASH => {
            let (amount, currency, category) = decode::<RevenueReported>(data)?;
            Event::RevenueReported { by, amount, currency, category }
        }
        // Both have a reason, and nothing else.
        kind @ (AgentSuspended::SIGNATURE_HASH | AgentRevoked::SIGNATURE_HASH) => {
            let (reason,) = decode::<AgentSuspended>(data)?;
            match kind == AgentSuspended::SIGNATURE_HASH {
                true => Event::Suspended { by, reason },
                false => Event::Revoked { by, reason },
            }
        }
        ComplianceAttested::SIGNATURE_HASH => Event::Attested { by },
        AgentReactivated::SIGNATURE_HASH => Event::Reactivated { by },
        AgentTerminated::SIGNATURE_HASH => Event::Terminated { by },
        _ => return None,
    })
}

/// The data of an event. Decoding takes no more memory than the data itself is large, and a little.
fn decode<'a, E: SolEvent>(data: &'a [u8]) -> Option<<E::DataTuple<'a> as SolType>::RustType> {
    let config = AbiDecoderConfig::new().memory_limit(data.len() + 1_024);
    E::abi_decode_data_with_config(data, config).ok()
}
