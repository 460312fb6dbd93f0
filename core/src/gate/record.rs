//! Records of admissions: one line of JSON for each, which shows years later who asked for what, that the
//! wallet signed it, and what the registry said.
//!
//! ```text
//!   base, signature --EIP-191--> the wallet signed this request
//!        |
//!        +-- policy, registry, account, basis, acceptance, evidence --keccak--> jti -- verdict (JWS)
//!                                          |                          |
//!                                          +---- asOf, decision ------+ the registry's storage at that block
//! ```
//!
//! The token states that its issuer admitted the request. Its signature covers each byte of a line, by the
//! claims or `jti`, or the form does: a line that [`AdmissionRecord::line`] would write otherwise is refused.

mod grounds;

use alloy_primitives::{Address, B256, hex, keccak256};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sfv::{ListEntry, Parser};

use super::{
    candidate::{SKEW, message_hash},
    dialect::{Account, Dialect},
    structured,
};
use crate::{
    eth::{json, timestamp::Timestamp},
    evidence::{self, EvidenceError, Expected, Verified},
    forward::recover,
    liability::{Acceptance, Basis, Moment, Problem},
    registry::kya::Decision,
    token::{Jws, JwsError, Key, KeySet, VerdictClaims},
};
pub use grounds::Grounds;

/// The version of the lines that this crate writes.
const VERSION: u32 = 2;
/// The version of lines that name no registry, which are verified as well.
const WITHOUT_REGISTRY: u32 = 1;

/// An admission.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AdmissionRecord {
    /// The version of this shape: 2, or 1 without registry, policy hash, basis and acceptance.
    pub version: u32,
    /// Time of admission: the second in which the verdict was signed.
    pub time: Timestamp,
    /// The policy's name.
    pub policy: String,
    /// The hash of the policy's table in the gate's configuration.
    #[serde(default, with = "json::OptionalHash", skip_serializing_if = "Option::is_none")]
    pub policy_hash: Option<B256>,
    /// The registry that the verdict is of (CAIP-10): `eip155:<chain>:<address>`, the address in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    /// Verifier of the wallet's signature: its key or its code.
    pub account: VerifiedBy,
    /// Basis that ties the liable wallet to the agent, where one is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
    /// The liable wallet's acceptance, where this is the basis: the document as it was signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Box<RawValue>>,
    /// The Keccak-256 of the agent's scope, which the acceptance covers.
    #[serde(default, with = "json::OptionalHash", skip_serializing_if = "Option::is_none")]
    pub scope_hash: Option<B256>,
    /// The signature base (RFC 9421, section 2.5): the request, as far as it was signed.
    pub base: String,
    /// The wallet's signature of the base, `0x` and hex digits.
    pub signature: String,
    /// The verdict as a signed token. Its `jti` is [`Grounds::id`].
    pub verdict: String,
    /// The proof of the verdict, where one was wanted: a document of evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Box<RawValue>>,
}

/// The verifier of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifiedBy {
    /// The account has no code: its key signed.
    Key,
    /// The account's code accepted it (ERC-1271). Later checks of this need the chain at that time.
    Code,
}

/// The contents of a verified record.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Time of admission.
    pub time: Timestamp,
    /// Name of the policy.
    pub policy: String,
    /// Hash of the policy's table; `None` where the record does not say.
    pub policy_hash: Option<B256>,
    /// Basis that tied the liable wallet to the agent; `None` without an agent or where the record has none.
    pub basis: Option<Basis>,
    /// The acceptance, where this was the basis.
    pub acceptance: Option<ProvedAcceptance>,
    /// The registry that the verdict is of; `None` where the record does not say.
    pub registry: Option<Address>,
    /// The account that signed the request.
    pub account: Account,
    /// Verifier of the wallet's signature.
    pub verified_by: VerifiedBy,
    /// The signed method.
    pub method: String,
    /// The signed target, with the authority, and the scheme and query where they were signed.
    pub target: String,
    /// The verdict.
    pub claims: VerdictClaims,
    /// Verified evidence, where there is some.
    pub proved: Option<Verified>,
}

/// The acceptance of a verified record.
#[derive(Clone, Debug)]
pub struct ProvedAcceptance {
    /// The document that the liable wallet signed.
    pub acceptance: Acceptance,
    /// Its EIP-712 digest.
    pub digest: B256,
    /// Verifier of its signature.
    pub verified_by: VerifiedBy,
}

/// The keys, registry, code and blocks that a verifier trusts.
#[derive(Clone, Copy, Debug)]
pub struct Trusted<'a> {
    /// The issuer's keys.
    pub keys: &'a KeySet,
    /// The registry that verdicts have to be of; `None` for the record's word.
    pub registry: Option<Address>,
    /// True if the issuer's word suffices that an account's code accepted a signature.
    pub code: bool,
    /// Hashes of blocks; without any, evidence only has to agree with itself.
    pub blocks: &'a [B256],
}

