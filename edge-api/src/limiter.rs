//! Who asked how often: exact counts in this instance, shared with the others through KV.
//!
//! KV takes one write per second and key, and a thousand a day on the free plan. So a client of few requests
//! is never written, a busy one at most once a second, and always after it has its answer.

use std::{cell::RefCell, collections::HashMap, net::IpAddr};

use registry_core::{
    timestamp::Timestamp,
    window::{Limit, Tally, Verdict, client_key},
};
use worker::{Context, Env, KvStore, Request, Result};

/// The KV namespace's binding.
const BINDING: &str = "RATE_COUNTERS";
/// A client that made no more requests than this in the window is not written to KV.
const QUIET: u32 = 10;
/// Clients counted at once. Beyond it the quiet ones are forgotten, so that memory stays bounded.
const MAX_CLIENTS: usize = 50_000;
/// How long a counter stays in KV: the shortest time KV allows that outlives its window.
const EXPIRATION_SECONDS: u64 = 120;
/// How stale a read from KV may be: the shortest KV allows.
const READ_CACHE_SECONDS: u64 = 30;

thread_local! {
    /// Plain data only: an instance's requests must not hold on to one another's promises.
    static TALLIES: RefCell<HashMap<String, Tally>> = RefCell::new(HashMap::new());
}

/// Whom the request counts as. Only `CF-Connecting-IP` is believed: Cloudflare sets it, clients can't.
/// Without it (a runtime without Cloudflare before it) all clients are one.
pub(crate) fn client_of(request: &Request) -> Result<String> {
    let address = request.headers().get("CF-Connecting-IP")?;
    Ok(address
        .and_then(|text| text.trim().parse::<IpAddr>().ok())
        .map_or_else(|| "unknown".to_owned(), client_key))
}

/// Counts a request; `None` where the limit is off.
pub(crate) fn charge(limit: Limit, client: &str, now: Timestamp) -> Option<Verdict> {
    TALLIES.with_borrow_mut(|tallies| {
        if tallies.len() >= MAX_CLIENTS && !tallies.contains_key(client) {
            forget(tallies, limit.window(now.seconds()));
        }
        limit.charge(tallies.entry(client.to_owned()).or_default(), now.seconds())
    })
}

/// Where the client stands, without counting.
pub(crate) fn peek(limit: Limit, client: &str, now: Timestamp) -> Option<Verdict> {
    TALLIES.with_borrow(|tallies| {
        let tally = tallies.get(client).copied().unwrap_or_default();
        limit.peek(&tally, now.seconds())
    })
}

/// Tells the other instances about a busy client, and learns what they know, after the answer is sent.
pub(crate) fn share(env: &Env, context: &Context, client: String, now: Timestamp) {
    let due = TALLIES.with_borrow_mut(|tallies| {
        let tally = tallies.get_mut(&client).filter(|tally| tally.share_due(QUIET, now.seconds()))?;
        tally.share_begins(now.seconds());
        Some(tally.window())
    });
    let (Some(window), Ok(store)) = (due, env.kv(BINDING)) else { return };
    context.wait_until(async move {
        // KV refuses a second write within a second; the next sharing makes up for it.
        let _ = exchange(&store, &client, window).await;
    });
}

async fn exchange(store: &KvStore, client: &str, window: u64) -> core::result::Result<(), worker::KvError> {
    let key = format!("{window}:{client}");
    let stored = store.get(&key).cache_ttl(READ_CACHE_SECONDS).text().await?;
    let stored = stored.and_then(|text| text.parse().ok()).unwrap_or(0);
    let with_tally = |change: &mut dyn FnMut(&mut Tally) -> u32| {
        TALLIES.with_borrow_mut(|tallies| {
            tallies.get_mut(client).filter(|tally| tally.window() == window).map(change)
        })
    };
    let mut own = 0;
    let Some(total) = with_tally(&mut |tally| {
        own = tally.own();
        tally.share(stored)
    }) else {
        return Ok(());
    };
    store.put(&key, total.to_string())?.expiration_ttl(EXPIRATION_SECONDS).execute().await?;
    with_tally(&mut |tally| {
        tally.shared(own);
        own
    });
    Ok(())
}

/// Makes room: counts of windows gone by, then clients that hardly asked.
fn forget(tallies: &mut HashMap<String, Tally>, window: u64) {
    tallies.retain(|_, tally| tally.window() == window);
    if tallies.len() >= MAX_CLIENTS {
        tallies.retain(|_, tally| tally.own() > QUIET);
    }
    if tallies.len() >= MAX_CLIENTS {
        tallies.clear();
    }
}
