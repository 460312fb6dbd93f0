//! The relayer's rules for requests, as pure functions: target, value, signature, gas, deadline.
//!
//! Source: service.md sections 4, 5 and 7. Each refusal has its HTTP status, message and stable code here, so
//! that the daemon agrees with pages that check before they post. The daemon checks limits, budget and
//! balance; the chain checks nonces.

use alloy_primitives::{Address, U256};
use alloy_sol_types::Eip712Domain;
use thiserror::Error;

use super::{SignatureError, SignedRequest};
use crate::eth::abi::ForwardRequest;

/// The rules of one relayer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The only contract that requests may call.
    pub registry: Address,
    /// The largest `request.gas` accepted.
    pub max_gas: u64,
}

/// A request that the rules forbid: the client's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// `request.to` is not the registry.
    #[error("Relayer only forwards to the registry contract")]
    Target,
    /// `request.value` is not 0.
    #[error("Value transfers not supported")]
    Value,
    /// The signature is not that of `request.from`.
    #[error("Invalid signature or nonce mismatch")]
    Signature(#[source] SignatureError),
    /// `request.gas` is above the relayer's cap.
    #[error("Invalid request.gas: {gas} is above the relayer's maximum of {max}")]
    Gas {
        /// The `request.gas` given.
        gas: U256,
        /// The cap.
        max: u64,
    },
    /// `request.deadline` has passed. The forwarder would report an invalid signature, so the message is the
    /// same.
    #[error("Invalid signature or nonce mismatch")]
    Expired {
        /// The deadline, unix seconds.
        deadline: u64,
    },
}

impl Refusal {
    /// Returns the HTTP status of the refusal.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Target | Self::Value => 403,
            Self::Signature(_) | Self::Expired { .. } => 401,
            Self::Gas { .. } => 400,
        }
    }

    /// Returns the stable, machine-readable name of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Target => "TARGET_NOT_ALLOWED",
            Self::Value => "VALUE_NOT_SUPPORTED",
            Self::Signature(_) => "INVALID_SIGNATURE",
            Self::Gas { .. } => "GAS_ABOVE_MAXIMUM",
            Self::Expired { .. } => "DEADLINE_PASSED",
        }
    }
}

impl Rules {
    /// Checks that `request.to` is the registry and `request.value` is 0.
    ///
    /// # Errors
    /// [`Refusal::Target`], [`Refusal::Value`].
    pub fn check_call(&self, request: &ForwardRequest) -> Result<(), Refusal> {
        if request.to != self.registry {
            return Err(Refusal::Target);
        }
        if request.value.is_zero() { Ok(()) } else { Err(Refusal::Value) }
    }

    /// Checks that `request.gas` is within the cap and the deadline has not passed at `now_seconds` (unix).
    ///
    /// # Errors
    /// [`Refusal::Gas`], [`Refusal::Expired`].
    pub fn check_terms(&self, request: &ForwardRequest, now_seconds: u64) -> Result<(), Refusal> {
        if request.gas > U256::from(self.max_gas) {
            return Err(Refusal::Gas { gas: request.gas, max: self.max_gas });
        }
        let deadline = request.deadline.to::<u64>();
        if is_expired(deadline, now_seconds) { Err(Refusal::Expired { deadline }) } else { Ok(()) }
    }

    /// Checks all rules that need no network, in the daemon's order.
    ///
    /// # Errors
    /// The first [`Refusal`].
    pub fn check(
        &self,
        signed: &SignedRequest,
        domain: &Eip712Domain,
        now_seconds: u64,
    ) -> Result<(), Refusal> {
        self.check_call(&signed.request)?;
        signed.authenticate(domain).map_err(Refusal::Signature)?;
        self.check_terms(&signed.request, now_seconds)
    }
}

/// Returns whether a deadline has passed. Its own second is still in time; 0 means no deadline.
#[must_use]
pub const fn is_expired(deadline_seconds: u64, now_seconds: u64) -> bool {
    deadline_seconds != 0 && now_seconds > deadline_seconds
}
