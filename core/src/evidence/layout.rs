//! Where a registry keeps what a verdict rests on: its storage layout, and the code it holds for.
//!
//! A layout says which storage slot is what, so whoever chooses it chooses the verdict. It is therefore bound to the registry's code, whose hash the
//! account proof proves. The code of this project's `AgentRegistry` is known here; only the forwarder it trusts differs from deployment to
//! deployment, as the constructor writes it into the code. Other code needs a layout that its operator vouches for, by the code's hash.

use alloy_primitives::{Address, B256, U256, hex, keccak256};
use serde::{Deserialize, Serialize};

use super::wire;

/// Runtime bytecode of `AgentRegistry` as hexadecimal digits, zeros where the constructor writes the trusted forwarder.
pub const AGENT_REGISTRY_CODE: &str = include_str!("agent_registry.hex");
/// Where in that code the constructor writes the trusted forwarder, in bytes: words of 32.
pub const FORWARDER_PLACES: [usize; 3] = [640, 718, 6_793];

/// Which storage slot of a registry is what, and the code that it holds for.
///
/// Slots are as solc numbers them (`storageLayout`); those of a record count from where the mapping puts it. Not for a proxy: its code
/// stays while the code behind it, and with that the layout, changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Layout {
    /// The code is this project's `AgentRegistry`, which trusts this forwarder. Absent for other code.
    #[serde(default, with = "wire::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::json::Checksummed"))]
    pub trusted_forwarder: Option<Address>,
    /// The hash of other code, for which its operator vouches. Absent for this project's.
    #[serde(default, with = "wire::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::json::Hash"))]
    pub code_hash: Option<B256>,
    /// The slot of `mapping(address wallet => uint256 agentId)`, which is 0 for a wallet without a live agent.
    #[serde(with = "wire::text")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::Quantity"))]
    pub wallet_to_agent: U256,
    /// The grace period in seconds.
    pub attestation_grace_period: GracePeriod,
    /// The slot of `mapping(uint256 agentId => record)`.
    #[serde(with = "wire::text")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::Quantity"))]
    pub agents: U256,
    /// Where the fields of a record are.
    pub record: RecordLayout,
}

/// Where the grace period is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum GracePeriod {
    /// In a slot of its own, as a `uint256`.
    Slot(
        #[serde(with = "wire::text")]
        #[cfg_attr(feature = "schema", schemars(with = "crate::schema::Quantity"))]
        U256,
    ),
    /// In the code: it is always the same.
    Seconds(u64),
}

/// Where the fields of a record are that a verdict is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordLayout {
    /// An `address`.
    pub creator: Field,
    /// An `address`.
    pub haftungsperson: Field,
    /// An `address`.
    pub agent_wallet: Field,
    /// The slot of a `string`.
    pub operational_scope: u64,
    /// The number of a status.
    pub status: Field,
    /// Unix seconds.
    pub registered_at: Field,
    /// Unix seconds.
    pub last_attestation: Field,
}

/// A number within a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Slots from the record's first.
    pub slot: u64,
    /// Bytes from the slot's low end.
    pub offset: u8,
    /// How many bytes it has.
    pub bytes: u8,
}

impl Field {
    const fn new(slot: u64, offset: u8, bytes: u8) -> Self {
        Self { slot, offset, bytes }
    }

    /// The number in its slot's word.
    pub(super) fn of(self, word: U256) -> U256 {
        let shifted = word >> (usize::from(self.offset) * 8);
        match U256::ONE.checked_shl(usize::from(self.bytes) * 8) {
            Some(end) => shifted & (end - U256::ONE),
            None => shifted,
        }
    }
}

impl RecordLayout {
    /// The slots of the fields, in ascending order, each once.
    pub(super) fn slots(&self) -> Vec<u64> {
        let fields = [
            self.creator,
            self.haftungsperson,
            self.agent_wallet,
            self.status,
            self.registered_at,
            self.last_attestation,
        ];
        let mut slots = fields.map(|field| field.slot).to_vec();
        slots.push(self.operational_scope);
        slots.sort_unstable();
        slots.dedup();
        slots
    }
}

