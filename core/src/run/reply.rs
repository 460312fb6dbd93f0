//! What a reply comes to: answers, work to ask again, and what was learned about how to ask. Reading one changes
//! nothing; [`Run`](super::Run) draws the conclusions.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, hex};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    RunError,
    batch::{Flight, Job, Pending, Posted, Reply},
    marker::Marker,
    view::{Outcome, WalkKey},
};
use crate::{
    abi::{
        self,
        IAgentRegistry::{getAgentCall, getRevenueHistoryCall},
    },
    lens::{Detail, Full, Method, Row, Slice, Span},
    multicall::{self, CallOutcome},
    revenue::RevenueAggregate,
    rpc::{
        self, BadReply, ErrorObject,
        classify::{Action, classify},
        revert::Revert,
    },
};

/// As much of a block header as pinning needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Its height.
    #[serde(deserialize_with = "quantity")]
    pub number: u64,
    /// Its hash.
    #[serde(deserialize_with = "hash")]
    pub hash: B256,
    /// The hash of the block before.
    #[serde(deserialize_with = "hash")]
    pub parent_hash: B256,
    /// Unix seconds; several blocks may share one.
    #[serde(default, deserialize_with = "quantity")]
    pub timestamp: u64,
}

/// An answer that just came in, and what it says of its block.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) answer: Answered,
    pub(super) parent: Option<B256>,
}

#[derive(Debug)]
pub(super) enum Answered {
    Call(Pending, Outcome),
    Walk(WalkKey, Span, Slice),
}

impl Answered {
    /// The work it was the answer to.
    pub(super) fn into_job(self) -> Job {
        match self {
            Self::Call(pending, _) => Job::Calls(vec![pending]),
            Self::Walk(key, span, _) => Job::Walk(key, span),
        }
    }
}

/// What a reply that is of any use comes to.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) fresh: Vec<Fresh>,
    /// Work that is not done yet, some of it to be done in smaller pieces.
    pub(super) again: Vec<Job>,
    /// Pieces of walks that the node cannot carry out.
    pub(super) refused: Vec<(WalkKey, Span)>,
    pub(super) headers: Vec<Header>,
    pub(super) markers: Vec<Marker>,
    /// The node does not know the block.
    pub(super) lacks_block: bool,
    /// The node does not take block hashes.
    pub(super) by_number: bool,
    /// The node does not walk agents by the method it was asked to.
    pub(super) lacks_method: bool,
    /// The node takes no more requests than this in one batch.
    pub(super) requests_per_batch: Option<usize>,
    /// Something was learned about how to ask, if nothing else.
    pub(super) progress: bool,
    /// What kept the node from answering, and may pass.
    pub(super) passing: Option<RunError>,
}

/// A reply being read.
struct Reading<'a> {
    flight: &'a Flight,
    status: u16,
    multicall3: Address,
    findings: Findings,
}

impl Findings {
    /// Reads the reply to `flight`.
    ///
    /// # Errors
    ///
    /// [`RunError`] where this endpoint will not answer, however often it is asked; the flight comes back with it.
    pub(super) fn of(
        mut flight: Flight,
        reply: Reply<'_>,
        multicall3: Address,
    ) -> Result<Self, (RunError, Vec<Job>)> {
        let jobs = std::mem::take(&mut flight.jobs);
        let requests = flight.requests() + jobs.iter().map(|posted| posted.job.requests()).sum::<usize>();
        let ids: Vec<u64> = (0..requests as u64).collect();
        let status = reply.status;
        let mut reading = Reading { flight: &flight, status, multicall3, findings: Self::default() };
        let bad = match rpc::decode(reply.body, &ids) {
            Ok(mut outcomes) => {
                return match reading.outcomes(&mut outcomes, jobs, requests) {
                    Ok(()) => Ok(reading.findings),
                    Err((error, mut jobs)) => {
                        jobs.append(&mut reading.findings.again);
                        let undone = reading.findings.fresh.into_iter().map(|fresh| fresh.answer.into_job());
                        jobs.extend(undone);
                        jobs.extend(
                            reading.findings.refused.into_iter().map(|(key, span)| Job::Walk(key, span)),
                        );
                        Err((error, jobs))
                    }
                };
            }
            Err(bad) => bad,
        };
        let all: Vec<Job> = jobs.into_iter().map(|posted| posted.job).collect();
        match bad {
            BadReply::Refused(error) if requests > 1 && may_be_the_batch(&error, status) => {
                reading.findings.halve(requests);
                reading.findings.again = all;
            }
            BadReply::Refused(error) => reading.refusal(all, &error, requests)?,
            BadReply::Malformed if status == 413 && requests > 1 => {
                reading.findings.halve(requests);
                reading.findings.again = all;
            }
            BadReply::Malformed => {
                let error = match status {
                    200..300 => RunError::Malformed,
                    status if may_pass(status) => RunError::Http(status),
                    status => return Err((RunError::Http(status), all)),
                };
                reading.findings.passing = Some(error);
                reading.findings.again = all;
            }
        }
        Ok(reading.findings)
    }

