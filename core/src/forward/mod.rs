//! Forward requests (ERC-2771): an agent signs them, and a relayer executes them in its name.
//!
//! Three steps, each in a file of its own: a body is read ([`SignedRequest::from_json`]), its signature is
//! checked ([`SignedRequest::authenticate`], EIP-712), and the rules are applied ([`Rules`], service.md
//! sections 4, 5 and 7). For clients there are the payload that a wallet signs ([`TypedData`]) and readers
//! for the rest of a request. Checks that need a node (nonce, simulation) or state (limits, budget) are the
//! relayer's.

mod eip712;
mod error;
mod input;
mod number;
mod parse;
mod rules;
mod signature;
mod wallet_payload;

pub use eip712::{DOMAIN_NAME, DOMAIN_VERSION, domain};
pub use error::{ParseError, Problem};
pub use input::{attestation_from_json, domain_from_json, registration_from_json, rules_from_json};
pub use parse::{SIGNATURE_LENGTH, SignedRequest, request_from_json};
pub use rules::{Refusal, Rules, is_expired};
pub use signature::{SignatureError, recover};
pub use wallet_payload::TypedData;

pub use crate::eth::abi::ForwardRequest;
