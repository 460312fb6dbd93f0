//! The outbox of webhooks.
//!
//! The events of a relay are delivered in order: only the oldest open one has a due time, and its end makes
//! the next one due.

use std::collections::BTreeSet;

use alloy::primitives::B256;

use super::{
    Store,
    engine::{Db, Row, all, column, single, values},
    locks, relays,
};
use crate::store::{
    Result,
    events::{self, DeliveryResult, EventKind, EventPlace, Replay, TRIED_SECONDS, WebhookEvent},
};

/// The most events of one step of pruning or of a replay.
const STEP: u64 = 64;

/// The operations on events; as with the others, each is atomic, and durable when it returns.
impl Store {
    /// Returns the events of an API key that are due at `now`, at most `count`.
    pub fn due_events(&self, key: &str, now: u64, count: usize) -> Result<Vec<WebhookEvent>> {
        let query =
            "SELECT * FROM webhook_events WHERE api_key = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3";
        self.read_single(|db| all(db, query, values![key, now, count as u64], event))
    }

    /// Returns the time of the oldest event that is neither delivered nor given up.
    pub fn oldest_open_event(&self) -> Result<Option<u64>> {
        let query = "SELECT created_at FROM webhook_events
             WHERE due_at IS NOT NULL AND created_at >= 0 ORDER BY created_at LIMIT 1";
        self.read_single(|db| single(db, query, values![]))
    }

    /// Returns the API keys with events that are neither delivered nor given up.
    pub fn keys_with_open_events(&self) -> Result<Vec<String>> {
        let query = "SELECT api_key FROM webhook_events WHERE due_at IS NOT NULL AND api_key > $1
             ORDER BY api_key LIMIT 1";
        self.read(|db| {
            let mut keys: Vec<String> = Vec::new();
            while let Some(key) = single(db, query, values![keys.last().map_or("", String::as_str)])? {
                keys.push(key);
            }
            Ok(keys)
        })
    }

    /// Gives up some of an API key's overdue events. Returns them: none once no more are left.
    pub fn give_up_overdue(&self, key: &str, now: u64) -> Result<Vec<WebhookEvent>> {
        let query = "SELECT * FROM webhook_events
             WHERE api_key = $1 AND due_at <= $2 AND expires_at < $2 ORDER BY due_at LIMIT $3";
        let overdue = self.read_single(|db| all(db, query, values![key, now, STEP], event))?;
        let ended: Vec<(u64, B256)> = overdue.iter().map(|event| (event.sequence, event.relay)).collect();
        if ended.is_empty() {
            return Ok(overdue);
        }
        self.write(move |db| {
            // Only one event of a relay is due.
            locks::relays(db, &ended.iter().map(|(_, relay)| *relay).collect::<Vec<_>>())?;
            ended.iter().try_for_each(|(sequence, relay)| end(db, *sequence, relay, false, now))
        })?;
        Ok(overdue)
    }

    /// Writes the result of an attempt to deliver an event. After an event's end the relay's next one is due.
    pub fn attempted(&self, event: &WebhookEvent, result: DeliveryResult, now: u64) -> Result<()> {
        let (relay, sequence) = (event.relay, event.sequence);
        self.write(move |db| {
            locks::relay(db, &relay)?;
            if let DeliveryResult::Retry(at) = result {
                return db.run(
                    "UPDATE webhook_events SET due_at = $2, attempts = attempts + 1
                     WHERE sequence = $1 AND due_at IS NOT NULL",
                    values![sequence, at],
                );
            }
            end(db, sequence, &relay, result == DeliveryResult::Delivered, now)
        })
    }

