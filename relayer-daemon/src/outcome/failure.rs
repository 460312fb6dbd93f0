//! Why a request was refused or a relay failed.

use registry_core::forward::{ParseError, Refusal};

use crate::{budget::share::PartyKind, outcome::ErrorCode};

/// Why a request was refused or a relay failed. [`Failure::message`] has the wording of service.md section 7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code, for programs; it has the HTTP status.
    pub code: ErrorCode,
    /// What the code does not say: a contract's revert reason, the field and its rule, a configured number.
    pub detail: Option<String>,
    /// Seconds until a retry makes sense; sent as `Retry-After`.
    pub retry_after: Option<u64>,
}

impl Failure {
    /// A failure with its code's default message.
    #[must_use]
    pub const fn of(code: ErrorCode) -> Self {
        Self { code, detail: None, retry_after: None }
    }

    /// A failure with a message of its own.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: Some(detail.into()), retry_after: None }
    }

    /// The message, for people. Its wording may change; the code does not.
    #[must_use]
    pub fn message(&self) -> &str {
        self.detail.as_deref().unwrap_or_else(|| self.code.wording())
    }

    /// The same failure with `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// 401: the chain does not accept signature, nonce or deadline.
    #[must_use]
    pub fn nonce_mismatch() -> Self {
        Self::of(ErrorCode::InvalidSignatureOrNonce)
    }

    /// 401: this very request was relayed before.
    #[must_use]
    pub fn replay() -> Self {
        Self::of(ErrorCode::AlreadyRelayed)
    }

    /// 429: too many requests from one IP.
    #[must_use]
    pub fn ip_limit(per_hour: u32, wait_seconds: u64) -> Self {
        Self::new(ErrorCode::IpRateLimited, format!("IP rate limit exceeded ({per_hour}/hour)"))
            .retry_after(wait_seconds)
    }

    /// 429: too many reads from one IP.
    #[must_use]
    pub fn read_limit(per_minute: u32, wait_seconds: u64) -> Self {
        Self::new(ErrorCode::IpRateLimited, format!("IP rate limit exceeded ({per_minute}/minute)"))
            .retry_after(wait_seconds)
    }

    /// 429: too many requests by one signer.
    #[must_use]
    pub fn signer_limit(per_hour: u32, wait_seconds: u64) -> Self {
        Self::new(ErrorCode::SignerRateLimited, format!("Signer rate limit exceeded ({per_hour}/hour)"))
            .retry_after(wait_seconds)
    }

    /// 429: the gas budget is used up.
    #[must_use]
    pub fn budget_exhausted(wait_seconds: u64) -> Self {
        Self::of(ErrorCode::GasBudgetExhausted).retry_after(wait_seconds)
    }

    /// 429: a signer, client or network has used up its share of the budget.
    #[must_use]
    pub fn share_exhausted(party: PartyKind, wait_seconds: u64) -> Self {
        let party = match party {
            PartyKind::Signer => "signer's",
            PartyKind::Client => "address's",
            PartyKind::Network => "network's",
        };
        let message = format!("This {party} share of the daily gas budget is exhausted. Try again tomorrow.");
        Self::new(ErrorCode::BudgetShareExhausted, message).retry_after(wait_seconds)
    }

    /// 503: the rest of the budget is reserved by relays in flight.
    #[must_use]
    pub fn budget_reserved() -> Self {
        Self::of(ErrorCode::BudgetReserved).retry_after(10)
    }

    /// 503: the relayer's account is nearly empty.
    #[must_use]
    pub fn balance_too_low() -> Self {
        Self::of(ErrorCode::RelayerBalanceTooLow).retry_after(600)
    }

    /// 503: more relays in flight than the daemon keeps.
    #[must_use]
    pub fn queue_full() -> Self {
        Self::of(ErrorCode::QueueFull).retry_after(5)
    }

    /// 503: the daemon is stopping.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::of(ErrorCode::ShuttingDown).retry_after(10)
    }

    /// 503: even the next block's base fee is above what the operator allows.
    #[must_use]
    pub fn network_too_expensive() -> Self {
        Self::of(ErrorCode::NetworkFeesTooHigh).retry_after(60)
    }

    /// 500: the call reverted; the contract's reason is the message.
    #[must_use]
    pub fn reverted(reason: impl Into<String>) -> Self {
        Self::new(ErrorCode::CallReverted, reason)
    }

    /// 500: no RPC endpoint answered, or the answer is malformed.
    #[must_use]
    pub fn rpc(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::RpcFailed, message)
    }

    /// 500: the journal cannot be written, so nothing may be sent.
    #[must_use]
    pub fn store() -> Self {
        Self::of(ErrorCode::JournalFailed)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Target => ErrorCode::TargetNotAllowed,
            Refusal::Value => ErrorCode::ValueNotSupported,
            Refusal::Signature(_) => ErrorCode::InvalidSignature,
            Refusal::Gas { .. } => ErrorCode::GasAboveMaximum,
            Refusal::Expired { .. } => ErrorCode::DeadlinePassed,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<ParseError> for Failure {
    fn from(error: ParseError) -> Self {
        let code = match error {
            ParseError::NotJson => ErrorCode::InvalidJson,
            ParseError::Missing => ErrorCode::MissingRequestOrSignature,
            ParseError::NotAnObject | ParseError::Field { .. } => ErrorCode::InvalidField,
        };
        Self::new(code, error.to_string())
    }
}
