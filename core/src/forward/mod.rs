//! Forward requests: what an agent signs and a relayer executes in its name.
//!
//! Three steps, each in a file of its own: a body is read ([`SignedRequest::from_json`]), its signature is
//! checked ([`SignedRequest::authenticate`], EIP-712), and the rules are applied ([`Rules`], service.md
//! sections 4, 5 and 7). Whoever makes a request finds here what a wallet signs ([`TypedData`]) and readers for the
//! rest of what it takes. What needs a node (the nonce, a simulation) or a memory (limits, budget) is the
//! relayer's own.

mod eth_sign_typed_data;
mod input;
mod number;
mod parse;
mod rules;
mod signature;

pub use eth_sign_typed_data::TypedData;
pub use input::{attestation_from_json, domain_from_json, registration_from_json, rules_from_json};
pub use parse::{ParseError, Problem, SignedRequest, request_from_json};
pub use rules::{Refusal, Rules, is_expired};
pub use signature::{DOMAIN_NAME, DOMAIN_VERSION, SIGNATURE_LENGTH, SignatureError, domain, recover};

pub use crate::eth::abi::ForwardRequest;