impl Layout {
    /// That of this project's `AgentRegistry`, where it trusts this forwarder.
    pub const fn agent_registry(trusted_forwarder: Address) -> Self {
        Self {
            trusted_forwarder: Some(trusted_forwarder),
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
        }
    }

    /// Reads the layout of other code than this project's: JSON as in a document, with `codeHash`.
    ///
    /// # Errors
    ///
    /// What is wrong, in words that quote nothing of the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let layout: Self = serde_json::from_str(text).map_err(
            |_| "must be JSON like the layout in a document of evidence, each member once and no other",
        )?;
        if layout.code_hash.is_none() || layout.trusted_forwarder.is_some() {
            return Err(
                "must have codeHash, and no trustedForwarder: it is for code that is not this project's",
            );
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

    /// The hash of the code that this layout holds for; `None` where it names no code.
    pub fn code(&self) -> Option<B256> {
        match (self.trusted_forwarder, self.code_hash) {
            (Some(forwarder), None) => agent_registry_code_hash(forwarder),
            (None, Some(hash)) => Some(hash),
            _ => None,
        }
    }

    /// The slot of the wallet's agent id.
    pub(super) fn wallet_slot(&self, wallet: Address) -> B256 {
        mapped(wallet.into_word(), self.wallet_to_agent)
    }

    /// The first slot of an agent's record.
    pub(super) fn record_slot(&self, id: U256) -> U256 {
        U256::from_be_bytes(mapped(B256::from(id), self.agents).0)
    }
}

/// The hash of `AgentRegistry`'s code with this trusted forwarder.
fn agent_registry_code_hash(forwarder: Address) -> Option<B256> {
    let mut code = hex::decode(AGENT_REGISTRY_CODE).ok()?;
    for place in FORWARDER_PLACES {
        code.get_mut(place..place + 32)?.copy_from_slice(forwarder.into_word().as_slice());
    }
    Some(keccak256(code))
}

/// The slot of a mapping's value (Solidity, "Layout of State Variables in Storage").
fn mapped(key: B256, slot: U256) -> B256 {
    keccak256([key.0, slot.to_be_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign() -> serde_json::Value {
        let layout = Layout {
            trusted_forwarder: None,
            code_hash: Some(B256::ZERO),
            ..Layout::agent_registry(Address::ZERO)
        };
        serde_json::to_value(layout).unwrap()
    }

    #[test]
    fn a_layout_is_read_as_documents_write_it() {
        let json = foreign();
        assert_eq!(serde_json::to_value(Layout::parse(&json.to_string()).unwrap()).unwrap(), json);
        assert_eq!(json["attestationGracePeriod"]["slot"], "0x2");
        let mut constant = foreign();
        constant["attestationGracePeriod"] = serde_json::json!({"seconds": 604_800});
        assert_eq!(
            Layout::parse(&constant.to_string()).unwrap().attestation_grace_period,
            GracePeriod::Seconds(604_800)
        );
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
        let own = serde_json::to_string(&Layout::agent_registry(Address::ZERO)).unwrap();
        assert!(Layout::parse(&own).unwrap_err().contains("codeHash"));
    }

    #[test]
    fn a_field_is_cut_out_of_its_word() {
        let word = U256::from_be_bytes(std::array::from_fn::<u8, 32, _>(|place| 31 - place as u8));
        assert_eq!(Field::new(0, 0, 1).of(word), U256::ZERO);
        assert_eq!(Field::new(0, 1, 2).of(word), U256::from(0x0201));
        assert_eq!(Field::new(0, 31, 1).of(word), U256::from(31));
        assert_eq!(Field::new(0, 0, 32).of(word), word);
    }
}
