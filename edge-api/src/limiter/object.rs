//! The exact limiter: one Durable Object per client counts its requests, whichever instance they reach.
//!
//! An object runs in one place in the world and handles one request after the other, so that its count is
//! exact. Every admitted request costs a call to that place: as a rule milliseconds from the same region, up
//! to hundreds across the world. A refused request costs no call once the instance has received a refusal,
//! because within a window counts only grow.
//!
//! The count is in the object's memory alone: nothing about a client is stored. An object that idles for some
//! seconds or is deployed anew loses its memory; so each instance sends the count that it knows, and the
//! object resumes from there. Only a client that idles for so long, and then reaches an instance that has not
//! seen it within the minute, is counted anew. Storing would close that gap, for a write per request.
//!
//! The limiter must not take the API down: where the object fails, the instance counts by itself from what it
//! knows, and says so in the log. It sets no time limit: the platform ends calls to objects that are gone or
//! overloaded with an error, and a timer that runs beside a call makes workerd 1.20260426 stall under load.

use std::cell::Cell;

use edge_shared::{binding, unix_millis};
use registry_core::{
    eth::timestamp::Timestamp,
    host::rate_limit::{ClientKey, RateLimitVerdict, WindowLimit, WindowTally},
};
use serde::{Deserialize, Serialize};
use worker::{DurableObject, Env, Request, Response, Result, State, console_warn, durable_object};
// `durable_object` expands to paths of this crate.
use worker::wasm_bindgen;

use super::tallies;
use crate::settings::{LIMITER_BINDING, Settings};

/// Has the client's object count a request as `cost` requests; `None` where the limit is off.
pub(super) async fn charge(
    limit: WindowLimit,
    env: &Env,
    client: &ClientKey,
    now: Timestamp,
    cost: u32,
) -> Option<RateLimitVerdict> {
    let known = tallies::peek(limit, client, now)?;
    if !known.admitted {
        return Some(known);
    }
    match ask(env, client, &ChargeRequest { known: tallies::known(client), cost }).await {
        Ok(verdict) => {
            tallies::change(limit, client, now, |tally| limit.adopt(tally, &verdict));
            Some(verdict)
        }
        Err(error) => {
            console_warn!("rate limit object failed: {error}");
            tallies::change(limit, client, now, |tally| limit.charge_for(tally, now.seconds(), cost))
        }
    }
}

/// A request to a client's object, which responds with a [`RateLimitVerdict`].
#[derive(Serialize, Deserialize)]
struct ChargeRequest {
    /// What the instance knows of the client.
    known: WindowTally,
    /// How many requests this one counts as.
    cost: u32,
}

async fn ask(env: &Env, client: &ClientKey, request: &ChargeRequest) -> Result<RateLimitVerdict> {
    let object = env.durable_object(LIMITER_BINDING)?.get_by_name(&client.to_string())?;
    binding::ask(object, request).await
}

/// Counts one client's requests for all instances, by its own clock.
#[durable_object(fetch)]
pub struct ClientLimit {
    env: Env,
    tally: Cell<WindowTally>,
}

impl DurableObject for ClientLimit {
    fn new(_state: State, env: Env) -> Self {
        Self { env, tally: Cell::default() }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let ChargeRequest { known, cost } = request.json().await?;
        let limit = Settings::of(&self.env).map_err(|error| error.to_string())?.limits.client;
        // Nothing is awaited between reading the tally and writing it.
        let mut tally = self.tally.get();
        let verdict = limit.charge_knowing(&mut tally, &known, unix_millis() / 1_000, cost);
        self.tally.set(tally);
        let verdict = verdict.ok_or_else(|| "asked to count where there is no limit".to_owned())?;
        Response::from_json(&verdict)
    }
}
