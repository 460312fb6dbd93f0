//! Reading and writing a document of evidence. Every value has one spelling, and no member but `code` is optional: a document cannot be changed in a byte and
//! still be read as the same.

use alloy_primitives::Bytes;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;

use super::{
    Evidence, EvidenceError, Layout, StorageProof, VERSION,
    members::{Faults, Members},
    wire::Spelled,
};

impl Evidence {
    /// Reads a document from its JSON text.
    ///
    /// # Errors
    ///
    /// [`EvidenceError::Malformed`] names the member and the rule that it breaks, [`EvidenceError::Version`] another kind of document.
    pub fn read(document: &str) -> Result<Self, EvidenceError> {
        let faults = Faults::default();
        let mut members = Members::of_document(document, &faults);
        let version = members.number("version", u32::MAX.into()) as u32;
        let evidence = Self {
            version,
            wallet: members.spelled("wallet"),
            registry: members.spelled("registry"),
            chain_id: members.number("chainId", u64::MAX),
            block_hash: members.spelled("blockHash"),
            header: members.spelled("header"),
            account_proof: members.list("accountProof"),
            balance: members.spelled("balance"),
            code_hash: members.spelled("codeHash"),
            nonce: members.spelled("nonce"),
            storage_hash: members.spelled("storageHash"),
            storage_proof: members.objects("storageProof").into_iter().map(StorageProof::read).collect(),
            code: members.optional("code"),
            layout: Layout::read(members.object("layout")),
            // Valid JSON it is, or it would not be a member.
            verdict: RawValue::from_string(members.take("verdict").to_owned()).unwrap_or_default(),
        };
        members.end();
        // Whoever says that it is another kind of document has other members, too.
        if version != VERSION && version != 0 {
            return Err(EvidenceError::Version(version));
        }
        faults.end()?;
        Ok(evidence)
    }
}

impl StorageProof {
    fn read(mut members: Members<'_>) -> Self {
        let slot = Self {
            key: members.spelled("key"),
            value: members.spelled("value"),
            proof: members.list("proof"),
        };
        members.end();
        slot
    }
}

// By hand: most values are texts, and serde would write each of them in a function of its own.
impl Serialize for Evidence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("version", &self.version)?;
        map.serialize_entry("chainId", &self.chain_id)?;
        for (name, text) in [
            ("wallet", self.wallet.spell()),
            ("registry", self.registry.spell()),
            ("blockHash", self.block_hash.spell()),
            ("header", self.header.spell()),
            ("balance", self.balance.spell()),
            ("codeHash", self.code_hash.spell()),
            ("nonce", self.nonce.spell()),
            ("storageHash", self.storage_hash.spell()),
        ] {
            map.serialize_entry(name, &text)?;
        }
        map.serialize_entry("accountProof", &texts(&self.account_proof))?;
        map.serialize_entry("storageProof", &self.storage_proof)?;
        if let Some(code) = &self.code {
            map.serialize_entry("code", &code.spell())?;
        }
        map.serialize_entry("layout", &self.layout)?;
        map.serialize_entry("verdict", &self.verdict)?;
        map.end()
    }
}

impl Serialize for StorageProof {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("key", &self.key.spell())?;
        map.serialize_entry("value", &self.value.spell())?;
        map.serialize_entry("proof", &texts(&self.proof))?;
        map.end()
    }
}

fn texts(nodes: &[Bytes]) -> Vec<String> {
    nodes.iter().map(Spelled::spell).collect()
}
