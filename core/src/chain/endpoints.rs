//! Endpoint selection: sticky failover stays with the last endpoint that answered. Also holds what is known
//! of each.
//!
//! A host keeps [`Endpoints`] between runs. Each run works on a copy and returns an [`Update`] to merge, so
//! that concurrent runs do not overwrite one another's changes.

use alloy_sol_types::SolCall;

use super::error::RunError;
use crate::{
    chain::{NodeFeatures, lens::Method},
    eth::abi::IMulticall3::getChainIdCall,
};

/// Agents or calls per `eth_call` after the second time-out.
const MOST_WORK_AFTER_TIME_OUTS: u64 = 32;

/// Milliseconds after which a run begins with the first endpoint again.
const FIRST_AGAIN_MILLIS: u64 = 60_000;

/// What a host keeps of its RPC endpoints between runs: plain data without URLs. An endpoint is identified by
/// its index in the operator's list, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// One per endpoint, at least one.
    traits: Vec<NodeLimits>,
    preferred: usize,
    /// The preferred endpoint at the last update.
    published: usize,
    /// From when on a run begins with the first endpoint again, unix milliseconds.
    first_again_at: u64,
    /// The next run begins with the first endpoint.
    tries_first: bool,
    /// The chain that all endpoints have to be on.
    chain_id: Option<u64>,
}

/// What a run learned since its last update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    traits: Vec<NodeLimits>,
    /// The endpoint before and after failover.
    switch: Option<(usize, usize)>,
}

/// Limits of a node. Each is detected once and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeLimits {
    /// Accepts no block hash as a parameter (EIP-1898): reads by number worked where one by hash failed.
    pub(super) by_number: bool,
    /// Has answered a read that was pinned by hash.
    pub(super) takes_hashes: bool,
    /// Whether contracts see the chain's own block numbers; `None` until compared. Those of Arbitrum and Orbit
    /// chains see another chain's, and hashes that are no blocks'.
    pub(super) sees_own_blocks: Option<bool>,
    /// How agents are walked.
    pub(super) method: Method,
    /// JSON-RPC requests per batch.
    pub(super) requests_per_batch: usize,
    /// Agents or calls per `eth_call` that it answers in time.
    pub(super) work_per_call: u64,
    /// Serves no proofs.
    pub(super) no_proofs: bool,
    /// Is on the expected chain.
    pub(super) knows_chain: bool,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self {
            by_number: false,
            takes_hashes: false,
            sees_own_blocks: None,
            method: Method::default(),
            requests_per_batch: usize::MAX,
            work_per_call: u64::MAX,
            no_proofs: false,
            knows_chain: false,
        }
    }
}

impl NodeLimits {
    fn merge(&mut self, other: Self) {
        self.by_number |= other.by_number;
        self.takes_hashes |= other.takes_hashes;
        self.sees_own_blocks = self.sees_own_blocks.or(other.sees_own_blocks);
        self.work_per_call = self.work_per_call.min(other.work_per_call);
        self.no_proofs |= other.no_proofs;
        self.knows_chain |= other.knows_chain;
        self.method = self.method.max(other.method);
        self.requests_per_batch = self.requests_per_batch.min(other.requests_per_batch);
    }
}

impl Endpoints {
    /// `count` endpoints (at least one) on the chain `chain_id`. `None` accepts any chain, which is safe only
    /// for a single endpoint: several might be on different chains.
    pub fn new(count: usize, chain_id: Option<u64>) -> Self {
        Self {
            traits: vec![NodeLimits::default(); count.max(1)],
            preferred: 0,
            published: 0,
            first_again_at: 0,
            tries_first: false,
            chain_id,
        }
    }

    /// The endpoint to ask first: the last one that answered.
    pub const fn preferred(&self) -> usize {
        self.preferred
    }

    /// The copy for a new run, without pending changes.
    #[must_use]
    pub(crate) fn begin(self) -> Self {
        let preferred = if self.tries_first { 0 } else { self.preferred };
        Self { published: self.preferred, preferred, tries_first: false, ..self }
    }

