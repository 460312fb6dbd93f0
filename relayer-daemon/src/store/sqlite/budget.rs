//! The budget's window, and what relays have reserved of it.

use alloy::primitives::B256;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{column, text};
use crate::{
    budget::{Budget, Window},
    store::StoreError,
};

/// See [`crate::store::Store::reserve`].
pub(super) fn reserve(
    tx: &Connection,
    id: &B256,
    wei: u128,
    l1_fee_wei: u128,
    limit_wei: u128,
    now: u64,
) -> Result<bool, StoreError> {
    let before: Option<String> =
        tx.query_row("SELECT reserved_wei FROM relays WHERE id = ?1", [id.0], |row| row.get(0)).optional()?;
    let before = before.ok_or(StoreError::Missing("relay"))?;
    let before: u128 = before.parse().map_err(|_| StoreError::Corrupt("reserved_wei"))?;
    if !at(tx, limit_wei, now)?.allows(wei.saturating_sub(before)) {
        return Ok(false);
    }
    set_reserved(tx, id, wei)?;
    tx.execute("UPDATE relays SET l1_fee_wei = ?2 WHERE id = ?1", params![id.0, l1_fee_wei.to_string()])?;
    write_window(tx, window(tx, now)?.used(now, 0))?;
    Ok(true)
}

/// See [`crate::store::Store::release`].
pub(super) fn release(tx: &Connection, id: &B256, now: u64) -> Result<(), StoreError> {
    set_reserved(tx, id, 0)?;
    close_if_unused(tx, now)
}

/// A window in which nothing is paid or reserved has not been opened.
pub(super) fn close_if_unused(tx: &Connection, now: u64) -> Result<(), StoreError> {
    let still = reserved(tx)?;
    write_window(tx, window(tx, now)?.unused(still))
}

/// Charges what was paid.
pub(super) fn charge(tx: &Connection, wei: u128, now: u64) -> Result<(), StoreError> {
    write_window(tx, window(tx, now)?.used(now, wei))
}

/// See [`crate::store::Store::budget`].
pub(super) fn at(db: &Connection, limit_wei: u128, now: u64) -> Result<Budget, StoreError> {
    Ok(Budget { limit_wei, window: window(db, now)?, reserved_wei: reserved(db)? })
}

/// Sets what a relay may still cost.
pub(super) fn set_reserved(tx: &Connection, id: &B256, wei: u128) -> Result<(), StoreError> {
    tx.execute("UPDATE relays SET reserved_wei = ?2 WHERE id = ?1", params![id.0, wei.to_string()])?;
    Ok(())
}

/// What pending relays may still cost, all together.
fn reserved(db: &Connection) -> Result<u128, StoreError> {
    let mut statement =
        db.prepare_cached("SELECT reserved_wei FROM relays WHERE state = 'pending' AND reserved_wei <> '0'")?;
    let rows = statement.query_and_then([], |row| text::<u128>(row, "reserved_wei"))?;
    rows.into_iter().try_fold(0_u128, |sum, wei| Ok(sum.saturating_add(wei?)))
}

fn window(db: &Connection, now: u64) -> Result<Window, StoreError> {
    let mut statement = db.prepare_cached("SELECT opened_at, settled_wei FROM budget")?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(Window::default()) };
    let opened_at = column::<Option<i64>>(row, "opened_at")?.map(i64::cast_unsigned);
    Ok(Window { opened_at, settled_wei: text(row, "settled_wei")? }.at(now))
}

fn write_window(tx: &Connection, window: Window) -> Result<(), StoreError> {
    tx.execute(
        "INSERT INTO budget VALUES (1, ?1, ?2)
         ON CONFLICT (only_row) DO UPDATE SET opened_at = ?1, settled_wei = ?2",
        params![window.opened_at.map(u64::cast_signed), window.settled_wei.to_string()],
    )?;
    Ok(())
}
