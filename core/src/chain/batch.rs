//! Batches: their limits, the jobs they hold, and the JSON they post. Replies are read in `reply`.

use std::iter;

use alloy_primitives::{Address, Bytes, U256};
use alloy_sol_types::SolCall;

use super::{block::HeaderOf, logs::BlockRequest, marker::Marker, walk::WalkKey};
use crate::{
    chain::lens::{self, Detail, Method, Span},
    eth::abi::IAgentRegistry::{getAgentCall, getRevenueHistoryCall},
    eth::as_of::BlockId,
    eth::multicall::{self, Call},
    eth::rpc::{self, Request},
    eth::timestamp::Timestamp,
};

/// Limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Batches per run.
    pub rounds: u32,
    /// Contract reads per run.
    pub calls: usize,
    /// Contract reads per `eth_call`: a record costs about 30,000 gas, and nodes allow 10 million or more.
    pub calls_per_chunk: usize,
    /// Calldata bytes per `eth_call`.
    pub bytes_per_chunk: usize,
    /// Agents per lens `eth_call`, at about 33,000 gas each. With less gas the lens stops early.
    pub agents_per_call: u64,
    /// JSON-RPC requests per batch.
    pub requests_per_batch: usize,
    /// Bytes of a reply's body. The host stops reading there ([`Batch::max_reply_bytes`]), and the batch is
    /// halved.
    pub max_reply_bytes: usize,
    /// Retries: batches without progress, in addition to one failover per further endpoint.
    pub retries: u32,
    /// Number of times that a node may not know the pinned block.
    pub repins: u32,
    /// Milliseconds an endpoint has for a batch; [`Self::walk_ms`] is added.
    pub timeout_ms: u32,
    /// Milliseconds for all batches and backoff together, measured by [`passed`](super::Run::passed);
    /// [`Self::walk_ms`] is added.
    pub deadline_ms: u32,
    /// Milliseconds that each `eth_call` over many agents adds, because nodes execute a batch serially. The
    /// sum is capped at three times the deadline.
    pub walk_ms: u32,
    /// Maximum age of an endpoint's newest block; `None` accepts any age.
    pub freshness: Option<Freshness>,
}

/// Maximum age of an endpoint's newest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The host's clock.
    pub now: Timestamp,
    /// Maximum difference between the block's timestamp and `now`, in seconds.
    pub max_age_seconds: u64,
}

impl Freshness {
    /// Returns the lowest acceptable timestamp of the newest block.
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
    /// Index of the endpoint in the operator's list, from 0.
    pub endpoint: usize,
    /// One JSON-RPC request, or an array of them.
    pub body: String,
    /// Backoff in milliseconds before sending; 0 unless earlier rounds made no progress.
    pub delay_ms: u32,
    /// Milliseconds for the whole reply, counted from sending.
    pub timeout_ms: u32,
    /// Size cap of the reply's body. A host that reads more than this stops and reports
    /// [`Failure::TooLarge`].
    pub max_reply_bytes: usize,
}

/// A reply to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body, of any content type.
    pub body: &'a [u8],
}

/// Reason why a batch has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The connection failed, or broke before the body's end.
    Unreachable,
    /// The time-out expired.
    TimedOut,
    /// The body is larger than [`Batch::max_reply_bytes`].
    TooLarge,
}

/// A call without a result yet, and the number of calls that may share its chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingCall {
    pub(super) call: Call,
    pub(super) peers: usize,
    /// The call failed without a reason. Sent alone, through Multicall3 and directly, it gets one.
    pub(super) suspect: bool,
}

impl PendingCall {
    /// Returns the same call in a chunk of a quarter of `peers`, at least 1.
    pub(super) fn split(self, peers: usize) -> Self {
        Self { peers: (peers / 4).max(1), ..self }
    }

    /// Returns the same call alone, to find the reason of its failure.
    pub(super) fn suspected(self) -> Self {
        Self { peers: 1, suspect: true, ..self }
    }
}