    /// The copy for a run that begins now (unix milliseconds). The operator's order is one of preference: while
    /// another endpoint than the first is preferred, one run a minute begins with the first, and where that
    /// answers, it is preferred again.
    pub fn for_run(&mut self, now: u64) -> Self {
        let is_due = now >= self.first_again_at;
        if is_due || self.preferred == 0 {
            self.first_again_at = now.saturating_add(FIRST_AGAIN_MILLIS);
        }
        Self { tries_first: is_due && self.preferred > 0, ..self.clone() }
    }

    /// What this copy learned since the last update. Each failover is reported once: repeated, it would undo
    /// that of a concurrent run.
    pub(crate) fn update(&mut self) -> Update {
        let left = std::mem::replace(&mut self.published, self.preferred);
        let switch = (left != self.preferred).then_some((left, self.preferred));
        Update { traits: self.traits.clone(), switch }
    }

    /// Prefers the next endpoint: this one lags behind another that answered before.
    pub(crate) fn leave_preferred(&mut self) {
        self.preferred = (self.preferred + 1) % self.traits.len().max(1);
    }

    /// What runs have found out of each endpoint, in the operator's order.
    pub fn features(&self) -> impl Iterator<Item = NodeFeatures> {
        self.traits.iter().map(|traits| NodeFeatures {
            block_hash: if traits.by_number { Some(false) } else { traits.takes_hashes.then_some(true) },
            proofs: traits.no_proofs.then_some(false),
            batch: (traits.requests_per_batch == 1).then_some(false),
            ..NodeFeatures::default()
        })
    }

    /// The number of endpoints.
    pub(crate) const fn count(&self) -> usize {
        self.traits.len()
    }

    /// Merges a run's update. Its failover counts only if no concurrent run has switched endpoints meanwhile.
    pub fn merge(&mut self, update: &Update) {
        if let Some((left, preferred)) = update.switch
            && self.preferred == left
        {
            self.preferred = preferred;
        }
        for (known, found) in self.traits.iter_mut().zip(&update.traits) {
            known.merge(*found);
        }
    }
}

/// How one run uses the endpoints: which one it asks, and the faults of each.
#[derive(Debug)]
pub(super) struct Rotation {
    pub(super) known: Endpoints,
    health: Vec<EndpointHealth>,
    last_fault: Option<EndpointFault>,
    /// Endpoints with too large replies, in the order asked; cleared once all were.
    oversized: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct EndpointHealth {
    faults: u32,
    /// Ruled out for this run.
    out: bool,
    /// A read pinned by hash failed: numbers are tried.
    tries_numbers: bool,
    /// What it answers by number does not tell its block.
    numbers_fail: bool,
    /// It gave an error that may be about anything in a request.
    is_unclear: bool,
    /// Batches of few requests that were not answered in time.
    time_outs: u32,
    /// Agents or calls per `eth_call`, after larger calls timed out.
    work_per_call: Option<u64>,
}

#[derive(Debug)]
struct EndpointFault {
    endpoint: usize,
    error: RunError,
    lasting: bool,
}

impl Rotation {
    pub(super) fn new(mut known: Endpoints) -> Self {
        // The remembered index may come from a longer list.
        known.preferred = known.preferred.min(known.traits.len().saturating_sub(1));
        let health = vec![EndpointHealth::default(); known.traits.len()];
        Self { health, known: known.begin(), last_fault: None, oversized: Vec::new() }
    }

    pub(super) const fn current(&self) -> usize {
        self.known.preferred
    }

    pub(super) fn traits(&self) -> NodeLimits {
        self.known.traits.get(self.current()).copied().unwrap_or_default()
    }

    /// Records limits of the current endpoint.
    pub(super) fn update_traits(&mut self, change: impl FnOnce(&mut NodeLimits)) {
        let current = self.current();
        if let Some(traits) = self.known.traits.get_mut(current) {
            change(traits);
        }
    }

