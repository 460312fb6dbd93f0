//! Who asked how often, and whether that is too often.
//!
//! A Worker runs as many instances, and a client's requests reach several of them. Two ways to count all the same,
//! chosen by the setting `RATE_LIMITER`; the arithmetic of both is the core's, and both look the same to clients:
//!
//! - [`kv`]: every instance counts by itself and tells the others through KV. Costs a request no time; late.
//! - [`object`]: one Durable Object per client counts. Exact; costs each admitted request a call.
//!
//! Either way what an instance knows stays in its memory ([`tallies`]): a client known to have used up its window is
//! refused without asking anybody, and if KV or the object fails, the instance's own count still holds.

mod kv;
mod object;
mod tallies;

use std::net::IpAddr;

use registry_core::{
    timestamp::Timestamp,
    window::{Limit, Verdict, client_key},
};
use worker::{Context, Env, Request, Result};

pub(crate) use self::object::BINDING as OBJECT_BINDING;
pub(crate) use self::tallies::peek;

/// How instances come to one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Each counts, and tells the others through KV.
    Kv,
    /// A Durable Object per client counts for all.
    DurableObject,
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
pub(crate) async fn charge(
    scheme: Scheme,
    limit: Limit,
    env: &Env,
    context: &Context,
    client: String,
    now: Timestamp,
) -> Option<Verdict> {
    match scheme {
        Scheme::Kv => kv::charge(limit, env, context, client, now),
        Scheme::DurableObject => object::charge(limit, env, &client, now).await,
    }
}
