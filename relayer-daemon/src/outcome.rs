//! How a relay ends, and why one is refused: status, stable code, message. One vocabulary for the pipeline,
//! the journal and the HTTP answers.

use alloy::primitives::{B256, U256};
use registry_core::forward::{ParseError, Refusal};
use serde::{Deserialize, Serialize};

use crate::code::Code;

/// A refusal or failure as the client sees it. Messages are the specification's (service.md section 7);
/// codes are this daemon's and never change their meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// For programs; it has the HTTP status.
    pub code: Code,
    /// For people.
    pub message: String,
    /// After how many seconds another try makes sense; sent as `Retry-After`.
    pub retry_after: Option<u64>,
}

impl Failure {
    /// A failure without a time to wait.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None }
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
        Self::new(Code::InvalidSignatureOrNonce, "Invalid signature or nonce mismatch")
    }

    /// 401: this very request was relayed before.
    #[must_use]
    pub fn replay() -> Self {
        Self::new(Code::AlreadyRelayed, "Invalid signature or nonce mismatch")
    }

    /// 429: too many requests from one IP.
    #[must_use]
    pub fn ip_limit(per_hour: u32, wait_seconds: u64) -> Self {
        Self::new(Code::IpRateLimited, format!("IP rate limit exceeded ({per_hour}/hour)"))
            .retry_after(wait_seconds)
    }

    /// 429: too many requests by one signer.
    #[must_use]
    pub fn signer_limit(per_hour: u32, wait_seconds: u64) -> Self {
        Self::new(Code::SignerRateLimited, format!("Signer rate limit exceeded ({per_hour}/hour)"))
            .retry_after(wait_seconds)
    }

    /// 429: the gas budget is used up.
    #[must_use]
    pub fn budget_exhausted(wait_seconds: u64) -> Self {
        Self::new(Code::GasBudgetExhausted, "Daily gas budget exhausted. Try again tomorrow.")
            .retry_after(wait_seconds)
    }

    /// 503: the relayer's account is nearly empty.
    #[must_use]
    pub fn balance_too_low() -> Self {
        let message = "Relayer balance too low. Please try again later or use direct mode.";
        Self::new(Code::RelayerBalanceTooLow, message).retry_after(600)
    }

    /// 503: more relays in flight than the daemon keeps.
    #[must_use]
    pub fn queue_full() -> Self {
        Self::new(Code::QueueFull, "Too many relays in flight. Please try again shortly.").retry_after(5)
    }

    /// 503: the daemon is stopping.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::new(Code::ShuttingDown, "Relayer is restarting. Please try again shortly.").retry_after(10)
    }

    /// 503: even the next block's base fee is above what the operator allows.
    #[must_use]
    pub fn network_too_expensive() -> Self {
        let message =
            "Network fees are above the relayer's maximum. Please try again later or use direct mode.";
        Self::new(Code::NetworkFeesTooHigh, message).retry_after(60)
    }

    /// 500: the contract said no; its reason is the message.
    #[must_use]
    pub fn reverted(reason: impl Into<String>) -> Self {
        Self::new(Code::CallReverted, reason)
    }

    /// 500: no RPC endpoint gave an answer, or one that makes no sense.
    #[must_use]
    pub fn rpc(message: impl Into<String>) -> Self {
        Self::new(Code::RpcFailed, message)
    }

    /// 500: the journal cannot be written, so nothing may be sent.
    #[must_use]
    pub fn journal() -> Self {
        Self::new(Code::JournalFailed, "Relayer storage failed. Nothing was sent.")
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Target => Code::TargetNotAllowed,
            Refusal::Value => Code::ValueNotSupported,
            Refusal::Signature(_) => Code::InvalidSignature,
            Refusal::Gas { .. } => Code::GasAboveMaximum,
            Refusal::Expired { .. } => Code::DeadlinePassed,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<ParseError> for Failure {
    fn from(error: ParseError) -> Self {
        let code = match error {
            ParseError::NotJson => Code::InvalidJson,
            ParseError::Missing => Code::MissingRequestOrSignature,
            ParseError::NotAnObject | ParseError::Field { .. } => Code::InvalidField,
        };
        Self::new(code, error.to_string())
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