    /// Whether reads of an endpoint are pinned by number instead of by hash.
    pub(super) fn pins_by_number(&self, endpoint: usize) -> bool {
        self.known.traits.get(endpoint).is_some_and(|traits| traits.by_number)
            || self.health.get(endpoint).is_some_and(|health| health.tries_numbers)
    }

    /// Pins the reads of the current endpoint by number, or by hash again, until the run ends.
    pub(super) fn try_numbers(&mut self, tries_numbers: bool) {
        let current = self.current();
        if let Some(health) = self.health.get_mut(current) {
            health.tries_numbers = tries_numbers;
        }
    }

    /// Pins the reads of the current endpoint by hash until the run ends: what it answers by number does not tell
    /// its block.
    pub(super) fn leave_numbers(&mut self) {
        self.try_numbers(false);
        let current = self.current();
        if let Some(health) = self.health.get_mut(current) {
            health.numbers_fail = true;
        }
    }

    /// Whether reads of the current endpoint are to be pinned by hash alone: it took one, or no number serves.
    pub(super) fn needs_hashes(&self) -> bool {
        self.traits().takes_hashes
            || self.health.get(self.current()).is_some_and(|health| health.numbers_fail)
    }

    /// Whether the current endpoint has given an unclear error in this run.
    pub(super) fn is_unclear(&self) -> bool {
        self.health.get(self.current()).is_some_and(|health| health.is_unclear)
    }

    /// Records an unclear error of the current endpoint.
    pub(super) fn was_unclear(&mut self) {
        let current = self.current();
        if let Some(health) = self.health.get_mut(current) {
            health.is_unclear = true;
        }
    }

    /// Whether the current endpoint may take numbers alone, and they are not tried yet.
    pub(super) fn may_try_numbers(&self) -> bool {
        !self.needs_hashes() && !self.pins_by_number(self.current())
    }

    /// Keeps how the current endpoint was asked, because it has answered.
    pub(super) fn learn_answer(&mut self, by_hash: bool, is_pinned: bool) {
        let by_number = !by_hash && is_pinned && self.pins_by_number(self.current());
        let work = self.work_per_call();
        self.update_traits(|traits| {
            traits.takes_hashes |= by_hash;
            traits.by_number |= by_number;
            traits.work_per_call = work;
        });
    }

    /// The current limit of agents or calls per `eth_call`.
    pub(super) fn work_per_call(&self) -> u64 {
        let known = self.traits().work_per_call;
        self.health
            .get(self.current())
            .and_then(|health| health.work_per_call)
            .map_or(known, |work| work.min(known))
    }

    /// The current endpoint did not answer calls in time. The first time is the endpoint's fault; from the second
    /// time on, calls are smaller: true.
    pub(super) fn time_out(&mut self) -> bool {
        let (current, work) = (self.current(), self.work_per_call());
        let Some(health) = self.health.get_mut(current) else { return false };
        health.time_outs += 1;
        let is_smaller = health.time_outs > 1 && work > 1;
        if is_smaller {
            health.work_per_call = Some((work.min(MOST_WORK_AFTER_TIME_OUTS * 4) / 4).max(1));
        }
        is_smaller
    }

    /// The number of endpoints to fail over to.
    pub(super) const fn others(&self) -> u32 {
        self.known.traits.len().saturating_sub(1) as u32
    }

    /// Switches to an endpoint that answered sooner than the current one, which has no fault: for this run alone.
    pub(super) const fn stay_with(&mut self, endpoint: usize) {
        let is_listed = endpoint <= self.others() as usize;
        let Endpoints { preferred, published, .. } = &mut self.known;
        if is_listed && endpoint != *preferred {
            if *published == *preferred {
                *published = endpoint;
            }
            *preferred = endpoint;
        }
    }

