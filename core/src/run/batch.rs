//! Batches: limits, chunks of calls, the bytes of a round trip, and what can end a run.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::iter;

use alloy_primitives::{Address, B256, Bytes, hex};
use alloy_sol_types::SolCall;
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    abi::IMulticall3,
    error::Code,
    multicall::{self, Call},
    redact::Redactor,
    rpc::{self, ErrorObject, Request},
};

/// How far a run may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Batches sent, in all.
    pub rounds: u32,
    /// Contract reads, in all.
    pub calls: usize,
    /// Contract reads in one `eth_call`: a record costs about 30,000 gas, and nodes allow 10 million and more.
    pub calls_per_chunk: usize,
    /// Calldata bytes in one `eth_call`.
    pub bytes_per_chunk: usize,
    /// JSON-RPC requests in one batch.
    pub calls_per_batch: usize,
    /// Batches that may bring nothing new.
    pub retries: u32,
    /// Times a node may not know the pinned block.
    pub repins: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rounds: 40,
            calls: 250_000,
            calls_per_chunk: 120,
            bytes_per_chunk: 100_000,
            calls_per_batch: 50,
            retries: 2,
            repins: 4,
        }
    }
}

/// Bytes to send to the RPC endpoint, as the body of a POST with `Content-Type: application/json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// One JSON-RPC request, or an array of them.
    pub body: String,
    /// Milliseconds to wait before sending; 0 but after a round that brought nothing.
    pub delay_ms: u32,
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body, of whatever kind.
    pub body: &'a [u8],
}

/// Why a question could not be answered. None of the messages carries an endpoint's URL or key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The host could not reach the endpoint.
    #[error("RPC endpoint unreachable")]
    Unreachable,
    /// The endpoint did not answer in the host's time.
    #[error("RPC endpoint did not answer within {seconds} s")]
    TimedOut {
        /// How long the host waited.
        seconds: u32,
    },
    /// The endpoint answered with this status and no JSON-RPC.
    #[error("RPC endpoint answered HTTP {0}")]
    Http(u16),
    /// The endpoint answered something that is not what was asked for.
    #[error("RPC endpoint gave a malformed answer")]
    Malformed,
    /// The node refused a call.
    #[error("RPC endpoint error {code}: {message}")]
    Node {
        /// The JSON-RPC error code.
        code: i64,
        /// The node's message, without anything that looks like an address on the net or a key.
        message: String,
    },
    /// There is no code at this address.
    #[error("No contract at {0}")]
    NoContract(Address),
    /// Multicall3 is not at the configured address.
    #[error("No Multicall3 at {0}; set MULTICALL3_ADDRESS to where it is on this chain")]
    NoMulticall(Address),
    /// The contract returned something else than its interface says.
    #[error("Contract returned no valid answer to {function}")]
    BadReturn {
        /// The function's signature.
        function: &'static str,
    },
    /// No node knew the block to read at.
    #[error("RPC endpoint does not have the block it named")]
    BlockUnavailable,
    /// Nothing new came in, and nothing more could be asked.
    #[error("RPC endpoint left calls unanswered")]
    Stalled,
    /// More batches than allowed.
    #[error("Answer needs too many round trips")]
    TooManyRounds,
    /// More calls than allowed.
    #[error("Answer needs too many contract calls")]
    TooManyCalls,
}

impl RunError {
    /// What it is to a program.
    pub const fn code(&self) -> Code {
        match self {
            Self::Unreachable | Self::TimedOut { .. } | Self::Http(_) | Self::BlockUnavailable => {
                Code::RpcUnavailable
            }
            Self::Malformed | Self::Node { .. } | Self::Stalled => Code::RpcError,
            Self::NoContract(_) | Self::NoMulticall(_) | Self::BadReturn { .. } => Code::RegistryError,
            Self::TooManyRounds | Self::TooManyCalls => Code::TooLarge,
        }
    }

    /// A node's error, made safe to show.
    pub(super) fn node(error: &ErrorObject) -> Self {
        Self::Node { code: error.code, message: scrub(&error.message) }
    }

    /// The same without the secrets of the endpoint that was asked, however short and bare a node quotes them.
    pub fn redacted(self, redactor: &Redactor) -> Self {
        match self {
            Self::Node { code, message } => Self::Node { code, message: redactor.clean(&message) },
            other => other,
        }
    }
}

/// Leaves out words of a node's message that may be URLs or keys, and cuts the rest to 200 characters.
fn scrub(message: &str) -> String {
    let telling = |word: &&str| {
        let key_like = word.len() >= 20 && word.bytes().any(|byte| byte.is_ascii_digit());
        !word.contains(['/', '=']) && !key_like
    };
    let words: Vec<&str> = message.split_whitespace().filter(telling).collect();
    words.join(" ").chars().take(200).collect()
}

/// A call waiting for its answer, and how many calls may share its chunk.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) peers: usize,
}

impl Pending {
    /// The same call in a chunk of a quarter the size, in the end alone.
    pub(super) fn split(self) -> Self {
        Self { peers: (self.peers / 4).max(1), ..self }
    }
}

/// The calls of one `eth_call`.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) id: u64,
    pub(super) calls: Vec<Pending>,
}

