//! Records of admissions: one line of JSON for each, which shows years later who asked for what, that the
//! wallet signed it, and what the registry said.
//!
//! ```text
//!   base, signature --EIP-191--> the wallet signed this request
//!        |
//!        +-- policy, account, evidence --keccak--> jti -- verdict (JWS) --> the issuer admitted it
//!                                |                          |
//!                                +---- asOf, decision ------+ what the registry's storage held at that block
//! ```
//!
//! The issuer's signature covers each byte of a line, by the token's claims or its `jti`, or the form does: a
//! line that is not written as [`AdmissionRecord::line`] writes it is refused.

use alloy_primitives::{B256, hex, keccak256};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sfv::{ListEntry, Parser};

use super::{
    candidate::{SKEW, message_hash},
    dialect::{Account, Dialect},
    structured,
};
use crate::{
    eth::timestamp::Timestamp,
    evidence::{self, EvidenceError, Expected, Verified},
    forward::recover,
    registry::kya::Decision,
    token::{Jws, JwsError, Key, KeySet, VerdictClaims},
};

/// The version of the lines that this crate writes and verifies.
const VERSION: u32 = 1;

/// An admission.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmissionRecord {
    /// The version of this shape: 1.
    pub version: u32,
    /// When it was admitted: the second in which the verdict was signed.
    pub time: Timestamp,
    /// The policy's name.
    pub policy: String,
    /// What verified the signature.
    pub account: VerifiedBy,
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

/// What verified a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifiedBy {
    /// The account has no code: its key signed.
    Key,
    /// The account's code said so (ERC-1271), at that time. No later check can repeat it without the chain.
    Code,
}

/// What an admission rests on, and the token of the verdict is bound to by its `jti`.
#[derive(Clone, Copy, Debug)]
pub struct Grounds<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// What verified the wallet's signature.
    pub account: VerifiedBy,
    /// The wallet's signature.
    pub signature: &'a [u8],
    /// The signature base.
    pub base: &'a str,
    /// The text of the evidence, where it was wanted.
    pub evidence: Option<&'a RawValue>,
}

impl Grounds<'_> {
    /// The id of the admission: the Keccak-256 of these texts joined by line feeds, of which only the last
    /// one has some: the policy, `key` or `code`, the signature as `0x` and hex digits, the Keccak-256 of the
    /// evidence in the same spelling or nothing, the base.
    pub fn id(&self) -> B256 {
        let account = match self.account {
            VerifiedBy::Key => "key",
            VerifiedBy::Code => "code",
        };
        let evidence = self.evidence.map(|text| format!("{:#x}", keccak256(text.get()))).unwrap_or_default();
        keccak256(
            [self.policy, account, &hex::encode_prefixed(self.signature), &evidence, self.base].join("\n"),
        )
    }
}

/// What a verified record shows.
#[derive(Clone, Debug)]
pub struct Admission {
    /// When.
    pub time: Timestamp,
    /// Under which policy.
    pub policy: String,
    /// Who asked.
    pub account: Account,
    /// What verified the wallet's signature.
    pub verified_by: VerifiedBy,
    /// The signed method.
    pub method: String,
    /// The signed target, with the authority, and the scheme and query where they were signed.
    pub target: String,
    /// The verdict.
    pub claims: VerdictClaims,
    /// What the evidence proves, where there is some.
    pub proved: Option<Verified>,
}

/// What a verifier trusts.
#[derive(Clone, Copy, Debug)]
pub struct Trusted<'a> {
    /// The issuer's keys.
    pub keys: &'a KeySet,
    /// Whether the issuer is believed that an account's code accepted a signature.
    pub code: bool,
    /// The hashes of blocks; without any, evidence only has to agree with itself.
    pub blocks: &'a [B256],
}

