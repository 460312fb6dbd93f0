//! The gas that each API key has used of its day.
//!
//! A day is a window of 24 hours that opens with its first use, as the budget's does.

use alloy::primitives::B256;

use super::{
    engine::{Db, column, first, single, values},
    locks,
};
use crate::{budget::WINDOW_SECONDS, store::Result};

/// Returns the most gas that a key's relays in flight may use, without this one.
pub(super) fn in_flight(db: &Db, key: &str, without: &B256) -> Result<u64> {
    let query = "SELECT CAST(coalesce(sum(sponsored_gas), 0) AS BIGINT) FROM relays
         WHERE state = 'pending' AND api_key = $1 AND id <> $2";
    Ok(single(db, query, values![key, without])?.unwrap_or_default())
}

/// Returns the opening time of a key's window, and the gas used in it; `None` if none is open.
pub(super) fn window(db: &Db, key: &str, now: u64) -> Result<Option<(u64, u64)>> {
    let query = "SELECT opened_at, used FROM key_gas WHERE api_key = $1";
    let window: Option<(u64, u64)> =
        first(db, query, values![key], |row| Ok((column(row, "opened_at")?, column(row, "used")?)))?;
    // A clock that was set back does not keep a window open for longer than its length.
    Ok(window
        .map(|(opened, used)| (opened.min(now), used))
        .filter(|(opened, _)| now - opened < WINDOW_SECONDS))
}

pub(super) fn charge(tx: &Db, key: &str, gas: u64, now: u64) -> Result<()> {
    if gas == 0 {
        return Ok(());
    }
    locks::key(tx, key)?;
    let (opened, used) = window(tx, key, now)?.unwrap_or((now, 0));
    tx.run(
        "INSERT INTO key_gas VALUES ($1, $2, $3) ON CONFLICT (api_key) DO UPDATE SET opened_at = $2, used = $3",
        values![key, opened, used.saturating_add(gas)],
    )
}

/// Gives back what a relay was charged: a reorg has undone it, or it is charged anew. A window that was
/// opened since then does not have that charge.
pub(super) fn refund(tx: &Db, Sponsor { key, charged, charged_at }: &Sponsor) -> Result<()> {
    if *charged == 0 {
        return Ok(());
    }
    tx.run(
        "UPDATE key_gas SET used = CASE WHEN used > $2 THEN used - $2 ELSE 0 END
         WHERE api_key = $1 AND opened_at <= $3",
        values![key, *charged, *charged_at],
    )
}

/// The key that sponsors a relay.
pub(super) struct Sponsor {
    /// Its name.
    pub(super) key: String,
    /// The gas that it was charged for the relay.
    charged: u64,
    /// Time of that charge, the relay's end.
    charged_at: u64,
}

/// Returns the key that sponsors a relay, if one does.
pub(super) fn sponsor(db: &Db, id: &B256) -> Result<Option<Sponsor>> {
    let query =
        "SELECT api_key, coalesce(gas_used, 0) AS gas, coalesce(finished_at, 0) AS charged_at FROM relays
         WHERE id = $1 AND api_key IS NOT NULL";
    first(db, query, values![id], |row| {
        let (key, charged) = (column(row, "api_key")?, column(row, "gas")?);
        Ok(Sponsor { key, charged, charged_at: column(row, "charged_at")? })
    })
}
