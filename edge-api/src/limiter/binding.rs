//! Cloudflare's own limiter, a `ratelimits` binding: it counts within a data centre, costs no request and no
//! round trip, and says only whether a request is admitted.
//!
//! Its limit is the binding's, in `wrangler.toml`. The count in the headers is the instance's own, so that a
//! client which reaches several instances is refused with some left.

use edge_shared::time::within;
use registry_core::{
    eth::timestamp::Timestamp,
    host::rate_limit::{ClientKey, RateLimitVerdict, WindowLimit},
};
use worker::{Env, console_warn};

use super::tallies;
use crate::settings::RATE_BINDING;

/// Most queries of the limiter for one request: each counts one.
const MOST_ASKED: u32 = 10;
/// Timeout of the limiter in milliseconds: it delays no request for longer.
const LONGEST_MILLIS: u64 = 1_000;

/// Counts a request as `cost` requests; `None` where the limit is off.
pub(super) async fn charge(
    limit: WindowLimit,
    env: &Env,
    client: &ClientKey,
    now: Timestamp,
    cost: u32,
) -> Option<RateLimitVerdict> {
    let verdict = tallies::change(limit, client, now, |tally| limit.charge_for(tally, now.seconds(), cost))?;
    if !verdict.admitted {
        return Some(verdict);
    }
    for _ in 0..cost.clamp(1, MOST_ASKED) {
        match within(LONGEST_MILLIS, ask(env, client)).await {
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Some(RateLimitVerdict { admitted: false, remaining: 0, ..verdict }),
            // The instance's own count holds.
            Some(Err(error)) => {
                console_warn!("rate limit binding failed: {error}");
                break;
            }
            None => {
                console_warn!("rate limit binding: no answer in {LONGEST_MILLIS} ms");
                break;
            }
        }
    }
    Some(verdict)
}

async fn ask(env: &Env, client: &ClientKey) -> worker::Result<bool> {
    Ok(env.rate_limiter(RATE_BINDING)?.limit(client.to_string()).await?.success)
}
