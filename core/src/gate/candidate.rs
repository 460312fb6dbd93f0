//! One candidate signature: the checks before any cryptography, and the message that its account has to sign.

use std::sync::OnceLock;

use alloy_primitives::{Address, B256, keccak256};
use serde::Deserialize;
use sfv::{BareItem, Dictionary, InnerList};

use super::{
    base::signature_base,
    dialect::{Account, Dialect},
    digest,
    refusal::RefusalCode,
    request::Request,
    structured,
};
use crate::forward::recover;

/// The longest decoded signature.
const SIGNATURE_BYTES: usize = 8 * 1024;
/// The most covered components.
const COMPONENTS: usize = 32;
/// The most signature parameters.
const PARAMETERS: usize = 16;
/// The longest nonce.
const NONCE_BYTES: usize = 128;
/// Seconds by which the clocks of signer and verifier may differ.
pub const SKEW: u64 = 30;
/// The validity in seconds that every route has to accept.
pub const BASELINE_VALIDITY: u64 = 60;

/// The end of a signature that wraps another one together with the account's deployment (ERC-6492).
const WRAPPER_MAGIC: [u8; 32] =
    alloy_primitives::hex!("6492649264926492649264926492649264926492649264926492649264926492");

/// The signatures that a route accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureRules {
    /// The chain of the accounts.
    pub chain: u64,
    /// The dialects, each at most once.
    pub dialects: Vec<Dialect>,
    /// Components to be signed beyond those that bind the request, in lower case.
    pub components: Vec<String>,
    /// The longest validity in seconds, at least [`BASELINE_VALIDITY`].
    pub longest_validity: u64,
    /// Accounts that are verified: all, or only those without code.
    pub posture: Posture,
    /// Refusal of a signature without a nonce.
    pub without_nonce: WithoutNonce,
    /// The only accounts that are served; empty for all of them.
    pub principals: Vec<Address>,
}

/// The accounts that a route verifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Posture {
    /// Accounts with code (ERC-1271) and without.
    #[default]
    Universal,
    /// Accounts without code.
    EoaOnly,
}

/// The refusal of a signature without a nonce, which is never admitted: it could be used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum WithoutNonce {
    /// The service admits no such signature: [`RefusalCode::NonceRequired`].
    #[default]
    #[serde(rename = "unsupported")]
    Unknown,
    /// The service has routes that admit them, behind another verifier:
    /// [`RefusalCode::ReplayableNotAllowed`].
    #[serde(rename = "elsewhere")]
    ElsewhereOnly,
}

/// The account at its address, at one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountState {
    /// No code: its key signs.
    NoCode,
    /// Code, a delegation (EIP-7702) included: the code says whether the account has signed.
    Code {
        /// The answer of `isValidSignature` (ERC-1271).
        accepts: bool,
    },
}

/// A candidate that passed every check but the account's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The account it names.
    pub account: Account,
    /// Its dialect.
    pub dialect: Dialect,
    /// The signature base (RFC 9421, section 2.5).
    pub base: String,
    /// The hash that the account must have signed: EIP-191, of the signature base.
    pub hash: B256,
    /// The signature.
    pub signature: Vec<u8>,
    /// The nonce: of the account's signatures with it, one is admitted.
    pub nonce: String,
    /// Time of signing, in unix seconds by the signer's clock.
    pub created: i64,
    /// The last unix second at which the signature is valid, skew included: the nonce is kept for longer.
    pub valid_until: u64,
    posture: Posture,
    /// Cached result of the method of this name.
    is_of_key: OnceLock<bool>,
}

impl Attempt {
    /// Checks the account's signature.
    ///
    /// # Errors
    ///
    /// [`RefusalCode::BadSignature`], or [`RefusalCode::UnsupportedAccount`] for an account with code on a
    /// route for accounts without.
    pub fn judge(&self, state: AccountState) -> Result<(), RefusalCode> {
        let signed = match (state, self.posture) {
            (AccountState::Code { .. }, Posture::EoaOnly) => return Err(RefusalCode::UnsupportedAccount),
            (AccountState::Code { accepts }, Posture::Universal) => accepts,
            (AccountState::NoCode, _) => self.is_of_key(),
        };
        if signed { Ok(()) } else { Err(RefusalCode::BadSignature) }
    }

    /// Returns whether the account's key signed: the 65 bytes recover to its address. The account's code may
    /// still accept another signature.
    pub fn is_of_key(&self) -> bool {
        *self.is_of_key.get_or_init(|| recover(self.hash, &self.signature) == Ok(self.account.address))
    }

    /// Returns the hash of account and nonce, for stores of nonces. The account's part has a fixed length, so
    /// that no two pairs give the same text.
    pub fn nonce_key(&self) -> B256 {
        let chain = self.account.chain.to_be_bytes();
        keccak256([chain.as_slice(), self.account.address.as_slice(), self.nonce.as_bytes()].concat())
    }

