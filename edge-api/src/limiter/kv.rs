//! The limiter without latency: every instance counts exactly what reaches it, and publishes its count
//! through KV after the answer is sent.
//!
//! Each instance has a key of its own for a client and window, `window:client:instance`, with its count as
//! metadata, and reads the others' with one `list` of the prefix. So no instance overwrites another's count,
//! no two write one key (KV takes one write a second for each), and the read is not a `get`, which KV would
//! serve from its cache for at least 30 seconds, "no such key" included.
//!
//! The cost: nothing for a client that uses less than a twelfth of its limit, then a list now and then, and
//! from a quarter on at most a write and a list a second, while requests are admitted. A burst is written as
//! one, and no list follows another within half a second. All clients together take at most
//! [`Ceiling::OPERATIONS_PER_MINUTE`] of an instance; above that, and where KV refuses, the instance
//! continues with its own count. `docs/operating.md` has the price.
//!
//! The precision: an instance cannot count what it has not read yet, so a client gets at most its limit from
//! each instance, and less the longer it takes. Where the store is one place (`wrangler dev`) the others know
//! of a busy client's requests within a second. In production KV guarantees less: a write is visible at once
//! where it was made, as a rule, and elsewhere within a minute, which may be the whole window.

use std::cell::{OnceCell, RefCell};

use edge_shared::{time::pause, unix_millis};
use registry_core::{
    eth::timestamp::Timestamp,
    host::rate_limit::{Ceiling, ClientKey, RateLimitVerdict, Sharing, SyncTask, WindowLimit},
};
use worker::{Context, Env, KvError, KvStore, js_sys::Math};

use super::tallies;
use crate::settings::KV_BINDING;

/// Shortest expiration that KV accepts for a key.
const SHORTEST_EXPIRATION_SECONDS: u64 = 60;

thread_local! {
    /// The part of this instance's keys that no other instance has.
    static INSTANCE: OnceCell<String> = const { OnceCell::new() };
    static CEILING: RefCell<Ceiling> = RefCell::default();
}

/// Counts a request as `cost` requests, and shares the count once the answer is sent. `None` where the limit
/// is off.
pub(super) fn charge(
    limit: WindowLimit,
    env: &Env,
    context: &Context,
    client: &ClientKey,
    now: Timestamp,
    cost: u32,
) -> Option<RateLimitVerdict> {
    if limit.requests == 0 {
        return None;
    }
    let (verdict, task) = tallies::change(limit, client, now, |tally| {
        let verdict = limit.charge_for(tally, now.seconds(), cost);
        let admitted = verdict.is_some_and(|verdict| verdict.admitted);
        (verdict, if admitted { tally.sync_task(&Sharing::of(&limit), now.as_millis(), cost) } else { None })
    });
    if let Some(task) = task
        && let Ok(store) = env.kv(KV_BINDING)
    {
        let client = client.clone();
        context.wait_until(async move {
            // Where KV fails nothing is merged, and the instance's own count holds.
            let _ = run(&store, limit, &client, task).await;
        });
    }
    verdict
}

async fn run(store: &KvStore, limit: WindowLimit, client: &ClientKey, task: SyncTask) -> Result<(), KvError> {
    let sharing = Sharing::of(&limit);
    if task.after_millis > 0 {
        pause(task.after_millis).await;
    }
    let window = task.window;
    let prefix = format!("{window}:{client}:");
    let own_key = INSTANCE.with(|instance| format!("{prefix}{}", instance.get_or_init(random_name)));
    if task.publishes {
        let now = unix_millis();
        let published = tallies::change_known(client, |tally| tally.publish(&sharing, window, now));
        if let Some(count) = published.flatten() {
            // Longer than its window.
            let expiration = limit.window_seconds.saturating_mul(2).max(SHORTEST_EXPIRATION_SECONDS);
            let write = store.put(&own_key, "")?.metadata(count)?.expiration_ttl(expiration);
            if !has_room(&task, now) || write.execute().await.is_err() {
                tallies::change_known(client, |tally| tally.retract(window));
            }
        }
    }
    let now = unix_millis();
    let reads = tallies::change_known(client, |tally| tally.begin_read(&sharing, window, now)) == Some(true);
    if !reads || !has_room(&task, now) {
        return Ok(());
    }
    let counts = store.list().prefix(prefix).execute().await?.keys;
    let others = counts
        .iter()
        .filter(|key| key.name != own_key)
        .filter_map(|key| key.metadata.as_ref()?.as_u64())
        .fold(0, u64::saturating_add);
    tallies::change_known(client, |tally| tally.merge(window, u32::try_from(others).unwrap_or(u32::MAX)));
    Ok(())
}

/// Returns whether KV may be asked for one more operation of this task at `now` (unix milliseconds).
fn has_room(task: &SyncTask, now: u64) -> bool {
    CEILING.with_borrow_mut(|ceiling| ceiling.take(task, now))
}

/// Returns 53 random bits: enough that no two instances share a name.
fn random_name() -> String {
    format!("{:014x}", (Math::random() * 2f64.powi(53)) as u64)
}
