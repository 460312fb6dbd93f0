//! The end of a relay.

use alloy::primitives::B256;

use super::{
    engine::{Db, values},
    events, key_gas,
};
use crate::{
    outcome::RelayOutcome,
    store::{StoreError, events::EventKind},
};

/// Writes how a relay ended, and gives its reservation back.
pub(super) fn finish(tx: &Db, id: &B256, outcome: &RelayOutcome, now: u64) -> Result<(), StoreError> {
    let (mined, failure, agent_id) = outcome.parts();
    let sponsor = key_gas::sponsor(tx, id)?;
    if let Some(sponsor) = &sponsor {
        key_gas::refund(tx, sponsor)?;
        key_gas::charge(tx, &sponsor.key, mined.map_or(0, |mined| mined.gas_used), now)?;
    }
    tx.run(
        "UPDATE relays SET state = ?2, error_code = ?3, error_detail = ?4, error_retry = ?5,
             tx_hash = ?6, block_number = ?7, gas_used = ?8, agent_id = ?9, finished_at = ?10, reserved_wei = '0'
         WHERE id = ?1",
        values![
            id.0,
            outcome.state(),
            failure.map(|failure| failure.code.name()),
            failure.and_then(|failure| failure.detail.as_deref()),
            failure.and_then(|failure| failure.retry_after).map(u64::cast_signed),
            mined.map(|mined| mined.tx_hash.0),
            mined.map(|mined| mined.block_number.cast_signed()),
            mined.map(|mined| mined.gas_used.cast_signed()),
            agent_id.map(|id| id.to_be_bytes::<32>()),
            now.cast_signed(),
        ],
    )?;
    if sponsor.is_some() { events::note(tx, id, EventKind::of(outcome), now) } else { Ok(()) }
}

/// Frees the calldata of a relay that no transaction was signed for: it may be large, and cost its client
/// nothing.
pub(super) fn forget_calldata(tx: &Db, id: &B256) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE relays SET calldata = ?2
         WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id)",
        values![id.0, Vec::<u8>::new()],
    )?;
    Ok(())
}
