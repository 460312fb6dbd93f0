//! Signatures of forward requests: recovering the signer and comparing it with `from`.
//!
//! As strict as the forwarder's own check (OpenZeppelin's `ECDSA`): 65 bytes, `s` in the lower half of the
//! group order, `v` 27 or 28. A signature accepted here recovers to the same address on chain.

use alloy_primitives::{Address, B256, U256, uint};
use alloy_sol_types::Eip712Domain;
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};
use thiserror::Error;

use super::SignedRequest;

/// Length of a signature: `r` 32, `s` 32, `v` 1 (service.md section 5).
pub const SIGNATURE_LENGTH: usize = 65;

/// Half of secp256k1's group order: the largest `s` that is not malleable (EIP-2).
const MAX_S: U256 = uint!(0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0_U256);

/// Why a signature is not that of `request.from`. Clients get one 401 for all of them (service.md section 7).
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
    /// No public key has this `r` and `s`.
    #[error("signature recovers to no key")]
    Unrecoverable,
    /// Another key signed, or another message was signed.
    #[error("signature recovers to {0}, not to request.from")]
    OtherSigner(Address),
}

impl SignedRequest {
    /// Checks without a node that `request.from` signed this request for this domain, and returns the digest.
    /// The chain checks nonce and deadline.
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
    let recovery_id = match v {
        27 | 28 => RecoveryId::new(*v == 28, false),
        other => return Err(SignatureError::RecoveryId(*other)),
    };
    let (r, s) = rs.split_at(32);
    if U256::from_be_slice(s) > MAX_S {
        return Err(SignatureError::Malleable);
    }
    let address = || {
        let signature = Signature::from_scalars(B256::from_slice(r).0, B256::from_slice(s).0).ok()?;
        let key = VerifyingKey::recover_from_prehash(&digest.0, &signature, recovery_id).ok()?;
        // SEC1: the byte 4 of an uncompressed point, then its two coordinates.
        let point = key.to_encoded_point(false);
        point.as_bytes().get(1..).map(Address::from_raw_public_key)
    };
    address().ok_or(SignatureError::Unrecoverable)
}
