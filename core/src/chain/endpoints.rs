//! Endpoint selection: sticky failover stays with the last endpoint that answered. Also keeps the known
//! traits of each node ([`NodeTraits`]).
//!
//! A host keeps [`Endpoints`] between runs. Each run works on a copy and returns an [`Update`] to merge, so
//! that concurrent runs do not overwrite one another's changes.

use alloy_sol_types::SolCall;

use super::{
    error::RunError,
    node_traits::{NodeTraits, TimelyLimit},
};
use crate::{chain::NodeFeatures, eth::abi::IMulticall3::getChainIdCall};

/// Agents or calls per `eth_call` after the second time-out.
const MOST_WORK_AFTER_TIME_OUTS: u64 = 32;
/// Agents or calls of an `eth_call` that is too small to be the reason for a time-out.
const FEW_CALLS: u64 = 8;

/// Interval in milliseconds between runs that begin with the first endpoint again, and between runs that ask
/// again for what nodes lacked.
const AGAIN_MILLIS: u64 = 60_000;

/// State of the RPC endpoints that a host keeps between runs: plain data without URLs. An endpoint is
/// identified by its index in the operator's list, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// One per endpoint, at least one.
    traits: Vec<NodeTraits>,
    /// Traits found since the last update.
    found: Vec<NodeTraits>,
    preferred: usize,
    /// The preferred endpoint at the last update.
    published: usize,
    /// Time from which a run begins with the first endpoint again, in unix milliseconds.
    first_again_at: u64,
    /// The next run begins with the first endpoint.
    tries_first: bool,
    /// Time from which a run asks again for what nodes were found to lack, in unix milliseconds.
    anew_at: u64,
    /// The next run asks again for what nodes were found to lack.
    asks_anew: bool,
    /// Id of the chain that all endpoints must be on.
    chain_id: Option<u64>,
}

/// Traits and failover that a run learned since its last update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    traits: Vec<NodeTraits>,
    /// The preferred endpoint before and after failover.
    switch: Option<(usize, usize)>,
}

impl Endpoints {
    /// Creates `count` endpoints (at least one) on the chain `chain_id`. `None` accepts any chain, which is
    /// safe only for a single endpoint: several might be on different chains.
    pub fn new(count: usize, chain_id: Option<u64>) -> Self {
        let unknown = vec![NodeTraits::default(); count.max(1)];
        Self {
            found: unknown.clone(),
            traits: unknown,
            preferred: 0,
            published: 0,
            first_again_at: 0,
            tries_first: false,
            anew_at: 0,
            asks_anew: false,
            chain_id,
        }
    }

    /// Returns the endpoint to ask first: the last one that answered.
    pub const fn preferred(&self) -> usize {
        self.preferred
    }

    /// Returns the copy for a new run, without pending changes.
    #[must_use]
    pub(crate) fn begin(self) -> Self {
        let preferred = if self.tries_first { 0 } else { self.preferred };
        let known = |traits: NodeTraits| if self.asks_anew { traits.anew() } else { traits };
        let traits: Vec<NodeTraits> = self.traits.iter().copied().map(known).collect();
        let found = vec![NodeTraits::default(); traits.len()];
        let published = self.preferred;
        Self { traits, found, published, preferred, tries_first: false, asks_anew: false, ..self }
    }

    /// Returns the copy for a run that begins at `now`, in unix milliseconds. The operator's order is one of
    /// preference: while another endpoint than the first is preferred, one run a minute begins with the
    /// first, and prefers it again if it answers. One run a minute finds out anew what the nodes lack.
    pub fn for_run(&mut self, now: u64) -> Self {
        let is_due = now >= self.first_again_at;
        if is_due || self.preferred == 0 {
            self.first_again_at = now.saturating_add(AGAIN_MILLIS);
        }
        let asks_anew = now >= self.anew_at;
        if asks_anew {
            self.anew_at = now.saturating_add(AGAIN_MILLIS);
        }
        Self { tries_first: is_due && self.preferred > 0, asks_anew, ..self.clone() }
    }

    /// Returns what this copy learned since the last update. Each failover is reported once: repeated, it
    /// would undo the failover of a concurrent run.
    pub(crate) fn update(&mut self) -> Update {
        let left = std::mem::replace(&mut self.published, self.preferred);
        let switch = (left != self.preferred).then_some((left, self.preferred));
        let unknown = vec![NodeTraits::default(); self.traits.len()];
        Update { traits: std::mem::replace(&mut self.found, unknown), switch }
    }

    /// Prefers the next endpoint: this one lags behind another that answered before.
    pub(crate) fn leave_preferred(&mut self) {
        self.preferred = (self.preferred + 1) % self.traits.len().max(1);
    }

    /// Iterates over the features that runs have found of each endpoint, in the operator's order.
    pub fn features(&self) -> impl Iterator<Item = NodeFeatures> {
        self.traits.iter().map(|traits| NodeFeatures {
            block_hash: traits.takes_hashes,
            proofs: traits.proofs,
            logs: traits.logs,
            batch: traits.requests_per_batch.map(|requests| requests > 1),
            ..NodeFeatures::default()
        })
    }

