//! The end of a relay.

use alloy::primitives::B256;

use super::{
    Store, budget,
    engine::{Db, values},
    events, fleet, key_gas, relays,
};
use crate::{
    outcome::RelayOutcome,
    store::{Result, StoreError, events::EventKind},
};

impl Store {
    /// Ends a pending relay for which nothing was mined, and gives its reservation back. A relay that has
    /// ended by the late receipt of a nonce given up as lost stays as it is. Returns its outcome. Fails with
    /// [`StoreError::HeldElsewhere`] while it has a nonce in flight, which decides.
    pub fn finish_unsent(&self, id: B256, outcome: &RelayOutcome, now: u64) -> Result<RelayOutcome> {
        let outcome = outcome.clone();
        self.write_about(id, move |db| {
            let known = relays::stored_outcome(db, &id)?.ok_or(StoreError::Missing("relay"))?;
            if known.is_none() {
                fleet::must_have_no_nonce(db, &id)?;
                finish(db, &id, &outcome, now)?;
                // Where no transaction was signed the calldata may be large, and cost its client nothing.
                db.run(
                    "UPDATE relays SET calldata = $2
                     WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id)",
                    values![id, Vec::<u8>::new()],
                )?;
            }
            budget::close_if_unused(db, now)?;
            Ok(known.unwrap_or(outcome))
        })
    }
}

/// Writes a relay's outcome, and gives its reservation back.
pub(super) fn finish(tx: &Db, id: &B256, outcome: &RelayOutcome, now: u64) -> Result<()> {
    let (mined, failure, agent_id) = outcome.parts();
    let sponsor = key_gas::sponsor(tx, id)?;
    if let Some(sponsor) = &sponsor {
        key_gas::refund(tx, sponsor)?;
        key_gas::charge(tx, &sponsor.key, mined.map_or(0, |mined| mined.gas_used), now)?;
    }
    tx.run(
        "UPDATE relays SET state = $2, error_code = $3, error_detail = $4, error_retry = $5,
             tx_hash = $6, block_number = $7, gas_used = $8, agent_id = $9, finished_at = $10, reserved_wei = '0'
         WHERE id = $1",
        values![
            id,
            outcome.state(),
            failure.map(|failure| failure.code.name()),
            failure.and_then(|failure| failure.detail.as_deref()),
            failure.and_then(|failure| failure.retry_after),
            mined.map(|mined| mined.tx_hash),
            mined.map(|mined| mined.block_number),
            mined.map(|mined| mined.gas_used),
            agent_id,
            now,
        ],
    )?;
    if sponsor.is_some() { events::note(tx, id, EventKind::of(outcome), now) } else { Ok(()) }
}