    /// Too large a batch, or none allowed: half as many requests, in the end one by one.
    fn halve(&mut self, requests: usize) {
        self.requests_per_batch = Some(requests / 2);
        self.progress = true;
    }
}

type Ends<T> = Result<T, (RunError, Vec<Job>)>;

impl Reading<'_> {
    fn outcomes(
        &mut self,
        outcomes: &mut BTreeMap<u64, rpc::Outcome<'_>>,
        jobs: Vec<Posted>,
        requests: usize,
    ) -> Ends<()> {
        let mut jobs = jobs.into_iter();
        let ends = (0..self.flight.headers.len() as u64)
            .try_for_each(|id| match outcomes.remove(&id) {
                Some(outcome) => self.header(outcome, requests),
                None => Ok(()),
            })
            .and_then(|()| {
                jobs.by_ref().try_for_each(|Posted { id, job }| {
                    let (outcome, second) = (outcomes.remove(&id), outcomes.remove(&(id + 1)));
                    match job {
                        Job::Suspect(pending) => self.suspect(pending, outcome, second, requests),
                        job => {
                            // It belongs to the next job.
                            outcomes.extend(second.map(|second| (id + 1, second)));
                            match outcome {
                                Some(Ok(result)) => self.result(job, result),
                                Some(Err(error)) => self.node_error(job, &error, requests),
                                None => {
                                    self.findings.again.push(job);
                                    Ok(())
                                }
                            }
                        }
                    }
                })
            });
        ends.map_err(|(error, mut undone)| {
            undone.extend(jobs.map(|posted| posted.job));
            (error, undone)
        })
    }

    fn header(&mut self, outcome: rpc::Outcome<'_>, requests: usize) -> Ends<()> {
        match outcome {
            Ok(result) => {
                let header: Option<Header> =
                    serde_json::from_str(result).map_err(|_| (RunError::Malformed, Vec::new()))?;
                // A node behind a load balancer that has not seen the block yet answers null.
                self.findings.lacks_block |= header.is_none() && self.flight.headers.len() == 1;
                self.findings.headers.extend(header);
                Ok(())
            }
            Err(error) => self.refusal(Vec::new(), &error, requests),
        }
    }

    fn result(&mut self, job: Job, result: &str) -> Ends<()> {
        let Some(data) = call_result(result) else { return Err((RunError::Malformed, vec![job])) };
        match job {
            Job::Calls(pending) => self.calls(pending, &data),
            Job::Suspect(pending) | Job::Direct(pending) => {
                // Which block an unpinned call read is unknown, so its data is of no use.
                let by_hash = self.flight.by_hash;
                self.fresh(pending, if by_hash { Outcome::Returned(data) } else { Outcome::TooHeavy }, None);
                Ok(())
            }
            Job::Walk(key, span) if self.flight.method == Method::Multicall => self.getters(key, span, &data),
            Job::Walk(key, span) => {
                match Slice::decode(&data, span.first, key.detail) {
                    // The first agent is read with all the gas there is, so none at all is a walk beyond the end.
                    Some(slice) => {
                        self.findings.markers.push(slice.marker);
                        let parent = slice.marker.parent;
                        self.findings.fresh.push(Fresh { answer: Answered::Walk(key, span, slice), parent });
                    }
                    // No code where the override should have put it, or something else altogether.
                    None => {
                        self.findings.lacks_method = true;
                        self.findings.again.push(Job::Walk(key, span));
                    }
                }
                Ok(())
            }
        }
    }

    /// The outcomes in an `aggregate3` result, behind its marker.
    fn aggregate(
        &mut self,
        data: &Bytes,
        count: usize,
    ) -> Result<(Vec<CallOutcome>, Option<B256>), RunError> {
        if data.is_empty() {
            return Err(RunError::NoMulticall(self.multicall3));
        }
        let mut outcomes = multicall::unpack(data).ok_or(RunError::Malformed)?.into_iter();
        let marker = self.flight.marked.then(|| Marker::take(&mut outcomes));
        if outcomes.len() != count {
            return Err(RunError::Malformed);
        }
        self.findings.markers.extend(marker);
        Ok((outcomes.collect(), marker.and_then(|marker| marker.parent)))
    }

    fn calls(&mut self, calls: Vec<Pending>, data: &Bytes) -> Ends<()> {
        /// Chunks below this size are not split further: each of their silent calls is asked why.
        const FEW: usize = 8;
        let count = calls.len();
        let (outcomes, parent) = match self.aggregate(data, count) {
            Ok(read) => read,
            Err(error) => return Err((error, vec![Job::Calls(calls)])),
        };
        for (pending, outcome) in calls.into_iter().zip(outcomes) {
            match outcome {
                CallOutcome::Returned(data) => self.fresh(pending, Outcome::Returned(data), parent),
                CallOutcome::Reverted(revert) => self.fresh(pending, Outcome::Reverted(revert), parent),
                CallOutcome::Ambiguous => {
                    let pending = if count < FEW { pending.suspected() } else { pending.split(count) };
                    self.findings.again.push(Job::Calls(vec![pending]));
                    self.findings.progress = true;
                }
            }
        }
        Ok(())
    }

    fn fresh(&mut self, pending: Pending, outcome: Outcome, parent: Option<B256>) {
        self.findings.fresh.push(Fresh { answer: Answered::Call(pending, outcome), parent });
    }

    /// A call that failed without a word: through Multicall3, and directly.
    fn suspect(
        &mut self,
        pending: Pending,
        outcome: Option<rpc::Outcome<'_>>,
        direct: Option<rpc::Outcome<'_>>,
        requests: usize,
    ) -> Ends<()> {
        let (outcome, direct) = match (outcome, direct) {
            (Some(outcome), Some(direct)) => (outcome, direct),
            _ => {
                self.findings.again.push(Job::Suspect(pending));
                return Ok(());
            }
        };
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return self.node_error(Job::Suspect(pending), &error, requests),
        };
        let read = call_result(result).ok_or(RunError::Malformed).and_then(|data| self.aggregate(&data, 1));
        let (outcomes, parent) = match read {
            Ok(read) => read,
            Err(error) => return Err((error, vec![Job::Suspect(pending)])),
        };
        let outcome = match outcomes.into_iter().next() {
            Some(CallOutcome::Returned(data)) => Outcome::Returned(data),
            Some(CallOutcome::Reverted(revert)) => Outcome::Reverted(revert),
            Some(CallOutcome::Ambiguous) | None => match direct {
                Ok(result) => return self.result(Job::Direct(pending), result),
                Err(error) => match Revert::from_error(&error) {
                    Some(revert) => Outcome::Reverted(revert),
                    None if matches!(classify(&error), Action::Split) => Outcome::TooHeavy,
                    None => return self.node_error(Job::Suspect(pending), &error, requests),
                },
            },
        };
        self.fresh(pending, outcome, parent);
        Ok(())
    }

    /// A piece of a walk through the getters themselves.
    fn getters(&mut self, key: WalkKey, span: Span, data: &Bytes) -> Ends<()> {
        let reads = if key.detail.has_revenue() { 2 } else { 1 };
        let count = usize::try_from(span.count).unwrap_or(usize::MAX).saturating_mul(reads);
        let (outcomes, parent) = match self.aggregate(data, count) {
            Ok(read) => read,
            Err(error) => return Err((error, vec![Job::Walk(key, span)])),
        };
        let mut slice = Slice::default();
        let mut revenue = RevenueAggregate::default();
        let mut outcomes = outcomes.into_iter();
        while let Some(record) = outcomes.next() {
            let history = if key.detail.has_revenue() { outcomes.next() } else { None };
            let silent = record == CallOutcome::Ambiguous || history == Some(CallOutcome::Ambiguous);
            let record = match record {
                CallOutcome::Returned(data) => abi::decode_returns::<getAgentCall>(&data).ok(),
                CallOutcome::Reverted(_) | CallOutcome::Ambiguous => None,
            };
            let mut row = record.as_ref().map_or(Row::UNREADABLE, Row::of);
            let readable = record.filter(|_| row.record_is_readable());
            let mut full = readable.map(|record| Full::of(&record, &[])).unwrap_or_default();
            row.history_is_readable = !key.detail.has_revenue();
            // Whoever is asked alone later would otherwise count twice.
            if let Some(CallOutcome::Returned(data)) = history
                && (span.count == 1 || row.record_is_readable())
                && let Ok(reports) = abi::decode_returns::<getRevenueHistoryCall>(&data)
            {
                row.history_is_readable = true;
                match key.detail {
                    Detail::Full => full.take_reports(&reports),
                    _ => reports.iter().for_each(|report| revenue.add(report)),
                }
            }
            slice.rows.push(row);
            if key.detail == Detail::Full {
                slice.full.push(full);
            }
            if silent && span.count > 1 {
                // It may have used up the gas of those behind it.
                break;
            }
        }
        slice.take_sums(revenue);
        self.findings.fresh.push(Fresh { answer: Answered::Walk(key, span, slice), parent });
        Ok(())
    }

    /// Does about a node's error what it calls for, where one job is concerned.
    fn node_error(&mut self, job: Job, error: &ErrorObject, requests: usize) -> Ends<()> {
        let action = classify(error);
        let too_much = match action {
            Action::Split | Action::Revert => true,
            Action::SmallerBatch => requests <= 1,
            _ => false,
        };
        match job {
            Job::Walk(key, span) if too_much => {
                self.findings.refused.push((key, span));
                self.findings.progress = true;
            }
            Job::Walk(key, span) if action == Action::GiveUp && self.flight.method != Method::Multicall => {
                self.findings.lacks_method = true;
                self.findings.again.push(Job::Walk(key, span));
            }
            Job::Calls(calls) if too_much && calls.len() > 1 => {
                let count = calls.len();
                let smaller = calls.into_iter().map(|pending| Job::Calls(vec![pending.split(count)]));
                self.findings.again.extend(smaller);
                self.findings.progress = true;
            }
            Job::Direct(pending) if action == Action::Revert => {
                let revert = Revert::from_error(error).unwrap_or_default();
                self.fresh(pending, Outcome::Reverted(revert), None);
            }
            Job::Calls(calls) if too_much && action != Action::Revert => {
                for pending in calls {
                    self.fresh(pending, Outcome::TooHeavy, None);
                }
            }
            Job::Suspect(pending) | Job::Direct(pending) if too_much => {
                self.fresh(pending, Outcome::TooHeavy, None);
            }
            job => return self.refusal(vec![job], error, requests),
        }
        Ok(())
    }

    /// Does about a node's error what it calls for, where it may concern several jobs.
    fn refusal(&mut self, jobs: Vec<Job>, error: &ErrorObject, requests: usize) -> Ends<()> {
        match classify(error) {
            Action::SmallerBatch if requests > 1 => self.findings.halve(requests),
            Action::Split | Action::SmallerBatch if !jobs.is_empty() => {
                return jobs.into_iter().try_for_each(|job| self.node_error(job, error, requests));
            }
            Action::Revert if jobs.iter().any(is_divisible) => {
                return jobs.into_iter().try_for_each(|job| self.node_error(job, error, requests));
            }
            Action::PinByNumber if self.flight.by_hash => {
                self.findings.by_number = true;
                self.findings.progress = true;
            }
            Action::Repin => self.findings.lacks_block = true,
            Action::Retry => self.findings.passing = Some(RunError::node(error)),
            Action::GiveUp if may_pass(self.status) => self.findings.passing = Some(RunError::node(error)),
            _ => return Err((RunError::node(error), jobs)),
        }
        self.findings.again.extend(jobs);
        Ok(())
    }
}

/// Whether a revert of the whole may be the fault of a part.
fn is_divisible(job: &Job) -> bool {
    !matches!(job, Job::Calls(calls) if calls.len() == 1)
}

/// Whether a refusal of everything may be about the batch, and not about what is in it or who asks.
fn may_be_the_batch(error: &ErrorObject, status: u16) -> bool {
    match classify(error) {
        Action::SmallerBatch | Action::Split => true,
        Action::GiveUp => !may_pass(status) && !matches!(status, 401..=403),
        _ => false,
    }
}

/// Whether a status tells of a trouble that may pass: RFC 9110 section 15, RFC 6585 for 429.
const fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..)
}

/// The bytes of an `eth_call`'s result.
fn call_result(result: &str) -> Option<Bytes> {
    let digits = result.strip_prefix("\"0x")?.strip_suffix('"')?;
    hex::decode(digits).ok().map(Bytes::from)
}

/// A JSON-RPC quantity.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.strip_prefix("0x").ok_or_else(|| D::Error::custom("no 0x"))?;
    u64::from_str_radix(digits, 16).map_err(D::Error::custom)
}

/// A 32-byte hash.
fn hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<B256, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}
