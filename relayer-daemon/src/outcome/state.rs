//! A relay's state in JSON: what `GET /relay/:id` and events say alike.

use alloy::primitives::B256;
use registry_core::{eth::json, registry::agent::AgentId};
use schemars::JsonSchema;
use serde::Serialize;

use super::{ErrorCode, Failure, Finality, MinedTransaction, RelayOutcome};

/// What became of a relay.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RelayState<'a> {
    /// The request's EIP-712 digest.
    #[serde(with = "json::Hash")]
    id: B256,
    /// `executed`; `reverted`: mined, but the inner call failed; `dropped`: not executed, and it will not be
    /// unless it is sent again. A reorganisation can turn each back to `pending`.
    #[schemars(extend("enum" = ["pending", "executed", "reverted", "dropped"]))]
    state: &'static str,
    #[serde(flatten)]
    mined: Option<MinedTransaction>,
    /// How final its block is: a reorganisation takes back what is not `finalized`.
    #[serde(skip_serializing_if = "Option::is_none")]
    finality: Option<Finality>,
    /// The agent that the call registered, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// Why it failed, to a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
}

impl<'a> RelayState<'a> {
    /// The state of a relay with this outcome, pending without one. Its block, if it has one, is so final.
    pub(crate) fn new(id: B256, outcome: Option<&'a RelayOutcome>, finality: Option<Finality>) -> Self {
        let (mined, failure, agent_id) = outcome.map_or((None, None, None), RelayOutcome::parts);
        Self {
            id,
            state: outcome.map_or("pending", RelayOutcome::state),
            mined: mined.copied(),
            finality: mined.and(finality),
            agent_id: agent_id.map(AgentId),
            error: failure.map(Failure::message),
            code: failure.map(|failure| failure.code),
        }
    }

    /// The number of its block, if it was mined.
    pub(crate) fn block_number(&self) -> Option<u64> {
        self.mined.map(|mined| mined.block_number)
    }
}
