//! What a reply comes to: answers, calls to ask again, and what was learned about how to ask. Reading one changes
//! nothing; [`Run`](super::Run) draws the conclusions.

use alloc::{string::String, vec::Vec};

use alloy_primitives::{Address, B256, Bytes, hex};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    RunError,
    batch::{Chunk, Flight, Pending, Reply},
    tag::Tag,
    view::Answer,
};
use crate::{
    multicall::{self, CallOutcome},
    rpc::{
        self, BadReply, ErrorObject,
        classify::{Action, classify},
    },
};

/// As much of a block header as pinning needs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    #[serde(deserialize_with = "quantity")]
    pub(super) number: u64,
    #[serde(deserialize_with = "hash")]
    pub(super) hash: B256,
    #[serde(deserialize_with = "hash")]
    pub(super) parent_hash: B256,
}

/// An answer that just came in, and under which parent hash it was read.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) pending: Pending,
    pub(super) answer: Answer,
    pub(super) parent: Option<B256>,
}

/// What a reply that is of any use comes to.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) fresh: Vec<Fresh>,
    /// Calls that are not answered yet, some of them to be asked in smaller chunks.
    pub(super) again: Vec<Pending>,
    pub(super) header: Option<Header>,
    pub(super) tags: Vec<Tag>,
    /// The node does not know the block.
    pub(super) lacks_block: bool,
    /// The node does not take block hashes.
    pub(super) by_number: bool,
    /// The node takes no more requests than this in one batch.
    pub(super) calls_per_batch: Option<usize>,
    /// Something was learned about how to ask, if nothing else.
    pub(super) progress: bool,
    /// What kept the node from answering, and may pass.
    pub(super) passing: Option<RunError>,
}

impl Findings {
    /// Reads the reply to `flight`.
    ///
    /// # Errors
    ///
    /// [`RunError`] where this endpoint will not answer, however often it is asked.
    pub(super) fn of(flight: &Flight, reply: Reply<'_>, multicall3: Address) -> Result<Self, RunError> {
        let mut findings = Self::default();
        let ids = flight.ids();
        let bad = match rpc::decode(reply.body, &ids) {
            Ok(mut outcomes) => {
                if let Some(outcome) = flight.header.and_then(|id| outcomes.remove(&id)) {
                    findings.header(outcome, flight, reply.status)?;
                }
                for Chunk { id, calls } in &flight.chunks {
                    match outcomes.remove(id) {
                        Some(Ok(result)) => findings.unpack(calls, &result, flight, multicall3)?,
                        Some(Err(error)) => findings.node_error(calls, &error, flight, reply.status)?,
                        None => findings.again.extend_from_slice(calls),
                    }
                }
                return Ok(findings);
            }
            Err(bad) => bad,
        };
        let all: Vec<Pending> = flight.chunks.iter().flat_map(|chunk| chunk.calls.clone()).collect();
        match bad {
            BadReply::Refused(error) if ids.len() > 1 && may_be_the_batch(&error, reply.status) => {
                findings.halve(ids.len(), all);
            }
            BadReply::Refused(error) => findings.node_error(&all, &error, flight, reply.status)?,
            BadReply::Malformed if reply.status == 413 && ids.len() > 1 => findings.halve(ids.len(), all),
            BadReply::Malformed => {
                let error = match reply.status {
                    200..300 => RunError::Malformed,
                    status if may_pass(status) => RunError::Http(status),
                    status => return Err(RunError::Http(status)),
                };
                findings.passing = Some(error);
                findings.again = all;
            }
        }
        Ok(findings)
    }

    /// Too large a batch, or none allowed: half as many requests, in the end one by one.
    fn halve(&mut self, requests: usize, calls: Vec<Pending>) {
        self.calls_per_batch = Some(requests / 2);
        self.progress = true;
        self.again = calls;
    }

    /// Reads the header request's outcome.
    fn header(&mut self, outcome: rpc::Outcome, flight: &Flight, status: u16) -> Result<(), RunError> {
        match outcome {
            Ok(result) => {
                self.header = serde_json::from_str(&result).map_err(|_| RunError::Malformed)?;
                // A node behind a load balancer that has not seen the block yet answers null.
                self.lacks_block |= self.header.is_none();
                Ok(())
            }
            Err(error) => self.node_error(&[], &error, flight, status),
        }
    }

    /// Takes one `aggregate3` result apart.
    fn unpack(
        &mut self,
        calls: &[Pending],
        result: &str,
        flight: &Flight,
        multicall3: Address,
    ) -> Result<(), RunError> {
        let data = call_result(result).ok_or(RunError::Malformed)?;
        if data.is_empty() {
            return Err(RunError::NoMulticall(multicall3));
        }
        let mut outcomes = multicall::unpack(&data).ok_or(RunError::Malformed)?.into_iter();
        let tag = flight.tagged.then(|| Tag::take(&mut outcomes));
        if outcomes.len() != calls.len() {
            return Err(RunError::Malformed);
        }
        for (pending, outcome) in calls.iter().cloned().zip(outcomes) {
            let answer = match outcome {
                CallOutcome::Returned(data) => Answer::Returned(data),
                CallOutcome::Reverted(revert) => Answer::Reverted(revert),
                CallOutcome::Ambiguous if calls.len() == 1 => Answer::Reverted(Default::default()),
                CallOutcome::Ambiguous => {
                    self.again.push(pending.split());
                    self.progress = true;
                    continue;
                }
            };
            self.fresh.push(Fresh { pending, answer, parent: tag.and_then(|tag| tag.parent) });
        }
        self.tags.extend(tag);
        Ok(())
    }

    /// Does about a node's error what it calls for.
    fn node_error(
        &mut self,
        calls: &[Pending],
        error: &ErrorObject,
        flight: &Flight,
        status: u16,
    ) -> Result<(), RunError> {
        let requests = flight.ids().len();
        match classify(error) {
            Action::SmallerBatch if requests > 1 => {
                self.calls_per_batch = Some(requests / 2);
                self.progress = true;
            }
            Action::SmallerBatch | Action::Split | Action::Revert if calls.len() > 1 => {
                self.again.extend(calls.iter().cloned().map(Pending::split));
                self.progress = true;
                return Ok(());
            }
            Action::PinByNumber if flight.by_hash => {
                self.by_number = true;
                self.progress = true;
            }
            Action::Repin => self.lacks_block = true,
            Action::Retry => self.passing = Some(RunError::node(error)),
            Action::GiveUp if may_pass(status) => self.passing = Some(RunError::node(error)),
            _ => return Err(RunError::node(error)),
        }
        self.again.extend_from_slice(calls);
        Ok(())
    }
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
    let text: String = serde_json::from_str(result).ok()?;
    hex::decode(text.strip_prefix("0x")?).ok().map(Bytes::from)
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
