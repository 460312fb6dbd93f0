//! Contract reads of the registry through a [`View`], and the meaning of its reverts.

use std::sync::Arc;

use alloy_primitives::{Address, U256};
use alloy_sol_types::SolCall;

use super::{
    error::QueryError,
    lens::Detail,
    rows::Rows,
    view::{Halt, Need, View},
    walk::WalkKey,
};
use crate::{
    eth::{
        abi::IAgentRegistry::{
            attestationGracePeriodCall, complianceStatusCall, getAgentByWalletCall, getAgentCall,
            getChildrenCall, nextAgentIdCall,
        },
        rpc::revert::Revert,
    },
    registry::{
        agent::{Agent, AgentId, Status, UnknownStatus},
        compliance::DEFAULT_GRACE_SECONDS,
        lineage::Children,
    },
};

/// Revert reasons for an unknown id or wallet (`service.md` section 7).
const AGENT_NOT_FOUND: &str = "Agent not found";
const WALLET_NOT_REGISTERED: &str = "No agent registered for this wallet";

/// The registry at an address, one function per contract read.
pub(crate) struct Registry<'a> {
    pub(crate) view: &'a View,
    pub(crate) address: Address,
}

impl<'a> Registry<'a> {
    pub(crate) fn call<C: SolCall>(&self, call: &C) -> Result<C::Return, Halt> {
        self.view.call(self.address, call)
    }

    /// Returns the number of agents; ids count from 1.
    pub(crate) fn total(&self) -> Result<U256, Halt> {
        Ok(self.call(&nextAgentIdCall {})?.saturating_sub(U256::from(1)))
    }

    /// Returns the grace period in seconds; the documented default if the contract lacks the function.
    pub(crate) fn grace_period(&self) -> Result<U256, Halt> {
        match self.call(&attestationGracePeriodCall {}) {
            Err(Halt::Error(QueryError::Reverted { revert: Revert { message: None }, .. })) => {
                Ok(U256::from(DEFAULT_GRACE_SECONDS))
            }
            grace => grace,
        }
    }

    /// Returns the agent of a wallet, if it has one.
    pub(crate) fn agent_of(&self, wallet: Address) -> Result<Option<Agent>, Halt> {
        match self.call(&getAgentByWalletCall { wallet }) {
            Err(halt) if says(&halt, WALLET_NOT_REGISTERED) => Ok(None),
            record => Ok(Some(Agent::try_from(record?).map_err(QueryError::from)?)),
        }
    }

    pub(crate) fn agent(&self, id: AgentId) -> Result<Agent, Halt> {
        match self.call(&getAgentCall { agentId: id.0 }) {
            Err(halt) if says(&halt, AGENT_NOT_FOUND) => Err(QueryError::AgentNotFound(id).into()),
            record => Ok(Agent::try_from(record?).map_err(QueryError::from)?),
        }
    }

    /// Returns an agent's status, without the fields that it can make arbitrarily long.
    pub(crate) fn status(&self, id: u64) -> Result<Status, Halt> {
        let agent_id = U256::from(id);
        let number = self.call(&complianceStatusCall { agentId: agent_id })?.status;
        let unknown = QueryError::UnknownStatus(UnknownStatus { agent_id, number });
        Ok(Status::from_number(number).ok_or(unknown)?)
    }

    /// Returns an agent's children. If they exceed the node's gas, the total is read instead, and children
    /// are searched among the agents registered later, as many as one call holds.
    pub(crate) fn children(&self, id: U256) -> Result<Children, Halt> {
        match self.call(&getChildrenCall { agentId: id }) {
            Err(Halt::Error(error @ QueryError::TooHeavy { .. })) => {
                let parent = u64::try_from(id).ok().filter(|id| *id < u64::MAX).ok_or(error)?;
                let compliance = self.call(&complianceStatusCall { agentId: id });
                let rows = self.rows(parent + 1, Detail::Rows, None);
                let (compliance, rows) = (compliance?, rows?);
                let found = rows.iter().filter(|(_, row)| row.record_is_readable() && row.parent == parent);
                let ids = found.map(|(id, _)| U256::from(id)).collect();
                Ok(Children { ids, total: compliance.childCount })
            }
            Err(halt) if says(&halt, AGENT_NOT_FOUND) => Err(QueryError::AgentNotFound(AgentId(id)).into()),
            children => Ok(Children::from(children?)),
        }
    }

    pub(crate) fn records(&self, ids: &[U256]) -> Result<Vec<Result<Agent, QueryError>>, Need> {
        let records = self.view.calls(self.address, ids.iter().map(|id| getAgentCall { agentId: *id }))?;
        Ok(records.into_iter().map(|record| Ok(record?.try_into()?)).collect())
    }

    pub(crate) fn rows(&self, first: u64, detail: Detail, last: Option<u64>) -> Result<&'a Arc<Rows>, Need> {
        self.view.rows(WalkKey { registry: self.address, first, detail, listed: None }, last)
    }

    /// Returns the rows of these agents, numbered from 1 on.
    pub(crate) fn listed_rows(&self, ids: &Arc<[u64]>, detail: Detail) -> Result<&'a Arc<Rows>, Need> {
        let listed = Some(Arc::clone(ids));
        self.view.rows(WalkKey { registry: self.address, first: 1, detail, listed }, Some(ids.len() as u64))
    }
}

/// Returns whether the registry says that there is no such agent.
pub(crate) fn is_absent(error: &QueryError) -> bool {
    reverts_with(error, AGENT_NOT_FOUND)
}

/// Returns whether a call reverted with exactly this reason.
fn says(halt: &Halt, reason: &str) -> bool {
    matches!(halt, Halt::Error(error) if reverts_with(error, reason))
}

fn reverts_with(error: &QueryError, reason: &str) -> bool {
    matches!(error, QueryError::Reverted { revert, .. } if revert.message.as_deref() == Some(reason))
}
