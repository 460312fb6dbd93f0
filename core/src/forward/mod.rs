//! Forward requests: what an agent signs and a relayer executes in its name.
//!
//! Three steps, each in a file of its own: a body is read ([`SignedRequest::from_json`]), its signature is
//! checked ([`SignedRequest::authenticate`], EIP-712), and the rules are applied ([`Rules`], service.md
//! sections 4, 5 and 7). What needs a node (the nonce, a simulation) or a memory (limits, budget) is the
//! relayer's own.

mod number;
mod parse;
mod rules;
mod signature;

pub use parse::{ParseError, Problem, SignedRequest};
pub use rules::{Refusal, Rules, is_expired};
pub use signature::{DOMAIN_NAME, DOMAIN_VERSION, SIGNATURE_LENGTH, SignatureError, domain, recover};

pub use crate::abi::ForwardRequest;
