//! Who asked how often, and whether that is too often.
//!
//! A Worker runs as many instances, and a client's requests reach several of them. Two ways to count all the same,
//! chosen by the setting `RATE_LIMITER`; the arithmetic of both is the core's, and both look the same to clients:
//!
//! - [`kv`]: every instance counts by itself and publishes its count through KV. Costs a request no time; late.
//! - [`object`]: one Durable Object per client counts. Exact; costs each admitted request a call.
//!
//! Either way what an instance knows stays in its memory ([`tallies`]): a client known to have used up its window is
//! refused without asking anybody, and if KV or the object fails, the instance's own count still holds.
//!
//! The clients of one IPv6 site have a limit together as well: whoever has a /48 has 65,536 networks to ask from. It is there
//! against a flood and need not be exact, so that it is counted in the first way whichever the setting.

mod kv;
mod object;
mod tallies;

use registry_core::{
    eth::timestamp::Timestamp,
    host::rate_limit::{Client, Verdict},
};
use worker::{Context, Env};

pub(crate) use self::object::BINDING as OBJECT_BINDING;
use crate::settings::{Limits, Settings};

/// How instances come to one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Each counts, and publishes its count through KV.
    Kv,
    /// A Durable Object per client counts for all.
    DurableObject,
}

/// Counts a request as `cost` of them; `None` where the limit is off.
pub(crate) async fn charge(
    settings: &Settings,
    env: &Env,
    context: &Context,
    client: &Client,
    now: Timestamp,
    cost: u32,
) -> Option<Verdict> {
    let Limits { client: limit, site: site_limit } = settings.limits;
    let site = client.site().filter(|_| site_limit.requests > 0);
    // WalletInput first and charged last: what is refused counts nowhere.
    if let Some(refusal) = site.as_ref().and_then(|site| refusal(tallies::peek(site_limit, site, now))) {
        return Some(refusal);
    }
    let verdict = match settings.rate_limiter {
        Scheme::Kv => kv::charge(limit, env, context, client, now, cost),
        Scheme::DurableObject => object::charge(limit, env, client, now, cost).await,
    };
    match site {
        Some(site) if verdict.is_none_or(|verdict| verdict.admitted) => {
            nearer(verdict, kv::charge(site_limit, env, context, &site, now, cost))
        }
        _ => verdict,
    }
}

/// Where the client stands as far as this instance knows, without counting. `None` where the limit is off.
pub(crate) fn peek(limits: &Limits, client: &Client, now: Timestamp) -> Option<Verdict> {
    let site = client.site().and_then(|site| tallies::peek(limits.site, &site, now));
    nearer(tallies::peek(limits.client, client, now), site)
}

fn refusal(verdict: Option<Verdict>) -> Option<Verdict> {
    verdict.filter(|verdict| !verdict.admitted)
}

/// The one of two verdicts that leaves fewer requests.
fn nearer(one: Option<Verdict>, other: Option<Verdict>) -> Option<Verdict> {
    match (one, other) {
        (Some(one), Some(other)) if other.remaining < one.remaining => Some(other),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry_core::host::rate_limit::{Limit, Tally};

    fn verdict(requests: u32) -> Option<Verdict> {
        Limit { requests, window_seconds: 60 }.peek(&Tally::default(), 0)
    }

    #[test]
    fn a_client_sees_the_limit_that_it_will_meet_first() {
        assert_eq!(nearer(verdict(60), verdict(600)), verdict(60));
        assert_eq!(nearer(verdict(60), verdict(5)), verdict(5));
        assert_eq!(nearer(None, verdict(5)), verdict(5));
        assert_eq!(nearer(verdict(60), None), verdict(60));
    }
}
