//! Batches: limits, what one holds, and the bytes of a round trip.

use std::iter;

use alloy_primitives::{Address, Bytes, U256};
use alloy_sol_types::SolCall;

use super::{block::HeaderOf, logs::BlockRequest, marker::Marker, walk::WalkKey};
use crate::{
    chain::lens::{self, Method, Span},
    eth::abi::IAgentRegistry::{getAgentCall, getRevenueHistoryCall},
    eth::as_of::BlockId,
    eth::multicall::{self, Call},
    eth::rpc::{self, Request},
    eth::timestamp::Timestamp,
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
    /// Agents in one `eth_call` of the lens: about 33,000 gas each; where the node has less, the lens stops early.
    pub agents_per_call: u64,
    /// JSON-RPC requests in one batch.
    pub requests_per_batch: usize,
    /// Bytes of a reply. A host reads no more ([`Batch::max_reply_bytes`]); the batch is halved then.
    pub max_reply_bytes: usize,
    /// Batches that may bring nothing new, beyond one for each endpoint but one.
    pub retries: u32,
    /// Times a node may not know the pinned block.
    pub repins: u32,
    /// Milliseconds an endpoint has for a batch, and those of [`Self::walk_ms`].
    pub timeout_ms: u32,
    /// Milliseconds for all batches and pauses together, by what the host says has [`passed`](super::Run::passed); those of
    /// [`Self::walk_ms`] come on top.
    pub deadline_ms: u32,
    /// Milliseconds that each `eth_call` over many agents adds, as a node carries out a batch one by one. They add up to at
    /// most three times the deadline.
    pub walk_ms: u32,
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

impl Freshness {
    /// The timestamp that the newest block has at least.
    pub(super) const fn oldest(&self) -> u64 {
        self.now.seconds().saturating_sub(self.max_age_seconds)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rounds: 100,
            calls: 20_000,
            calls_per_chunk: 120,
            bytes_per_chunk: 100_000,
            agents_per_call: 1_200,
            requests_per_batch: 100,
            max_reply_bytes: 4 << 20,
            retries: 2,
            repins: 4,
            timeout_ms: 4_000,
            deadline_ms: 15_000,
            walk_ms: 200,
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
    /// Bytes of the reply's body to read at most. A host that comes upon more stops reading, and reports
    /// [`Failure::TooLarge`].
    pub max_reply_bytes: usize,
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
    /// The body is larger than [`Batch::max_reply_bytes`].
    TooLarge,
}

/// A call waiting for its answer, and how many calls may share its chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) peers: usize,
    /// It failed without a reason. Asked alone, and directly beside Multicall3, the node gives one.
    pub(super) suspect: bool,
}

impl Pending {
    /// The same call in a chunk of a quarter of `peers`, in the end alone.
    pub(super) fn split(self, peers: usize) -> Self {
        Self { peers: (peers / 4).max(1), ..self }
    }

    /// The same call alone, for the reason it fails.
    pub(super) fn suspected(self) -> Self {
        Self { peers: 1, suspect: true, ..self }
    }
}

/// What one `eth_call` is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Calls that share an `aggregate3`.
    Calls(Vec<Pending>),
    /// One call in an `aggregate3`, and in a second `eth_call` directly: the one says of which block it is, the other whether
    /// it ran out of gas.
    Suspect(Pending),
    /// The same for a node that takes one request at a time.
    Direct(Pending),
    /// A piece of a walk.
    Walk(WalkKey, Span),
}

impl Job {
    /// The JSON-RPC requests it takes.
    pub(super) const fn requests(&self) -> usize {
        match self {
            Self::Calls(_) | Self::Direct(_) | Self::Walk(..) => 1,
            Self::Suspect(_) => 2,
        }
    }
}

/// A job on its way, under its first request's id; the second one's follows.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) id: u64,
    pub(super) job: Job,
}

/// A batch on its way.
#[derive(Debug)]
pub(super) struct Flight {
    /// The ids of header requests, from 0 on.
    pub(super) headers: Vec<HeaderOf>,
    pub(super) jobs: Vec<Posted>,
    /// Each `aggregate3` begins with the calls of a [`Marker`].
    pub(super) marked: bool,
    /// The calls are pinned by block hash.
    pub(super) by_hash: bool,
    /// How agents are walked.
    pub(super) method: Method,
    /// The ids of requests for a proof; such a batch holds nothing else.
    pub(super) proof: Vec<u64>,
    /// The requests for blocks, by id; such a batch holds nothing else.
    pub(super) blocks: Vec<BlockRequest>,
    pub(super) timeout_ms: u32,
}

impl Flight {
    /// Gives the jobs their ids, after the headers'.
    pub(super) fn post(jobs: Vec<Job>, headers: usize) -> Vec<Posted> {
        let mut id = headers as u64;
        let mut post = |job: Job| {
            let posted = Posted { id, job };
            id += posted.job.requests() as u64;
            posted
        };
        jobs.into_iter().map(&mut post).collect()
    }

    /// How many JSON-RPC requests it holds.
    pub(super) fn requests(&self) -> usize {
        self.headers.len()
            + self.proof.len()
            + self.blocks.len()
            + self.jobs.iter().map(|posted| posted.job.requests()).sum::<usize>()
    }

