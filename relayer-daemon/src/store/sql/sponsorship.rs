//! The API keys that sponsor relays, and the gas that each used of its day.
//!
//! A relay in flight counts with the most it may use, one that has ended with what it used. A day is a window
//! of 24 hours that opens with its first use, as the budget's does.

use super::{
    engine::{Db, values},
    events, key_gas, locks, relays,
};
use crate::{
    budget::WINDOW_SECONDS,
    store::{Accepted, DaemonId, NewRelay, Sponsored, Sponsorship, StoreError, events::EventKind},
};

pub(super) fn accept(
    tx: &Db,
    relay: &NewRelay,
    sponsorship: &Sponsorship,
    daemon: Option<&DaemonId>,
    now: u64,
) -> Result<Sponsored, StoreError> {
    let Sponsorship { key, gas, gas_per_day, is_told } = sponsorship;
    locks::relay(tx, &relay.id)?;
    if relays::is_elsewhere(tx, &relay.id, daemon)? {
        return Ok(Sponsored::Accepted(Accepted::Elsewhere));
    }
    if let Some(limit) = gas_per_day {
        locks::key(tx, key)?;
        let window = key_gas::window(tx, key, now)?;
        let used = window.map_or(0, |(_, used)| used).saturating_add(key_gas::in_flight(tx, key, &relay.id)?);
        if used.saturating_add(*gas) > *limit {
            let opened = window.map_or(now, |(opened, _)| opened);
            // What a relay in flight does not use comes back sooner.
            return Ok(Sponsored::Exhausted(
                opened.saturating_add(WINDOW_SECONDS).saturating_sub(now).max(1),
            ));
        }
    }
    let accepted = relays::accept(tx, relay, daemon, now)?;
    if accepted != Accepted::Pending {
        return Ok(Sponsored::Accepted(accepted));
    }
    tx.run(
        "UPDATE relays SET api_key = ?2, sponsored_gas = ?3, is_told = ?4 WHERE id = ?1",
        values![relay.id.0, key, gas.cast_signed(), *is_told],
    )?;
    events::note(tx, &relay.id, EventKind::Pending, now)?;
    Ok(Sponsored::Accepted(accepted))
}
