//! The stable error codes: a closed set, each with its HTTP status and its default message.
//!
//! Messages are for people and may change; a code never changes its meaning. The README's table lists the
//! codes, and `/openapi.json` takes them from here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// A stable error code, for programs.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// The body is not a JSON object, or names a field twice.
    InvalidJson,
    /// `request` or `signature` is absent, `null` or empty.
    MissingRequestOrSignature,
    /// A field is missing or breaks a rule; the message names both.
    InvalidField,
    /// `request.gas` is above what the relayer allows.
    GasAboveMaximum,
    /// The relay's id is not 0x and 64 hexadecimal digits.
    InvalidId,
    /// `wait` is none of `latest`, `safe` and `finalized`.
    InvalidWait,
    /// The address is not 0x and 40 hexadecimal digits, or its checksum is wrong.
    InvalidAddress,
    /// The body ended early.
    BodyBroken,
    /// The request is malformed in another way.
    BadRequest,
    /// The signature is not `request.from`'s for this domain.
    InvalidSignature,
    /// The forwarder refuses the request: fetch the nonce and sign again.
    InvalidSignatureOrNonce,
    /// The same request was executed before.
    AlreadyRelayed,
    /// `request.deadline` has passed.
    DeadlinePassed,
    /// `request.to` is not the registry.
    TargetNotAllowed,
    /// `request.value` is not 0.
    ValueNotSupported,
    /// The call's function is not among those that the relayer forwards.
    FunctionNotAllowed,
    /// The relayer takes no request without an API key.
    ApiKeyRequired,
    /// The API key is not known.
    ApiKeyInvalid,
    /// The signer is on the relayer's deny list.
    SignerDenied,
    /// The API key does not sponsor this signer.
    SignerNotSponsored,
    /// The API key does not sponsor this function.
    FunctionNotSponsored,
    /// The operator's service denied sponsorship; the message is its reason.
    SponsorshipDenied,
    /// The operator's service sponsors less gas than `request.gas`.
    GasNotSponsored,
    /// The operator's service gave no answer. Nothing was sent; try again shortly.
    SponsorshipUndecided,
    /// The operator has cancelled the relay: nothing was executed, and the request is not taken again.
    Cancelled,
    /// The relay does not exist, or was deleted after its retention.
    RelayNotFound,
    /// The path does not exist.
    NotFound,
    /// The path does not have this method; the header `Allow` lists its methods.
    MethodNotAllowed,
    /// The body took too long to arrive.
    BodyTimeout,
    /// The body is larger than 65,536 bytes.
    BodyTooLarge,
    /// The rate limit of the client's IP address is used up.
    IpRateLimited,
    /// The rate limit of the signer is used up.
    SignerRateLimited,
    /// The rate limit of the API key is used up.
    KeyRateLimited,
    /// The API key's gas of the day is used up, or the rest is less than this request may use.
    KeyGasExhausted,
    /// The relayer's gas budget of the day is spent.
    GasBudgetExhausted,
    /// The signer, client or network has used its share of the day's gas budget.
    BudgetShareExhausted,
    /// The rest of the day's gas budget, or of a share of it, does not cover this request; a cheaper one
    /// fits.
    BudgetTooSmall,
    /// The registry reverted the call; the message is its reason.
    CallReverted,
    /// The transaction reverted as a whole and the forwarder has not used the request: it may be sent again.
    ForwarderRefused,
    /// Another transaction used the request's nonce before this relayer's did: it may have executed the same
    /// request. Look the call up before signing it anew.
    Superseded,
    /// No RPC endpoint gave an answer; nothing was sent.
    RpcFailed,
    /// No RPC endpoint answered in time; nothing was sent.
    RpcTimeout,
    /// Every endpoint called the transaction invalid.
    TransactionRejected,
    /// The journal cannot be written; nothing was sent.
    JournalFailed,
    /// The database that holds the journal does not answer; nothing was sent.
    StoreUnavailable,
    /// The signer of the relayer's account gave no signature; nothing was sent.
    SignerFailed,
    /// No account of the relayer has enough funds, or can send at all.
    RelayerBalanceTooLow,
    /// Each of the relayer's accounts has code (an EIP-7702 delegation), with which it cannot send.
    AccountDelegated,
    /// The base fee is above the operator's limit.
    NetworkFeesTooHigh,
    /// The rest of the day's gas budget is reserved for relays in flight.
    BudgetReserved,
    /// The operator has paused the relayer: relays in flight go on, and new ones are not taken.
    IntakePaused,
    /// The relayer's queue is full.
    QueueFull,
    /// The relayer is stopping.
    ShuttingDown,
    /// The chain has not answered for a minute.
    ChainSilent,
    /// The sender has not finished a round for 45 seconds.
    SenderStalled,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the code as error bodies carry it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the default message (service.md section 7).
    pub const fn wording(self) -> &'static str {
        self.status_and_wording().1
    }

    /// Returns the HTTP status (service.md section 7).
    pub const fn status(self) -> u16 {
        self.status_and_wording().0
    }

    /// Returns the default `Retry-After`, seconds.
    pub const fn retry_after(self) -> Option<u64> {
        match self {
            Self::RelayerBalanceTooLow | Self::AccountDelegated => Some(600),
            Self::NetworkFeesTooHigh | Self::IntakePaused => Some(60),
            Self::ChainSilent | Self::SenderStalled | Self::StoreUnavailable => Some(15),
            Self::BudgetReserved | Self::ShuttingDown => Some(10),
            Self::QueueFull => Some(5),
            _ => None,
        }
    }

    const fn status_and_wording(self) -> (u16, &'static str) {
        match self {
            Self::InvalidJson => (400, "Request body must be a JSON object"),
            Self::MissingRequestOrSignature => (400, "Missing request or signature"),
            Self::InvalidField => (400, "Invalid field"),
            Self::GasAboveMaximum => (400, "request.gas is above the relayer's maximum"),
            Self::InvalidId => (400, "Invalid relay id: must be 0x and 64 hex digits"),
            Self::InvalidWait => (400, "Invalid wait: must be latest, safe or finalized"),
            Self::InvalidAddress => {
                (400, "Invalid address: must be 0x and 40 hex digits, with a right checksum if in mixed case")
            }
            Self::BodyBroken => (400, "Request body could not be read"),
            Self::BadRequest => (400, "Bad request"),
            Self::InvalidSignature => (401, "Invalid signature or nonce mismatch"),
            Self::InvalidSignatureOrNonce => (401, "Invalid signature or nonce mismatch"),
            Self::AlreadyRelayed => (401, "Invalid signature or nonce mismatch"),
            Self::DeadlinePassed => (401, "Invalid signature or nonce mismatch"),
            Self::TargetNotAllowed => (403, "Relayer only forwards to the registry contract"),
            Self::ValueNotSupported => (403, "Value transfers not supported"),
            Self::FunctionNotAllowed => (403, "Relayer does not forward this function of the registry"),
            Self::ApiKeyRequired => (401, "API key required: send it as Authorization: Bearer"),
            Self::ApiKeyInvalid => (401, "API key is not known"),
            Self::SignerDenied => (403, "This signer is not sponsored by this relayer"),
            Self::SignerNotSponsored => (403, "This signer is not sponsored by this API key"),
            Self::FunctionNotSponsored => (403, "This function is not sponsored by this API key"),
            Self::SponsorshipDenied => (403, "This request is not sponsored"),
            Self::GasNotSponsored => (403, "request.gas is above what is sponsored"),
            Self::SponsorshipUndecided => {
                (403, "Whether this request is sponsored could not be decided. Please try again shortly.")
            }
            Self::Cancelled => (403, "The operator has cancelled this relay. Nothing was executed."),
            Self::RelayNotFound => (404, "Relay not found"),
            Self::NotFound => (404, "Not found"),
            Self::MethodNotAllowed => (405, "Method not allowed"),
            Self::BodyTimeout => (408, "Request body took too long to arrive"),
            Self::BodyTooLarge => (413, "Request body is larger than 64 KiB"),
            Self::IpRateLimited => (429, "IP rate limit exceeded"),
            Self::SignerRateLimited => (429, "Signer rate limit exceeded"),
            Self::KeyRateLimited => (429, "API key's rate limit exceeded"),
            Self::KeyGasExhausted => (429, "API key's gas of the day is exhausted"),
            Self::GasBudgetExhausted => (429, "Daily gas budget exhausted. Try again tomorrow."),
            Self::BudgetShareExhausted => {
                (429, "Share of the daily gas budget exhausted. Try again tomorrow.")
            }
            Self::BudgetTooSmall => (
                429,
                "What is left of the daily gas budget does not cover this request. A cheaper one may fit.",
            ),
            Self::CallReverted => (500, "Call failed without a reason; request.gas may be too low"),
            Self::ForwarderRefused => {
                (500, "Forwarder did not carry out the request when it was mined. It may be sent again.")
            }
            Self::Superseded => (
                409,
                "Another transaction used the request's nonce first, and may have executed this very request. \
                 Look the call up before signing it anew.",
            ),
            Self::RpcFailed => (500, "RPC endpoint unreachable"),
            Self::RpcTimeout => (500, "RPC timeout"),
            Self::TransactionRejected => (500, "Every RPC endpoint refused the transaction"),
            Self::JournalFailed => (500, "Relayer storage failed. Nothing was sent."),
            Self::SignerFailed => (500, "Relayer could not sign. Nothing was sent."),
            Self::RelayerBalanceTooLow => {
                (503, "Relayer balance too low. Please try again later or use direct mode.")
            }
            Self::AccountDelegated => {
                (503, "Relayer accounts cannot send. Please try again later or use direct mode.")
            }
            Self::NetworkFeesTooHigh => (
                503,
                "Network fees are above the relayer's maximum. Please try again later or use direct mode.",
            ),
            Self::BudgetReserved => (
                503,
                "The rest of the daily gas budget is reserved for relays in flight. Please try again shortly.",
            ),
            Self::IntakePaused => {
                (503, "Relayer takes no requests at present. Please try again later or use direct mode.")
            }
            Self::QueueFull => (503, "Too many relays in flight. Please try again shortly."),
            Self::ShuttingDown => (503, "Relayer is restarting. Please try again shortly."),
            Self::StoreUnavailable => (503, "Relayer's database does not answer. Nothing was sent."),
            Self::ChainSilent => (503, "No answer from the chain"),
            Self::SenderStalled => (503, "The sender stands still"),
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
            assert_eq!(code.name().parse(), Ok(*code));
        }
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
