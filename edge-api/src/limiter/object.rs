//! The exact limiter: one Durable Object per client counts its requests, whichever instance they reach.
//!
//! An object runs in one place in the world and handles one request after the other, so that its count is the count.
//! Every admitted request costs a call to that place: as a rule milliseconds from the same region, up to hundreds across
//! the world. A refused one costs nothing once the instance has heard a refusal, because within a window counts
//! only grow.
//!
//! The count is in the object's memory alone: nothing about a client is stored. The runtime takes the memory of an
//! object that lies idle for some seconds, or is deployed anew; so each instance sends along what it knows, and the
//! object goes on from there. Only a client that idles for so long, and then turns to an instance it has not been to
//! within the minute, is counted anew. Storing would close that gap, for a write per request.
//!
//! Limiting must not take the API down: where the object fails, the instance goes on with what it knows, counts by
//! itself, and says so in the log. It sets no time limit: the platform ends calls to objects that are gone or overloaded
//! with an error, and a timer running beside a call makes workerd 1.20260426 stall under load.

use std::cell::Cell;

use registry_core::{
    eth::timestamp::Timestamp,
    host::rate_limit::{Client, Limit, Tally, Verdict},
};
use serde::{Deserialize, Serialize};
use worker::{
    DurableObject,
    Env,
    Request,
    Response,
    Result,
    State,
    console_warn,
    durable_object,
    // What `durable_object` expands to names this crate.
    wasm_bindgen,
};

use super::tallies;
use crate::{binding, log::unix_millis, settings::Settings};

/// The binding of the objects' class.
pub(crate) const BINDING: &str = "CLIENT_LIMITS";

/// Has the client's object count a request as `cost` of them; `None` where the limit is off.
pub(super) async fn charge(
    limit: Limit,
    env: &Env,
    client: &Client,
    now: Timestamp,
    cost: u32,
) -> Option<Verdict> {
    let known = tallies::peek(limit, client, now)?;
    if !known.admitted {
        return Some(known);
    }
    match ask(env, client, &Charge { known: tallies::known(client), cost }).await {
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

/// What an instance sends to a client's object.
#[derive(Serialize, Deserialize)]
struct Charge {
    /// What it knows of the client.
    known: Tally,
    /// How many requests this one counts as.
    cost: u32,
}

async fn ask(env: &Env, client: &Client, charge: &Charge) -> Result<Verdict> {
    let object = env.durable_object(BINDING)?.get_by_name(&client.to_string())?;
    let response = binding::ask(object, &serde_json::to_string(charge)?).await?;
    match response.status() {
        200 => Ok(serde_json::from_str(&binding::text(&response).await?)?),
        status => Err(format!("status {status}").into()),
    }
}

/// Counts one client's requests for all instances, by its own clock.
#[durable_object(fetch)]
pub struct ClientLimit {
    env: Env,
    tally: Cell<Tally>,
}

impl DurableObject for ClientLimit {
    fn new(_state: State, env: Env) -> Self {
        Self { env, tally: Cell::default() }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let Charge { known, cost } = request.json().await?;
        let limit = Settings::of(&self.env).map_err(|error| error.to_string())?.limits.client;
        // Nothing is awaited between reading the tally and writing it.
        let mut tally = self.tally.get();
        let verdict = limit.charge_knowing(&mut tally, &known, unix_millis() / 1_000, cost);
        self.tally.set(tally);
        let verdict = verdict.ok_or_else(|| "asked to count where there is no limit".to_owned())?;
        Response::from_json(&verdict)
    }
}