/// The reason for which a record is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not a record of this version, or not written as one.
    #[error("is no admission record, or is not written as a gate writes it")]
    Form,
    /// The verdict is no verdict token.
    #[error("the verdict {0}")]
    Token(#[from] JwsError),
    /// The verdict is signed by a key that is not trusted.
    #[error("the verdict is signed by the key {0:?}, which is not among the keys given")]
    UnknownKey(String),
    /// The issuer did not sign the verdict.
    #[error("the verdict's signature is wrong")]
    Issuer,
    /// The verdict was signed for another admission.
    #[error("the verdict was signed for another admission")]
    OtherAdmission,
    /// The signature base is none of a request that a gate admits.
    #[error("the signature base is none of a request that a gate admits")]
    Base,
    /// The wallet did not sign the request.
    #[error("the wallet did not sign the request")]
    Wallet,
    /// The account had code, and only the chain at that time can verify its signature.
    #[error("the account had code, which said that it had signed; only the issuer's word is left of that")]
    Code,
    /// The liable wallet's acceptance does not hold.
    #[error("the liable wallet's acceptance does not hold: {0}")]
    Acceptance(#[from] Problem),
    /// The parts contradict one another.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The verdict is of another registry.
    #[error("the verdict is of the registry {record}, and not of {trusted}")]
    OtherRegistry {
        /// The record's.
        record: Address,
        /// The one that is trusted.
        trusted: Address,
    },
    /// Neither record nor evidence name the registry.
    #[error("the record does not say of which registry the verdict is")]
    NoRegistry,
    /// The evidence proves nothing.
    #[error("the evidence is refused: {0}")]
    Evidence(#[from] EvidenceError),
}

impl AdmissionRecord {
    /// Makes the record of an admission at second `now`. The `jti` of the token `verdict` is the grounds' id.
    pub fn new(now: Timestamp, grounds: &Grounds<'_>, verdict: &str) -> Self {
        Self {
            version: if grounds.registry.is_some() { VERSION } else { WITHOUT_REGISTRY },
            time: Timestamp::from_seconds(now.seconds()),
            policy: grounds.policy.to_owned(),
            policy_hash: grounds.registry.map(|(_, hash)| hash),
            registry: grounds.registry.map(|(registry, _)| registry.to_owned()),
            account: grounds.account,
            basis: grounds.basis,
            // The document is JSON.
            acceptance: grounds
                .acceptance
                .and_then(|(acceptance, _)| RawValue::from_string(acceptance.to_json()).ok()),
            scope_hash: grounds.acceptance.map(|(_, scope_hash)| scope_hash),
            base: grounds.base.to_owned(),
            signature: hex::encode_prefixed(grounds.signature),
            verdict: verdict.to_owned(),
            evidence: grounds.evidence.map(ToOwned::to_owned),
        }
    }

    /// Returns the record as a line, without the line feed.
    pub fn line(&self) -> String {
        json::text(self, 2_048)
    }

    /// Verifies a line. `is_signed` returns whether 64 bytes are an ES256 signature of a text by a key.
    ///
    /// # Errors
    ///
    /// [`RecordError`], the first reason found.
    pub fn verify(
        line: &str,
        trusted: &Trusted<'_>,
        is_signed: impl Fn(&Key, &str, &[u8; 64]) -> bool,
    ) -> Result<Admission, RecordError> {
        let record: Self = serde_json::from_str(line).map_err(|_| RecordError::Form)?;
        let is_old = record.registry.is_none();
        let version = if is_old { WITHOUT_REGISTRY } else { VERSION };
        let has_none_of_it =
            record.policy_hash.is_none() && record.basis.is_none() && record.acceptance.is_none();
        if record.version != version
            || (if is_old { !has_none_of_it } else { record.policy_hash.is_none() })
            || record.line() != line
        {
            return Err(RecordError::Form);
        }
        let token = Jws::parse(&record.verdict)?;
        let key = trusted.keys.find(&token.kid).ok_or_else(|| RecordError::UnknownKey(token.kid.clone()))?;
        if !is_signed(key, token.signing_input, &token.signature) {
            return Err(RecordError::Issuer);
        }
        let claims = token.claims;
        let signature = hex::decode(&record.signature).map_err(|_| RecordError::Form)?;
        let acceptance = record.accepted()?;
        let grounds = Grounds {
            policy: &record.policy,
            registry: record.registry.as_deref().zip(record.policy_hash),
            basis: record.basis,
            acceptance: acceptance.as_ref().zip(record.scope_hash),
            account: record.account,
            signature: &signature,
            base: &record.base,
            evidence: record.evidence.as_deref(),
        };
        if hex::encode_prefixed(&signature) != record.signature {
            return Err(RecordError::Form);
        }
        if claims.jti != Some(grounds.id()) {
            return Err(RecordError::OtherAdmission);
        }
        let asked = ParsedSignatureBase::read(&record.base).ok_or(RecordError::Base)?;
        match record.account {
            VerifiedBy::Key
                if recover(message_hash(&record.base), &signature) == Ok(asked.account.address) => {}
            VerifiedBy::Key => return Err(RecordError::Wallet),
            VerifiedBy::Code if trusted.code => {}
            VerifiedBy::Code => return Err(RecordError::Code),
        }
        record.check_times_and_names(&asked, &claims)?;
        let named = record.registry.as_deref().map(|text| registry(text, &asked.account)).transpose()?;
        let proved = match &record.evidence {
            None => None,
            Some(document) => Some(proved(document.get(), &asked.account, named, &claims, trusted.blocks)?),
        };
        let acceptance =
            record.check_liability(acceptance, &asked.account, &claims, proved.as_ref(), trusted)?;
        let registry = named.or(proved.as_ref().map(|verified| verified.registry));
        match (registry, trusted.registry) {
            (Some(record), Some(trusted)) if record != trusted => {
                return Err(RecordError::OtherRegistry { record, trusted });
            }
            (None, Some(_)) => return Err(RecordError::NoRegistry),
            _ => {}
        }
        Ok(Admission {
            time: record.time,
            policy: record.policy,
            policy_hash: record.policy_hash,
            basis: record.basis,
            acceptance,
            registry,
            account: asked.account,
            verified_by: record.account,
            method: asked.method,
            target: asked.target,
            claims,
            proved,
        })
    }

    /// Parses the acceptance, if the record has one, and checks that it is in its canonical form.
    fn accepted(&self) -> Result<Option<Acceptance>, RecordError> {
        let Some(document) = &self.acceptance else {
            return if self.scope_hash.is_none() { Ok(None) } else { Err(RecordError::Form) };
        };
        let acceptance = Acceptance::from_json(document.get())?;
        let is_written = acceptance.to_json() == document.get() && self.scope_hash.is_some();
        if is_written { Ok(Some(acceptance)) } else { Err(RecordError::Form) }
    }

    /// Checks basis and acceptance against the verdict, and against the evidence where there is some.
    fn check_liability(
        &self,
        acceptance: Option<Acceptance>,
        account: &Account,
        claims: &VerdictClaims,
        proved: Option<&Verified>,
        trusted: &Trusted<'_>,
    ) -> Result<Option<ProvedAcceptance>, RecordError> {
        let contradiction = |rule| Err(RecordError::Contradiction(rule));
        let Some(registry) = &self.registry else { return Ok(None) };
        if claims.registry.as_ref() != Some(registry) {
            return contradiction("the verdict is of another registry than the record");
        }
        let claimed = claims.liability;
        if claimed.map(|liability| liability.basis) != self.basis
            || claimed.is_some_and(|liability| Some(liability.wallet) != claims.liable)
        {
            return contradiction("the verdict states another basis than the record");
        }
        if acceptance.is_some() != (self.basis == Some(Basis::Accepted)) {
            return contradiction("the record's basis is another than its acceptance says");
        }
        let agent = proved.and_then(|verified| verified.verdict.agent.as_ref());
        let is_registered = agent.map(|agent| agent.creator == agent.haftungsperson);
        if is_registered == Some(false) && self.basis == Some(Basis::Registered) {
            return contradiction("the evidence proves another creator than the liable wallet");
        }
        let (Some(acceptance), Some(scope_hash)) = (acceptance, self.scope_hash) else { return Ok(None) };
        let place = (account.chain, self::registry(registry, account)?);
        let block_time = claims.as_of.block_timestamp.map_or(claims.iat, Timestamp::seconds);
        acceptance.check_place_and_time(place, Moment { now: claims.iat, block_time })?;
        if acceptance.agent_wallet != account.address || Some(acceptance.haftungsperson) != claims.liable {
            return contradiction("the acceptance is of another agent than the verdict");
        }
        if let Some(agent) = agent {
            acceptance.check_record(&agent.pinned())?;
            if keccak256(&agent.operational_scope) != scope_hash {
                return contradiction("the acceptance is of another scope than the evidence proves");
            }
        }
        let verified_by = match acceptance.check_signature_of(scope_hash) {
            Ok(()) => VerifiedBy::Key,
            Err(_) if trusted.code => VerifiedBy::Code,
            Err(problem) => return Err(problem.into()),
        };
        Ok(Some(ProvedAcceptance { digest: acceptance.digest_of(scope_hash), acceptance, verified_by }))
    }

    fn check_times_and_names(
        &self,
        asked: &ParsedSignatureBase,
        claims: &VerdictClaims,
    ) -> Result<(), RecordError> {
        let contradiction = |rule| Err(RecordError::Contradiction(rule));
        if claims.sub != asked.account.caip() {
            return contradiction("the verdict is about another account than the one that signed");
        }
        if self.time.as_millis() != claims.iat.saturating_mul(1_000) {
            return contradiction("the verdict was signed at another time than that of the admission");
        }
        let time = i64::try_from(claims.iat).unwrap_or(i64::MAX);
        if time < asked.created - SKEW.cast_signed() || time > asked.expires + SKEW.cast_signed() {
            return contradiction("the request's signature was not valid at the time of the admission");
        }
        let authority = claims.aud.as_deref().and_then(|origin| origin.split_once("://"));
        if authority.is_none_or(|(scheme, authority)| {
            authority != asked.authority || asked.scheme.as_deref().is_some_and(|signed| signed != scheme)
        }) {
            return contradiction("the verdict is for another site than the one that was asked");
        }
        Ok(())
    }
}

/// Parses the registry that a record names, which has to be on the chain of its wallet.
fn registry(text: &str, account: &Account) -> Result<Address, RecordError> {
    let parsed = Dialect::Tagged.account(text).ok_or(RecordError::Form)?;
    if parsed.chain != account.chain {
        return Err(RecordError::Contradiction("the registry is on another chain than the wallet"));
    }
    Ok(parsed.address)
}

/// Verifies evidence, and that it proves what the verdict says.
fn proved(
    document: &str,
    account: &Account,
    registry: Option<Address>,
    claims: &VerdictClaims,
    blocks: &[B256],
) -> Result<Verified, RecordError> {
    let expected = Expected {
        chain_id: Some(account.chain),
        wallet: Some(account.address),
        registry,
        ..Expected::default()
    };
    let verified = evidence::verify(document, &expected)?;
    if let Some(trusted) = blocks.first().filter(|_| !blocks.contains(&verified.block.hash)) {
        return Err(EvidenceError::OtherBlock { document: verified.block.hash, trusted: *trusted }.into());
    }
    let contradiction = |rule| Err(RecordError::Contradiction(rule));
    let (kya, as_of) = (&verified.verdict, &claims.as_of);
    if as_of.block_number != kya.as_of.block_number
        || as_of.parent_hash.is_some_and(|parent| parent != kya.as_of.parent_hash)
    {
        return contradiction("the evidence is of another block than the verdict");
    }
    // The evidence judges at its block's time, the gate at its clock's: an attestation may have lapsed since.
    let has_lapsed = kya.compliant_until.is_some_and(|until| until.seconds() < claims.iat);
    let decision = if has_lapsed { Decision::RequestRenewal } else { kya.decision };
    let liable = kya.agent.as_ref().map(|agent| agent.haftungsperson);
    if (decision, liable) != (claims.decision, claims.liable) {
        return contradiction("the evidence proves another verdict");
    }
    Ok(verified)
}

/// The request as its signature base describes it.
struct ParsedSignatureBase {
    account: Account,
    created: i64,
    expires: i64,
    scheme: Option<String>,
    authority: String,
    method: String,
    target: String,
}

impl ParsedSignatureBase {
    fn read(base: &str) -> Option<Self> {
        let (components, parameters) = base.rsplit_once("\n\"@signature-params\": ")?;
        let value = |name: &str| {
            let prefix = format!("\"{name}\": ");
            let mut values = components.lines().filter_map(|line| line.strip_prefix(prefix.as_str()));
            values.next().map(str::to_owned)
        };
        let list = Parser::new(parameters).parse::<sfv::List>().ok()?;
        let [ListEntry::InnerList(input)] = list.as_slice() else { return None };
        let dialect = Dialect::ALL.iter().find(|dialect| dialect.has_signed(&input.params))?;
        let account = dialect.account(structured::text(&input.params, "keyid")?)?;
        let integer = |key| structured::integer(&input.params, key);
        let (scheme, authority) = (value("@scheme"), value("@authority")?);
        let site =
            scheme.as_ref().map_or_else(|| authority.clone(), |scheme| format!("{scheme}://{authority}"));
        // An empty query is signed as `?`.
        let query = value("@query").filter(|query| query != "?").unwrap_or_default();
        Some(Self {
            account,
            created: integer("created")?,
            expires: integer("expires")?,
            method: value("@method")?,
            target: [&site, &value("@path")?, &query].map(String::as_str).concat(),
            scheme,
            authority,
        })
    }
}

impl Account {
    /// Formats the account by CAIP-10, with the address in lower case.
    fn caip(&self) -> String {
        format!("eip155:{}:{:#x}", self.chain, self.address)
    }
}

#[cfg(test)]
mod tests;
