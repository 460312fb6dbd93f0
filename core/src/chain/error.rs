//! What can end a run, in words that are safe to show.

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

/// Why a question could not be answered. None of the messages carries an endpoint's URL or key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The host could not reach the endpoint, or the connection broke.
    #[error("RPC endpoint unreachable")]
    Unreachable,
    /// The endpoint did not answer in the time allowed.
    #[error("RPC endpoint did not answer within {seconds} s")]
    TimedOut {
        /// How long the host waited, rounded up.
        seconds: u32,
    },
    /// The endpoint answered with this status and no JSON-RPC.
    #[error("RPC endpoint answered HTTP {0}")]
    Http(u16),
    /// The endpoint answered something that is not what was asked for.
    #[error("RPC endpoint gave a malformed answer")]
    Malformed,
    /// The node refused a call.
    #[error("RPC endpoint error {code}: {message}")]
    Node {
        /// The JSON-RPC error code.
        code: i64,
        /// The node's message, without anything that looks like an address on the net or a key.
        message: String,
    },
    /// The endpoint is on another chain than it has to be.
    #[error("RPC endpoint is on chain {found}, not {expected}")]
    WrongChain {
        /// The chain id it gave.
        found: u64,
        /// The chain id of the other endpoints, or of the settings.
        expected: u64,
    },
    /// The endpoint has fallen behind.
    #[error("RPC endpoint's newest block is {seconds} s old")]
    StaleHead {
        /// By the host's clock.
        seconds: u64,
    },
    /// None of several endpoints gave an answer.
    #[error("No RPC endpoint answered ({tried} of {count} tried). Number {position}: {error}")]
    Unanswered {
        /// Endpoints that were tried.
        tried: usize,
        /// Endpoints that there are.
        count: usize,
        /// The place in the operator's list, from 1, of the endpoint that the error is from.
        position: usize,
        /// Its error: the last one that will not pass by itself, or else the last.
        error: Box<RunError>,
    },
    /// There is no code at this address.
    #[error("No contract at {0}")]
    NoContract(Address),
    /// Multicall3 is not at the configured address.
    #[error("No Multicall3 at {0}; set MULTICALL3_ADDRESS to where it is on this chain")]
    NoMulticall(Address),
    /// What is at Multicall3's address can't tell what has to be checked.
    #[error("Multicall3 gave no answer to {function}")]
    MulticallLacks {
        /// The function's signature.
        function: &'static str,
    },
    /// The contract returned something else than its interface says.
    #[error("Contract returned no valid answer to {function}")]
    BadReturn {
        /// The function's signature.
        function: &'static str,
    },
    /// No node knew the block to read at.
    #[error("RPC endpoint does not have the block it named")]
    BlockUnavailable,
    /// Nothing new came in, and nothing more could be asked.
    #[error("RPC endpoint left calls unanswered")]
    Stalled,
    /// The endpoints answered, but together too slowly.
    #[error("Answer was not complete within {seconds} s")]
    OutOfTime {
        /// The deadline, rounded up.
        seconds: u32,
    },
    /// More batches than allowed, as the endpoints did too little in each.
    #[error("Answer needs too many round trips")]
    TooManyRounds,
    /// More calls than allowed.
    #[error("Answer needs too many contract calls")]
    TooManyCalls,
}

impl RunError {
    /// What it is to a program.
    pub const fn code(&self) -> Code {
        match self {
            Self::Unreachable
            | Self::TimedOut { .. }
            | Self::Http(_)
            | Self::StaleHead { .. }
            | Self::BlockUnavailable
            | Self::TooManyRounds
            | Self::OutOfTime { .. } => Code::RpcUnavailable,
            Self::Malformed | Self::Node { .. } | Self::WrongChain { .. } | Self::Stalled => Code::RpcError,
            Self::NoContract(_)
            | Self::NoMulticall(_)
            | Self::MulticallLacks { .. }
            | Self::BadReturn { .. } => Code::RegistryError,
            Self::TooManyCalls => Code::TooLarge,
            Self::Unanswered { error, .. } => error.code(),
        }
    }

    /// Whether it says that a block asked about is not to be had: that no node has it, or that the contracts were not there yet.
    pub(super) fn is_about_the_block(&self) -> bool {
        match self {
            Self::BlockUnavailable | Self::NoContract(_) | Self::NoMulticall(_) => true,
            Self::Unanswered { error, .. } => error.is_about_the_block(),
            _ => false,
        }
    }

    /// A node's error, made safe to show.
    pub(crate) fn node(error: &ErrorPayload) -> Self {
        Self::Node { code: error.code, message: without_secrets(&error.message) }
    }

    /// The same without the secrets of the endpoints that were asked, however short and bare a node quotes them.
    pub fn redacted(self, redactor: &Redactor) -> Self {
        match self {
            Self::Node { code, message } => Self::Node { code, message: redactor.clean(&message) },
            Self::Unanswered { tried, count, position, error } => {
                Self::Unanswered { tried, count, position, error: Box::new(error.redacted(redactor)) }
            }
            other => other,
        }
    }
}

/// What a query over the registry can end with instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The caller's: the registry has no such agent. 404.
    #[error("Agent not found: {0}")]
    AgentNotFound(AgentId),
    /// The caller's: no RPC endpoint has the state of the block asked about. 404.
    #[error(
        "Block not available: {0}. It is not on the chain, or older than the state that the RPC endpoint keeps"
    )]
    BlockNotAvailable(BlockId),
    /// The registry's: it reverted where it should not have. 500.
    #[error("Registry call {function} reverted: {revert}")]
    Reverted {
        /// The contract function.
        function: &'static str,
        /// What it said.
        revert: Revert,
    },
    /// The registry's: an answer takes more gas than the RPC endpoint has for a call, or is larger than can be read. 500.
    #[error("Registry call {function} needs more gas, or a larger answer, than the RPC endpoint allows")]
    TooHeavy {
        /// The contract function.
        function: &'static str,
    },
    /// The registry's: it answered what its interface does not define. 500.
    #[error("Registry answered nonsense: {0}")]
    UnknownStatus(#[from] UnknownStatus),
    /// The registry's: more agents than one answer can hold. 500.
    #[error("Registry has {0} agents, more than one answer can cover; the most are {MAX_AGENTS}")]
    TooManyAgents(U256),
    /// The chain's or the RPC endpoint's. 500.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl QueryError {
    /// What it is to a program.
    pub const fn code(&self) -> Code {
        match self {
            Self::AgentNotFound(_) => Code::AgentNotFound,
            Self::BlockNotAvailable(_) => Code::BlockNotAvailable,
            Self::Reverted { .. } | Self::UnknownStatus(_) => Code::RegistryError,
            Self::TooManyAgents(_) | Self::TooHeavy { .. } => Code::TooLarge,
            Self::Run(error) => error.code(),
        }
    }

    /// Whether it is about one agent's record, and says nothing about the others.
    pub(crate) const fn is_of_one_record(&self) -> bool {
        matches!(self, Self::TooHeavy { .. } | Self::Reverted { .. } | Self::UnknownStatus(_))
    }

    /// The same without the secrets of the endpoints that were asked.
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
        assert_eq!(
            error.to_string(),
            "No RPC endpoint answered (2 of 3 tried). Number 2: RPC endpoint error 1: *** is over its quota"
        );
    }
}
