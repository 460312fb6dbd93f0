//! Checks of a reply before its results count, and the handling of a missing one.

use alloy_primitives::B256;
use alloy_sol_types::SolCall;

use super::{Engine, FEW_REQUESTS};
use crate::{
    chain::{
        batch::{Failure, InFlight, Job},
        block::{Header, ReadBlock},
        error::{QueryError, RunError},
        marker::Marker,
        node_traits::NodeTraits,
        reply::{NodeFacts, ParsedReply},
    },
    eth::{abi::IMulticall3::getCurrentBlockTimestampCall, as_of::BlockId},
};

impl Engine {
    /// Records that a batch has no reply, for this reason.
    pub(super) fn no_reply(
        &mut self,
        in_flight: InFlight,
        failure: Failure,
        error: RunError,
    ) -> Result<(), QueryError> {
        let requests = in_flight.requests();
        let (is_proof, work) = (!in_flight.proof.is_empty(), in_flight.most_work());
        let jobs: Vec<Job> = in_flight.into_jobs().collect();
        let before = self.rotation.current();
        if failure == Failure::TooLarge && self.rotation.try_another_size() {
            self.take_back(jobs);
            self.after_switch(before);
            return Ok(());
        }
        if failure == Failure::TooLarge && is_proof {
            return Err(QueryError::TooHeavy { function: "eth_getProof" });
        }
        if failure == Failure::TooLarge && requests > 1 {
            self.take_back(jobs);
            self.requests_per_batch = requests / 2;
            return Ok(());
        }
        if failure == Failure::TooLarge && !jobs.is_empty() {
            jobs.into_iter().for_each(|job| self.cut(job));
            return Ok(());
        }
        self.take_back(jobs);
        if failure == Failure::TimedOut {
            return self.timed_out(requests, work, error);
        }
        self.fault(error, false)
    }

    /// Handles a time-out of the current endpoint: a large batch is halved, and calls are smaller from the
    /// second time on. `work` is that of the largest call, 0 without any.
    pub(super) fn timed_out(
        &mut self,
        requests: usize,
        work: u64,
        error: RunError,
    ) -> Result<(), QueryError> {
        if requests > FEW_REQUESTS {
            self.requests_per_batch = requests / 2;
            return Ok(());
        }
        // Where each endpoint has had its chance, a smaller call is worth a try of its own.
        if work > 0 && self.rotation.time_out(work) && self.idle_rounds > self.rotation.others() {
            self.rotation.note(error, false);
            return Ok(());
        }
        self.fault(error, false)
    }

    /// Returns the error of a reply without results at the block asked about, if the node may lack only that
    /// block's state. Nodes say so with any message or status, for the calls or for the whole batch.
    pub(super) fn refusal(&self, checked: &Result<ParsedReply, RunError>) -> Option<RunError> {
        self.asked?;
        match checked {
            Err(error @ (RunError::Node { .. } | RunError::Http(_) | RunError::Malformed)) => {
                Some(error.clone())
            }
            // A transient error counts once it has persisted.
            Ok(parsed) if parsed.answered == 0 => {
                let may_be_batch = parsed.requests_per_batch.is_some();
                let is_idle = !parsed.progress && self.is_last_attempt();
                parsed.passing.clone().filter(|_| may_be_batch || is_idle)
            }
            _ => None,
        }
    }

    /// Handles a reply without results to calls, which are queued again. `tried`: the error of this batch at
    /// the block asked about, and whether that lasts, if the reply is from the newest block.
    pub(super) fn without_results(
        &mut self,
        checked: Result<ParsedReply, RunError>,
        tried: Option<(RunError, bool)>,
        refusal: Option<RunError>,
        by_hash: bool,
    ) -> Result<(), QueryError> {
        if let Some((error, is_lasting)) = tried {
            let (works, most) = checked.map_or((false, None), |parsed| {
                let is_header =
                    parsed.again.is_empty() && parsed.refused.is_empty() && !parsed.headers.is_empty();
                (!parsed.results.is_empty() || is_header, parsed.requests_per_batch)
            });
            self.works_at_newest = Some(works);
            // Otherwise the node refuses the batch.
            if works || (most.is_some() && !is_lasting) {
                self.rotation.learn(NodeTraits { requests_per_batch: most, ..NodeTraits::default() });
                return Ok(());
            }
            return self.fault(error, is_lasting);
        }
        match (refusal, self.works_at_newest, checked) {
            // The node may refuse the hash.
            (Some(_), Some(true), _) if by_hash && self.rotation.may_try_numbers() => {
                self.rotation.try_numbers(true);
                Ok(())
            }
            (Some(error), Some(true), _) => {
                self.fault(RunError::NoState { message: error.to_string() }, true)
            }
            (Some(error), None, checked) => {
                self.probe = Some((error, checked.is_err()));
                Ok(())
            }
            (_, _, checked) => checked.map(drop).or_else(|error| self.fault(error, true)),
        }
    }

