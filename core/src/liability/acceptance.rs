//! A liable wallet's acceptance of one registration.

use alloy_primitives::{Address, B256, Bytes, U256, b256, keccak256};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::Serialize;

use super::signed::{self, LiabilityAcceptance, Moment, Problem};
use crate::{
    eth::{
        json,
        members::{FirstError, Members},
        spelled::Spelled,
        typed_data::TypedData,
    },
    registry::liability::PinnedRecord,
};

/// The request header of an acceptance: the document's JSON as base64url without padding.
pub const HEADER: &str = "Liability-Acceptance";

/// The hash of the type [`LiabilityAcceptance`], a constant so that web pages need no code to compute it.
const TYPE_HASH: B256 = b256!("035e57ba53922ad5b41be6dda57d3ccb5f8ea87b90f3d6df25c22dc31bd56d09");

/// The name of [`HEADER`] in lower case.
pub const FIELD: &str = "liability-acceptance";

/// The longest value of the header, in bytes.
pub const MAX_HEADER_BYTES: usize = 4_096;

/// An acceptance as signed. It is not verified yet.
///
/// A record has no setters, so creator and time of registration pin all of it: a stranger's registration
/// under a foreseen id is another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Acceptance {
    /// The chain's id.
    pub chain_id: u64,
    /// The registry.
    #[serde(with = "json::Checksummed")]
    pub registry: Address,
    /// The agent's id, in decimal digits.
    pub agent_id: DecimalId,
    /// The wallet that registered it.
    #[serde(with = "json::Checksummed")]
    pub creator: Address,
    /// The agent's own wallet.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// The liable wallet.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// Time of the agent's registration, in unix seconds.
    pub registered_at: u64,
    /// The Keccak-256 of terms that both parties have, or zero.
    #[serde(with = "json::Hash")]
    pub terms_hash: B256,
    /// The first second at which it holds, in unix seconds.
    pub not_before: u64,
    /// The last second at which it holds, in unix seconds; at most 366 days later.
    pub not_after: u64,
    /// The signature: 65 bytes for a wallet without code, any bytes for a wallet with code.
    #[serde(with = "json::Data")]
    pub signature: Bytes,
}

/// An acceptance as the EIP-712 message that wallets show.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AcceptanceMessage<'a> {
    agent_id: DecimalId,
    #[serde(with = "json::Checksummed")]
    creator: Address,
    #[serde(with = "json::Checksummed")]
    agent_wallet: Address,
    #[serde(with = "json::Checksummed")]
    haftungsperson: Address,
    registered_at: u64,
    operational_scope: &'a str,
    #[serde(with = "json::Hash")]
    terms_hash: B256,
    not_before: u64,
    not_after: u64,
}

/// An agent's id as a string of decimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecimalId(pub U256);

json::serialize_as_text!(DecimalId);

impl std::fmt::Display for DecimalId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for DecimalId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DecimalId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^(0|[1-9][0-9]{0,77})$" })
    }
}

impl Spelled for DecimalId {
    const RULE: &'static str = "must be a string of decimal digits without leading zeros";

    fn spell(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        let id = U256::from_str_radix(text, 10).ok().map(Self)?;
        (id.spell() == text).then_some(id)
    }
}

impl Acceptance {
    /// Parses the header's value.
    ///
    /// # Errors
    ///
    /// [`Problem::Header`], or the member that breaks a rule.
    pub fn from_header(value: &str) -> Result<Self, Problem> {
        if value.len() > MAX_HEADER_BYTES {
            return Err(Problem::Header);
        }
        let json = Base64UrlUnpadded::decode_vec(value).ok().and_then(|json| String::from_utf8(json).ok());
        Self::from_json(&json.ok_or(Problem::Header)?)
    }

