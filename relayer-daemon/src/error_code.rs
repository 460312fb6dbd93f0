//! The codes of errors: a closed set, each with its HTTP status. Messages are for people and may change; a code
//! never changes its meaning. The README's table lists them, and `/openapi.json` has them from here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an error is to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// The body is no JSON object, or names a field twice.
    InvalidJson,
    /// `request` or `signature` is absent, `null` or empty.
    MissingRequestOrSignature,
    /// A field is missing or breaks a rule; the message names both.
    InvalidField,
    /// `request.gas` is above what the relayer allows.
    GasAboveMaximum,
    /// The relay's id is not 0x and 64 hexadecimal digits.
    InvalidId,
    /// The address is not 0x and 40 hexadecimal digits, or its checksum is wrong.
    InvalidAddress,
    /// The body ended before its time.
    BodyBroken,
    /// Something else is wrong with the request.
    BadRequest,
    /// The signature is not `request.from`'s for this domain.
    InvalidSignature,
    /// The forwarder refuses it: fetch the nonce and sign again.
    InvalidSignatureOrNonce,
    /// This very request was carried out before.
    AlreadyRelayed,
    /// `request.deadline` is over.
    DeadlinePassed,
    /// `request.to` is not the registry.
    TargetNotAllowed,
    /// `request.value` is not 0.
    ValueNotSupported,
    /// The call's function is not among those that the relayer forwards.
    FunctionNotAllowed,
    /// No such relay, or one long forgotten.
    RelayNotFound,
    /// No such path.
    NotFound,
    /// The path has no such method; `Allow` has those it has.
    MethodNotAllowed,
    /// The body took too long to arrive.
    BodyTimeout,
    /// The body is larger than any request.
    BodyTooLarge,
    /// Too many requests from one address.
    IpRateLimited,
    /// Too many requests by one signer.
    SignerRateLimited,
    /// Today's gas is spent.
    GasBudgetExhausted,
    /// One signer, client or network has used its share of today's gas.
    BudgetShareExhausted,
    /// The contract said no; the message is its reason.
    CallReverted,
    /// No RPC endpoint gave an answer; nothing was sent.
    RpcFailed,
    /// No RPC endpoint answered in time; nothing was sent.
    RpcTimeout,
    /// Every endpoint called the transaction invalid.
    TransactionRejected,
    /// The journal cannot be written; nothing was sent.
    JournalFailed,
    /// The relayer's account is nearly empty.
    RelayerBalanceTooLow,
    /// The base fee is above what the operator allows.
    NetworkFeesTooHigh,
    /// What is left of today's gas is reserved for relays in flight.
    BudgetReserved,
    /// Too many relays in flight.
    QueueFull,
    /// The relayer is stopping.
    ShuttingDown,
    /// The chain has not answered for a while.
    ChainSilent,
    /// The sender has not finished a round for a while.
    SenderStalled,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 36] = [
        Self::InvalidJson,
        Self::MissingRequestOrSignature,
        Self::InvalidField,
        Self::GasAboveMaximum,
        Self::InvalidId,
        Self::InvalidAddress,
        Self::BodyBroken,
        Self::BadRequest,
        Self::InvalidSignature,
        Self::InvalidSignatureOrNonce,
        Self::AlreadyRelayed,
        Self::DeadlinePassed,
        Self::TargetNotAllowed,
        Self::ValueNotSupported,
        Self::FunctionNotAllowed,
        Self::RelayNotFound,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::BodyTimeout,
        Self::BodyTooLarge,
        Self::IpRateLimited,
        Self::SignerRateLimited,
        Self::GasBudgetExhausted,
        Self::BudgetShareExhausted,
        Self::BudgetReserved,
        Self::CallReverted,
        Self::RpcFailed,
        Self::RpcTimeout,
        Self::TransactionRejected,
        Self::JournalFailed,
        Self::RelayerBalanceTooLow,
        Self::NetworkFeesTooHigh,
        Self::QueueFull,
        Self::ShuttingDown,
        Self::ChainSilent,
        Self::SenderStalled,
    ];

    /// The code as error bodies carry it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidJson => "INVALID_JSON",
            Self::MissingRequestOrSignature => "MISSING_REQUEST_OR_SIGNATURE",
            Self::InvalidField => "INVALID_FIELD",
            Self::GasAboveMaximum => "GAS_ABOVE_MAXIMUM",
            Self::InvalidId => "INVALID_ID",
            Self::InvalidAddress => "INVALID_ADDRESS",
            Self::BodyBroken => "BODY_BROKEN",
            Self::BadRequest => "BAD_REQUEST",
            Self::InvalidSignature => "INVALID_SIGNATURE",
            Self::InvalidSignatureOrNonce => "INVALID_SIGNATURE_OR_NONCE",
            Self::AlreadyRelayed => "ALREADY_RELAYED",
            Self::DeadlinePassed => "DEADLINE_PASSED",
            Self::TargetNotAllowed => "TARGET_NOT_ALLOWED",
            Self::ValueNotSupported => "VALUE_NOT_SUPPORTED",
            Self::FunctionNotAllowed => "FUNCTION_NOT_ALLOWED",
            Self::RelayNotFound => "RELAY_NOT_FOUND",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::BodyTimeout => "BODY_TIMEOUT",
            Self::BodyTooLarge => "BODY_TOO_LARGE",
            Self::IpRateLimited => "IP_RATE_LIMITED",
            Self::SignerRateLimited => "SIGNER_RATE_LIMITED",
            Self::GasBudgetExhausted => "GAS_BUDGET_EXHAUSTED",
            Self::BudgetShareExhausted => "BUDGET_SHARE_EXHAUSTED",
            Self::BudgetReserved => "BUDGET_RESERVED",
            Self::CallReverted => "CALL_REVERTED",
            Self::RpcFailed => "RPC_FAILED",
            Self::RpcTimeout => "RPC_TIMEOUT",
            Self::TransactionRejected => "TRANSACTION_REJECTED",
            Self::JournalFailed => "JOURNAL_FAILED",
            Self::RelayerBalanceTooLow => "RELAYER_BALANCE_TOO_LOW",
            Self::NetworkFeesTooHigh => "NETWORK_FEES_TOO_HIGH",
            Self::QueueFull => "QUEUE_FULL",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::ChainSilent => "CHAIN_SILENT",
            Self::SenderStalled => "SENDER_STALLED",
        }
    }

    /// The code of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// What the code says to people where there is nothing more to say (service.md section 7).
    #[must_use]
    pub const fn wording(self) -> &'static str {
        match self {
            Self::InvalidJson => "Request body must be a JSON object",
            Self::MissingRequestOrSignature => "Missing request or signature",
            Self::InvalidField => "Invalid field",
            Self::GasAboveMaximum => "request.gas is above the relayer's maximum",
            Self::InvalidId => "Invalid relay id: must be 0x and 64 hex digits",
            Self::InvalidAddress => {
                "Invalid address: must be 0x and 40 hex digits, with a right checksum if in mixed case"
            }
            Self::BodyBroken => "Request body could not be read",
            Self::BadRequest => "Bad request",
            Self::InvalidSignature
            | Self::InvalidSignatureOrNonce
            | Self::AlreadyRelayed
            | Self::DeadlinePassed => "Invalid signature or nonce mismatch",
            Self::TargetNotAllowed => "Relayer only forwards to the registry contract",
            Self::ValueNotSupported => "Value transfers not supported",
            Self::FunctionNotAllowed => "Relayer does not forward this function of the registry",
            Self::RelayNotFound => "Relay not found",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::BodyTimeout => "Request body took too long to arrive",
            Self::BodyTooLarge => "Request body is larger than 64 KiB",
            Self::IpRateLimited => "IP rate limit exceeded",
            Self::SignerRateLimited => "Signer rate limit exceeded",
            Self::GasBudgetExhausted => "Daily gas budget exhausted. Try again tomorrow.",
            Self::BudgetShareExhausted => "Share of the daily gas budget exhausted. Try again tomorrow.",
            Self::BudgetReserved => {
                "The rest of the daily gas budget is reserved for relays in flight. Please try again shortly."
            }
            Self::CallReverted => "Call failed without a reason; request.gas may be too low",
            Self::RpcFailed => "RPC endpoint unreachable",
            Self::RpcTimeout => "RPC timeout",
            Self::TransactionRejected => "Every RPC endpoint refused the transaction",
            Self::JournalFailed => "Relayer storage failed. Nothing was sent.",
            Self::RelayerBalanceTooLow => {
                "Relayer balance too low. Please try again later or use direct mode."
            }
            Self::NetworkFeesTooHigh => {
                "Network fees are above the relayer's maximum. Please try again later or use direct mode."
            }
            Self::QueueFull => "Too many relays in flight. Please try again shortly.",
            Self::ShuttingDown => "Relayer is restarting. Please try again shortly.",
            Self::ChainSilent => "No answer from the chain",
            Self::SenderStalled => "The sender stands still",
        }
    }

    /// The HTTP status (service.md section 7).
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidJson
            | Self::MissingRequestOrSignature
            | Self::InvalidField
            | Self::GasAboveMaximum
            | Self::InvalidId
            | Self::InvalidAddress
            | Self::BodyBroken
            | Self::BadRequest => 400,
            Self::InvalidSignature
            | Self::InvalidSignatureOrNonce
            | Self::AlreadyRelayed
            | Self::DeadlinePassed => 401,
            Self::TargetNotAllowed | Self::ValueNotSupported | Self::FunctionNotAllowed => 403,
            Self::RelayNotFound | Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::BodyTimeout => 408,
            Self::BodyTooLarge => 413,
            Self::IpRateLimited
            | Self::SignerRateLimited
            | Self::GasBudgetExhausted
            | Self::BudgetShareExhausted => 429,
            Self::CallReverted
            | Self::RpcFailed
            | Self::RpcTimeout
            | Self::TransactionRejected
            | Self::JournalFailed => 500,
            Self::RelayerBalanceTooLow
            | Self::NetworkFeesTooHigh
            | Self::QueueFull
            | Self::BudgetReserved
            | Self::ShuttingDown
            | Self::ChainSilent
            | Self::SenderStalled => 503,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Failure;
    use alloy::primitives::U256;
    use registry_core::forward::{Refusal, SignatureError};

    #[test]
    fn a_code_is_written_everywhere_as_it_is_named() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
            assert_eq!(ErrorCode::from_name(code.name()), Some(code));
        }
        let mut names = ErrorCode::ALL.map(ErrorCode::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn what_the_core_refuses_has_the_same_code_and_status_here() {
        for refusal in [
            Refusal::Target,
            Refusal::Value,
            Refusal::Signature(SignatureError::Length(1)),
            Refusal::Gas { gas: U256::MAX, max: 1 },
            Refusal::Expired { deadline: 1 },
        ] {
            let code = Failure::from(refusal).code;
            assert_eq!((code.name(), code.status()), (refusal.code(), refusal.status()));
        }
    }
}