/// One unit of work, sent as one or two `eth_call`s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Calls that share an `aggregate3`.
    Calls(Vec<PendingCall>),
    /// One call sent twice: the `aggregate3` identifies the block, the direct `eth_call` tells whether gas
    /// ran out.
    Suspect(PendingCall),
    /// The direct `eth_call` only, for a node that accepts one request at a time.
    Direct(PendingCall),
    /// A span of an agent walk.
    Walk(WalkKey, Span),
}

impl Job {
    /// Returns whether the job runs a contract that is not deployed.
    pub(super) fn runs_lens(&self) -> bool {
        match self {
            Self::Calls(calls) => calls.iter().any(|pending| pending.call.code.is_some()),
            Self::Suspect(pending) => pending.call.code.is_some(),
            Self::Direct(_) => false,
            Self::Walk(..) => true,
        }
    }

    pub(super) const fn requests(&self) -> usize {
        match self {
            Self::Calls(_) | Self::Direct(_) | Self::Walk(..) => 1,
            Self::Suspect(_) => 2,
        }
    }
}

/// A job in flight. `id` is that of its first request; a second request has the next id.
#[derive(Debug)]
pub(super) struct SentJob {
    pub(super) id: u64,
    pub(super) job: Job,
}

/// A batch in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Header requests; their ids count from 0.
    pub(super) headers: Vec<HeaderOf>,
    pub(super) jobs: Vec<SentJob>,
    /// Calls are pinned by block hash (EIP-1898).
    pub(super) by_hash: bool,
    /// The batch tries whether the run's calls work at the newest block.
    pub(super) is_probe: bool,
    pub(super) method: Method,
    /// Ids of proof requests; such a batch holds nothing else.
    pub(super) proof: Vec<u64>,
    /// Requests for headers and logs, by id; such a batch holds nothing else.
    pub(super) blocks: Vec<BlockRequest>,
    pub(super) timeout_ms: u32,
}

impl InFlight {
    /// Assigns request ids to the jobs, after those of the headers.
    pub(super) fn with_ids(jobs: Vec<Job>, headers: usize) -> Vec<SentJob> {
        let mut id = headers as u64;
        let mut post = |job: Job| {
            let sent = SentJob { id, job };
            id += sent.job.requests() as u64;
            sent
        };
        jobs.into_iter().map(&mut post).collect()
    }

    pub(super) fn into_jobs(self) -> impl Iterator<Item = Job> {
        self.jobs.into_iter().map(|sent| sent.job)
    }

    /// Returns the number of JSON-RPC requests.
    pub(super) fn requests(&self) -> usize {
        self.headers.len()
            + self.proof.len()
            + self.blocks.len()
            + self.jobs.iter().map(|sent| sent.job.requests()).sum::<usize>()
    }

    /// Returns the number of agents or calls of the largest request.
    pub(super) fn most_work(&self) -> u64 {
        let work = |sent: &SentJob| match &sent.job {
            Job::Calls(calls) => calls.len() as u64,
            Job::Suspect(_) | Job::Direct(_) => 1,
            Job::Walk(_, span) => span.count,
        };
        self.jobs.iter().map(work).max().unwrap_or_default()
    }

    /// Returns a generous estimate of the reply's bytes. Logs may be of any size.
    pub(super) fn expected_bytes(&self) -> usize {
        const HEADER: usize = 2_000;
        const CALL: usize = 2_000;
        const PROOF: usize = 8_000;
        let of_job = |sent: &SentJob| match &sent.job {
            Job::Calls(calls) => calls.len() * CALL,
            Job::Suspect(_) | Job::Direct(_) => sent.job.requests() * CALL,
            Job::Walk(key, span) => {
                usize::try_from(span.count.saturating_mul(agent_bytes(self.method, key.detail)))
                    .unwrap_or(usize::MAX)
            }
        };
        let of_block = |request: &BlockRequest| match request {
            BlockRequest::Header { .. } => HEADER,
            _ => usize::MAX,
        };
        let jobs = self.jobs.iter().map(of_job);
        let all = jobs
            .chain(self.blocks.iter().map(of_block))
            .chain([self.headers.len() * HEADER, self.proof.len() * PROOF]);
        all.fold(0, usize::saturating_add)
    }

