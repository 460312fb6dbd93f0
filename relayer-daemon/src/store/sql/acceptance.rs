//! The acceptance of relays, and the API keys that sponsor them.
//!
//! A relay in flight counts against its key with the most gas that it may use, one that has ended with the
//! gas that it used.

use alloy::primitives::B256;

use super::{
    Store, budget,
    engine::{Db, all, single, values},
    events, key_gas, locks, relays,
};
use crate::{
    budget::WINDOW_SECONDS,
    outcome::RelayOutcome,
    store::{Accepted, DaemonId, NewRelay, Result, Sponsored, Sponsorship, StoreError, events::EventKind},
};

impl Store {
    /// Writes an accepted relay. A dropped one starts afresh; one that was carried out stays as it is.
    pub fn accept(&self, relay: &NewRelay, now: u64) -> Result<Accepted> {
        if let Some((daemon, frequent)) = self.frequent() {
            // Most relays are new: one statement then.
            let columns = relays::columns(relay, Some(daemon), now);
            if self.write_single(move |db| db.execute(frequent.accept, &columns))? > 0 {
                return Ok(Accepted::Pending);
            }
        }
        let (relay, daemon) = (relay.clone(), self.daemon.clone());
        self.write(move |db| accept(db, &relay, daemon.as_ref(), now))
    }

    /// Writes an accepted relay that an API key sponsors, if the key's gas of the day covers it.
    pub fn accept_sponsored(
        &self,
        relay: &NewRelay,
        sponsorship: &Sponsorship,
        now: u64,
    ) -> Result<Sponsored> {
        let (relay, sponsorship, daemon) = (relay.clone(), sponsorship.clone(), self.daemon.clone());
        self.write(move |db| {
            let Sponsorship { key, gas, gas_per_day, is_told } = &sponsorship;
            locks::relay(db, &relay.id)?;
            if is_elsewhere(db, &relay.id, daemon.as_ref())? {
                return Ok(Sponsored::Accepted(Accepted::Elsewhere));
            }
            if let Some(limit) = gas_per_day {
                locks::key(db, key)?;
                let (opened, used) = key_gas::window(db, key, now)?.unwrap_or((now, 0));
                let used = used.saturating_add(key_gas::in_flight(db, key, &relay.id)?);
                if used.saturating_add(*gas) > *limit {
                    // What a relay in flight does not use comes back sooner.
                    let seconds = opened.saturating_add(WINDOW_SECONDS).saturating_sub(now);
                    return Ok(Sponsored::Exhausted(seconds.max(1)));
                }
            }
            let accepted = accept(db, &relay, daemon.as_ref(), now)?;
            if accepted == Accepted::Pending {
                db.run(
                    "UPDATE relays SET api_key = $2, sponsored_gas = $3, is_told = $4 WHERE id = $1",
                    values![relay.id, key, *gas, *is_told],
                )?;
                events::note(db, &relay.id, EventKind::Pending, now)?;
            }
            Ok(Sponsored::Accepted(accepted))
        })
    }

    /// Returns the pending relays without a nonce in flight: the daemon died between accepting and signing.
    /// Gives their reservations back; they must run through the pipeline again.
    pub fn unsent(&self, now: u64) -> Result<Vec<NewRelay>> {
        let query = "SELECT * FROM relays WHERE state = 'pending'
             AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id AND state = 'open')
             ORDER BY created_at, rowid";
        self.write(move |db| {
            let unsent = all(db, query, values![], relays::new_relay)?;
            for relay in &unsent {
                budget::set_reserved(db, &relay.id, 0)?;
            }
            budget::close_if_unused(db, now)?;
            Ok(unsent)
        })
    }
}

/// Accepts a relay, for a daemon of a fleet unless another one runs it already.
fn accept(tx: &Db, relay: &NewRelay, daemon: Option<&DaemonId>, now: u64) -> Result<Accepted> {
    let is_over = |outcome: &RelayOutcome| !outcome.is_repeatable() || outcome.is_cancelled();
    if let Some(outcome) = relays::stored_outcome(tx, &relay.id)?.flatten().filter(is_over) {
        return Ok(Accepted::Finished(outcome));
    }
    if relays::insert(tx, relay, daemon, now)? {
        return Ok(Accepted::Pending);
    }
    locks::relay(tx, &relay.id)?;
    if is_elsewhere(tx, &relay.id, daemon)? {
        return Ok(Accepted::Elsewhere);
    }
    // It may have ended meanwhile.
    let known = relays::stored_outcome(tx, &relay.id)?.ok_or(StoreError::Missing("relay"))?;
    if let Some(outcome) = known.filter(is_over) {
        return Ok(Accepted::Finished(outcome));
    }
    relays::reopen(tx, &relay.id)?;
    // The new sender is charged for it.
    tx.run(
        "UPDATE relays SET client = $2, calldata = $3, api_key = NULL, sponsored_gas = 0, is_told = FALSE
         WHERE id = $1",
        values![relay.id, relay.client.map(relays::address), &relay.calldata],
    )?;
    daemon.map_or(Ok(()), |daemon| relays::take(tx, daemon, &relay.id))?;
    Ok(Accepted::Pending)
}

/// Returns whether a relay is pending that another daemon of the fleet runs, or may take.
fn is_elsewhere(db: &Db, id: &B256, daemon: Option<&DaemonId>) -> Result<bool> {
    let Some(daemon) = daemon else { return Ok(false) };
    let query = "SELECT holder FROM relays WHERE id = $1 AND state = 'pending'";
    let holder = single::<Option<DaemonId>>(db, query, values![id])?;
    Ok(holder.is_some_and(|holder| holder.as_ref() != Some(daemon)))
}