    /// Makes a few events due once more, each with its id: those after the step before. Returns their number,
    /// and the place at which the next step goes on, if there is one.
    pub fn replay(
        &self,
        replay: &Replay,
        after: Option<EventPlace>,
        now: u64,
    ) -> Result<(usize, Option<EventPlace>)> {
        let Replay { key, relay, since, given_up_only } = replay.clone();
        let from = after.unwrap_or(EventPlace { created_at: since, sequence: 0 });
        let query = "SELECT sequence, relay, created_at FROM webhook_events
             WHERE api_key = $1 AND created_at >= $2 AND created_at <= $5 AND (created_at > $2 OR sequence > $6)
             AND ended_at IS NOT NULL AND relay = coalesce($3, relay) AND (NOT $4 OR NOT was_delivered)
             ORDER BY created_at, sequence LIMIT $7";
        self.write(move |db| {
            let chosen = values![&key, from.created_at, relay, given_up_only, now, from.sequence, STEP];
            let found: Vec<(EventPlace, B256)> = all(db, query, chosen, |row| {
                let (created_at, sequence) = (column(row, "created_at")?, column(row, "sequence")?);
                Ok((EventPlace { created_at, sequence }, column(row, "relay")?))
            })?;
            let relays: BTreeSet<B256> = found.iter().map(|(_, relay)| *relay).collect();
            locks::relays(db, &relays.iter().copied().collect::<Vec<_>>())?;
            for (EventPlace { sequence, .. }, _) in &found {
                db.run(
                    "UPDATE webhook_events SET ended_at = NULL, was_delivered = FALSE, attempts = 0, expires_at = $2
                     WHERE sequence = $1",
                    values![*sequence, now.saturating_add(TRIED_SECONDS)],
                )?;
            }
            relays.iter().try_for_each(|relay| make_due(db, relay, now))?;
            let next = found.last().map(|(place, _)| *place).filter(|_| found.len() as u64 == STEP);
            Ok((found.len(), next))
        })
    }
}

/// Writes an event, if the relay's API key has a webhook.
pub(super) fn note(tx: &Db, relay: &B256, kind: EventKind, now: u64) -> Result<()> {
    let query = "SELECT api_key FROM relays WHERE id = $1 AND api_key IS NOT NULL AND is_told";
    let Some(key) = single::<String>(tx, query, values![relay])? else { return Ok(()) };
    let outcome = relays::stored_outcome(tx, relay)?.flatten();
    let (id, body) = events::make(kind, *relay, outcome.as_ref(), now)?;
    tx.run(
        "INSERT INTO webhook_events (id, api_key, relay, body, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        values![id, key, relay, body, now, now.saturating_add(TRIED_SECONDS)],
    )?;
    make_due(tx, relay, now)
}

/// Ends an event, and makes the relay's next one due.
fn end(tx: &Db, sequence: u64, relay: &B256, was_delivered: bool, now: u64) -> Result<()> {
    tx.run(
        "UPDATE webhook_events SET due_at = NULL, ended_at = $2, was_delivered = $3 WHERE sequence = $1",
        values![sequence, now, was_delivered],
    )?;
    make_due(tx, relay, now)
}

/// Makes the oldest open event of a relay due, and no other.
fn make_due(tx: &Db, relay: &B256, now: u64) -> Result<()> {
    tx.run(
        "UPDATE webhook_events SET due_at = CASE WHEN due_at IS NULL THEN CAST($2 AS BIGINT) END
         WHERE relay = $1 AND ended_at IS NULL AND (due_at IS NULL) = (sequence = (
             SELECT min(sequence) FROM webhook_events WHERE relay = $1 AND ended_at IS NULL))",
        values![relay, now],
    )
}

fn event(row: &Row) -> Result<WebhookEvent> {
    Ok(WebhookEvent {
        sequence: column(row, "sequence")?,
        id: column(row, "id")?,
        relay: column(row, "relay")?,
        body: column(row, "body")?,
        attempts: column(row, "attempts")?,
        expires_at: column(row, "expires_at")?,
    })
}

/// Deletes old events, whether or not they were delivered.
pub(super) fn forget(tx: &Db, created_before: i64, now: u64) -> Result<usize> {
    let query = "SELECT sequence, relay, ended_at IS NULL AS is_open FROM webhook_events
         WHERE created_at < $1 ORDER BY created_at LIMIT $2";
    let old: Vec<(u64, B256, bool)> = all(tx, query, values![created_before, STEP], |row| {
        Ok((column(row, "sequence")?, column(row, "relay")?, column(row, "is_open")?))
    })?;
    let open: Vec<B256> = old.iter().filter(|(.., is_open)| *is_open).map(|(_, relay, _)| *relay).collect();
    locks::relays(tx, &open)?;
    for (sequence, relay, is_open) in &old {
        tx.run("DELETE FROM webhook_events WHERE sequence = $1", values![*sequence])?;
        if *is_open {
            make_due(tx, relay, now)?;
        }
    }
    Ok(old.len())
}
