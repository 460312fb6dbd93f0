//! The reasons that evidence is refused.

use alloy_primitives::{Address, B256, U256};

use super::trie::ProofError;
use crate::eth::members::MemberError;

/// The reason that evidence is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceError {
    /// The text is not a document of evidence, or a value is not in its one spelling.
    #[error("the document is no evidence: {0}")]
    Malformed(String),
    /// The document's version is unknown.
    #[error("version {0} of such documents is not one that this verifier reads")]
    Version(u32),
    /// The document is not about the trusted block.
    #[error("the document is about block {document}, not about {trusted}")]
    OtherBlock {
        /// The document's block hash.
        document: B256,
        /// The trusted block hash.
        trusted: B256,
    },
    /// The document is about another chain.
    #[error("the document is about chain {document}, not about {expected}")]
    OtherChain {
        /// The document's chain id.
        document: u64,
        /// The expected chain id.
        expected: u64,
    },
    /// The document is about another registry.
    #[error("the document is about registry {document}, not about {expected}")]
    OtherRegistry {
        /// The document's registry.
        document: Address,
        /// The expected registry.
        expected: Address,
    },
    /// The document is about another wallet.
    #[error("the document is about wallet {document}, not about {expected}")]
    OtherWallet {
        /// The document's wallet.
        document: Address,
        /// The expected wallet.
        expected: Address,
    },
    /// The header is not a block header.
    #[error("header is no block header")]
    Header,
    /// The header is that of another block.
    #[error("header is that of block {header}, not of blockHash {block_hash}")]
    HeaderHash {
        /// The header's hash.
        header: B256,
        /// The document's block hash.
        block_hash: B256,
    },
    /// The account proof does not lead to an account.
    #[error("accountProof does not prove the registry's account: {0}")]
    AccountProof(ProofError),
    /// The registry's address has no account at this block.
    #[error("accountProof shows that the registry did not exist at this block")]
    NoAccount,
    /// The account proof leads to a value that is not an account.
    #[error("accountProof leads to something that is no account")]
    BadAccount,
    /// The proved account differs from the document.
    #[error("{field} is not what accountProof shows")]
    Account {
        /// The field that differs.
        field: &'static str,
    },
    /// The code in the document is not the registry's.
    #[error("code is not the registry's, whose hash is {code_hash}")]
    Code {
        /// The hash of the registry's code.
        code_hash: B256,
    },
    /// The document states another forwarder than its code, or states one for code that does not show it.
    #[error("forwarder is not the one that the registry's code trusts, {}", shown(*code))]
    Forwarder {
        /// The forwarder that the code trusts; `None` for code that is not this project's.
        code: Option<Address>,
    },
    /// The registry's code trusts another forwarder than the one expected.
    #[error("the registry's code trusts the forwarder {}, not {expected}", shown(*code))]
    OtherForwarder {
        /// The forwarder that the code trusts; `None` for code that is not this project's.
        code: Option<Address>,
        /// The expected forwarder.
        expected: Address,
    },
    /// The layout does not belong to the registry's code.
    #[error("layout holds for other code than the registry's, whose hash is {code_hash}")]
    OtherCode {
        /// The hash of the registry's code.
        code_hash: B256,
    },
    /// The layout has no trusted source.
    #[error("layout is not one that this verifier knows for the registry's code, whose hash is {code_hash}")]
    UnknownLayout {
        /// The hash of the registry's code.
        code_hash: B256,
    },
    /// The slots are not those that the verdict rests on.
    #[error("storageProof[{place}] should be about slot {expected}")]
    OtherSlot {
        /// The first index with another slot.
        place: usize,
        /// The slot that belongs there.
        expected: B256,
    },
    /// There are more slots than the verdict rests on.
    #[error("storageProof has more slots than the verdict rests on, which are {0}")]
    TooManySlots(usize),
    /// A storage proof does not lead to a value.
    #[error("storageProof[{place}] proves nothing: {error}")]
    StorageProof {
        /// Index of the slot.
        place: usize,
        /// The error.
        error: ProofError,
    },
    /// A proved value differs from the document.
    #[error("storageProof[{place}] shows the value {proved:#x}, not {document:#x}")]
    Value {
        /// Index of the slot.
        place: usize,
        /// The proved value.
        proved: U256,
        /// The document's value.
        document: U256,
    },
    /// A storage proof leads to bytes that are not the value of a slot.
    #[error("storageProof[{place}] leads to something that is no value of a slot")]
    BadValue {
        /// Index of the slot.
        place: usize,
    },
    /// The slots do not hold an agent's record.
    #[error("the slots hold no agent's record: {0}")]
    Record(&'static str),
    /// The verdict differs from the computed one.
    #[error("verdict.{field} is not what the slots and the block's time give")]
    Verdict {
        /// The first field that differs.
        field: String,
    },
}

fn shown(forwarder: Option<Address>) -> String {
    forwarder.map_or_else(|| "which only this project's code shows".to_owned(), |it| it.to_string())
}

impl From<MemberError> for EvidenceError {
    fn from(error: MemberError) -> Self {
        Self::Malformed(error.to_string())
    }
}
