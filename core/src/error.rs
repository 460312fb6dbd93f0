//! Every error the read API can answer with: whose fault it is, its status, its message, its body.

use alloc::string::String;

use serde::Serialize;

use crate::{
    agent::{AgentId, UnknownStatus},
    rpc::revert::Revert,
    run::RunError,
};

/// An error of the read API (`service.md` section 7).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The caller's: a parameter breaks its rule. 400.
    #[error("Invalid {field}: {rule}")]
    InvalidParameter {
        /// The parameter, as the API names it.
        field: &'static str,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The caller's: the registry has no such agent. 404.
    #[error("Agent not found: {0}")]
    AgentNotFound(AgentId),
    /// The caller's: no such route. 404.
    #[error("Not found")]
    NotFound,
    /// The caller's: the API only reads. 405.
    #[error("Method not allowed: this API is read-only, use GET")]
    MethodNotAllowed,
    /// The caller's: too many requests. 429.
    #[error("Rate limit exceeded. Try again in 1 minute.")]
    RateLimited,
    /// The registry's: it reverted where it should not have. 500.
    #[error("Registry call {function} reverted: {revert}")]
    Reverted {
        /// The contract function.
        function: &'static str,
        /// What it said.
        revert: Revert,
    },
    /// The registry's: it answered what its interface does not define. 500.
    #[error("Registry answered nonsense: {0}")]
    UnknownStatus(#[from] UnknownStatus),
    /// The registry's: more agents than one answer can hold. 500.
    #[error("Registry has {0} agents, more than one answer can cover")]
    TooManyAgents(alloy_primitives::U256),
    /// The chain's or the RPC endpoint's. 500.
    #[error(transparent)]
    Chain(#[from] RunError),
    /// The operator's: a setting is missing or wrong. 500.
    #[error("Misconfigured: {0}")]
    Misconfigured(String),
}

/// Whose fault an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is wrong; the same request will fail again.
    Caller,
    /// The RPC endpoint or the contract failed; the same request may work later.
    Chain,
    /// The service is set up wrongly.
    Operator,
}

impl Error {
    /// Whose fault it is.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::InvalidParameter { .. }
            | Self::AgentNotFound(_)
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::RateLimited => Fault::Caller,
            Self::Reverted { .. } | Self::UnknownStatus(_) | Self::TooManyAgents(_) | Self::Chain(_) => {
                Fault::Chain
            }
            Self::Misconfigured(_) => Fault::Operator,
        }
    }

    /// The HTTP status (`service.md` section 7).
    pub const fn status(&self) -> u16 {
        match self {
            Self::InvalidParameter { .. } => 400,
            Self::AgentNotFound(_) | Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RateLimited => 429,
            _ => 500,
        }
    }

    /// The JSON body: `{"error": message}`.
    pub fn body(&self) -> String {
        /// The documented shape.
        #[derive(Serialize)]
        struct Body {
            error: String,
        }
        let error = alloc::string::ToString::to_string(self);
        serde_json::to_string(&Body { error })
            .unwrap_or_else(|_| String::from(r#"{"error":"Internal error"}"#))
    }
}
