//! The EIP-712 types that liable wallets sign, and checks of signed documents.

use std::borrow::Cow;

use alloy_primitives::{Address, B256, Keccak256, U256, b256, keccak256};
use alloy_sol_types::{Eip712Domain, SolStruct, eip712_domain, sol};

use crate::{eth::members::MemberError, forward::recover};

/// `name` of the EIP-712 domain.
pub const DOMAIN_NAME: &str = "AgentLiability";
/// `version` of the EIP-712 domain.
pub const DOMAIN_VERSION: &str = "1";

/// The hash of the type `EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)`.
const DOMAIN_TYPE_HASH: B256 = b256!("8b73c3c69bb8fe3d512ecc4cf759cc79239f7b179b0ffacaa9a75d522b39400f");

/// The longest time between `notBefore` and `notAfter`, in seconds: 366 days.
pub(super) const MAX_SECONDS: u64 = 366 * 86_400;

/// Tolerated clock skew before `notBefore`, in seconds.
const SKEW: u64 = 60;

sol! {
    /// A liable wallet's acceptance of one registration.
    #[derive(Debug, PartialEq, Eq)]
    struct LiabilityAcceptance {
        uint256 agentId;
        address creator;
        address agentWallet;
        address haftungsperson;
        uint64 registeredAt;
        string operationalScope;
        bytes32 termsHash;
        uint64 notBefore;
        uint64 notAfter;
    }

    /// A liable wallet's statement that a domain is its own.
    #[derive(Debug, PartialEq, Eq)]
    struct LiableDomain {
        address haftungsperson;
        string domain;
        uint64 notBefore;
        uint64 notAfter;
    }
}

/// Returns the EIP-712 domain of both types, for the registry at `registry` on chain `chain_id`.
#[must_use]
pub fn domain(chain_id: u64, registry: Address) -> Eip712Domain {
    eip712_domain! { name: DOMAIN_NAME, version: DOMAIN_VERSION, chain_id: chain_id, verifying_contract: registry, }
}

/// The reason that a signed document does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The header is not base64url of a document, is too long, or is given more than once.
    #[error("header")]
    Header,
    /// A member breaks a rule, or differs from the record.
    #[error("{0}")]
    Member(Cow<'static, str>),
    /// The signature is not the liable wallet's.
    #[error("signature")]
    Signature,
    /// The document does not hold yet, or no longer.
    #[error("time")]
    Time,
}

impl From<MemberError> for Problem {
    fn from(error: MemberError) -> Self {
        if error.path == "it" { Self::Header } else { Self::Member(error.path.into()) }
    }
}

/// The times that a signed document is judged at, in unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The host's clock.
    pub now: u64,
    /// The time of the verdict's block.
    pub block_time: u64,
}

impl Moment {
    /// Checks that a signed document holds at both times, and for at most 366 days.
    pub(super) fn check(self, not_before: u64, not_after: u64) -> Result<(), Problem> {
        if not_after < not_before || not_after - not_before > MAX_SECONDS {
            return Err(Problem::Member("notAfter".into()));
        }
        let (first, last) = (self.now.min(self.block_time), self.now.max(self.block_time));
        let holds = not_before <= first.saturating_add(SKEW) && last <= not_after;
        if holds { Ok(()) } else { Err(Problem::Time) }
    }
}

/// Checks the chain and the registry that a document is about.
pub(super) fn check_place(
    (chain_id, registry): (u64, Address),
    expected: (u64, Address),
) -> Result<(), Problem> {
    match () {
        () if chain_id != expected.0 => Err(Problem::Member("chainId".into())),
        () if registry != expected.1 => Err(Problem::Member("registry".into())),
        () => Ok(()),
    }
}

/// Checks the signature of a wallet without code.
pub(super) fn check_signer(digest: B256, signature: &[u8], wallet: Address) -> Result<(), Problem> {
    recover(digest, signature).ok().filter(|signer| *signer == wallet).map(drop).ok_or(Problem::Signature)
}

/// Returns the digest that a wallet signs.
pub(super) fn digest(message: &impl SolStruct, chain_id: u64, registry: Address) -> B256 {
    digest_of(message.eip712_hash_struct(), chain_id, registry)
}

/// Returns the digest that a wallet signs, by the message's hash.
pub(super) fn digest_of(message: B256, chain_id: u64, registry: Address) -> B256 {
    let words = [
        DOMAIN_TYPE_HASH,
        keccak256(DOMAIN_NAME),
        keccak256(DOMAIN_VERSION),
        U256::from(chain_id).into(),
        registry.into_word(),
    ];
    let separator = hash_words(&words);
    keccak256([b"\x19\x01", separator.as_slice(), message.as_slice()].concat())
}

/// Returns the Keccak-256 of the words in sequence.
pub(super) fn hash_words(words: &[B256]) -> B256 {
    let mut hasher = Keccak256::new();
    words.iter().for_each(|word| hasher.update(word));
    hasher.finalize()
}