/// A batch on its way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) chunks: Vec<Chunk>,
    /// The id of the header request, where there is one.
    pub(super) header: Option<u64>,
    /// Each chunk's first call asks for the parent hash.
    pub(super) tagged: bool,
}

impl Flight {
    pub(super) fn new(chunks: Vec<Vec<Pending>>, header: bool, tagged: bool) -> Self {
        let chunks: Vec<Chunk> = (1..).zip(chunks).map(|(id, calls)| Chunk { id, calls }).collect();
        Self { chunks, header: header.then_some(0), tagged }
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.header.into_iter().chain(self.chunks.iter().map(|chunk| chunk.id)).collect()
    }

    pub(super) fn into_pending(self) -> impl Iterator<Item = Pending> {
        self.chunks.into_iter().flat_map(|chunk| chunk.calls)
    }

    /// The batch's JSON: `block` is where the calls read, `header_block` which header is asked for.
    pub(super) fn body(&self, multicall3: Address, block: &str, header_block: &str) -> String {
        let tag = Call { target: multicall3, data: IMulticall3::getLastBlockHashCall {}.abi_encode().into() };
        let header = self.header.map(|id| Request {
            id,
            method: "eth_getBlockByNumber",
            params: format!("[{header_block},false]"),
        });
        let calls = self.chunks.iter().map(|chunk| {
            let tag = self.tagged.then_some(&tag);
            let data =
                multicall::pack(tag.into_iter().chain(chunk.calls.iter().map(|pending| &pending.call)));
            let params = format!(r#"[{{"to":"{multicall3:#x}","data":"{data}"}},{block}]"#);
            Request { id: chunk.id, method: "eth_call", params }
        });
        rpc::encode(&header.into_iter().chain(calls).collect::<Vec<_>>())
    }
}

/// Splits `queue` into at most `room` chunks within the limits; the rest comes back.
pub(super) fn chunks(queue: Vec<Pending>, limits: &Limits, room: usize) -> (Vec<Vec<Pending>>, Vec<Pending>) {
    let mut chunks: Vec<Vec<Pending>> = Vec::new();
    let mut queue = queue.into_iter();
    let mut head = queue.next();
    while let Some(first) = head.take() {
        if chunks.len() == room {
            return (chunks, iter::once(first).chain(queue).collect());
        }
        let (mut peers, mut bytes) = (first.peers, first.call.packed_size());
        let mut chunk = Vec::from([first]);
        for next in queue.by_ref() {
            peers = peers.min(next.peers);
            bytes += next.call.packed_size();
            if chunk.len() >= peers || bytes > limits.bytes_per_chunk {
                head = Some(next);
                break;
            }
            chunk.push(next);
        }
        chunks.push(chunk);
    }
    (chunks, Vec::new())
}

/// A block parameter: a number, or the newest.
pub(super) fn block_number(number: Option<u64>) -> String {
    number.map_or_else(|| r#""latest""#.to_string(), |number| format!(r#""{number:#x}""#))
}

/// The bytes of an `eth_call`'s result.
pub(super) fn call_result(result: &str) -> Option<Bytes> {
    let text: String = serde_json::from_str(result).ok()?;
    hex::decode(text.strip_prefix("0x")?).ok().map(Bytes::from)
}

/// A JSON-RPC quantity.
pub(super) fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.strip_prefix("0x").ok_or_else(|| D::Error::custom("no 0x"))?;
    u64::from_str_radix(digits, 16).map_err(D::Error::custom)
}

/// A 32-byte hash.
pub(super) fn hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<B256, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_nodes_message_shows_neither_urls_nor_keys() {
        let message = "project 0123456789abcdef0123456789abcdef at https://rpc.example/v2/k3y?token=k3y (token=k3y) is over its limit";
        assert_eq!(scrub(message), "project at is over its limit");
    }

    proptest! {
        #[test]
        fn chunks_keep_every_call_in_order_and_within_limits(
            peers in prop::collection::vec(1usize..8, 0..60),
            calls_per_chunk in 1usize..8,
            room in 1usize..8,
        ) {
            let limits = Limits { calls_per_chunk, bytes_per_chunk: 1_000, ..Limits::default() };
            let call = |index: usize| Call { target: Address::ZERO, data: vec![index as u8; index % 70].into() };
            let queue: Vec<Pending> =
                peers.iter().enumerate().map(|(index, peers)| Pending { call: call(index), peers: *peers }).collect();
            let (chunks, rest) = chunks(queue, &limits, room);
            prop_assert!(chunks.len() <= room);
            prop_assert!(rest.is_empty() || chunks.len() == room);
            for chunk in &chunks {
                prop_assert!(chunk.iter().all(|pending| chunk.len() <= pending.peers));
                let bytes: usize = chunk.iter().map(|pending| pending.call.packed_size()).sum();
                prop_assert!(bytes <= 1_000);
            }
            let order: Vec<Call> = chunks.into_iter().flatten().chain(rest).map(|pending| pending.call).collect();
            prop_assert_eq!(order, (0..peers.len()).map(call).collect::<Vec<_>>());
        }
    }
}
