//! Delivers the journal's events to the webhooks of API keys.
//!
//! At least once: an event is ended only after its receiver has answered 2xx, and carries the same id in
//! every attempt. In order per relay: the store makes an event due once the one before has ended. A failed
//! attempt is repeated with exponential backoff for a day. Older events are given up without another attempt
//! where their key has no webhook, or its receiver has just taken nothing. A slow receiver delays its own
//! key's events only.

mod delivery;

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tracing::Instrument as _;

pub use delivery::DeliveryClient;

use crate::{
    metrics::Metrics,
    process::{
        clock::SharedClock,
        logging::SPANS,
        shutdown::{ShutdownSignal, stopped},
    },
    relay::policy::{Policy, SharedPolicy, WebhookTarget},
    sender::lease::Lease,
    store::{
        Store,
        events::{DeliveryResult, WebhookEvent},
    },
};

/// Interval at which the store is asked for events that are due.
const POLL: Duration = Duration::from_millis(500);
/// Rounds between two looks for events that nothing delivers: a minute.
const GIVE_UP_ROUNDS: u64 = 120;
/// Rounds between two looks at how old the oldest open event is: five seconds.
const OBSERVED_ROUNDS: u64 = 10;
/// Number of events of one key that are delivered at once.
const BATCH: usize = 16;
/// The pause of a key's deliveries after a batch of which its receiver took nothing: a dead one, with however
/// many events, costs others little.
const REST: Duration = Duration::from_secs(1);
/// The pause after the first failed attempt, seconds; it doubles with each further one.
const FIRST_PAUSE: u64 = 5;
/// The longest pause, seconds.
const LONGEST_PAUSE: u64 = 60 * 60;

/// The task that delivers events.
#[derive(Debug, Clone)]
pub struct Deliverer {
    /// The store.
    pub store: Arc<Store>,
    /// The policy, which has the webhooks.
    pub policy: Arc<SharedPolicy>,
    /// The HTTP client.
    pub client: DeliveryClient,
    /// The clock.
    pub clock: SharedClock,
    /// The metrics.
    pub metrics: Metrics,
    /// Lease under which this daemon delivers: in a fleet one daemon does.
    pub duty: Lease,
}

