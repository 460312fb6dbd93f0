//! EIP-712 for forward requests: the domain, the digest, and who signed.
//!
//! As strict as the forwarder's own check (OpenZeppelin's `ECDSA`): 65 bytes, `s` in the lower half of the
//! group order, `v` 27 or 28. A signature accepted here recovers to the same address on chain.

use std::borrow::Cow;

use alloy_primitives::{Address, B256, Signature, U256, uint};
use alloy_sol_types::{Eip712Domain, SolStruct};
use thiserror::Error;

use super::SignedRequest;

/// `name` of the forwarder's EIP-712 domain.
pub const DOMAIN_NAME: &str = "MinimalForwarder";
/// `version` of the forwarder's EIP-712 domain.
pub const DOMAIN_VERSION: &str = "1";
/// Length of a signature: `r` 32, `s` 32, `v` 1 (service.md section 5).
pub const SIGNATURE_LENGTH: usize = 65;

/// Half of secp256k1's group order: the largest `s` that is not malleable (EIP-2).
const MAX_S: U256 = uint!(0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0_U256);

/// Why a signature is not its `from`'s. To the client all of them are one 401 (service.md section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// Not 65 bytes.
    #[error("signature has {0} bytes, not 65")]
    Length(usize),
    /// `s` in the upper half: the malleable twin of another signature.
    #[error("signature is malleable: s is in the upper half")]
    Malleable,
    /// `v` is neither 27 nor 28.
    #[error("signature has v {0}, not 27 or 28")]
    RecoveryId(u8),
    /// `r` and `s` belong to no public key.
    #[error("signature recovers to no key")]
    Unrecoverable,
    /// Somebody else signed, or signed something else.
    #[error("signature recovers to {0}, not to request.from")]
    OtherSigner(Address),
}

/// The EIP-712 domain of the forwarder at `forwarder` on chain `chain_id`.
#[must_use]
pub fn domain(chain_id: u64, forwarder: Address) -> Eip712Domain {
    Eip712Domain::new(
        Some(Cow::Borrowed(DOMAIN_NAME)),
        Some(Cow::Borrowed(DOMAIN_VERSION)),
        Some(U256::from(chain_id)),
        Some(forwarder),
        None,
    )
}

impl SignedRequest {
    /// The EIP-712 digest that `from` signed. It names the request: equal digests are one and the same order.
    #[must_use]
    pub fn digest(&self, domain: &Eip712Domain) -> B256 {
        self.request.eip712_signing_hash(domain)
    }

    /// Checks, without asking a node, that `request.from` signed this request for this domain, and returns
    /// the digest. The nonce and deadline are for the chain to judge.
    ///
    /// # Errors
    /// [`SignatureError`] with the reason.
    pub fn authenticate(&self, domain: &Eip712Domain) -> Result<B256, SignatureError> {
        let digest = self.digest(domain);
        let signer = recover(digest, &self.signature)?;
        if signer == self.request.from { Ok(digest) } else { Err(SignatureError::OtherSigner(signer)) }
    }
}

/// The address whose key signed `digest`.
///
/// # Errors
/// [`SignatureError`]; never [`SignatureError::OtherSigner`], as no signer is expected here.
pub fn recover(digest: B256, signature: &[u8]) -> Result<Address, SignatureError> {
    let bytes: &[u8; SIGNATURE_LENGTH] =
        signature.try_into().map_err(|_| SignatureError::Length(signature.len()))?;
    let [rs @ .., v] = bytes;
    let odd_y = match v {
        27 => false,
        28 => true,
        other => return Err(SignatureError::RecoveryId(*other)),
    };
    let (r, s) = rs.split_at(32);
    let (r, s) = (U256::from_be_slice(r), U256::from_be_slice(s));
    if s > MAX_S {
        return Err(SignatureError::Malleable);
    }
    Signature::new(r, s, odd_y)
        .recover_address_from_prehash(&digest)
        .map_err(|_| SignatureError::Unrecoverable)
}
