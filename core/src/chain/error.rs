//! Errors that end a run or a query, with messages that are safe to show.

use alloy_primitives::{Address, U256};

use crate::{
    chain::rows::MAX_AGENTS,
    eth::{
        as_of::BlockId,
        redact::{Redactor, without_secrets},
        rpc::{ErrorPayload, revert::Revert},
    },
    registry::{
        agent::{AgentId, UnknownStatus},
        error_code::Code,
    },
};

/// Error that ends a run. No message carries an endpoint's URL or key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The endpoint could not be reached, or the connection broke.
    #[error("RPC endpoint unreachable")]
    Unreachable,
    /// The endpoint timed out.
    #[error("RPC endpoint did not answer within {seconds} s")]
    TimedOut {
        /// The time-out, rounded up.
        seconds: u32,
    },
    /// The endpoint answered with this status and no JSON-RPC.
    #[error("RPC endpoint answered HTTP {0}")]
    Http(u16),
    /// The reply does not match the request.
    #[error("RPC endpoint gave a malformed answer")]
    Malformed,
    /// The node refused a call.
    #[error("RPC endpoint error {code}: {message}")]
    Node {
        /// The JSON-RPC error code.
        code: i64,
        /// The node's message, without anything that looks like a URL or a key.
        message: String,
    },
    /// The endpoint is on another chain than expected.
    #[error("RPC endpoint is on chain {found}, not {expected}")]
    WrongChain {
        /// The chain id it gave.
        found: u64,
        /// The expected chain id, from the other endpoints or the settings.
        expected: u64,
    },
    /// The endpoint lags.
    #[error("RPC endpoint's newest block is {seconds} s old")]
    StaleHead {
        /// Age of its newest block by the host's clock.
        seconds: u64,
    },
    /// Every one of several endpoints failed.
    #[error("No RPC endpoint answered ({tried} of {count} tried). Number {position}: {error}")]
    Unanswered {
        /// Endpoints that were tried.
        tried: usize,
        /// Endpoints configured.
        count: usize,
        /// Position in the operator's list, from 1, of the endpoint that `error` is from.
        position: usize,
        /// The last error that is not transient, else the last.
        error: Box<RunError>,
    },
    /// There is no code at this address.
    #[error("No contract at {0}")]
    NoContract(Address),
    /// Multicall3 is not at the configured address.
    #[error("No Multicall3 at {0}; set MULTICALL3_ADDRESS to where it is on this chain")]
    NoMulticall(Address),
    /// The contract at Multicall3's address cannot answer a required check.
    #[error("Multicall3 gave no answer to {function}")]
    MulticallLacks {
        /// The function's signature.
        function: &'static str,
    },
    /// The contract's return data does not match its interface.
    #[error("Contract returned no valid answer to {function}")]
    BadReturn {
        /// The function's signature.
        function: &'static str,
    },
    /// The endpoint ignored the block to read at.
    #[error("RPC endpoint answered at another block than asked")]
    OtherBlock,
    /// The endpoint has the newest block's state, but not that of the block to read at.
    #[error("RPC endpoint does not have the state of the block: {message}")]
    NoState {
        /// The node's message, without anything that looks like a URL or a key.
        message: String,
    },
    /// The endpoint proves no state, or not that of the block it has just named.
    #[error("RPC endpoint gives no proof (eth_getProof): {message}")]
    NoProof {
        /// The node's message, without anything that looks like a URL or a key.
        message: String,
    },
    /// The node did not know the block to read at.
    #[error("RPC endpoint does not have the block it named")]
    BlockUnavailable,
    /// The replies made no progress.
    #[error("RPC endpoint left calls unanswered")]
    Stalled,
    /// The deadline expired before the answer was complete.
    #[error("Answer was not complete within {seconds} s")]
    OutOfTime {
        /// The deadline, rounded up.
        seconds: u32,
    },
    /// The run exceeded its limit of batches.
    #[error("Answer needs too many round trips")]
    TooManyRounds,
    /// The run exceeded its limit of contract reads.
    #[error("Answer needs too many contract calls")]
    TooManyCalls,
}

