//! Known traits of a node.

use crate::chain::lens::Method;

/// Traits of a node; `None` where it has not shown one. The last answer or refusal counts. A minute later a
/// run asks again for what a node was found to lack (`Endpoints::for_run`): the refusal may have been
/// transient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeTraits {
    /// Answers reads pinned by hash (EIP-1898). False: reads by number worked where one by hash failed.
    pub(super) takes_hashes: Option<bool>,
    /// Contracts see the chain's own block numbers. On Arbitrum and Orbit chains they see another chain's,
    /// and hashes that belong to no block.
    pub(super) sees_own_blocks: Option<bool>,
    /// Method of walking agents.
    pub(super) method: Option<Method>,
    /// Maximum JSON-RPC requests per batch.
    pub(super) requests_per_batch: Option<usize>,
    /// Size of the largest batch of which it has answered any request.
    pub(super) answered_requests: Option<usize>,
    /// Agents or calls per `eth_call`.
    pub(super) work_per_call: TimelyLimit,
    /// Blocks per `eth_getLogs`, after a longer range timed out.
    pub(super) log_blocks: TimelyLimit,
    /// Serves proofs of its newest block.
    pub(super) proofs: Option<bool>,
    /// Serves logs.
    pub(super) logs: Option<bool>,
    /// Is on the expected chain.
    pub(super) knows_chain: Option<bool>,
}

impl NodeTraits {
    /// Fills unknown traits from `older`.
    pub(super) fn or(self, older: Self) -> Self {
        Self {
            takes_hashes: self.takes_hashes.or(older.takes_hashes),
            sees_own_blocks: self.sees_own_blocks.or(older.sees_own_blocks),
            method: self.method.or(older.method),
            requests_per_batch: self.requests_per_batch.or(older.requests_per_batch),
            answered_requests: self.answered_requests.or(older.answered_requests),
            work_per_call: self.work_per_call.or(older.work_per_call),
            log_blocks: self.log_blocks.or(older.log_blocks),
            proofs: self.proofs.or(older.proofs),
            logs: self.logs.or(older.logs),
            knows_chain: self.knows_chain.or(older.knows_chain),
        }
    }

    /// Keeps the traits that differ from `known`.
    pub(super) fn news(self, known: Self) -> Self {
        Self {
            takes_hashes: new(self.takes_hashes, known.takes_hashes),
            sees_own_blocks: new(self.sees_own_blocks, known.sees_own_blocks),
            method: new(self.method, known.method),
            requests_per_batch: new(self.requests_per_batch, known.requests_per_batch),
            answered_requests: new(self.answered_requests, known.answered_requests),
            work_per_call: self.work_per_call.news(known.work_per_call),
            log_blocks: self.log_blocks.news(known.log_blocks),
            proofs: new(self.proofs, known.proofs),
            logs: new(self.logs, known.logs),
            knows_chain: new(self.knows_chain, known.knows_chain),
        }
    }

    /// Keeps the traits that hold while the node is asked again for what it may lack.
    pub(super) fn anew(self) -> Self {
        let Self { sees_own_blocks, knows_chain, .. } = self;
        let (work_per_call, log_blocks) = (self.work_per_call.anew(), self.log_blocks.anew());
        Self { sees_own_blocks, work_per_call, log_blocks, knows_chain, ..Self::default() }
    }
}

/// Largest amount of something that a node answers in time; `None` where it has not shown one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimelyLimit {
    known: Option<u64>,
    /// A larger amount to try, because the node may have become faster.
    to_try: Option<u64>,
}

impl TimelyLimit {
    /// Creates the limit of a node that answers this amount in time.
    pub(super) const fn of(known: u64) -> Self {
        Self { known: Some(known), to_try: None }
    }

    /// Returns the largest amount to ask for.
    pub(super) fn limit(self) -> u64 {
        self.known.or(self.to_try).unwrap_or(u64::MAX)
    }

    /// Returns what an answer of this amount shows: a new limit if it reaches the amount to try.
    pub(super) fn answered(self, amount: u64) -> Self {
        Self { known: self.to_try.filter(|to_try| amount >= *to_try), to_try: None }
    }

    fn or(self, older: Self) -> Self {
        Self { known: self.known.or(older.known), to_try: self.to_try.or(older.to_try) }
    }

    fn news(self, known: Self) -> Self {
        Self { known: new(self.known, known.known), to_try: None }
    }

    fn anew(self) -> Self {
        Self { known: None, to_try: self.known.map(|known| known.saturating_mul(4)) }
    }
}

fn new<T: PartialEq>(found: Option<T>, known: Option<T>) -> Option<T> {
    if found == known { None } else { found }
}