    /// Counts a fault against the current endpoint and fails over to the one with the fewest faults, in list
    /// order. A lasting fault rules the endpoint out; false if none is left.
    pub(super) fn fault(&mut self, error: RunError, lasting: bool) -> bool {
        self.note(error, lasting);
        let endpoint = self.count_fault(lasting);
        self.switch(endpoint + 1)
    }

    /// Returns the current endpoint, with one more fault.
    fn count_fault(&mut self, lasting: bool) -> usize {
        let endpoint = self.current();
        if let Some(health) = self.health.get_mut(endpoint) {
            health.faults += 1;
            health.out |= lasting;
        }
        endpoint
    }

    /// Keeps an error of the current endpoint, for the run's final error.
    pub(super) fn note(&mut self, error: RunError, lasting: bool) {
        if lasting || !self.last_fault.as_ref().is_some_and(|fault| fault.lasting) {
            self.last_fault = Some(EndpointFault { endpoint: self.current(), error, lasting });
        }
    }

    /// The current endpoint lacks a block: another may have it, but a lagging endpoint is preferred to a
    /// failed one.
    pub(super) fn lacks_block(&mut self) {
        let endpoint = self.count_fault(false);
        self.switch(endpoint);
    }

    /// The current endpoint's reply is too large. True if another endpoint is asked next: its reply may be
    /// smaller. If all replies are too large, so is the request: the run returns to the first of them.
    pub(super) fn try_another_size(&mut self) -> bool {
        let endpoint = self.count_fault(false);
        self.oversized.push(endpoint);
        let other = self.best(endpoint + 1, &self.oversized);
        let first = self.oversized.first().copied();
        self.known.preferred = other.or(first).unwrap_or(endpoint);
        if other.is_none() {
            self.oversized.clear();
        }
        other.is_some()
    }

    /// Switches to the [best](Self::best) endpoint; false if none is left.
    fn switch(&mut self, start: usize) -> bool {
        let best = self.best(start, &[]);
        if let Some(best) = best {
            self.known.preferred = best;
        }
        best.is_some()
    }

    /// The endpoint with the fewest faults that is neither ruled out nor in `but`; ties go to the first from
    /// `start` on.
    fn best(&self, start: usize, but: &[usize]) -> Option<usize> {
        let count = self.known.traits.len();
        (start..start + count)
            .map(|place| place % count)
            .filter(|place| !but.contains(place))
            .filter_map(|place| Some((place, self.health.get(place).filter(|health| !health.out)?)))
            .min_by_key(|(_, health)| health.faults)
            .map(|(place, _)| place)
    }

    /// Compares the current endpoint's chain id with the expected one.
    pub(super) fn check_chain(&mut self, found: Option<u64>) -> Result<(), RunError> {
        self.compare_chain(found)?;
        self.update_traits(|traits| traits.knows_chain = true);
        Ok(())
    }

    /// Whether the current endpoint is known to be on the expected chain, if any is expected.
    pub(super) fn knows_chain(&self) -> bool {
        self.known.chain_id.is_none() || self.traits().knows_chain
    }

    fn compare_chain(&self, found: Option<u64>) -> Result<(), RunError> {
        match (self.known.chain_id, found) {
            (None, _) => Ok(()),
            (Some(expected), Some(found)) if found == expected => Ok(()),
            (Some(expected), Some(found)) => Err(RunError::WrongChain { found, expected }),
            (Some(_), None) => Err(RunError::MulticallLacks { function: getChainIdCall::SIGNATURE }),
        }
    }

    /// The run's final error: the only endpoint's own, or of several the last lasting one, else the last.
    pub(super) fn conclude(&mut self) -> Option<RunError> {
        let EndpointFault { endpoint, error, .. } = self.last_fault.take()?;
        let count = self.known.traits.len();
        if count == 1 {
            return Some(error);
        }
        let tried = self.health.iter().filter(|health| health.faults > 0).count();
        Some(RunError::Unanswered { tried, count, position: endpoint + 1, error: Box::new(error) })
    }
}
