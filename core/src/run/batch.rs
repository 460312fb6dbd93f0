//! Batches: limits, chunks of calls, and the bytes of a round trip.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::iter;

use alloy_primitives::Address;

use super::tag::Tag;
use crate::{
    multicall::{self, Call},
    rpc::{self, Request},
    timestamp::Timestamp,
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
    /// Batches that may bring nothing new, beyond one for each endpoint but one.
    pub retries: u32,
    /// Times a node may not know the pinned block.
    pub repins: u32,
    /// Milliseconds an endpoint has for a batch.
    pub timeout_ms: u32,
    /// Milliseconds for all batches and pauses together, by what the host says has [`passed`](super::Run::passed).
    pub deadline_ms: u32,
    /// How old an endpoint's newest block may be; `None` is any age.
    pub freshness: Option<Freshness>,
}

/// How old an endpoint's newest block may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The host's clock.
    pub now: Timestamp,
    /// Seconds between the block's timestamp and now.
    pub max_age_seconds: u64,
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
            timeout_ms: 4_000,
            deadline_ms: 15_000,
            freshness: None,
        }
    }
}

/// Bytes to send to an RPC endpoint, as the body of a POST with `Content-Type: application/json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which endpoint: its place in the list, from 0.
    pub endpoint: usize,
    /// One JSON-RPC request, or an array of them.
    pub body: String,
    /// Milliseconds to wait before sending; 0 but after rounds that brought nothing.
    pub delay_ms: u32,
    /// Milliseconds the whole answer may take from then on.
    pub timeout_ms: u32,
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body, of whatever kind.
    pub body: &'a [u8],
}

/// What never came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There was no connection, or it broke before the body's end.
    Unreachable,
    /// The time was up.
    TimedOut,
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
    /// Each chunk begins with the calls of a [`Tag`].
    pub(super) tagged: bool,
    /// The calls are pinned by block hash.
    pub(super) by_hash: bool,
    pub(super) timeout_ms: u32,
}

impl Flight {
    pub(super) fn new(chunks: Vec<Vec<Pending>>, header: bool) -> Self {
        let chunks: Vec<Chunk> = (1..).zip(chunks).map(|(id, calls)| Chunk { id, calls }).collect();
        Self { chunks, header: header.then_some(0), tagged: false, by_hash: false, timeout_ms: 0 }
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.header.into_iter().chain(self.chunks.iter().map(|chunk| chunk.id)).collect()
    }

    pub(super) fn into_pending(self) -> impl Iterator<Item = Pending> {
        self.chunks.into_iter().flat_map(|chunk| chunk.calls)
    }

    /// The batch's JSON: `block` is where the calls read, `header_block` which header is asked for.
    pub(super) fn body(&self, multicall3: Address, block: &str, header_block: &str) -> String {
        let tag = if self.tagged { Tag::calls(multicall3).to_vec() } else { Vec::new() };
        let header = self.header.map(|id| Request {
            id,
            method: "eth_getBlockByNumber",
            params: format!("[{header_block},false]"),
        });
        let calls = self.chunks.iter().map(|chunk| {
            let data = multicall::pack(tag.iter().chain(chunk.calls.iter().map(|pending| &pending.call)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