    /// The batch's JSON; `block` is where the calls read.
    #[inline(never)]
    pub(super) fn body(&self, multicall3: Address, block: &str) -> String {
        let headers = (0..).zip(&self.headers).map(|(id, header)| {
            let (method, block) = match header {
                HeaderOf::Newest => ("eth_getBlockByNumber", block_number(None)),
                HeaderOf::Finalized => ("eth_getBlockByNumber", r#""finalized""#.to_owned()),
                HeaderOf::Block(BlockId::Number(number)) => {
                    ("eth_getBlockByNumber", block_number(Some(*number)))
                }
                HeaderOf::Block(BlockId::Hash(hash)) => ("eth_getBlockByHash", format!("\"{hash:#x}\"")),
            };
            Request { id, method, params: format!("[{block},false]") }
        });
        let marker = if self.marked { Marker::calls(multicall3).to_vec() } else { Vec::new() };
        let aggregate = |id, calls: &[Call]| {
            let data = multicall::pack(marker.iter().chain(calls));
            eth_call(id, multicall3, &data, block)
        };
        let calls = self.jobs.iter().flat_map(|Posted { id, job }| match job {
            Job::Calls(pending) => {
                let calls: Vec<Call> = pending.iter().map(|pending| pending.call.clone()).collect();
                vec![aggregate(*id, &calls)]
            }
            Job::Suspect(Pending { call, .. }) => {
                let direct = eth_call(id + 1, call.target, &call.data, block);
                vec![aggregate(*id, std::slice::from_ref(call)), direct]
            }
            Job::Direct(Pending { call, .. }) => vec![eth_call(*id, call.target, &call.data, block)],
            Job::Walk(key, span) if self.method == Method::Multicall => {
                vec![aggregate(*id, &getters(*key, *span))]
            }
            Job::Walk(key, span) => {
                let params = lens::params(key.subject(), *span, self.method, block);
                vec![Request { id: *id, method: "eth_call", params }]
            }
        });
        rpc::encode(&headers.chain(calls).collect::<Vec<_>>())
    }
}

fn eth_call(id: u64, to: Address, data: &Bytes, block: &str) -> Request {
    Request { id, method: "eth_call", params: format!(r#"[{{"to":"{to:#x}","data":"{data}"}},{block}]"#) }
}

/// The calls that read a piece of a walk without the lens: each agent's record, and its history where that is wanted.
pub(super) fn getters(key: WalkKey, span: Span) -> Vec<Call> {
    let ids = (span.first..).take(usize::try_from(span.count).unwrap_or(usize::MAX)).map(U256::from);
    let reads = ids.flat_map(|id| {
        let record = getAgentCall { agentId: id }.abi_encode();
        let history = key.detail.has_revenue().then(|| getRevenueHistoryCall { agentId: id }.abi_encode());
        iter::once(record).chain(history)
    });
    reads.map(|data| Call { target: key.registry, data: data.into() }).collect()
}

/// Packs `queue` into jobs of at most `room` requests within the limits; the rest comes back. `pairs`: the node takes more than
/// one request at a time.
pub(super) fn jobs(
    queue: Vec<Pending>,
    limits: &Limits,
    room: usize,
    pairs: bool,
) -> (Vec<Job>, Vec<Pending>) {
    let (mut jobs, mut left) = (Vec::new(), room);
    let mut queue = queue.into_iter().peekable();
    while let Some(first) = queue.next_if(|next| left >= if next.suspect && pairs { 2 } else { 1 }) {
        if first.suspect {
            let job = if pairs { Job::Suspect(first) } else { Job::Direct(first) };
            left -= job.requests();
            jobs.push(job);
            continue;
        }
        left -= 1;
        let (mut peers, mut bytes) = (first.peers, first.call.packed_size());
        let mut chunk = Vec::from([first]);
        while let Some(next) = queue.next_if(|next| {
            let bytes = bytes + next.call.packed_size();
            !next.suspect && chunk.len() < peers.min(next.peers) && bytes <= limits.bytes_per_chunk
        }) {
            peers = peers.min(next.peers);
            bytes += next.call.packed_size();
            chunk.push(next);
        }
        jobs.push(Job::Calls(chunk));
    }
    (jobs, queue.collect())
}

/// A block parameter: a number, or the newest.
pub(super) fn block_number(number: Option<u64>) -> String {
    number.map_or_else(|| r#""latest""#.to_owned(), |number| format!(r#""{number:#x}""#))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn jobs_keep_every_call_in_order_and_within_limits(
            peers in prop::collection::vec((1usize..8, prop::bool::weighted(0.2)), 0..60),
            room in 1usize..8,
            pairs: bool,
        ) {
            let limits = Limits { bytes_per_chunk: 1_000, ..Limits::default() };
            let call = |index: usize| Call { target: Address::ZERO, data: vec![index as u8; index % 70].into() };
            let pending = |(index, (peers, suspect)): (usize, &(usize, bool))| {
                Pending { call: call(index), peers: *peers, suspect: *suspect }
            };
            let queue: Vec<Pending> = peers.iter().enumerate().map(pending).collect();
            let (jobs, rest) = jobs(queue.clone(), &limits, room, pairs);
            prop_assert!(jobs.iter().map(Job::requests).sum::<usize>() <= room);
            let mut order = Vec::new();
            for job in jobs {
                match job {
                    Job::Calls(chunk) => {
                        prop_assert!(chunk.iter().all(|pending| chunk.len() <= pending.peers && !pending.suspect));
                        let bytes: usize = chunk.iter().map(|pending| pending.call.packed_size()).sum();
                        prop_assert!(bytes <= 1_000);
                        order.extend(chunk);
                    }
                    Job::Suspect(pending) | Job::Direct(pending) => {
                        prop_assert!(pending.suspect);
                        order.push(pending);
                    }
                    Job::Walk(..) => prop_assert!(false),
                }
            }
            order.extend(rest);
            prop_assert_eq!(order, queue);
        }
    }
}