    /// Returns the number of endpoints.
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
        for (endpoint, found) in update.traits.iter().enumerate() {
            self.learn(endpoint, *found);
        }
    }

    /// Merges traits found of an endpoint.
    fn learn(&mut self, endpoint: usize, traits: NodeTraits) {
        if let (Some(known), Some(found)) = (self.traits.get_mut(endpoint), self.found.get_mut(endpoint)) {
            let news = traits.news(*known);
            (*known, *found) = (news.or(*known), news.or(*found));
        }
    }
}

/// Use of the endpoints by one run: the endpoint that it asks, and the faults of each.
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
    /// Its replies to reads by number do not tell their block.
    numbers_fail: bool,
    /// It gave an error that was taken for a transient one: a second one is about the request.
    has_refused: bool,
    /// Batches of few requests that were not answered in time.
    time_outs: u32,
    /// Agents or calls per `eth_call`, after larger calls timed out.
    work_per_call: Option<u64>,
    /// It has answered a batch of headers after one with logs that it did not answer.
    answers_headers: bool,
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

    pub(super) fn traits(&self) -> NodeTraits {
        self.known.traits.get(self.current()).copied().unwrap_or_default()
    }

    /// Records traits that the current endpoint has shown.
    pub(super) fn learn(&mut self, traits: NodeTraits) {
        self.known.learn(self.current(), traits);
    }

    /// Returns what this run has seen of the current endpoint.
    fn health(&self) -> EndpointHealth {
        self.health.get(self.current()).copied().unwrap_or_default()
    }

    fn change_health(&mut self, change: impl FnOnce(&mut EndpointHealth)) {
        let current = self.current();
        if let Some(health) = self.health.get_mut(current) {
            change(health);
        }
    }

    /// Returns whether reads of an endpoint are pinned by number instead of by hash.
    pub(super) fn pins_by_number(&self, endpoint: usize) -> bool {
        self.known.traits.get(endpoint).is_some_and(|traits| traits.takes_hashes == Some(false))
            || self.health.get(endpoint).is_some_and(|health| health.tries_numbers)
    }

    /// Pins the reads of the current endpoint by number, or by hash again, until the run ends.
    pub(super) fn try_numbers(&mut self, tries_numbers: bool) {
        self.change_health(|health| health.tries_numbers = tries_numbers);
    }

    /// Pins the reads of the current endpoint by hash until the run ends: its replies to reads by number do
    /// not tell their block.
    pub(super) fn leave_numbers(&mut self) {
        self.change_health(|health| (health.tries_numbers, health.numbers_fail) = (false, true));
    }

    /// Returns whether the current endpoint must be read by hash: it took one, or its replies to reads by
    /// number do not tell their block.
    pub(super) fn needs_hashes(&self) -> bool {
        self.traits().takes_hashes == Some(true) || self.health().numbers_fail
    }

    /// Returns whether the current endpoint has given an error that was taken for a transient one.
    pub(super) fn has_refused(&self) -> bool {
        self.health().has_refused
    }

    /// Records an error of the current endpoint that was taken for a transient one.
    pub(super) fn refused(&mut self) {
        self.change_health(|health| health.has_refused = true);
    }

    /// Returns whether the current endpoint may take only block numbers, and has not been tried with them.
    pub(super) fn may_try_numbers(&self) -> bool {
        !self.needs_hashes() && !self.pins_by_number(self.current())
    }

    /// Records how the current endpoint was asked, because it has answered.
    pub(super) fn learn_answer(&mut self, by_hash: bool, is_pinned: bool) {
        let by_number = !by_hash && is_pinned && self.pins_by_number(self.current());
        let takes_hashes = (by_hash || by_number).then_some(by_hash);
        let work_per_call = TimelyLimit::of(self.work_per_call());
        self.learn(NodeTraits { takes_hashes, work_per_call, ..NodeTraits::default() });
    }

    /// Records that the current endpoint has answered `answered` of the `requests` of a batch.
    pub(super) fn learn_batch(&mut self, answered: usize, requests: usize) {
        if answered == 0 {
            return;
        }
        let known = self.traits();
        let limit = known.requests_per_batch.or((answered > 1).then_some(usize::MAX));
        let answered = known.answered_requests.unwrap_or_default().max(requests);
        let (requests_per_batch, answered_requests) = (limit, Some(answered));
        self.learn(NodeTraits { requests_per_batch, answered_requests, ..NodeTraits::default() });
    }

    /// Returns the current limit of agents or calls per `eth_call`.
    pub(super) fn work_per_call(&self) -> u64 {
        let known = self.traits().work_per_call.limit();
        self.health().work_per_call.map_or(known, |work| work.min(known))
    }

    /// Records a time-out of the current endpoint, for calls of which the largest has `sent` agents or calls.
    /// The first time is the endpoint's fault; from the second on, calls are made smaller: true.
    pub(super) fn time_out(&mut self, sent: u64) -> bool {
        let (current, work) = (self.current(), self.work_per_call().min(sent));
        let Some(health) = self.health.get_mut(current) else { return false };
        health.time_outs += 1;
        let few = if health.work_per_call.is_some() { 1 } else { FEW_CALLS };
        let is_smaller = health.time_outs > 1 && work > few;
        if is_smaller {
            let smaller = (work.min(MOST_WORK_AFTER_TIME_OUTS * 4) / 4).max(1);
            health.work_per_call = Some(smaller);
            // The next run need not find that out, even if this one ends without an answer.
            let work_per_call = TimelyLimit::of(smaller.max(FEW_CALLS));
            self.learn(NodeTraits { work_per_call, ..NodeTraits::default() });
        }
        is_smaller
    }

    /// Returns the blocks per `eth_getLogs` that the current endpoint answers in time, as far as is known.
    pub(super) fn log_blocks(&self) -> u64 {
        self.traits().log_blocks.limit()
    }

    /// Records that the current endpoint has answered logs of a range of `blocks` blocks.
    pub(super) fn learn_logs(&mut self, blocks: u64) {
        let log_blocks = self.traits().log_blocks.answered(blocks);
        self.learn(NodeTraits { logs: Some(true), log_blocks, ..NodeTraits::default() });
    }

    /// Returns whether another endpoint has no fault and is not known to lack logs.
    pub(super) fn may_leave_for_logs(&self) -> bool {
        let others = self.health.iter().zip(&self.known.traits).enumerate();
        let may_serve = |(place, (health, traits)): (usize, (&EndpointHealth, &NodeTraits))| {
            place != self.current() && health.faults == 0 && traits.logs != Some(false)
        };
        others.into_iter().any(may_serve)
    }

    /// Records that the current endpoint answers headers though it did not answer logs, and what that shows.
    pub(super) fn answers_headers(&mut self, learned: NodeTraits) {
        self.learn(learned);
        self.change_health(|health| health.answers_headers = true);
    }

    /// Returns whether the current endpoint has answered headers in this run though it did not answer logs.
    pub(super) fn has_answered_headers(&self) -> bool {
        self.health().answers_headers
    }

    /// Returns the number of endpoints to fail over to.
    pub(super) const fn others(&self) -> u32 {
        self.known.traits.len().saturating_sub(1) as u32
    }

    /// Switches to an endpoint that answered sooner, for this run alone: the host goes on preferring its own
    /// one, unless that had a fault.
    pub(super) fn stay_with(&mut self, endpoint: usize) {
        let is_listed = endpoint <= self.others() as usize;
        let Endpoints { preferred, published, .. } = &mut self.known;
        if is_listed && endpoint != *preferred {
            if self.health.get(*published).is_none_or(|health| health.faults == 0) {
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

    /// Counts a fault against the current endpoint, and returns its index.
    fn count_fault(&mut self, lasting: bool) -> usize {
        self.change_health(|health| {
            health.faults += 1;
            health.out |= lasting;
        });
        self.current()
    }

    /// Records an error of the current endpoint, for the run's final error.
    pub(super) fn note(&mut self, error: RunError, lasting: bool) {
        if lasting || !self.last_fault.as_ref().is_some_and(|fault| fault.lasting) {
            self.last_fault = Some(EndpointFault { endpoint: self.current(), error, lasting });
        }
    }

    /// Fails over from the current endpoint, which lacks a block. Another may have it, but a lagging endpoint
    /// is preferred to a failed one.
    pub(super) fn lacks_block(&mut self) {
        let endpoint = self.count_fault(false);
        self.switch(endpoint);
    }

    /// Handles a too large reply of the current endpoint. True if another endpoint is asked next: its reply
    /// may be smaller. If all replies are too large, so is the request: the run returns to the first of them.
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

    /// Returns the endpoint with the fewest faults that is neither ruled out nor in `but`; ties go to the
    /// first from `start` on.
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
        self.learn(NodeTraits { knows_chain: Some(true), ..NodeTraits::default() });
        Ok(())
    }

    /// Returns whether the current endpoint is known to be on the expected chain, if any is expected.
    pub(super) fn knows_chain(&self) -> bool {
        self.known.chain_id.is_none() || self.traits().knows_chain == Some(true)
    }

    fn compare_chain(&self, found: Option<u64>) -> Result<(), RunError> {
        match (self.known.chain_id, found) {
            (None, _) => Ok(()),
            (Some(expected), Some(found)) if found == expected => Ok(()),
            (Some(expected), Some(found)) => Err(RunError::WrongChain { found, expected }),
            (Some(_), None) => Err(RunError::MulticallLacks { function: getChainIdCall::SIGNATURE }),
        }
    }

    /// Takes the run's final error: the only endpoint's, or of several the last lasting one, else the last.
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
