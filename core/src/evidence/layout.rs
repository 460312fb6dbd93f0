//! The storage layout of a registry, and the code that it belongs to.
//!
//! The layout gives the slots their meaning, and so decides the verdict. It is therefore bound to the
//! registry's code by the code's hash, which the account proof proves. The code of this project's
//! `AgentRegistry` is recognised by its hash without the trusted forwarder, which the constructor writes into
//! the code: each deployment has another hash, so a document contains the code. Other code needs a layout
//! that its operator vouches for, by the code's hash.

use std::collections::BTreeSet;

use alloy_primitives::{Address, B256, U256, b256, keccak256};
use serde::Serialize;

use super::EvidenceError;
use crate::{
    eth::json,
    eth::members::{FirstError, Members},
    eth::spelled,
};

/// The hash of `AgentRegistry`'s runtime bytecode, with zeros where the constructor writes the trusted
/// forwarder.
pub const AGENT_REGISTRY_CODE_HASH: B256 =
    b256!("df745f3846e3edcb417aa1cb56b0b48569cccdcb4b310b3602946fb5c828f307");
/// The byte offsets of the 32-byte words in that code that hold the trusted forwarder.
pub const FORWARDER_PLACES: [usize; 3] = [640, 718, 6_793];

/// The storage layout of a registry, and the code that it belongs to.
///
/// Slots have solc's numbers (`storageLayout`); those of a record count from its first slot. Proxies are not
/// supported: their code stays the same while the implementation, and its layout, changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Layout {
    /// The hash of the code that the operator vouches for. Absent for this project's code.
    #[serde(serialize_with = "spelled::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "json::Hash"))]
    pub code_hash: Option<B256>,
    /// The slot of `mapping(address wallet => uint256 agentId)`, which is 0 for a wallet without a live
    /// agent.
    #[serde(with = "json::Quantity")]
    pub wallet_to_agent: U256,
    /// The grace period in seconds.
    pub attestation_grace_period: GracePeriod,
    /// The slot of `mapping(uint256 agentId => record)`.
    #[serde(with = "json::Quantity")]
    pub agents: U256,
    /// The locations of a record's fields.
    pub record: RecordLayout,
}

/// The location of the grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum GracePeriod {
    /// In a slot of its own, as a `uint256`.
    Slot(#[serde(with = "json::Quantity")] U256),
    /// A constant in the code.
    Seconds(u64),
}

/// The locations of the record's fields that a verdict needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordLayout {
    /// The creator, an `address`.
    pub creator: Field,
    /// The liable wallet, an `address`.
    pub haftungsperson: Field,
    /// The agent's own wallet, an `address`.
    pub agent_wallet: Field,
    /// The slot of the operational scope, a `string`.
    pub operational_scope: u64,
    /// The number of the status.
    pub status: Field,
    /// Time of registration, in unix seconds.
    pub registered_at: Field,
    /// Time of the last attestation, in unix seconds.
    pub last_attestation: Field,
}

/// The location of a number within a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Its slot, counted from the record's first.
    pub slot: u64,
    /// Its offset in bytes from the slot's low end.
    pub offset: u8,
    /// Its size in bytes.
    pub bytes: u8,
}

impl Field {
    const fn new(slot: u64, offset: u8, bytes: u8) -> Self {
        Self { slot, offset, bytes }
    }

    fn read(record: &mut Members<'_>, name: &str) -> Self {
        let mut members = record.object(name);
        let mut byte = |name| members.number(name, 255) as u8;
        let (offset, bytes) = (byte("offset"), byte("bytes"));
        let field = Self { slot: members.number("slot", u64::MAX), offset, bytes };
        members.end();
        field
    }

    /// Extracts the field's number from the word of its slot.
    pub(super) fn of(self, word: U256) -> U256 {
        let shifted = word >> (usize::from(self.offset) * 8);
        match U256::ONE.checked_shl(usize::from(self.bytes) * 8) {
            Some(end) => shifted & (end - U256::ONE),
            None => shifted,
        }
    }

