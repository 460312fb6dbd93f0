//! The rate limiter.
//!
//! A Worker runs as many instances, and a client's requests reach several of them. The setting `RATE_LIMITER`
//! chooses how they are counted together; both look the same to clients:
//!
//! - [`binding`], which is recommended: Cloudflare's own limiter counts within each data centre. No latency,
//!   no cost; the count that clients see is the instance's.
//! - [`kv`], the default, as every account has a store: every instance counts by itself and publishes its
//!   count through KV. No latency; shared counts are late.
//!
//! In both an instance keeps its tallies in memory ([`tallies`]): a client that has used up its window is
//! refused without a call, and if KV or the binding fails, the instance's own count still holds.
//!
//! The clients of one IPv6 site have a limit together as well: the owner of a /48 has 65,536 networks to send
//! from. This limit is against floods and need not be exact, so that it is always counted through KV.

mod binding;
mod kv;
mod tallies;

use registry_core::{
    eth::timestamp::Timestamp,
    host::rate_limit::{ClientKey, RateLimitVerdict},
};
use worker::{Context, Env};

use crate::settings::{ClientLimits, LimiterMode, Settings};

/// Counts a request as `cost` requests; `None` where the limit is off.
pub(crate) async fn charge(
    settings: &Settings,
    env: &Env,
    context: &Context,
    client: &ClientKey,
    now: Timestamp,
    cost: u32,
) -> Option<RateLimitVerdict> {
    let ClientLimits { client: limit, site: site_limit } = settings.limits;
    let site = client.site().filter(|_| site_limit.requests > 0);
    // The site is checked first and charged last: a refused request is counted nowhere.
    let verdict = site.as_ref().and_then(|site| tallies::peek(site_limit, site, now));
    if let Some(verdict) = verdict.filter(|verdict| verdict.remaining < cost.clamp(1, verdict.limit)) {
        return Some(RateLimitVerdict { admitted: false, ..verdict });
    }
    let verdict = match settings.limiter_mode {
        LimiterMode::Kv => kv::charge(limit, env, context, client, now, cost),
        LimiterMode::Binding => binding::charge(limit, env, client, now, cost).await,
    };
    match site {
        Some(site) if verdict.is_none_or(|verdict| verdict.admitted) => {
            nearer(verdict, kv::charge(site_limit, env, context, &site, now, cost))
        }
        _ => verdict,
    }
}

/// Returns the verdict by this instance's tallies; counts nothing. `None` where the limit is off.
pub(crate) fn peek(limits: &ClientLimits, client: &ClientKey, now: Timestamp) -> Option<RateLimitVerdict> {
    let site = client.site().and_then(|site| tallies::peek(limits.site, &site, now));
    nearer(tallies::peek(limits.client, client, now), site)
}

/// Returns the one of two verdicts that refuses, or that leaves fewer requests.
fn nearer(one: Option<RateLimitVerdict>, other: Option<RateLimitVerdict>) -> Option<RateLimitVerdict> {
    let order = |verdict: &RateLimitVerdict| (verdict.admitted, verdict.remaining);
    match (one, other) {
        (Some(one), Some(other)) if order(&other) < order(&one) => Some(other),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry_core::host::rate_limit::{WindowLimit, WindowTally};

    fn verdict(requests: u32) -> Option<RateLimitVerdict> {
        WindowLimit { requests, window_seconds: 60 }.peek(&WindowTally::default(), 0)
    }

    #[test]
    fn a_client_sees_the_limit_that_it_will_meet_first_and_a_refusal_whatever_the_other_leaves() {
        let used_up = verdict(60).map(|verdict| RateLimitVerdict { remaining: 0, ..verdict });
        let refused =
            verdict(600).map(|verdict| RateLimitVerdict { admitted: false, remaining: 2, ..verdict });
        for (one, other, expected) in [
            (verdict(60), verdict(600), verdict(60)),
            (verdict(60), verdict(5), verdict(5)),
            (None, verdict(5), verdict(5)),
            (verdict(60), None, verdict(60)),
            (used_up, refused, refused),
            (refused, used_up, refused),
        ] {
            assert_eq!(nearer(one, other), expected, "{one:?} {other:?}");
        }
    }
}
