//! The reason why a request was refused or a relay failed.

use registry_core::forward::{ParseError, Refusal};

use crate::{budget::share::PartyKind, outcome::ErrorCode};

/// The reason why a request was refused or a relay failed. [`Failure::message`] has the wording of service.md
/// section 7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code, for programs; it has the HTTP status.
    pub code: ErrorCode,
    /// The detail that the code leaves open: a contract's revert reason, the field and its rule, a configured
    /// number.
    pub detail: Option<String>,
    /// Seconds until a retry makes sense; sent as `Retry-After`.
    pub retry_after: Option<u64>,
}

impl Failure {
    /// Creates a failure with its code's default message.
    pub const fn of(code: ErrorCode) -> Self {
        Self { code, detail: None, retry_after: code.retry_after() }
    }

    /// Creates a failure with a message of its own.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::of(code) }
    }

    /// Returns the message, for people. Its wording may change; the code does not.
    pub fn message(&self) -> &str {
        self.detail.as_deref().unwrap_or_else(|| self.code.wording())
    }

    /// Returns the same failure with `Retry-After`.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Creates a 429: too many requests from one IP.
    pub fn ip_limit(per_hour: u32, wait_seconds: u64) -> Self {
        Self::new(ErrorCode::IpRateLimited, format!("IP rate limit exceeded ({per_hour}/hour)"))
            .retry_after(wait_seconds)
    }

    /// Creates a 429: too many reads from one IP.
    pub fn read_limit(per_minute: u32, wait_seconds: u64) -> Self {
        Self::new(ErrorCode::IpRateLimited, format!("IP rate limit exceeded ({per_minute}/minute)"))
            .retry_after(wait_seconds)
    }

    /// Creates a 429: too many requests by one signer.
    pub fn signer_limit(per_hour: u32, wait_seconds: u64) -> Self {
        Self::new(ErrorCode::SignerRateLimited, format!("Signer rate limit exceeded ({per_hour}/hour)"))
            .retry_after(wait_seconds)
    }

    /// Creates a 429: the gas budget is used up.
    pub fn budget_exhausted(wait_seconds: u64) -> Self {
        Self::of(ErrorCode::GasBudgetExhausted).retry_after(wait_seconds)
    }

    /// Creates a 429: a signer, client or network has used up its share of the budget.
    pub fn share_exhausted(party: PartyKind, wait_seconds: u64) -> Self {
        let party = match party {
            PartyKind::Signer => "This signer's",
            PartyKind::WithoutKey => "The keyless requests'",
            PartyKind::Client => "This address's",
            PartyKind::Network => "This network's",
        };
        let message = format!("{party} share of the daily gas budget is exhausted. Try again tomorrow.");
        Self::new(ErrorCode::BudgetShareExhausted, message).retry_after(wait_seconds)
    }

    /// Creates a 500: the call reverted; the contract's reason is the message.
    pub fn reverted(reason: impl Into<String>) -> Self {
        Self::new(ErrorCode::CallReverted, reason)
    }

    /// Creates a 500: no RPC endpoint answered, or the answer is malformed.
    pub fn rpc(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::RpcFailed, message)
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