impl RunError {
    /// Returns the stable error code.
    pub const fn code(&self) -> Code {
        match self {
            Self::Unreachable
            | Self::TimedOut { .. }
            | Self::Http(_)
            | Self::StaleHead { .. }
            | Self::BlockUnavailable
            | Self::NoState { .. }
            | Self::TooManyRounds
            | Self::OutOfTime { .. } => Code::RpcUnavailable,
            Self::Malformed
            | Self::Node { .. }
            | Self::WrongChain { .. }
            | Self::OtherBlock
            | Self::Stalled => Code::RpcError,
            Self::NoContract(_)
            | Self::NoMulticall(_)
            | Self::MulticallLacks { .. }
            | Self::BadReturn { .. } => Code::RegistryError,
            Self::TooManyCalls => Code::TooLarge,
            Self::NoProof { .. } => Code::NodeLacksMethod,
            Self::Unanswered { error, .. } => error.code(),
        }
    }

    /// Returns whether the block asked about is unavailable: no node has it, or the contracts are newer.
    pub(super) fn is_about_the_block(&self) -> bool {
        match self {
            Self::BlockUnavailable | Self::NoState { .. } | Self::NoContract(_) | Self::NoMulticall(_) => {
                true
            }
            Self::Unanswered { error, .. } => error.is_about_the_block(),
            _ => false,
        }
    }

    /// Converts a node's error, without secrets.
    pub(crate) fn node(error: &ErrorPayload) -> Self {
        Self::Node { code: error.code, message: without_secrets(&error.message) }
    }

    /// Removes the endpoints' secrets, even short ones that a node quotes without their URL.
    pub fn redacted(self, redactor: &Redactor) -> Self {
        match self {
            Self::Node { code, message } => Self::Node { code, message: redactor.clean(&message) },
            Self::NoState { message } => Self::NoState { message: redactor.clean(&message) },
            Self::NoProof { message } => Self::NoProof { message: redactor.clean(&message) },
            Self::Unanswered { tried, count, position, error } => {
                Self::Unanswered { tried, count, position, error: Box::new(error.redacted(redactor)) }
            }
            other => other,
        }
    }
}

/// Error that ends a query over the registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The caller's fault: the registry has no such agent. 404.
    #[error("Agent not found: {0}")]
    AgentNotFound(AgentId),
    /// The caller's fault: no RPC endpoint has the state of the block asked about. 404.
    #[error(
        "Block not available: {0}. It is not on the chain, or older than the state that the RPC endpoint keeps"
    )]
    BlockNotAvailable(BlockId),
    /// The registry's fault: an unexpected revert. 500.
    #[error("Registry call {function} reverted: {revert}")]
    Reverted {
        /// The contract function.
        function: &'static str,
        /// The revert's reason.
        revert: Revert,
    },
    /// The registry's fault: an answer exceeds the RPC endpoint's gas limit or the size cap. 500.
    #[error("Registry call {function} needs more gas, or a larger answer, than the RPC endpoint allows")]
    TooHeavy {
        /// The contract function.
        function: &'static str,
    },
    /// The registry's fault: a status that its interface does not define. 500.
    #[error("Registry answered nonsense: {0}")]
    UnknownStatus(#[from] UnknownStatus),
    /// The registry's fault: more agents than one answer can hold. 500.
    #[error("Registry has {0} agents, more than one answer can cover; the most are {MAX_AGENTS}")]
    TooManyAgents(U256),
    /// The chain's or the RPC endpoint's fault. 500.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl QueryError {
    /// Returns the stable error code.
    pub const fn code(&self) -> Code {
        match self {
            Self::AgentNotFound(_) => Code::AgentNotFound,
            Self::BlockNotAvailable(_) => Code::BlockNotAvailable,
            Self::Reverted { .. } | Self::UnknownStatus(_) => Code::RegistryError,
            Self::TooManyAgents(_) | Self::TooHeavy { .. } => Code::TooLarge,
            Self::Run(error) => error.code(),
        }
    }

    /// Returns whether only one agent's record is affected.
    pub(crate) const fn is_of_one_record(&self) -> bool {
        matches!(self, Self::TooHeavy { .. } | Self::Reverted { .. } | Self::UnknownStatus(_))
    }

    /// Removes the endpoints' secrets.
    #[must_use]
    pub fn redacted(self, redactor: &Redactor) -> Self {
        match self {
            Self::Run(error) => Self::Run(error.redacted(redactor)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_endpoints_the_message_names_one_and_hides_its_key() {
        let error = Box::new(RunError::Node { code: 1, message: "k3yk3y is over its quota".into() });
        let error = RunError::Unanswered { tried: 2, count: 3, position: 2, error }
            .redacted(&Redactor::new(["https://a.example", "https://b.example/k3yk3y"]));
        let last = "Number 2: RPC endpoint error 1: *** is over its quota";
        assert_eq!(error.to_string(), format!("No RPC endpoint answered (2 of 3 tried). {last}"));
    }
}