    /// Returns whether a batch may be refused for its number of requests: the current endpoint has answered
    /// none of that size.
    pub(super) fn may_be_too_many(&self, requests: usize) -> bool {
        requests > 1 && requests > self.rotation.traits().answered_requests.unwrap_or_default()
    }

    /// Returns the facts about the current endpoint's node.
    pub(super) fn node(&self) -> NodeFacts {
        let traits = self.rotation.traits();
        NodeFacts {
            takes_hashes: self.rotation.needs_hashes(),
            has_refused: self.rotation.has_refused(),
            answered_requests: traits.answered_requests.unwrap_or_default(),
            is_at_block: self.asked.is_some(),
            sees_other_blocks: traits.sees_own_blocks == Some(false),
        }
    }

    /// Returns the hash of the block the query is about.
    pub(super) const fn asked_hash(&self) -> Option<B256> {
        match self.asked {
            Some(BlockId::Hash(hash)) => Some(hash),
            _ => None,
        }
    }

    /// Returns the header of the pinned block, or of the one that this reply pins.
    fn header_of(&self, parsed: &ParsedReply) -> Option<Header> {
        match self.block.pin() {
            Some(pin) => Some(pin.header),
            None if self.block.is_open() => parsed.headers.first().copied(),
            None => None,
        }
    }

    /// Returns whether the reply shows for the first time that contracts see another chain's blocks.
    pub(super) fn sees_other_blocks(&mut self, parsed: &ParsedReply) -> bool {
        let Some(header) =
            self.header_of(parsed).filter(|_| self.rotation.traits().sees_own_blocks.is_none())
        else {
            return false;
        };
        let sees_own = parsed.markers.iter().find_map(|marker| header.is_seen_by_contracts(marker));
        if sees_own.is_some() {
            self.rotation.learn(NodeTraits { sees_own_blocks: sees_own, ..NodeTraits::default() });
        }
        sees_own == Some(false)
    }

    /// Checks that a reply to calls at a certain block is of that block.
    pub(super) fn check_block(&self, parsed: &ParsedReply, in_flight: &InFlight) -> Result<(), RunError> {
        let is_newest = matches!(self.block, ReadBlock::Newest { .. }) || in_flight.is_probe;
        let Some(header) = self.header_of(parsed).filter(|_| !is_newest) else { return Ok(()) };
        let is_other = |marker: &Marker| {
            let is_known = self.rotation.traits().sees_own_blocks.is_some();
            let is_foreign = !is_known && header.is_seen_by_contracts(marker) == Some(false);
            let has_other_number = marker.number.is_some_and(|number| number != header.number);
            // By number, another block of the same number is a reorg's.
            header.is_of_marker(marker) == Some(false)
                && !is_foreign
                && (in_flight.by_hash || has_other_number)
        };
        if parsed.markers.iter().any(is_other) { Err(RunError::OtherBlock) } else { Ok(()) }
    }

    /// Checks chain id and freshness of a reply's block.
    pub(super) fn check(&mut self, marker: &Marker) -> Result<(), RunError> {
        self.rotation.check_chain(marker.chain_id)?;
        let is_older = self.asked.is_some() || self.block.pin().is_some_and(|pin| pin.is_older);
        let Some(freshness) = self.limits.freshness.filter(|_| !is_older) else { return Ok(()) };
        let function = getCurrentBlockTimestampCall::SIGNATURE;
        let read_at = marker.seconds.ok_or(RunError::MulticallLacks { function })?;
        let seconds = freshness.now.seconds().saturating_sub(read_at);
        if seconds > freshness.max_age_seconds { Err(RunError::StaleHead { seconds }) } else { Ok(()) }
    }
}
