//! Compliance: an agent is compliant while it is Active and its last attestation is within the grace period
//! (`service.md` section 2).

use alloy_primitives::{Address, U256};
use serde::Serialize;

use crate::{
    eth::json,
    eth::timestamp::Timestamp,
    registry::agent::{Agent, AgentId, Status},
    registry::cursor::AgentCursor,
};

/// The grace period in seconds of a registry without one: 7 days (`service.md` section 8).
pub const DEFAULT_GRACE_SECONDS: u64 = 604_800;

/// An agent's compliance (`service.md` section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Compliance {
    /// True if the status is Active.
    pub is_active: bool,
    /// True if the last attestation is at most the grace period old, to the second.
    pub attestation_current: bool,
    /// Seconds since the last attestation; 0 if the host's clock is behind the chain's.
    pub seconds_since_attestation: u64,
    /// Number of direct children.
    #[serde(with = "json::Integer")]
    pub child_count: U256,
    /// The agent's status.
    pub status: Status,
}

impl Compliance {
    /// Judges the compliance of `agent` at `now`.
    pub fn of(agent: &Agent, child_count: U256, grace_seconds: U256, now: Timestamp) -> Self {
        Self::judge(agent.status, agent.last_attestation, child_count, grace_seconds, now)
    }

    /// Judges the compliance of an agent with this status and attestation.
    pub(crate) fn judge(
        status: Status,
        last_attestation: Timestamp,
        child_count: U256,
        grace_seconds: U256,
        now: Timestamp,
    ) -> Self {
        let age = now.seconds().saturating_sub(last_attestation.seconds());
        Self {
            is_active: status == Status::Active,
            attestation_current: U256::from(age) <= grace_seconds,
            seconds_since_attestation: age,
            child_count,
            status,
        }
    }

    /// Returns whether the agent is Active and its attestation current.
    pub const fn is_compliant(&self) -> bool {
        self.is_active && self.attestation_current
    }
}

/// Returns the first second at which the attestation is no longer current; `None` if no clock reaches it.
pub fn lapses_at(agent: &Agent, grace_seconds: U256) -> Option<Timestamp> {
    let grace = u64::try_from(grace_seconds).ok()?;
    agent.last_attestation.seconds().checked_add(grace)?.checked_add(1).map(Timestamp::from_seconds)
}

/// An item of `/agents/compliance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ComplianceListItem {
    /// The agent.
    pub agent_id: AgentId,
    /// The wallet that registered it.
    #[serde(with = "json::Checksummed")]
    pub creator: Address,
    /// Its status.
    pub status: Status,
    /// Its compliance now.
    pub compliance: Compliance,
}

/// A page of `/agents/compliance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompliancePage {
    /// Agents per page.
    pub limit: u64,
    /// The start of the page; `None` for the list's start.
    pub cursor: Option<AgentCursor>,
}

/// The answer of `/agents/compliance`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComplianceList {
    /// Number of agents.
    pub total: usize,
    /// The page size used: the one requested, capped. Absent for the whole list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The agents of the list or page, the stalest attestation first, equally stale ones by id.
    pub data: Vec<ComplianceListItem>,
    /// The cursor of the next page; absent on the last page and for the whole list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<AgentCursor>,
    /// Unreadable agents, which are not in the list. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<AgentId>,
}

impl ComplianceList {
    /// Returns the approximate size of the JSON in bytes.
    pub(crate) fn size_hint(&self) -> usize {
        128 + self.data.len() * 225
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::fixture::agent;
    use proptest::prelude::*;

    const GRACE: U256 = U256::from_limbs([DEFAULT_GRACE_SECONDS, 0, 0, 0]);

    proptest! {
        #[test]
        fn a_clock_behind_the_chain_counts_as_no_age(now: u64, ahead in 0u64..1_000_000) {
            let mut agent = agent(1);
            agent.last_attestation = Timestamp::from_seconds(now.saturating_add(ahead));
            let compliance = Compliance::of(&agent, U256::ZERO, GRACE, Timestamp::from_seconds(now));
            prop_assert_eq!(compliance.seconds_since_attestation, 0);
            prop_assert!(compliance.attestation_current);
        }
    }
}
