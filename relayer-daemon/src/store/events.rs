//! Changes of state that webhooks report: the journal's outbox.
//!
//! An event is written in the transaction of the change itself, so no event is lost, and none reports a
//! change that did not happen. Its body is made then, too, and is the same in every attempt.

use alloy::primitives::{B256, FixedBytes};
use registry_core::eth::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Result, StoreError};
use crate::outcome::{Finality, RelayOutcome, RelayState};

/// Seconds for which the delivery of an event is tried.
pub const TRIED_SECONDS: u64 = 24 * 60 * 60;

/// The kind of a change. The last three are about a relay that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum EventKind {
    /// The relay was accepted and is pending.
    #[serde(rename = "relay.pending")]
    Pending,
    /// The relay was executed; again, or in another block, after a reorganisation.
    #[serde(rename = "relay.executed")]
    Executed,
    /// The relay's transaction was mined, and the call to the registry failed.
    #[serde(rename = "relay.reverted")]
    Reverted,
    /// The relay was not executed, and will not be unless the request is sent again.
    #[serde(rename = "relay.dropped")]
    Dropped,
    /// A reorganisation undid the relay's transaction: it is pending again.
    #[serde(rename = "relay.reorganised")]
    Reorganised,
    /// The relay's block is safe.
    #[serde(rename = "relay.safe")]
    Safe,
    /// The relay's block is final.
    #[serde(rename = "relay.finalized")]
    Finalized,
}

impl EventKind {
    /// Returns the kind of a relay's end.
    pub const fn of(outcome: &RelayOutcome) -> Self {
        match outcome {
            RelayOutcome::Executed { .. } => Self::Executed,
            RelayOutcome::Reverted { .. } => Self::Reverted,
            RelayOutcome::Dropped { .. } => Self::Dropped,
        }
    }
}

/// An event that is to be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEvent {
    /// Its place among all events.
    pub sequence: u64,
    /// Its id, the same in every attempt.
    pub id: String,
    /// The relay.
    pub relay: B256,
    /// The JSON body.
    pub body: String,
    /// The number of failed attempts.
    pub attempts: u32,
    /// Time at which it is given up, unix seconds.
    pub expires_at: u64,
}

/// The end of an attempt to deliver an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The receiver has it.
    Delivered,
    /// The receiver does not have it; it is tried again at this time, unix seconds.
    Retry(u64),
    /// It was tried for a day.
    GivenUp,
}

/// A selection of events to deliver once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// API key of the events.
    pub key: String,
    /// Relay of the events; `None` for all.
    pub relay: Option<B256>,
    /// Earliest time of the events, unix seconds.
    pub since: u64,
    /// True to select only events that were given up.
    pub given_up_only: bool,
}

/// The place of an event among those that are replayed: by time, then by sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPlace {
    /// Time at which it was written, unix seconds.
    pub created_at: u64,
    /// Its place among all events.
    pub sequence: u64,
}

/// A change of a relay's state.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Event")]
pub(crate) struct EventBody<'a> {
    /// The event's id, the same in every attempt.
    id: &'a str,
    /// The kind of the change.
    #[serde(rename = "type")]
    kind: EventKind,
    /// The time of the change.
    created_at: Timestamp,
    /// The relay as it was at that time.
    relay: RelayState<'a>,
}

impl<'a> EventBody<'a> {
    /// Creates the body of an event of this kind, about a relay with this outcome.
    pub(crate) fn new(
        kind: EventKind,
        id: &'a str,
        relay: B256,
        outcome: Option<&'a RelayOutcome>,
        now: u64,
    ) -> Self {
        let finality = match kind {
            EventKind::Safe => Finality::Safe,
            EventKind::Finalized => Finality::Finalized,
            _ => Finality::Latest,
        };
        let relay = RelayState::new(relay, outcome, Some(finality));
        Self { id, kind, created_at: Timestamp::from_seconds(now), relay }
    }
}

/// Creates a new event's id and body.
pub(super) fn make(
    kind: EventKind,
    relay: B256,
    outcome: Option<&RelayOutcome>,
    now: u64,
) -> Result<(String, String)> {
    let id = format!("evt_{:x}", FixedBytes::<16>::random());
    let body = serde_json::to_string(&EventBody::new(kind, &id, relay, outcome, now))
        .map_err(|error| StoreError::Engine(error.to_string()))?;
    Ok((id, body))
}