    /// Returns the batch's JSON; `block` is the block parameter of the calls.
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
            rpc::request(id, method, format!("[{block},false]"))
        });
        let marker = Marker::calls(multicall3);
        let aggregate = |id, calls: &[Call]| {
            let data = multicall::pack(marker.iter().chain(calls));
            let undeployed = calls.iter().find_map(|call| Some((call.target, call.code?)));
            if let Some(contract) = undeployed.filter(|_| self.method != Method::Multicall) {
                return rpc::request(id, "eth_call", lens::run(contract, &data, self.method, block));
            }
            eth_call(id, multicall3, &data, block)
        };
        let calls = self.jobs.iter().flat_map(|SentJob { id, job }| match job {
            Job::Calls(pending) => {
                let calls: Vec<Call> = pending.iter().map(|pending| pending.call.clone()).collect();
                vec![aggregate(*id, &calls)]
            }
            Job::Suspect(PendingCall { call, .. }) => {
                let direct = eth_call(id + 1, call.target, &call.data, block);
                vec![aggregate(*id, std::slice::from_ref(call)), direct]
            }
            Job::Direct(PendingCall { call, .. }) => vec![eth_call(*id, call.target, &call.data, block)],
            Job::Walk(key, span) if self.method == Method::Multicall => {
                vec![aggregate(*id, &getters(key, *span))]
            }
            Job::Walk(key, span) => {
                let params = lens::params(key.subject(*span), *span, self.method, block);
                vec![rpc::request(*id, "eth_call", params)]
            }
        });
        rpc::encode(&headers.chain(calls).collect::<Vec<_>>())
    }
}

/// Bytes of JSON per agent of a walk with an ordinary scope.
pub(super) const fn agent_bytes(method: Method, detail: Detail) -> u64 {
    match (method, detail) {
        (Method::Multicall, _) => 4_500,
        (_, Detail::Full) => 300,
        _ => 136,
    }
}

fn eth_call(id: u64, to: Address, data: &Bytes, block: &str) -> Request {
    rpc::request(id, "eth_call", format!(r#"[{{"to":"{to:#x}","data":"{data}"}},{block}]"#))
}

/// Returns the calls that read a span without the lens: each agent's record, and its history if wanted.
pub(super) fn getters(key: &WalkKey, span: Span) -> Vec<Call> {
    let reads = key.ids(span).into_iter().map(U256::from).flat_map(|id| {
        let record = getAgentCall { agentId: id }.abi_encode();
        let history = key.detail.has_revenue().then(|| getRevenueHistoryCall { agentId: id }.abi_encode());
        iter::once(record).chain(history)
    });
    reads.map(|data| Call { target: key.registry, data: data.into(), code: None }).collect()
}

/// Packs `queue` into jobs of at most `room` requests within the limits and returns the rest. `pairs`: the
/// node accepts more than one request per batch.
pub(super) fn jobs(
    queue: Vec<PendingCall>,
    limits: &Limits,
    room: usize,
    pairs: bool,
) -> (Vec<Job>, Vec<PendingCall>) {
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
        let (mut peers, mut bytes) = (first.peers.min(limits.calls_per_chunk), first.call.packed_size());
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

/// Returns a block parameter; `None` is the newest block.
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
            let data = |index: usize| vec![index as u8; index % 70].into();
            let call = |index| Call { target: Address::ZERO, data: data(index), code: None };
            let pending = |(index, (peers, suspect)): (usize, &(usize, bool))| {
                PendingCall { call: call(index), peers: *peers, suspect: *suspect }
            };
            let queue: Vec<PendingCall> = peers.iter().enumerate().map(pending).collect();
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
