//! A relay's state in JSON, the same in `GET /relay/:id` and in events.

use alloy::primitives::B256;
use registry_core::{eth::json, registry::agent::AgentId};
use schemars::JsonSchema;
use serde::Serialize;

use super::{ErrorCode, Failure, Finality, MinedTransaction, RelayOutcome};

/// The state of a relay.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RelayState<'a> {
    /// The relay's id: the EIP-712 digest of its request.
    #[serde(with = "json::Hash")]
    id: B256,
    /// `executed`; `reverted`: mined, but the inner call failed; `dropped`: not executed, and it will not be
    /// unless it is sent again. A reorganisation can turn each back to `pending`.
    #[schemars(extend("enum" = ["pending", "executed", "reverted", "dropped"]))]
    state: &'static str,
    #[serde(flatten)]
    mined: Option<MinedTransaction>,
    /// The finality of its block. A reorganisation can undo a block that is not `finalized`.
    #[serde(skip_serializing_if = "Option::is_none")]
    finality: Option<Finality>,
    /// The id of the agent that the call registered; absent if it registered none.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
    /// The reason of the failure, for people; its wording may change.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// The reason of the failure, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
}

impl<'a> RelayState<'a> {
    /// Creates the state of a relay, pending without an outcome; `finality` is its block's, if it has one.
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

    /// Returns the number of its block, if it was mined.
    pub(crate) fn block_number(&self) -> Option<u64> {
        self.mined.map(|mined| mined.block_number)
    }
}