/// Why a record is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not a record of this version, or not written as one.
    #[error("is no admission record, or is not written as a gate writes it")]
    Form,
    /// The verdict is no verdict token.
    #[error("the verdict {0}")]
    Token(#[from] JwsError),
    /// The verdict is signed by a key that is not trusted.
    #[error("the verdict is signed by the key {0}, which is not among the keys given")]
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
    /// The account has code, which only the chain of that time can ask.
    #[error("the account had code, which said that it had signed; only the issuer's word is left of that")]
    Code,
    /// The parts contradict one another.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The evidence proves nothing.
    #[error("the evidence is refused: {0}")]
    Evidence(#[from] EvidenceError),
}

impl AdmissionRecord {
    /// A record of an admission in the second `now`. `verdict` is a token with the grounds' id as its `jti`.
    pub fn new(now: Timestamp, grounds: &Grounds<'_>, verdict: &str) -> Self {
        Self {
            version: VERSION,
            time: Timestamp::from_seconds(now.seconds()),
            policy: grounds.policy.to_owned(),
            account: grounds.account,
            base: grounds.base.to_owned(),
            signature: hex::encode_prefixed(grounds.signature),
            verdict: verdict.to_owned(),
            evidence: grounds.evidence.map(ToOwned::to_owned),
        }
    }

    /// The record as a line, without the line feed.
    pub fn line(&self) -> String {
        crate::eth::json::text(self, 2_048)
    }

    /// Verifies a line. `is_signed` verifies an ES256 signature, 64 bytes, of this text by this key.
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
        if record.version != VERSION || record.line() != line {
            return Err(RecordError::Form);
        }
        let token = Jws::parse(&record.verdict)?;
        let key = trusted.keys.find(&token.kid).ok_or_else(|| RecordError::UnknownKey(token.kid.clone()))?;
        if !is_signed(key, token.signing_input, &token.signature) {
            return Err(RecordError::Issuer);
        }
        let claims = token.claims;
        let signature = hex::decode(&record.signature).map_err(|_| RecordError::Form)?;
        let grounds = Grounds {
            policy: &record.policy,
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
        let asked = Asked::read(&record.base).ok_or(RecordError::Base)?;
        match record.account {
            VerifiedBy::Key
                if recover(message_hash(&record.base), &signature) == Ok(asked.account.address) => {}
            VerifiedBy::Key => return Err(RecordError::Wallet),
            VerifiedBy::Code if trusted.code => {}
            VerifiedBy::Code => return Err(RecordError::Code),
        }
        record.check_times_and_names(&asked, &claims)?;
        let proved = match &record.evidence {
            None => None,
            Some(document) => Some(proved(document.get(), &asked.account, &claims, trusted.blocks)?),
        };
        Ok(Admission {
            time: record.time,
            policy: record.policy,
            account: asked.account,
            verified_by: record.account,
            method: asked.method,
            target: asked.target,
            claims,
            proved,
        })
    }

    fn check_times_and_names(&self, asked: &Asked, claims: &VerdictClaims) -> Result<(), RecordError> {
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

/// Verifies evidence, and that it proves what the verdict says.
fn proved(
    document: &str,
    account: &Account,
    claims: &VerdictClaims,
    blocks: &[B256],
) -> Result<Verified, RecordError> {
    let expected =
        Expected { chain_id: Some(account.chain), wallet: Some(account.address), ..Expected::default() };
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

/// What a signature base says of the request.
struct Asked {
    account: Account,
    created: i64,
    expires: i64,
    scheme: Option<String>,
    authority: String,
    method: String,
    target: String,
}

impl Asked {
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
    /// The account as CAIP-10 has it, the address in lower case.
    fn caip(&self) -> String {
        format!("eip155:{}:{:#x}", self.chain, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{Stated, StatedAt, Terms, compact, signing_input};

    /// The base and the signature of the positive vector of ERC-8128 (commit 0f738bf), by the key 1.
    const BASE: &str = r#""@scheme": https
"@authority": api.example
"@method": POST
"@path": /items
"@query": ?view=full
"content-digest": sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:
"content-type": application/json
"@signature-params": ("@scheme" "@authority" "@method" "@path" "@query" "content-digest" "content-type");created=1700000000;expires=1700000060;nonce="EjRWeJCrze8BI0VniavN7w";keyid="eip155:1:0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";tag="erc8128""#;
    const SIGNATURE: &str =
        "/BpEToskxkMJ65uRmaNUPiBwbwwg6z3CxEDJJwEYREIx1Hwn85Z1L8XlRpILGx4q80yeiNugYzaUsVPWiPcB0Bs=";
    const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

    /// The line of an admission of this account at `now`, for this site, with a token by the key `kid`.
    fn line(account: VerifiedBy, wallet: &str, now: u64, audience: &str, kid: &str) -> String {
        use base64ct::{Base64, Encoding as _};
        let signature = Base64::decode_vec(SIGNATURE).unwrap();
        let grounds = Grounds { policy: "api", account, signature: &signature, base: BASE, evidence: None };
        let stated = Stated {
            wallet: wallet.parse().unwrap(),
            decision: Decision::Provision,
            reasons: Vec::new(),
            liable: None,
            compliant_until: None,
            as_of: StatedAt::number(1),
        };
        let now = Timestamp::from_seconds(now);
        let (audience, admission) = (Some(audience), Some(grounds.id()));
        let terms = Terms { issuer: "i", chain: 1, audience, admission, now, cached_until: now };
        let token = compact(&signing_input(kid, &VerdictClaims::of(stated, &terms)), &[7; 64]);
        AdmissionRecord::new(now, &grounds, &token).line()
    }

    const WALLET: &str = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";
    const SITE: &str = "https://api.example";

    fn verified(line: &str, code: bool, is_signed: bool) -> Result<Admission, RecordError> {
        let keys = KeySet::parse(KEYS).unwrap();
        AdmissionRecord::verify(line, &Trusted { keys: &keys, code, blocks: &[] }, |_, _, _| is_signed)
    }

    #[test]
    fn a_record_shows_who_asked_for_what_and_when() {
        let line = line(VerifiedBy::Key, WALLET, 1_700_000_001, SITE, "a");
        let admission = verified(&line, false, true).unwrap();
        assert_eq!((admission.account.chain, admission.account.address), (1, WALLET.parse().unwrap()));
        assert_eq!(admission.method, "POST");
        assert_eq!(admission.target, "https://api.example/items?view=full");
        assert_eq!((admission.policy.as_str(), admission.time.seconds()), ("api", 1_700_000_001));
        assert_eq!(verified(&line, false, false).unwrap_err(), RecordError::Issuer);
        assert_eq!(verified(&line.replacen(':', ": ", 1), false, true).unwrap_err(), RecordError::Form);
    }

    #[test]
    fn parts_that_contradict_one_another_are_refused_with_the_reason() {
        let key = VerifiedBy::Key;
        let other = "0x7e5f4552091a69125d5dfcb7b8c2659029395bde";
        for (line, reason) in [
            (line(key, other, 1_700_000_001, SITE, "a"), "another account"),
            (line(key, WALLET, 1_699_999_969, SITE, "a"), "was not valid at the time"),
            (line(key, WALLET, 1_700_000_091, SITE, "a"), "was not valid at the time"),
            (line(key, WALLET, 1_700_000_001, "http://api.example", "a"), "for another site"),
            (line(key, WALLET, 1_700_000_001, "https://api.other", "a"), "for another site"),
            (line(key, WALLET, 1_700_000_001, SITE, "b"), "signed by the key b, which is not"),
            (
                line(key, WALLET, 1_700_000_001, SITE, "a")
                    .replace("\"policy\":\"api\"", "\"policy\":\"apj\""),
                "for another admission",
            ),
            (line(key, WALLET, 1_700_000_001, SITE, "a").replace("22:13:21", "22:13:22"), "at another time"),
        ] {
            let error = verified(&line, false, true).unwrap_err().to_string();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    #[test]
    fn a_line_with_any_byte_changed_is_refused() {
        let line = line(VerifiedBy::Key, WALLET, 1_700_000_001, SITE, "a");
        let keys = KeySet::parse(KEYS).unwrap();
        let token = line.rsplit('"').nth(1).and_then(|token| Jws::parse(token).ok()).unwrap();
        // The issuer has signed this token and no other.
        let verify = |line: &str| {
            AdmissionRecord::verify(
                line,
                &Trusted { keys: &keys, code: true, blocks: &[] },
                |_, text, signature| text == token.signing_input && *signature == token.signature,
            )
        };
        verify(&line).unwrap();
        for place in 0..line.len() {
            for other in [line.as_bytes()[place] ^ 1, line.as_bytes()[place] ^ 32, b'0'] {
                let mut changed = line.clone().into_bytes();
                changed[place] = other;
                let Some(changed) = String::from_utf8(changed).ok().filter(|changed| *changed != line) else {
                    continue;
                };
                assert!(verify(&changed).is_err(), "byte {place}: {changed}");
            }
        }
    }

    #[test]
    fn that_code_has_signed_is_the_issuers_word_alone() {
        let line = line(VerifiedBy::Code, WALLET, 1_700_000_001, SITE, "a");
        assert_eq!(verified(&line, false, true).unwrap_err(), RecordError::Code);
        assert_eq!(verified(&line, true, true).unwrap().verified_by, VerifiedBy::Code);
    }
}
