//! A reader for documents of evidence. Every value has one spelling, and the optional members follow from the
//! code, so a document with a changed byte is not read as the same document. Only `indexed` is not read:
//! nothing proves it.

use serde_json::value::RawValue;

use super::{Evidence, EvidenceError, Layout, StorageProof, VERSION, WITHOUT_LIABILITY};
use crate::eth::members::{FirstError, Members};

impl Evidence {
    /// Reads a document from its JSON text.
    ///
    /// # Errors
    ///
    /// [`EvidenceError::Malformed`] names the member and the rule that it breaks. [`EvidenceError::Version`]
    /// is a document of another version.
    pub fn read(document: &str) -> Result<Self, EvidenceError> {
        let errors = FirstError::default();
        let mut members = Members::of_document(document, &errors);
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
            forwarder: members.optional("forwarder"),
            layout: Layout::read(members.object("layout")),
            // A member is valid JSON.
            verdict: RawValue::from_string(members.take("verdict").to_owned()).unwrap_or_default(),
            indexed: None,
        };
        if version > WITHOUT_LIABILITY && members.has("indexed") {
            // No proof covers it, so no verifier relies on it.
            let _ = members.object("indexed");
        }
        members.end();
        // A document of another version may have other members, so the version is checked first.
        if ![VERSION, WITHOUT_LIABILITY].contains(&version) {
            if version == 0 {
                // Texts that are not numbers read as 0, too.
                errors.end()?;
            }
            return Err(EvidenceError::Version(version));
        }
        errors.end()?;
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
