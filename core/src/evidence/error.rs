//! Why a document proves nothing.

use alloy_primitives::{Address, B256, U256};

use super::trie::ProofError;

/// The reason for which evidence is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceError {
    /// It is no such document, or not spelled as one.
    #[error("the document is no evidence: {0}")]
    Malformed(String),
    /// Its version is another than [`VERSION`](super::VERSION).
    #[error("version {0} of such documents is not one that this verifier reads")]
    Version(u32),
    /// It is about another block than the one that is trusted.
    #[error("the document is about block {document}, not about {trusted}")]
    OtherBlock {
        /// The document's.
        document: B256,
        /// The one that is trusted.
        trusted: B256,
    },
    /// It is about another chain.
    #[error("the document is about chain {document}, not about {expected}")]
    OtherChain {
        /// The document's.
        document: u64,
        /// The one expected.
        expected: u64,
    },
    /// It is about another registry.
    #[error("the document is about registry {document}, not about {expected}")]
    OtherRegistry {
        /// The document's.
        document: Address,
        /// The one expected.
        expected: Address,
    },
    /// It is about another wallet.
    #[error("the document is about wallet {document}, not about {expected}")]
    OtherWallet {
        /// The document's.
        document: Address,
        /// The one expected.
        expected: Address,
    },
    /// The header is no block header.
    #[error("header is no block header")]
    Header,
    /// The header is another block's.
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
    /// At this block nothing is at the registry's address.
    #[error("accountProof shows that the registry did not exist at this block")]
    NoAccount,
    /// What the account proof shows is no account.
    #[error("accountProof leads to something that is no account")]
    BadAccount,
    /// The account is another than the document says.
    #[error("{field} is not what accountProof shows")]
    Account {
        /// Which of the account's four fields.
        field: &'static str,
    },
    /// The code in the document is not the registry's.
    #[error("code is not the registry's, whose hash is {code_hash}")]
    Code {
        /// The hash of the registry's code.
        code_hash: B256,
    },
    /// The registry's code is not the one that the layout holds for.
    #[error("layout holds for other code than the registry's, whose hash is {code_hash}")]
    OtherCode {
        /// The hash of the registry's code.
        code_hash: B256,
    },
    /// Nobody vouches for the layout.
    #[error("layout is not one that this verifier knows for the registry's code, whose hash is {code_hash}")]
    UnknownLayout {
        /// The hash of the registry's code.
        code_hash: B256,
    },
    /// The slots are not those that the verdict rests on.
    #[error("storageProof[{place}] should be about slot {expected}")]
    OtherSlot {
        /// The first place where another slot is.
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
        /// Which of them.
        place: usize,
        /// Why.
        error: ProofError,
    },
    /// A slot's value is another than the document says.
    #[error("storageProof[{place}] shows the value {proved:#x}, not {document:#x}")]
    Value {
        /// Which of them.
        place: usize,
        /// What the proof shows.
        proved: U256,
        /// What the document says.
        document: U256,
    },
    /// What a storage proof shows is no value of a slot.
    #[error("storageProof[{place}] leads to something that is no value of a slot")]
    BadValue {
        /// Which of them.
        place: usize,
    },
    /// The slots hold what no registry stores.
    #[error("the slots hold no agent's record: {0}")]
    Record(&'static str),
    /// The verdict is not the one that the slots give.
    #[error("verdict.{field} is not what the slots and the block's time give")]
    Verdict {
        /// Its first field that differs.
        field: String,
    },
}
