//! Parses a reply to calls into results, work to retry, and findings about the node's limits. Parsing has no
//! side effects: the [engine](super::engine) applies the outcome.

use std::collections::BTreeMap;

use alloy_primitives::{Address, Bytes, hex};

use super::{
    batch::{InFlight, Job, PendingCall, Reply, SentJob},
    block::{Header, HeaderOf},
    error::RunError,
    marker::Marker,
    node_error::{ErrorContext, Recovery, RequestKind, is_about_the_batch, is_overload, may_pass, recovery},
    view::CallResult,
    walk::WalkKey,
};
use crate::{
    chain::lens::{Detail, Method, Slice, Span},
    eth::abi::{
        self,
        IAgentRegistry::{getAgentCall, getRevenueHistoryCall},
    },
    eth::multicall::{self, CallOutcome},
    eth::rpc::{
        self, BadReply, ErrorPayload,
        read_error::{Action, classify, is_timeout},
        revert::Revert,
    },
    eth::spelled::hex_digits,
    registry::revenue::RevenueAggregate,
    registry::row::{Row, RowDetail},
};

/// A result, with its block's marker if it has one.
#[derive(Debug)]
pub(super) struct MarkedResult {
    pub(super) result: JobResult,
    pub(super) marker: Option<Marker>,
}

#[derive(Debug)]
pub(super) enum JobResult {
    Call(PendingCall, CallResult),
    Walk(WalkKey, Span, Slice),
}

impl JobResult {
    /// Returns the job that the result is of, to be done again.
    pub(super) fn into_job(self) -> Job {
        match self {
            Self::Call(call, _) => Job::Calls(vec![call]),
            Self::Walk(key, span, _) => Job::Walk(key, span),
        }
    }
}

/// The content of a usable reply.
#[derive(Debug, Default)]
pub(super) struct ParsedReply {
    pub(super) results: Vec<MarkedResult>,
    /// Jobs to retry, some of them split.
    pub(super) again: Vec<Job>,
    /// Spans of walks that the node cannot execute.
    pub(super) refused: Vec<(WalkKey, Span)>,
    pub(super) headers: Vec<Header>,
    /// The number of the newest finalized block.
    pub(super) finalized: Option<u64>,
    pub(super) markers: Vec<Marker>,
    /// The node does not know the block.
    pub(super) lacks_block: bool,
    /// Reads by number are tried, because one by hash failed.
    pub(super) by_number: bool,
    /// The node does not support the method of walking agents.
    pub(super) lacks_method: bool,
    /// Requests that have a result.
    pub(super) answered: usize,
    /// The method by which agents were walked.
    pub(super) used_method: Option<Method>,
    /// The node's limit of requests per batch.
    pub(super) requests_per_batch: Option<usize>,
    /// The reply shows at least how to ask next.
    pub(super) progress: bool,
    /// A transient error, or one that may refuse the batch for its size.
    pub(super) passing: Option<RunError>,
    /// The node has run out of time.
    pub(super) timed_out: bool,
    /// An error was taken for a transient one.
    pub(super) is_refused: bool,
    /// The node could not execute a call.
    pub(super) is_too_much: bool,
}

/// A reply being parsed.
struct ReplyParser<'a> {
    in_flight: &'a InFlight,
    status: u16,
    requests: usize,
    /// Every answered request of the batch has an error, and the node may refuse batches of this size.
    may_be_batch: bool,
    multicall3: Address,
    node: NodeFacts,
    parsed: ParsedReply,
}

/// Facts about the node that a reply is from.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeFacts {
    /// It has answered reads that were pinned by hash.
    pub(super) takes_hashes: bool,
    /// It gave an error before that was taken for a transient one.
    pub(super) has_refused: bool,
    /// Size of the largest batch of which it has answered any request.
    pub(super) answered_requests: usize,
    /// Contracts see another chain's blocks.
    pub(super) sees_other_blocks: bool,
    /// The query is about a certain block.
    pub(super) is_at_block: bool,
}

