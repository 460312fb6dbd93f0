//! Outcomes of relays and reasons of refusals: one vocabulary for pipeline, store and HTTP.

mod error_code;
mod failure;
mod finality;
mod state;

use alloy::primitives::{B256, U256};
use registry_core::eth::json;
use schemars::JsonSchema;
use serde::Serialize;

pub use error_code::ErrorCode;
pub use failure::Failure;
pub use finality::{BlockHeads, Finality};
pub(crate) use state::RelayState;

/// The end of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayOutcome {
    /// The inner call succeeded on chain.
    Executed {
        /// The transaction.
        mined: MinedTransaction,
        /// The agent that the call registered, if it did.
        agent_id: Option<U256>,
    },
    /// Our transaction was mined, but the inner call failed, or the forwarder did not make it.
    Reverted {
        /// The transaction.
        mined: MinedTransaction,
        /// The reason, in the contract's words.
        failure: Failure,
    },
    /// We executed nothing, and will not.
    Dropped {
        /// The reason.
        failure: Failure,
    },
}

/// The mined transaction that ended a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MinedTransaction {
    /// The hash of the transaction.
    #[serde(with = "json::Hash")]
    pub tx_hash: B256,
    /// The number of the block that holds the transaction.
    pub block_number: u64,
    /// The gas that the transaction used.
    pub gas_used: u64,
}

impl RelayOutcome {
    /// Returns the relay's state as `GET /relay/:id` names it.
    pub const fn state(&self) -> &'static str {
        match self {
            Self::Executed { .. } => "executed",
            Self::Reverted { .. } => "reverted",
            Self::Dropped { .. } => "dropped",
        }
    }

    /// Returns the transaction that ended it, the reason of its failure, and the agent that it registered.
    pub const fn parts(&self) -> (Option<&MinedTransaction>, Option<&Failure>, Option<U256>) {
        match self {
            Self::Executed { mined, agent_id } => (Some(mined), None, *agent_id),
            Self::Reverted { mined, failure } => (Some(mined), Some(failure), None),
            Self::Dropped { failure } => (None, Some(failure), None),
        }
    }

    /// Returns whether the operator has ended it: it is not accepted again for as long as that is known.
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Dropped { failure } if matches!(failure.code, ErrorCode::Cancelled))
    }

    /// Returns whether the relay's own transaction has used the signed request: carried it out, or failed
    /// inside of it.
    pub const fn has_used_request(&self) -> bool {
        match self {
            Self::Executed { .. } => true,
            Self::Reverted { failure, .. } => {
                !matches!(failure.code, ErrorCode::ForwarderRefused | ErrorCode::Superseded)
            }
            Self::Dropped { .. } => false,
        }
    }

    /// Returns whether the signed request may be sent again: only if no transaction carried it out, so that
    /// the forwarder still takes it.
    pub const fn is_repeatable(&self) -> bool {
        match self {
            Self::Executed { .. } => false,
            Self::Reverted { failure, .. } => matches!(failure.code, ErrorCode::ForwarderRefused),
            Self::Dropped { failure } => !matches!(failure.code, ErrorCode::Superseded),
        }
    }
}
