//! Errors of calls to the endpoints.

use registry_core::eth::rpc::ErrorPayload;
use thiserror::Error;

use crate::outcome::{ErrorCode, Failure};

/// The reason why a call has no result. Names no endpoint: clients see it.
#[derive(Debug, Clone, Error)]
pub enum RpcError {
    /// No endpoint answered.
    #[error("RPC endpoint unreachable: {0}")]
    Unreachable(String),
    /// An endpoint took too long, and so did the others.
    #[error("RPC timeout")]
    Timeout,
    /// The node answered with an error; a revert is one too.
    #[error("RPC error: {}", .0.message)]
    Node(ErrorPayload),
    /// The node's answer is not what was asked for.
    #[error("RPC answer to {0} makes no sense")]
    Malformed(&'static str),
}

/// Result of a call.
pub(crate) type Result<T, E = RpcError> = std::result::Result<T, E>;

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Timeout => Self::new(ErrorCode::RpcTimeout, error.to_string()),
            other => Self::rpc(other.to_string()),
        }
    }
}