impl ParsedReply {
    /// Parses the reply to `in_flight`. An error means that this endpoint is ruled out.
    pub(super) fn of(
        in_flight: &InFlight,
        reply: Reply<'_>,
        multicall3: Address,
        node: NodeFacts,
    ) -> Result<Self, RunError> {
        let requests = in_flight.requests();
        let ids: Vec<u64> = (0..requests as u64).collect();
        let status = reply.status;
        let (may_be_batch, parsed) = (false, Self::default());
        let mut parser = ReplyParser { in_flight, status, requests, may_be_batch, multicall3, node, parsed };
        match rpc::decode(reply.body, &ids) {
            Ok(mut outcomes) => parser.outcomes(&mut outcomes)?,
            Err(BadReply::Refused(error)) => parser.refusal(&error)?,
            Err(BadReply::Malformed) if status == 413 && requests == 1 => {
                let message = "request entity too large".into();
                parser.refusal(&ErrorPayload { code: 413, message, data: None })?;
            }
            Err(BadReply::Malformed) => {
                let may_be_batch = is_about_the_batch(status) || (node.has_refused && !is_overload(status));
                parser.parsed.is_refused = !is_overload(status);
                let is_json_missing = (200..300).contains(&status);
                let error = if is_json_missing { RunError::Malformed } else { RunError::Http(status) };
                match requests > 1 && may_be_batch {
                    true => parser.parsed.halve(requests),
                    false if is_json_missing || may_pass(status) => {}
                    false => return Err(error),
                }
                parser.parsed.passing = Some(error);
                parser.parsed.again = in_flight.jobs.iter().map(|sent| sent.job.clone()).collect();
            }
        }
        Ok(parser.parsed)
    }

    /// Returns whether a gateway gave up on the node: no request has a result.
    pub(super) fn is_gateway_timeout(reply: Reply<'_>, requests: usize) -> bool {
        let ids: Vec<u64> = (0..requests as u64).collect();
        let has_result =
            || rpc::decode(reply.body, &ids).is_ok_and(|found| found.values().any(Result::is_ok));
        matches!(reply.status, 504 | 524) && !has_result()
    }

    /// Halves the requests per batch, down to one: the batch was too large, or batches are not supported.
    fn halve(&mut self, requests: usize) {
        self.requests_per_batch = Some((requests / 2).max(1));
        self.progress = true;
    }
}

