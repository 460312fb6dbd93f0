//! How a relay ends, and why one is refused: status, stable code, message. One vocabulary for the pipeline,
//! the journal and the HTTP answers.

use std::borrow::Cow;

use alloy::primitives::{B256, U256};
use registry_core::forward::{ParseError, Refusal};
use serde::{Deserialize, Serialize};

/// A refusal or failure as the client sees it. Messages are the specification's (service.md section 7);
/// codes are this daemon's and never change their meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// HTTP status.
    pub status: u16,
    /// Stable, machine-readable name.
    pub code: Cow<'static, str>,
    /// For people.
    pub message: String,
    /// After how many seconds another try makes sense; sent as `Retry-After`.
    pub retry_after: Option<u64>,
}

impl Failure {
    /// A failure without a time to wait.
    #[must_use]
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code: Cow::Borrowed(code), message: message.into(), retry_after: None }
    }

    /// The same, with the time after which another try makes sense.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// 401: the chain does not accept signature, nonce or deadline.
    #[must_use]
    pub fn nonce_mismatch() -> Self {
        Self::new(401, "INVALID_SIGNATURE_OR_NONCE", "Invalid signature or nonce mismatch")
    }

    /// 401: this very request was relayed before.
    #[must_use]
    pub fn replay() -> Self {
        Self::new(401, "ALREADY_RELAYED", "Invalid signature or nonce mismatch")
    }

    /// 429: too many requests from one IP.
    #[must_use]
    pub fn ip_limit(per_hour: u32, wait_seconds: u64) -> Self {
        Self::new(429, "IP_RATE_LIMITED", format!("IP rate limit exceeded ({per_hour}/hour)"))
            .retry_after(wait_seconds)
    }

    /// 429: too many requests by one signer.
    #[must_use]
    pub fn signer_limit(per_hour: u32, wait_seconds: u64) -> Self {
        Self::new(429, "SIGNER_RATE_LIMITED", format!("Signer rate limit exceeded ({per_hour}/hour)"))
            .retry_after(wait_seconds)
    }

    /// 429: the gas budget is used up.
    #[must_use]
    pub fn budget_exhausted(wait_seconds: u64) -> Self {
        Self::new(429, "GAS_BUDGET_EXHAUSTED", "Daily gas budget exhausted. Try again tomorrow.")
            .retry_after(wait_seconds)
    }

    /// 503: the relayer's account is nearly empty.
    #[must_use]
    pub fn balance_too_low() -> Self {
        let message = "Relayer balance too low. Please try again later or use direct mode.";
        Self::new(503, "RELAYER_BALANCE_TOO_LOW", message).retry_after(600)
    }

    /// 503: more relays in flight than the daemon keeps.
    #[must_use]
    pub fn queue_full() -> Self {
        Self::new(503, "QUEUE_FULL", "Too many relays in flight. Please try again shortly.").retry_after(5)
    }

    /// 503: the daemon is stopping.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::new(503, "SHUTTING_DOWN", "Relayer is restarting. Please try again shortly.").retry_after(10)
    }

    /// 503: even the next block's base fee is above what the operator allows.
    #[must_use]
    pub fn network_too_expensive() -> Self {
        let message =
            "Network fees are above the relayer's maximum. Please try again later or use direct mode.";
        Self::new(503, "NETWORK_FEES_TOO_HIGH", message).retry_after(60)
    }

    /// 500: the contract said no; its reason is the message.
    #[must_use]
    pub fn reverted(reason: impl Into<String>) -> Self {
        Self::new(500, "CALL_REVERTED", reason)
    }

    /// 500: no RPC endpoint gave an answer, or one that makes no sense.
    #[must_use]
    pub fn rpc(message: impl Into<String>) -> Self {
        Self::new(500, "RPC_FAILED", message)
    }

    /// 500: the journal cannot be written, so nothing may be sent.
    #[must_use]
    pub fn journal() -> Self {
        Self::new(500, "JOURNAL_FAILED", "Relayer storage failed. Nothing was sent.")
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.status(), refusal.code(), refusal.to_string())
    }
}

impl From<ParseError> for Failure {
    fn from(error: ParseError) -> Self {
        let code = match error {
            ParseError::NotJson => "INVALID_JSON",
            ParseError::Missing => "MISSING_REQUEST_OR_SIGNATURE",
            ParseError::NotAnObject | ParseError::Field { .. } => "INVALID_FIELD",
        };
        Self::new(400, code, error.to_string())
    }
}

/// How a relay ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Outcome {
    /// The inner call succeeded on chain.
    Executed {
        /// Where.
        mined: Mined,
        /// The agent that the call registered, if it did.
        agent_id: Option<U256>,
    },
    /// A transaction of ours was mined, but the inner call failed.
    Reverted {
        /// Where.
        mined: Mined,
        /// The contract's reason.
        failure: Failure,
    },
    /// Nothing was executed by us, and nothing will be.
    Dropped {
        /// Why.
        failure: Failure,
    },
}

/// The transaction that ended a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mined {
    /// Its hash.
    pub tx_hash: B256,
    /// Its block.
    pub block_number: u64,
    /// Gas it used.
    pub gas_used: u64,
}

impl Outcome {
    /// The relay's state as `GET /relay/:id` names it.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match self {
            Self::Executed { .. } => "executed",
            Self::Reverted { .. } => "reverted",
            Self::Dropped { .. } => "dropped",
        }
    }

    /// Whether the signed request may be tried again: only if no transaction of ours carried it out.
    #[must_use]
    pub const fn is_repeatable(&self) -> bool {
        matches!(self, Self::Dropped { .. })
    }
}