    /// Parses the document. Unknown and repeated members are refused.
    ///
    /// # Errors
    ///
    /// [`Problem::Header`] if it is not a JSON object, or the member that breaks a rule.
    pub fn from_json(document: &str) -> Result<Self, Problem> {
        let errors = FirstError::default();
        let acceptance = Self::read(Members::of_written(document, &errors));
        errors.end()?;
        Ok(acceptance)
    }

    pub(super) fn read(mut members: Members<'_>) -> Self {
        let acceptance = Self {
            chain_id: members.number("chainId", u64::MAX),
            registry: members.spelled("registry"),
            agent_id: members.spelled("agentId"),
            creator: members.spelled("creator"),
            agent_wallet: members.spelled("agentWallet"),
            haftungsperson: members.spelled("haftungsperson"),
            registered_at: members.number("registeredAt", u64::MAX),
            terms_hash: members.spelled("termsHash"),
            not_before: members.number("notBefore", u64::MAX),
            not_after: members.number("notAfter", u64::MAX),
            signature: members.spelled("signature"),
        };
        members.end();
        acceptance
    }

    /// Serializes the document to JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::text(self, 1_024)
    }

    /// Returns the header's value.
    #[must_use]
    pub fn to_header(&self) -> String {
        Base64UrlUnpadded::encode_string(self.to_json().as_bytes())
    }

    /// Returns the payload of `eth_signTypedData_v4` for the liable wallet's signature, for an agent with
    /// this scope.
    #[must_use]
    pub fn typed_data(&self, operational_scope: &str) -> String {
        let message = AcceptanceMessage {
            agent_id: self.agent_id,
            creator: self.creator,
            agent_wallet: self.agent_wallet,
            haftungsperson: self.haftungsperson,
            registered_at: self.registered_at,
            operational_scope,
            terms_hash: self.terms_hash,
            not_before: self.not_before,
            not_after: self.not_after,
        };
        let domain = signed::domain(self.chain_id, self.registry);
        json::text(&TypedData::new::<LiabilityAcceptance>(&domain, message), 2_048)
    }

    /// Returns the EIP-712 digest, which identifies the acceptance.
    #[must_use]
    pub fn digest(&self, operational_scope: &str) -> B256 {
        self.digest_of(keccak256(operational_scope))
    }

    /// Returns the EIP-712 digest by the scope's Keccak-256, which stands for the text in EIP-712.
    #[must_use]
    pub fn digest_of(&self, scope_hash: B256) -> B256 {
        let words = [
            TYPE_HASH,
            self.agent_id.0.into(),
            self.creator.into_word(),
            self.agent_wallet.into_word(),
            self.haftungsperson.into_word(),
            U256::from(self.registered_at).into(),
            scope_hash,
            self.terms_hash,
            U256::from(self.not_before).into(),
            U256::from(self.not_after).into(),
        ];
        signed::digest_of(signed::hash_words(&words), self.chain_id, self.registry)
    }

    /// Checks chain, registry and time, which needs no record.
    ///
    /// # Errors
    ///
    /// The member that differs from `(chain id, registry)`, or [`Problem::Time`].
    pub fn check_place_and_time(&self, expected: (u64, Address), moment: Moment) -> Result<(), Problem> {
        signed::check_place((self.chain_id, self.registry), expected)?;
        self.check_time(moment)
    }

    /// Checks that the acceptance holds at a moment.
    ///
    /// # Errors
    ///
    /// [`Problem::Time`].
    pub fn check_time(&self, moment: Moment) -> Result<(), Problem> {
        moment.check(self.not_before, self.not_after)
    }

    /// Checks each member against the record.
    ///
    /// # Errors
    ///
    /// The first member that differs.
    pub fn check_record(&self, record: &PinnedRecord) -> Result<(), Problem> {
        let members = [
            ("agentId", self.agent_id.0 == record.agent_id),
            ("creator", self.creator == record.creator),
            ("agentWallet", self.agent_wallet == record.agent_wallet),
            ("haftungsperson", self.haftungsperson == record.haftungsperson),
            ("registeredAt", self.registered_at == record.registered_at),
        ];
        let other = members.iter().find(|(_, is_equal)| !is_equal);
        other.map_or(Ok(()), |(name, _)| Err(Problem::Member((*name).into())))
    }

    /// Checks the signature of a liable wallet without code. A wallet with code is called (ERC-1271), and its
    /// signature is never recovered.
    ///
    /// # Errors
    ///
    /// [`Problem::Signature`].
    pub fn check_signature(&self, operational_scope: &str) -> Result<(), Problem> {
        self.check_signature_of(keccak256(operational_scope))
    }

    /// Checks the signature of a liable wallet without code, by the scope's Keccak-256.
    ///
    /// # Errors
    ///
    /// [`Problem::Signature`].
    pub fn check_signature_of(&self, scope_hash: B256) -> Result<(), Problem> {
        signed::check_signer(self.digest_of(scope_hash), &self.signature, self.haftungsperson)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liability::fixture::{self, agent};
    use crate::registry::kya::KyaAgent;
    use alloy_primitives::address;

    const CHAIN: u64 = 8_453;
    const REGISTRY: Address = address!("2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23");
    const NOW: u64 = 1_790_000_100;
    const MOMENT: Moment = Moment { now: NOW, block_time: NOW };

    fn signed(change: impl FnOnce(&mut Acceptance)) -> Acceptance {
        fixture::acceptance((CHAIN, REGISTRY), NOW, change)
    }

    /// Checks an acceptance as a verifier with the record does.
    fn check(acceptance: &Acceptance, moment: Moment) -> Result<(), Problem> {
        let agent = agent();
        acceptance.check_place_and_time((CHAIN, REGISTRY), moment)?;
        acceptance.check_record(&KyaAgent::from(agent.clone()).pinned())?;
        acceptance.check_signature(&agent.operational_scope)
    }

    #[test]
    fn it_holds_from_its_first_second_to_its_last_by_both_clocks() {
        let acceptance = signed(|_| {});
        let (first, last) = (acceptance.not_before, acceptance.not_after);
        for (now, block_time, expected) in [
            (first - 60, NOW, Ok(())),
            (first - 61, NOW, Err(Problem::Time)),
            (NOW, first - 61, Err(Problem::Time)),
            (last, NOW, Ok(())),
            (last + 1, NOW, Err(Problem::Time)),
            (NOW, last + 1, Err(Problem::Time)),
        ] {
            assert_eq!(check(&acceptance, Moment { now, block_time }), expected, "{now} {block_time}");
        }
        let days = |seconds| signed(|a| (a.not_before, a.not_after) = (NOW, NOW + seconds));
        assert_eq!(check(&days(signed::MAX_SECONDS), MOMENT), Ok(()));
        for not_after in [days(signed::MAX_SECONDS + 1), signed(|a| a.not_after = a.not_before - 1)] {
            assert_eq!(check(&not_after, MOMENT), Err(Problem::Member("notAfter".into())));
        }
    }

    #[test]
    fn a_document_reads_as_it_was_written_in_any_spelling() {
        let acceptance = signed(|_| {});
        let json = acceptance.to_json();
        assert_eq!(Acceptance::from_json(&json), Ok(acceptance.clone()));
        assert_eq!(Acceptance::from_header(&acceptance.to_header()), Ok(acceptance.clone()));
        let lower = json.to_lowercase().replace("chainid", "chainId").replace("agentid", "agentId");
        let names = ["agentWallet", "registeredAt", "termsHash", "notBefore", "notAfter"];
        let lower = names.iter().fold(lower, |text, name| text.replace(&name.to_lowercase(), name));
        assert_eq!(Acceptance::from_json(&lower), Ok(acceptance));
        for header in ["", "e30=", "*", &"A".repeat(MAX_HEADER_BYTES + 1)] {
            assert_eq!(Acceptance::from_header(header), Err(Problem::Header), "{header}");
        }
    }
}
