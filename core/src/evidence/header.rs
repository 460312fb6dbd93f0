//! Block headers: hashed whole, and read field by field.
//!
//! A header is an RLP list. Its first fifteen fields are the same on all EVM chains; forks append fields, and
//! OP-stack chains have the same ones in the same order. Fields beyond the fifteenth are not read: the hash
//! covers them.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_rlp::Encodable;

use super::rlp;
use crate::{
    eth::as_of::AsOf,
    eth::members::{Object, parse, string},
    eth::spelled::Spelled,
    eth::timestamp::Timestamp,
};

/// The number of fields that every header has (Yellow Paper, section 4.4).
const FIELDS: usize = 15;

/// The fields of a header that evidence needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The hash of the whole header, which is the block's.
    pub hash: B256,
    /// The hash of the parent block.
    pub parent_hash: B256,
    /// The root of the trie of accounts after this block.
    pub state_root: B256,
    /// The block's number.
    pub number: u64,
    /// Unix seconds; several blocks may share one.
    pub timestamp: u64,
}

impl BlockHeader {
    /// Decodes a header from its RLP; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let fields = rlp::fields(bytes).filter(|fields| fields.len() >= FIELDS)?;
        let hash = |place: usize| fields.get(place).and_then(|field| B256::try_from(*field).ok());
        let number = |place: usize| u64::try_from(rlp::integer(fields.get(place)?)?).ok();
        Some(Self {
            hash: keccak256(bytes),
            parent_hash: hash(0)?,
            state_root: hash(3)?,
            number: number(8)?,
            timestamp: number(11)?,
        })
    }

    /// Returns the block as answers state it.
    pub(super) const fn as_of(&self) -> AsOf {
        AsOf {
            block_number: self.number,
            block_timestamp: Timestamp::from_seconds(self.timestamp),
            parent_hash: self.parent_hash,
        }
    }
}

/// The encoding of a field in JSON-RPC.
#[derive(Clone, Copy)]
enum Encoding {
    Data,
    Quantity,
}

/// The names of the fields in JSON-RPC, in the header's order. Chains omit the fields of forks that they do
/// not have.
const JSON_FIELDS: [(&str, Encoding); 23] = {
    use Encoding::{Data, Quantity};
    [
        ("parentHash", Data),
        ("sha3Uncles", Data),
        ("miner", Data),
        ("stateRoot", Data),
        ("transactionsRoot", Data),
        ("receiptsRoot", Data),
        ("logsBloom", Data),
        ("difficulty", Quantity),
        ("number", Quantity),
        ("gasLimit", Quantity),
        ("gasUsed", Quantity),
        ("timestamp", Quantity),
        ("extraData", Data),
        ("mixHash", Data),
        ("nonce", Data),
        ("baseFeePerGas", Quantity),     // EIP-1559
        ("withdrawalsRoot", Data),       // EIP-4895
        ("blobGasUsed", Quantity),       // EIP-4844
        ("excessBlobGas", Quantity),     // EIP-4844
        ("parentBeaconBlockRoot", Data), // EIP-4788
        ("requestsHash", Data),          // EIP-7685
        ("blockAccessListHash", Data),   // EIP-7928
        ("slotNumber", Quantity),        // EIP-7843
    ]
};

/// Encodes as RLP the header in the result of `eth_getBlockByHash` or `eth_getBlockByNumber`; `None` if the
/// result is not a block. The caller must compare the hash, which is wrong for chains with other header
/// fields.
pub(crate) fn from_json(block: &str) -> Option<Bytes> {
    let block: Object<'_> = parse(block)?;
    let mut payload = Vec::with_capacity(700);
    for (place, (name, kind)) in JSON_FIELDS.iter().enumerate() {
        let Some(value) = block.get(name).filter(|value| *value != "null") else {
            if place < FIELDS {
                return None;
            }
            continue;
        };
        let text = string(value)?;
        match kind {
            Encoding::Data => Bytes::read(text)?.encode(&mut payload),
            Encoding::Quantity => U256::read(text)?.encode(&mut payload),
        }
    }
    let mut rlp = Vec::with_capacity(payload.len() + 4);
    alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut rlp);
    rlp.extend(payload);
    Some(rlp.into())
}