    /// Replaces the field's number in the word of its slot.
    pub(super) fn put(self, word: U256, number: U256) -> U256 {
        let shift = usize::from(self.offset) * 8;
        let mask = (U256::MAX >> 256_usize.saturating_sub(usize::from(self.bytes) * 8)) << shift;
        (word & !mask) | ((number << shift) & mask)
    }
}

impl RecordLayout {
    /// Returns the slots of the fields, in ascending order, each once.
    pub(super) fn slots(&self) -> Vec<u64> {
        let all = self.fixed_slots().into_iter().chain([self.operational_scope]);
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the slots of status and last attestation, in ascending order, each once.
    pub(super) fn changing_slots(&self) -> BTreeSet<u64> {
        BTreeSet::from([self.status.slot, self.last_attestation.slot])
    }

    /// Returns the slots of all fields but the scope, in ascending order, each once.
    pub(super) fn fixed_slots(&self) -> Vec<u64> {
        let fields = [
            self.creator,
            self.haftungsperson,
            self.agent_wallet,
            self.status,
            self.registered_at,
            self.last_attestation,
        ];
        fields.map(|field| field.slot).into_iter().collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl Layout {
    /// The layout of this project's `AgentRegistry`.
    pub const AGENT_REGISTRY: Self = Self {
        code_hash: None,
        wallet_to_agent: U256::from_limbs([5, 0, 0, 0]),
        attestation_grace_period: GracePeriod::Slot(U256::from_limbs([2, 0, 0, 0])),
        agents: U256::from_limbs([6, 0, 0, 0]),
        record: RecordLayout {
            creator: Field::new(1, 0, 20),
            haftungsperson: Field::new(2, 0, 20),
            agent_wallet: Field::new(3, 0, 20),
            operational_scope: 6,
            status: Field::new(9, 25, 1),
            registered_at: Field::new(9, 1, 8),
            last_attestation: Field::new(9, 9, 8),
        },
    };

    /// Reads the layout of other code than this project's: JSON as in a document, with `codeHash`.
    ///
    /// # Errors
    ///
    /// The rule that the text breaks; it does not quote the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let errors = FirstError::default();
        let layout = Self::read(Members::of_document(text, &errors));
        errors.end().map_err(
            |_| "must be JSON like the layout in a document of evidence, each member once and no other",
        )?;
        if layout.code_hash.is_none() {
            return Err("must have codeHash: it is for code that is not this project's");
        }
        let record = &layout.record;
        let fits = |field: &Field, bytes: std::ops::RangeInclusive<u8>| {
            bytes.contains(&field.bytes) && field.offset.saturating_add(field.bytes) <= 32
        };
        let addresses = [record.creator, record.haftungsperson, record.agent_wallet];
        let numbers = [record.status, record.registered_at, record.last_attestation];
        if addresses.iter().all(|field| fits(field, 20..=20))
            && numbers.iter().all(|field| fits(field, 1..=32))
        {
            Ok(layout)
        } else {
            Err("must have addresses of 20 bytes and numbers of 1 to 32, each within its slot of 32")
        }
    }

    pub(super) fn read(mut members: Members<'_>) -> Self {
        let mut grace = members.object("attestationGracePeriod");
        let attestation_grace_period = match grace.optional("slot") {
            Some(slot) => GracePeriod::Slot(slot),
            None => GracePeriod::Seconds(grace.number("seconds", u64::MAX)),
        };
        grace.end();
        let mut record = members.object("record");
        let layout = Self {
            code_hash: members.optional("codeHash"),
            wallet_to_agent: members.spelled("walletToAgent"),
            attestation_grace_period,
            agents: members.spelled("agents"),
            record: RecordLayout {
                creator: Field::read(&mut record, "creator"),
                haftungsperson: Field::read(&mut record, "haftungsperson"),
                agent_wallet: Field::read(&mut record, "agentWallet"),
                operational_scope: record.number("operationalScope", u64::MAX),
                status: Field::read(&mut record, "status"),
                registered_at: Field::read(&mut record, "registeredAt"),
                last_attestation: Field::read(&mut record, "lastAttestation"),
            },
        };
        record.end();
        members.end();
        layout
    }

    /// Checks that the layout belongs to this code. Returns the forwarder that the code trusts, if it is this
    /// project's.
    pub(super) fn check(&self, code: &[u8]) -> Result<Option<Address>, EvidenceError> {
        let (forwarder, holds) = match self.code_hash {
            Some(hash) => (None, keccak256(code) == hash),
            None => {
                let forwarder = forwarder_of(code);
                (forwarder, forwarder.is_some())
            }
        };
        if holds { Ok(forwarder) } else { Err(EvidenceError::OtherCode { code_hash: keccak256(code) }) }
    }

    /// Returns the slot of the wallet's agent id.
    pub(super) fn wallet_slot(&self, wallet: Address) -> B256 {
        mapped(wallet.into_word(), self.wallet_to_agent)
    }

    /// Returns the first slot of an agent's record.
    pub(super) fn record_slot(&self, id: U256) -> U256 {
        U256::from_be_bytes(mapped(B256::from(id), self.agents).0)
    }
}

/// Returns the forwarder that this code of `AgentRegistry` trusts, through which accounts other than a
/// transaction's sender can be creators; `None` for other code.
fn forwarder_of(code: &[u8]) -> Option<Address> {
    let mut without = code.to_vec();
    let mut words = BTreeSet::new();
    for place in FORWARDER_PLACES {
        let word = without.get_mut(place..place + 32)?;
        words.insert(B256::from_slice(word));
        word.fill(0);
    }
    // The constructor writes one address, so code with several is not this contract's.
    let word = words.first().filter(|word| words.len() == 1 && word.starts_with(&[0; 12]))?;
    (keccak256(without) == AGENT_REGISTRY_CODE_HASH).then(|| Address::from_word(*word))
}

/// Returns the slot of a mapping's value (Solidity, "Layout of State Variables in Storage").
fn mapped(key: B256, slot: U256) -> B256 {
    keccak256([key.0, slot.to_be_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign() -> serde_json::Value {
        let layout = Layout { code_hash: Some(B256::ZERO), ..Layout::AGENT_REGISTRY };
        serde_json::to_value(layout).unwrap()
    }

    #[test]
    fn a_layout_is_read_as_documents_write_it() {
        let json = foreign();
        assert_eq!(serde_json::to_value(Layout::parse(&json.to_string()).unwrap()).unwrap(), json);
        assert_eq!(json["attestationGracePeriod"]["slot"], "0x2");
        let mut constant = foreign();
        constant["attestationGracePeriod"] = serde_json::json!({"seconds": 604_800});
        let constant = Layout::parse(&constant.to_string()).unwrap();
        assert_eq!(constant.attestation_grace_period, GracePeriod::Seconds(604_800));
    }

    #[test]
    fn a_layout_that_breaks_a_rule_is_refused() {
        for (pointer, value, rule) in [
            ("/codeHash", serde_json::json!("0x12"), "must be JSON"),
            ("/agents", serde_json::json!(6), "must be JSON"),
            ("/record/creator/bytes", serde_json::json!(19), "must have addresses of 20 bytes"),
            ("/record/status/offset", serde_json::json!(32), "within its slot"),
        ] {
            let mut layout = foreign();
            *layout.pointer_mut(pointer).unwrap() = value;
            let error = Layout::parse(&layout.to_string()).unwrap_err();
            assert!(error.contains(rule), "{pointer}: {error}");
        }
        let own = serde_json::to_string(&Layout::AGENT_REGISTRY).unwrap();
        assert!(Layout::parse(&own).unwrap_err().contains("codeHash"));
    }

    #[test]
    fn a_field_is_cut_out_of_its_word() {
        let word = U256::from_be_bytes(std::array::from_fn::<u8, 32, _>(|place| 31 - place as u8));
        assert_eq!(Field::new(0, 0, 1).of(word), U256::ZERO);
        assert_eq!(Field::new(0, 1, 2).of(word), U256::from(0x0201));
        assert_eq!(Field::new(0, 31, 1).of(word), U256::from(31));
        assert_eq!(Field::new(0, 0, 32).of(word), word);
        let put = Field::new(0, 1, 2).put(word, U256::from(0xff_1234));
        assert_eq!(put & U256::from(u32::MAX), U256::from(0x0312_3400));
        assert_eq!(Field::new(0, 0, 32).put(word, U256::ZERO), U256::ZERO);
    }
}
