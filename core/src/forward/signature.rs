//! Signatures of forward requests: recovering the signer and comparing it with `from`.
//!
//! The check is as strict as the forwarder's own (OpenZeppelin's `ECDSA`): 65 bytes, `s` in the lower half of
//! the group order, `v` 27 or 28. A signature accepted here recovers to the same address on chain.

use alloy_primitives::{Address, B256, U256, uint};
use alloy_sol_types::Eip712Domain;
use k256::{
    AffinePoint, ProjectivePoint, PublicKey, Scalar, U256 as Limbs,
    ecdsa::Signature,
    elliptic_curve::{
        ops::{Invert as _, LinearCombination as _, Reduce},
        point::DecompressPoint as _,
        sec1::ToEncodedPoint as _,
    },
};
use thiserror::Error;

use super::parse::{SIGNATURE_LENGTH, SignedRequest};

/// Half of secp256k1's group order: the largest `s` that is not malleable (EIP-2).
const MAX_S: U256 = uint!(0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0_U256);

/// The reason that `request.from` did not sign. Clients get the same 401 for all (service.md section 7).
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

/// Recovers the address that signed `digest`.
///
/// # Errors
/// [`SignatureError`]; never [`SignatureError::OtherSigner`], as no signer is expected here.
pub fn recover(digest: B256, signature: &[u8]) -> Result<Address, SignatureError> {
    let bytes: &[u8; SIGNATURE_LENGTH] =
        signature.try_into().map_err(|_| SignatureError::Length(signature.len()))?;
    let [rs @ .., v] = bytes;
    let is_y_odd = match v {
        27 => 0,
        28 => 1,
        other => return Err(SignatureError::RecoveryId(*other)),
    };
    let (r, s) = rs.split_at(32);
    if U256::from_be_slice(s) > MAX_S {
        return Err(SignatureError::Malleable);
    }
    let address = || {
        let signature = Signature::from_scalars(B256::from_slice(r).0, B256::from_slice(s).0).ok()?;
        let key = recover_key(digest, &signature, is_y_odd)?;
        // SEC1: the byte 4 of an uncompressed point, then its two coordinates.
        let point = key.to_encoded_point(false);
        point.as_bytes().get(1..).map(Address::from_raw_public_key)
    };
    address().ok_or(SignatureError::Unrecoverable)
}

/// Recovers the key that `signature` verifies with: `(s R - z G) / r`, where `R` has the x coordinate `r`
/// (SEC 1, section 4.1.6).
///
/// k256's own recovery also verifies the signature with that key, which takes as long again and cannot fail:
/// `z/s G + r/s Q` is `R` for this very `Q`.
fn recover_key(digest: B256, signature: &Signature, is_y_odd: u8) -> Option<PublicKey> {
    let (r, s) = signature.split_scalars();
    let z = <Scalar as Reduce<Limbs>>::reduce_bytes(&digest.0.into());
    let point: Option<AffinePoint> = AffinePoint::decompress(&r.to_bytes(), is_y_odd.into()).into();
    let r_inverse = *r.invert_vartime();
    let (of_generator, of_point) = (-(r_inverse * z), r_inverse * *s);
    let point = ProjectivePoint::from(point?);
    let key = ProjectivePoint::lincomb(&ProjectivePoint::GENERATOR, &of_generator, &point, &of_point);
    // Not the identity.
    PublicKey::from_affine(key.to_affine()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k256::ecdsa::{RecoveryId, VerifyingKey};
    use proptest::prelude::*;

    /// Recovers the address by k256.
    fn expected(digest: B256, signature: &[u8]) -> Option<Address> {
        let (rs, v) = signature.split_at(64);
        let signature = Signature::from_slice(rs).ok()?;
        let id = RecoveryId::new(v == [28], false);
        let key = VerifyingKey::recover_from_prehash(&digest.0, &signature, id).ok()?;
        Some(Address::from_raw_public_key(&key.to_encoded_point(false).as_bytes()[1..]))
    }

    /// Yields 0, 1, the largest `s`, and a number above any scalar.
    fn edges() -> impl Strategy<Value = [u8; 32]> {
        let words = [U256::ZERO, U256::from(1), MAX_S, U256::MAX];
        prop::sample::select(words.map(|word| word.to_be_bytes()).to_vec())
    }

    proptest! {
        /// Half of all `r` are not the x coordinate of a point, so that no key is recovered.
        #[test]
        fn a_key_is_recovered_as_k256_does(
            digest: [u8; 32],
            r in prop_oneof![any::<[u8; 32]>(), edges()],
            s in prop_oneof![any::<[u8; 32]>(), edges()],
            v in 27_u8..=28,
        ) {
            let mut s = s;
            s[0] &= 0x7F;
            prop_assume!(U256::from_be_bytes(s) <= MAX_S);
            let signature = [r.as_slice(), s.as_slice(), &[v]].concat();
            for digest in [B256::from(digest), B256::ZERO, B256::repeat_byte(0xFF)] {
                prop_assert_eq!(recover(digest, &signature).ok(), expected(digest, &signature));
            }
        }
    }
}
