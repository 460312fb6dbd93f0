//! Records for this crate's own tests.

use alloy_primitives::{Address, B256, U256};

use crate::{
    eth::timestamp::Timestamp,
    registry::agent::{Agent, AgentId, Status},
};

/// Makes an active root agent, with every field derived from its id.
pub(crate) fn agent(id: u64) -> Agent {
    let address = |role: u8| Address::left_padding_from(&[&[role], id.to_be_bytes().as_slice()].concat());
    Agent {
        agent_id: AgentId(U256::from(id)),
        creator: address(1),
        haftungsperson: address(2),
        agent_wallet: address(3),
        constitution_hash: B256::repeat_byte(id as u8),
        capability_hash: B256::ZERO,
        operational_scope: format!("agent {id}"),
        parent_agent_id: AgentId(U256::ZERO),
        generation: U256::ZERO,
        self_modifying: false,
        registered_at: Timestamp::from_seconds(id),
        last_attestation: Timestamp::from_seconds(id),
        last_revenue_report: Timestamp::default(),
        status: Status::Active,
    }
}