    /// Returns the seconds from `now` for which a store that several hosts share remembers the nonce: hosts
    /// with clocks that differ by less than the skew agree on its end.
    pub const fn nonce_seconds(&self, now: u64) -> u64 {
        self.valid_until.saturating_sub(now).saturating_add(1 + SKEW)
    }

    /// Returns whether the account's code, if there is some, is asked about the signature: not on a route for
    /// accounts without code.
    pub(super) fn asks_code(&self) -> bool {
        self.posture == Posture::Universal
    }
}

/// Checks the candidate `label` at the unix second `now`.
pub(super) fn check(
    request: &Request<'_>,
    (label, input): (&str, &InnerList),
    signatures: &Dictionary,
    dialect: Dialect,
    rules: &SignatureRules,
    now: u64,
) -> Result<Attempt, RefusalCode> {
    let parameters = &input.params;
    if input.items.len() > COMPONENTS || parameters.len() > PARAMETERS {
        return Err(RefusalCode::SignatureTooLarge);
    }
    let signature = structured::bytes_of(signatures, label).ok_or(RefusalCode::SignatureInputInvalid)?;
    if signature.len() > SIGNATURE_BYTES {
        return Err(RefusalCode::SignatureTooLarge);
    }
    if parameters.contains_key("alg") {
        return Err(RefusalCode::UnsupportedAlgorithm);
    }
    let keyid = structured::text(parameters, "keyid").ok_or(RefusalCode::InvalidKeyid)?;
    let account = dialect.account(keyid).ok_or(RefusalCode::InvalidKeyid)?;
    if account.chain != rules.chain {
        return Err(RefusalCode::UnsupportedChain);
    }
    let time = |key: &str| structured::integer(parameters, key).ok_or(RefusalCode::InvalidTime);
    let (created, expires) = (time("created")?, time("expires")?);
    let valid_until = valid_until(created, expires, rules.longest_validity, now)?;
    let nonce = nonce(parameters.get("nonce"), rules.without_nonce)?;
    let is_covered = |component: &str| {
        input.items.iter().any(|item| match &item.bare_item {
            BareItem::String(name) => item.params.is_empty() && name.as_str() == component,
            _ => false,
        })
    };
    digest::check_presence(request)?;
    let mut required = dialect.required(request, &rules.components);
    if !required.all(is_covered) {
        return Err(RefusalCode::InsufficientCoverage);
    }
    digest::check(request)?;
    if !rules.principals.is_empty() && !rules.principals.contains(&account.address) {
        return Err(RefusalCode::PrincipalNotAllowed);
    }
    if signature.ends_with(&WRAPPER_MAGIC) {
        return Err(RefusalCode::UnsupportedAccount);
    }
    let base = signature_base(request, input).ok_or(RefusalCode::BadSignature)?;
    Ok(Attempt {
        account,
        dialect,
        hash: message_hash(&base),
        base,
        signature: signature.to_vec(),
        nonce: nonce.to_owned(),
        created,
        valid_until,
        posture: rules.posture,
        is_of_key: OnceLock::new(),
    })
}

/// Returns the last second at which a signature of these times is valid, if it is valid now.
fn valid_until(created: i64, expires: i64, longest: u64, now: u64) -> Result<u64, RefusalCode> {
    // A structured field's Integer has 15 digits, so that none of these overflows.
    let validity = u64::try_from(expires - created).map_err(|_| RefusalCode::InvalidTime)?;
    if validity == 0 {
        return Err(RefusalCode::InvalidTime);
    }
    if validity > longest {
        return Err(RefusalCode::RequestValidityTooLong);
    }
    let (now, skew) = (i64::try_from(now).unwrap_or(i64::MAX), SKEW.cast_signed());
    if now < created - skew {
        return Err(RefusalCode::RequestNotYetValid);
    }
    if now > expires + skew {
        return Err(RefusalCode::RequestExpired);
    }
    // The sum is at least `now`, which is not negative.
    Ok((expires + skew).unsigned_abs())
}

fn nonce(nonce: Option<&BareItem>, without: WithoutNonce) -> Result<&str, RefusalCode> {
    match nonce {
        Some(BareItem::String(nonce)) if nonce.as_str().len() <= NONCE_BYTES => Ok(nonce.as_str()),
        Some(_) => Err(RefusalCode::InvalidNonce),
        None => Err(match without {
            WithoutNonce::Unknown => RefusalCode::NonceRequired,
            WithoutNonce::ElsewhereOnly => RefusalCode::ReplayableNotAllowed,
        }),
    }
}

/// Returns the hash of a signed message (EIP-191, version `E`).
pub(super) fn message_hash(base: &str) -> B256 {
    keccak256(format!("\x19Ethereum Signed Message:\n{}{base}", base.len()))
}
