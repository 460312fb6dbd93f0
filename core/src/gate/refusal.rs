//! Reasons for which a request is not authenticated: the stable codes of ERC-8128, section 6.

/// A refusal of the signature layer. Challenge and body have its code, and tell no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RefusalCode {
    /// `Signature-Input` or `Signature` is absent.
    SignatureMissing,
    /// `Signature-Input` or `Signature` is malformed, or a candidate has no byte sequence in `Signature`.
    SignatureInputInvalid,
    /// A limit on bytes, candidates, components or parameters is exceeded.
    SignatureTooLarge,
    /// No signature of the request is an ERC-8128 one.
    NoAcceptableSignature,
    /// `keyid` names no account.
    InvalidKeyid,
    /// `keyid` names an account of another chain.
    UnsupportedChain,
    /// The route does not verify accounts of this kind: wrapped ones, or those with code.
    UnsupportedAccount,
    /// `created` or `expires` is missing or no Integer, or they are in the wrong order.
    InvalidTime,
    /// `created` is in the future.
    RequestNotYetValid,
    /// `expires` has passed.
    RequestExpired,
    /// The time from `created` to `expires` is longer than the route allows.
    RequestValidityTooLong,
    /// `nonce` is no String of at most 128 bytes.
    InvalidNonce,
    /// A component that has to be signed is not.
    InsufficientCoverage,
    /// The request has content and no `Content-Digest`.
    ContentDigestRequired,
    /// `Content-Digest` is not that of the content.
    BadContentDigest,
    /// The route admits each signature once, and this one has no nonce.
    NonceRequired,
    /// The signature was admitted before.
    NonceReused,
    /// The signature was made before the store of nonces began, which cannot say whether it was admitted.
    /// This reason is this gate's own; the specification's code for it is `nonce_reused`.
    SignedBeforeStart,
    /// The service admits signatures without a nonce elsewhere, and not on this route.
    ReplayableNotAllowed,
    /// The signature names an algorithm.
    UnsupportedAlgorithm,
    /// The account did not sign this request.
    BadSignature,
    /// The chain did not say whether the account signed this request.
    SignatureVerificationUnavailable,
    /// The route is not for this account.
    PrincipalNotAllowed,
}

impl RefusalCode {
    /// Returns the stable code.
    pub fn code(self) -> &'static str {
        self.into()
    }

    /// Returns the specification's code, for the challenge.
    pub fn challenge(self) -> &'static str {
        match self {
            Self::SignedBeforeStart => Self::NonceReused.code(),
            other => other.code(),
        }
    }

    /// Returns the HTTP status: 400, 401 or 503.
    pub const fn status(self) -> u16 {
        match self {
            Self::SignatureInputInvalid | Self::SignatureTooLarge => 400,
            Self::SignatureVerificationUnavailable => 503,
            _ => 401,
        }
    }

    /// Returns a remedy for the client, in one sentence.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::SignatureMissing | Self::NoAcceptableSignature => {
                "Sign the request with an Ethereum account (ERC-8128), as Accept-Signature says."
            }
            Self::SignatureInputInvalid => {
                "Signature-Input and Signature have to be structured fields (RFC 9651) with the same labels."
            }
            Self::SignatureTooLarge => "The signature exceeds the limits of ERC-8128, section 3.5.",
            Self::InvalidKeyid => "keyid has to be eip155:<chain id>:<address in lower case>.",
            Self::UnsupportedChain => "Sign with an account of the chain that the challenge names.",
            Self::UnsupportedAccount => "Accounts of this kind are not verified here.",
            Self::InvalidTime => "created and expires have to be Integers, expires the later one.",
            Self::RequestNotYetValid => "created is in the future: set the clock, and sign again.",
            Self::RequestExpired => "The signature has expired: sign again.",
            Self::RequestValidityTooLong => "Sign again with an earlier expires: 60 seconds always suffice.",
            Self::InvalidNonce => "nonce has to be a String of at most 128 ASCII characters.",
            Self::InsufficientCoverage => "Sign all components that Accept-Signature lists.",
            Self::ContentDigestRequired => {
                "A request with content has to have a Content-Digest, and to sign it."
            }
            Self::BadContentDigest => "Content-Digest has to hold the content's sha-256 or sha-512.",
            Self::NonceRequired | Self::ReplayableNotAllowed => "Sign again with a nonce of 128 random bits.",
            Self::NonceReused => "The signature was used before: sign again with another nonce.",
            Self::SignedBeforeStart => {
                "The signature is older than this gate's memory of those that it admitted: sign again."
            }
            Self::UnsupportedAlgorithm => "Sign without the parameter alg.",
            Self::BadSignature => "The account in keyid has not signed this request as it was received.",
            Self::SignatureVerificationUnavailable => {
                "The account could not be read from its chain: try again."
            }
            Self::PrincipalNotAllowed => "This account is not served here.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::VariantArray as _;

    #[test]
    fn the_codes_are_those_of_the_specification() {
        let mut codes: Vec<&str> = RefusalCode::VARIANTS.iter().map(|refusal| refusal.challenge()).collect();
        codes.dedup();
        let listed = "signature_missing signature_input_invalid signature_too_large no_acceptable_signature \
                      invalid_keyid unsupported_chain unsupported_account invalid_time request_not_yet_valid \
                      request_expired request_validity_too_long invalid_nonce insufficient_coverage \
                      content_digest_required bad_content_digest nonce_required nonce_reused \
                      replayable_not_allowed unsupported_algorithm bad_signature \
                      signature_verification_unavailable principal_not_allowed";
        assert_eq!(codes, listed.split_whitespace().collect::<Vec<_>>());
    }
}