/// Delivers until shutdown. What is being delivered then is delivered once more after the next start.
pub async fn run(deliverer: Deliverer, mut stop: ShutdownSignal) {
    let mut busy: HashSet<String> = HashSet::new();
    let mut batches: JoinSet<String> = JoinSet::new();
    for round in 0_u64.. {
        let policy = deliverer.policy.current();
        for (key, target) in policy.webhooks().filter(|(key, _)| !busy.contains(*key)).collect::<Vec<_>>() {
            if !deliverer.duty.is_valid() {
                break;
            }
            let due = deliverer.due(key).await;
            if !due.is_empty() {
                busy.insert(key.to_owned());
                let (deliverer, key, target) = (deliverer.clone(), key.to_owned(), target.clone());
                batches.spawn(async move {
                    if !deliverer.deliver(&key, &target, due).await {
                        deliverer.give_up_overdue(&key).await;
                        tokio::time::sleep(REST).await;
                    }
                    key
                });
            }
        }
        if round.is_multiple_of(GIVE_UP_ROUNDS) && deliverer.duty.is_valid() {
            for key in deliverer.keys_without_webhook(&policy).await {
                if busy.insert(key.clone()) {
                    let deliverer = deliverer.clone();
                    batches.spawn(async move {
                        deliverer.give_up_overdue(&key).await;
                        key
                    });
                }
            }
        }
        if round.is_multiple_of(OBSERVED_ROUNDS) {
            deliverer.observe().await;
        }
        tokio::select! {
            () = stopped(&mut stop) => return,
            Some(Ok(key)) = batches.join_next() => {
                busy.remove(&key);
            }
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

impl Deliverer {
    async fn due(&self, key: &str) -> Vec<WebhookEvent> {
        let (now, owned) = (self.clock.now(), key.to_owned());
        match self.store.run(move |store| store.due_events(&owned, now, BATCH)).await {
            Ok(due) => due,
            Err(error) => {
                tracing::error!(key, %error, "events not read");
                Vec::new()
            }
        }
    }

    /// Delivers some events at once. Returns whether the receiver has taken any.
    async fn deliver(&self, key: &str, target: &WebhookTarget, due: Vec<WebhookEvent>) -> bool {
        join_all(due.into_iter().map(|event| self.deliver_one(key, target, event))).await.contains(&true)
    }

    async fn deliver_one(&self, key: &str, target: &WebhookTarget, event: WebhookEvent) -> bool {
        let span = tracing::info_span!(target: SPANS, "webhook.deliver", "otel.kind" = "client", key, event = event.id, relay = %event.relay);
        let sent = self.client.send(target, &event, self.clock.now()).instrument(span).await;
        let now = self.clock.now();
        let (label, result) = match sent {
            Ok(()) => ("delivered", DeliveryResult::Delivered),
            Err(reason) => {
                let result = after_failure(&event, now);
                let given_up = result == DeliveryResult::GivenUp;
                tracing::warn!(key, event = event.id, relay = %event.relay, attempt = event.attempts + 1, given_up, %reason, "event not delivered");
                (if given_up { "given_up" } else { "failed" }, result)
            }
        };
        self.metrics.webhook_attempts.with_label_values(&[label]).inc();
        let written = self.store.run(move |store| store.attempted(&event, result, now)).await;
        if let Err(error) = written {
            // It is delivered once more.
            tracing::error!(key, %error, "delivery not written down");
        }
        result == DeliveryResult::Delivered
    }

    /// Returns the keys with events that nothing delivers.
    async fn keys_without_webhook(&self, policy: &Policy) -> Vec<String> {
        let mut keys = self.store.run(|store| store.keys_with_open_events()).await.unwrap_or_default();
        keys.retain(|key| policy.webhooks().all(|(known, _)| known != key));
        keys
    }

    /// Gives up all events of a key that are over, without another attempt.
    async fn give_up_overdue(&self, key: &str) {
        while self.duty.is_valid() {
            let (now, owned) = (self.clock.now(), key.to_owned());
            let overdue = match self.store.run(move |store| store.give_up_overdue(&owned, now)).await {
                Ok(overdue) if overdue.is_empty() => return,
                Ok(overdue) => overdue,
                Err(error) => {
                    tracing::error!(key, %error, "ends of events not written down");
                    return;
                }
            };
            for event in overdue {
                tracing::warn!(key, event = event.id, relay = %event.relay, given_up = true, "event is over");
                self.metrics.webhook_attempts.with_label_values(&["given_up"]).inc();
            }
        }
    }

    async fn observe(&self) {
        if let Ok(oldest) = self.store.run(|store| store.oldest_open_event()).await {
            let age = oldest.map_or(0, |since| self.clock.now().saturating_sub(since));
            self.metrics.webhook_oldest_seconds.set(age.cast_signed());
        }
    }
}

/// Returns the time of the next attempt after one that failed, or that the event is given up.
fn after_failure(event: &WebhookEvent, now: u64) -> DeliveryResult {
    let doublings = event.attempts.min(20);
    let pause = (FIRST_PAUSE << doublings).min(LONGEST_PAUSE);
    if now >= event.expires_at {
        return DeliveryResult::GivenUp;
    }
    // The last attempt is at the day's end.
    DeliveryResult::Retry(now.saturating_add(pause).min(event.expires_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::primitives::B256;

    fn event(attempts: u32) -> WebhookEvent {
        let (id, body, relay) = (String::new(), String::new(), B256::ZERO);
        WebhookEvent { sequence: 1, id, relay, body, attempts, expires_at: 100_000 }
    }

    #[test]
    fn pauses_double_up_to_an_hour_and_the_last_attempt_is_at_the_days_end() {
        for (attempts, now, expected) in [
            (0, 1_000, DeliveryResult::Retry(1_005)),
            (1, 1_000, DeliveryResult::Retry(1_010)),
            (4, 1_000, DeliveryResult::Retry(1_080)),
            (10, 1_000, DeliveryResult::Retry(4_600)),
            (u32::MAX, 1_000, DeliveryResult::Retry(4_600)),
            (30, 99_000, DeliveryResult::Retry(100_000)),
            (30, 100_000, DeliveryResult::GivenUp),
        ] {
            assert_eq!(after_failure(&event(attempts), now), expected, "{attempts} {now}");
        }
    }
}