impl ReplyParser<'_> {
    fn outcomes(&mut self, outcomes: &mut BTreeMap<u64, rpc::RpcResult<'_>>) -> Result<(), RunError> {
        let in_flight = self.in_flight;
        self.parsed.answered = outcomes.values().filter(|outcome| outcome.is_ok()).count();
        self.may_be_batch = self.parsed.answered == 0 && self.requests > self.node.answered_requests.max(1);
        for (id, of) in (0..).zip(&in_flight.headers) {
            if let Some(outcome) = outcomes.remove(&id) {
                self.header(*of, outcome)?;
            }
        }
        if self.parsed.lacks_block {
            // Without the block, the errors of its calls add nothing, whatever their messages.
            self.parsed.again.extend(in_flight.jobs.iter().map(|sent| sent.job.clone()));
            return Ok(());
        }
        let is_answered = |sent: &SentJob| matches!(outcomes.get(&sent.id), Some(Ok(_)));
        self.node.takes_hashes |= in_flight.by_hash && in_flight.jobs.iter().any(is_answered);
        for SentJob { id, job } in &in_flight.jobs {
            match (job, outcomes.remove(id)) {
                (Job::Suspect(call), Some(outcome)) => match outcomes.remove(&(id + 1)) {
                    Some(direct) => self.suspect(call, outcome, direct)?,
                    None => self.parsed.again.push(job.clone()),
                },
                (job, Some(Ok(result))) => self.result(job, result)?,
                (job, Some(Err(error))) => self.node_error(job, &error)?,
                (job, None) => self.parsed.again.push(job.clone()),
            }
        }
        Ok(())
    }

    fn header(&mut self, of: HeaderOf, outcome: rpc::RpcResult<'_>) -> Result<(), RunError> {
        match outcome {
            // Without finality a node answers an error or null: the block counts as one that may change.
            outcome if of == HeaderOf::Finalized => {
                let header: Option<Option<Header>> =
                    outcome.ok().and_then(|result| serde_json::from_str(result).ok());
                self.parsed.finalized = header.flatten().map(|header| header.number);
                Ok(())
            }
            Ok(result) => {
                let header: Option<Header> = serde_json::from_str(result).map_err(|_| RunError::Malformed)?;
                // A node behind a load balancer that has not seen the block yet answers null.
                let is_only =
                    self.in_flight.headers.iter().filter(|of| **of != HeaderOf::Finalized).count() == 1;
                self.parsed.lacks_block |= header.is_none() && is_only;
                if header.is_some_and(|header| !header.is_of(of)) {
                    return Err(RunError::Malformed);
                }
                self.parsed.headers.extend(header);
                Ok(())
            }
            Err(error) => self.apply(recovery(&error, RequestKind::Header, self.context()), None, &error),
        }
    }

    fn result(&mut self, job: &Job, result: &str) -> Result<(), RunError> {
        let data = call_result(result).ok_or(RunError::Malformed)?;
        match job {
            // The node ignored the state override.
            Job::Calls(_) if data.is_empty() && self.runs_lens(job) => {
                self.parsed.lacks_method = true;
                self.parsed.again.push(job.clone());
            }
            Job::Calls(calls) => self.calls(calls, &data)?,
            Job::Suspect(call) | Job::Direct(call) => {
                // The block of an unpinned direct call is unknown, so its data cannot be used.
                let by_hash = self.in_flight.by_hash;
                self.push_call(
                    call,
                    if by_hash { CallResult::Returned(data) } else { CallResult::TooHeavy },
                    None,
                );
            }
            Job::Walk(key, span) if self.in_flight.method == Method::Multicall => {
                self.getters(key, *span, &data)?;
            }
            Job::Walk(key, span) => match Slice::decode(&data, span.first, key.detail) {
                // The first agent gets all available gas, so an empty slice is a walk beyond the end.
                Some(slice) => {
                    let marker = self.seen(slice.marker);
                    self.parsed.used_method = Some(self.in_flight.method);
                    self.push(JobResult::Walk(key.clone(), *span, slice), Some(marker));
                }
                // The node ignored the state override, or returned something else altogether.
                None => {
                    self.parsed.lacks_method = true;
                    self.parsed.again.push(job.clone());
                }
            },
        }
        Ok(())
    }

    /// Records a marker, without the fields that are of another chain's blocks.
    fn seen(&mut self, marker: Marker) -> Marker {
        let marker = if self.node.sees_other_blocks { marker.without_block() } else { marker };
        self.parsed.markers.push(marker);
        marker
    }

    /// Returns the results in `aggregate3` return data, after the marker.
    fn aggregate(&mut self, data: &Bytes, count: usize) -> Result<(Vec<CallOutcome>, Marker), RunError> {
        if data.is_empty() {
            return Err(RunError::NoMulticall(self.multicall3));
        }
        let mut outcomes = multicall::unpack(data).ok_or(RunError::Malformed)?.into_iter();
        let marker = Marker::take(&mut outcomes);
        if outcomes.len() != count {
            return Err(RunError::Malformed);
        }
        Ok((outcomes.collect(), self.seen(marker)))
    }

    fn calls(&mut self, calls: &[PendingCall], data: &Bytes) -> Result<(), RunError> {
        /// A chunk below this size is not split further: each call without a reason becomes a suspect.
        const FEW: usize = 8;
        let count = calls.len();
        let (outcomes, marker) = self.aggregate(data, count)?;
        for (call, outcome) in calls.iter().zip(outcomes) {
            match outcome {
                CallOutcome::Returned(data) => self.push_call(call, CallResult::Returned(data), Some(marker)),
                CallOutcome::Reverted(revert) => {
                    self.push_call(call, CallResult::Reverted(revert), Some(marker));
                }
                CallOutcome::Ambiguous => {
                    let call = call.clone();
                    let call = if count < FEW { call.suspected() } else { call.split(count) };
                    self.parsed.again.push(Job::Calls(vec![call]));
                    self.parsed.progress = true;
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, result: JobResult, marker: Option<Marker>) {
        self.parsed.results.push(MarkedResult { result, marker });
    }

    fn push_call(&mut self, call: &PendingCall, result: CallResult, marker: Option<Marker>) {
        self.push(JobResult::Call(call.clone(), result), marker);
    }

    /// Handles the results of a suspect: through Multicall3, and directly.
    fn suspect(
        &mut self,
        call: &PendingCall,
        outcome: rpc::RpcResult<'_>,
        direct: rpc::RpcResult<'_>,
    ) -> Result<(), RunError> {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return self.node_error(&Job::Suspect(call.clone()), &error),
        };
        let data = call_result(result).ok_or(RunError::Malformed)?;
        let (outcomes, marker) = self.aggregate(&data, 1)?;
        let result = match outcomes.into_iter().next() {
            Some(CallOutcome::Returned(data)) => CallResult::Returned(data),
            Some(CallOutcome::Reverted(revert)) => CallResult::Reverted(revert),
            Some(CallOutcome::Ambiguous) | None => match direct {
                Ok(result) => return self.result(&Job::Direct(call.clone()), result),
                Err(error) => match Revert::from_error(&error) {
                    Some(revert) => CallResult::Reverted(revert),
                    None if matches!(classify(&error), Action::Split) => CallResult::TooHeavy,
                    None => return self.node_error(&Job::Suspect(call.clone()), &error),
                },
            },
        };
        self.push_call(call, result, Some(marker));
        Ok(())
    }

    /// Reads a span from the getters' own return data.
    fn getters(&mut self, key: &WalkKey, span: Span, data: &Bytes) -> Result<(), RunError> {
        let reads = if key.detail.has_revenue() { 2 } else { 1 };
        let count = usize::try_from(span.count).unwrap_or(usize::MAX).saturating_mul(reads);
        let (outcomes, marker) = self.aggregate(data, count)?;
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
            let mut full = readable.map(|record| RowDetail::of(&record, &[])).unwrap_or_default();
            row.history_is_readable = !key.detail.has_revenue();
            // An agent that is read again alone must not count twice.
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
                // This agent may have used up the gas of those behind it.
                break;
            }
        }
        slice.take_sums(revenue);
        self.push(JobResult::Walk(key.clone(), span, slice), Some(marker));
        Ok(())
    }

    /// Applies one error for the whole batch.
    fn refusal(&mut self, error: &ErrorPayload) -> Result<(), RunError> {
        let (in_flight, context) = (self.in_flight, ErrorContext { is_for_all: true, ..self.context() });
        if in_flight.jobs.is_empty() {
            return self.apply(recovery(error, RequestKind::Header, context), None, error);
        }
        in_flight.jobs.iter().try_for_each(|SentJob { job, .. }| {
            let context = ErrorContext { runs_lens: self.runs_lens(job), ..context };
            self.apply(recovery(error, RequestKind::of(job), context), Some(job), error)
        })
    }

    /// Applies an error for one request.
    fn node_error(&mut self, job: &Job, error: &ErrorPayload) -> Result<(), RunError> {
        self.apply(recovery(error, RequestKind::of(job), self.context_of(job)), Some(job), error)
    }

    /// Returns whether a job ran a contract that is not deployed, so that another method may help it.
    fn runs_lens(&self, job: &Job) -> bool {
        self.in_flight.method != Method::Multicall && job.runs_lens()
    }

    const fn context(&self) -> ErrorContext {
        let by_hash = self.in_flight.by_hash;
        let (status, requests) = (self.status, self.requests);
        let tries_numbers = by_hash && !self.node.takes_hashes;
        let NodeFacts { has_refused, is_at_block, .. } = self.node;
        ErrorContext {
            status,
            requests,
            is_for_all: false,
            may_be_batch: self.may_be_batch,
            by_hash,
            tries_numbers,
            has_refused,
            is_at_block,
            runs_lens: false,
        }
    }

    fn context_of(&self, job: &Job) -> ErrorContext {
        ErrorContext { runs_lens: self.runs_lens(job), ..self.context() }
    }

    fn apply(&mut self, recovery: Recovery, job: Option<&Job>, error: &ErrorPayload) -> Result<(), RunError> {
        self.parsed.is_too_much |=
            matches!(recovery, Recovery::Cut | Recovery::TooHeavy | Recovery::Reverted);
        match (recovery, job) {
            (Recovery::Cut, Some(Job::Walk(key, span))) => {
                self.parsed.refused.push((key.clone(), *span));
                self.parsed.progress = true;
            }
            (Recovery::Cut, Some(Job::Calls(calls))) => {
                let smaller = calls.iter().map(|call| Job::Calls(vec![call.clone().split(calls.len())]));
                self.parsed.again.extend(smaller);
                self.parsed.progress = true;
            }
            (Recovery::TooHeavy, Some(Job::Calls(calls))) => {
                calls.iter().for_each(|call| self.push_call(call, CallResult::TooHeavy, None));
            }
            (Recovery::TooHeavy, Some(Job::Suspect(call) | Job::Direct(call))) => {
                self.push_call(call, CallResult::TooHeavy, None);
            }
            (Recovery::Reverted, Some(Job::Direct(call))) => {
                let revert = Revert::from_error(error).unwrap_or_default();
                self.push_call(call, CallResult::Reverted(revert), None);
            }
            // Each call of a chunk may fail: the chunk itself never reverts.
            (Recovery::End, Some(Job::Calls(_)))
                if !self.node.is_at_block && Revert::from_error(error).is_some() =>
            {
                return Err(RunError::NoMulticall(self.multicall3));
            }
            // No other job reaches these.
            (Recovery::End | Recovery::Cut | Recovery::TooHeavy | Recovery::Reverted, _) => {
                return Err(RunError::node(error));
            }
            (passing, job) => {
                match passing {
                    Recovery::NextMethod => self.parsed.lacks_method = true,
                    Recovery::HalveBatch => {
                        self.parsed.halve(self.requests);
                        // Unless it names batches, the error may be about what the batch asks.
                        let is_told = classify(error) == Action::SmallerBatch;
                        self.parsed.passing = (!is_told).then(|| RunError::node(error));
                    }
                    Recovery::PinByNumber => {
                        self.parsed.by_number = true;
                        self.parsed.progress = true;
                    }
                    Recovery::Repin => self.parsed.lacks_block = true,
                    _ => {
                        self.parsed.timed_out |= is_timeout(error);
                        self.parsed.is_refused = true;
                        self.parsed.passing = Some(RunError::node(error));
                    }
                }
                self.parsed.again.extend(job.cloned());
            }
        }
        Ok(())
    }
}

/// Returns the bytes of an `eth_call` result.
fn call_result(result: &str) -> Option<Bytes> {
    hex::decode(hex_digits(result.strip_prefix('"')?.strip_suffix('"')?)?).ok().map(Bytes::from)
}
