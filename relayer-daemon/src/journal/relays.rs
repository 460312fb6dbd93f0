//! Relays and the budget they use.

use alloy::primitives::{Address, B256, Bytes, U256};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Journal, JournalError, column, text, unsigned};
use crate::{
    budget::{Budget, WINDOW_SECONDS, Window},
    outcome::Outcome,
    sender::slot::Order,
};

/// A relay as it is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRelay {
    /// The EIP-712 digest.
    pub id: B256,
    /// `request.from`.
    pub signer: Address,
    /// `request.nonce`.
    pub forward_nonce: U256,
    /// `request.deadline`, unix seconds, 0 for none.
    pub deadline: u64,
    /// The call of `execute(request, signature)`: all that is needed to start over.
    pub calldata: Bytes,
}

/// What acceptance found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The relay is in the journal and pending.
    Pending,
    /// It was carried out before; nothing was changed.
    Finished(Outcome),
}

/// A relay as the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayRecord {
    /// `None` while pending.
    pub outcome: Option<Outcome>,
    /// Every transaction tried for it, oldest first.
    pub hashes: Vec<B256>,
}

impl Journal {
    /// Writes an accepted relay. One that was dropped starts afresh; one that was carried out stays as it is.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn accept(&self, relay: &NewRelay, now: u64) -> Result<Accepted, JournalError> {
        self.transact(|tx| {
            match stored_outcome(tx, &relay.id)? {
                Some(Some(outcome)) if !outcome.is_repeatable() => return Ok(Accepted::Finished(outcome)),
                Some(_) => {
                    let restart = "UPDATE relays SET outcome = NULL, finished_at = NULL WHERE id = ?1";
                    tx.execute(restart, [relay.id.0])?;
                }
                None => {
                    tx.execute(
                        "INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, created_at)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                        params![
                            relay.id.0,
                            relay.signer.0.0,
                            relay.forward_nonce.to_be_bytes::<32>(),
                            relay.deadline.cast_signed(),
                            relay.calldata.as_ref(),
                            now.cast_signed()
                        ],
                    )?;
                }
            }
            Ok(Accepted::Pending)
        })
    }

    /// Sets what a pending relay may cost, in place of what was reserved for it before, if the budget allows
    /// the difference. Returns whether it does.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn reserve(
        &self,
        id: B256,
        wei: u128,
        l1_fee_wei: u128,
        limit_wei: u128,
        now: u64,
    ) -> Result<bool, JournalError> {
        self.transact(|tx| {
            let before: u128 =
                tx.query_row_and_then("SELECT reserved_wei FROM relays WHERE id = ?1", [id.0], |row| {
                    text(row, "reserved_wei")
                })?;
            if !budget(tx, limit_wei, now)?.allows(wei.saturating_sub(before)) {
                return Ok(false);
            }
            set_reserved(tx, &id, wei)?;
            tx.execute(
                "UPDATE relays SET l1_fee_wei = ?2 WHERE id = ?1",
                params![id.0, l1_fee_wei.to_string()],
            )?;
            write_window(tx, window(tx, now)?.used(now, 0))?;
            Ok(true)
        })
    }

    /// Gives back what was reserved for a relay that has to wait.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn release(&self, id: B256, now: u64) -> Result<(), JournalError> {
        self.transact(|tx| {
            set_reserved(tx, &id, 0)?;
            let still = reserved(tx)?;
            write_window(tx, window(tx, now)?.unused(still))
        })
    }

    /// Ends a relay for which nothing was mined, and gives its reservation back.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn finish_unsent(&self, id: B256, outcome: &Outcome, now: u64) -> Result<(), JournalError> {
        self.transact(|tx| {
            finish(tx, &id, outcome, now)?;
            let still = reserved(tx)?;
            write_window(tx, window(tx, now)?.unused(still))
        })
    }

    /// What is known of a relay.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn relay(&self, id: B256) -> Result<Option<RelayRecord>, JournalError> {
        self.transact(|tx| {
            let Some(outcome) = stored_outcome(tx, &id)? else { return Ok(None) };
            let mut statement = tx.prepare_cached(
                "SELECT hash FROM transactions JOIN nonces USING (nonce)
                 WHERE relay = ?1 ORDER BY transactions.rowid",
            )?;
            let hashes = statement
                .query_map([id.0], |row| row.get::<_, [u8; 32]>(0))?
                .map(|hash| hash.map(B256::from))
                .collect::<Result<_, _>>()?;
            Ok(Some(RelayRecord { outcome, hashes }))
        })
    }

    /// A relay as it was accepted, to start over with.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn accepted(&self, id: B256) -> Result<Option<NewRelay>, JournalError> {
        self.transact(|tx| {
            let mut statement = tx.prepare_cached("SELECT * FROM relays WHERE id = ?1")?;
            let mut rows = statement.query([id.0])?;
            rows.next()?.map(new_relay).transpose()
        })
    }

    /// Relays that are pending and have no nonce: accepted, but the daemon died before signing for them. What
    /// was reserved for them is given back; they are to run through the pipeline again.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn unsent(&self, now: u64) -> Result<Vec<NewRelay>, JournalError> {
        self.transact(|tx| {
            let mut statement = tx.prepare_cached(
                "SELECT * FROM relays WHERE outcome IS NULL
                 AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id AND state = 'open')
                 ORDER BY created_at, rowid",
            )?;
            let unsent: Vec<_> =
                statement.query_and_then([], new_relay)?.collect::<Result<_, JournalError>>()?;
            for relay in &unsent {
                set_reserved(tx, &relay.id, 0)?;
            }
            let still = reserved(tx)?;
            write_window(tx, window(tx, now)?.unused(still))?;
            Ok(unsent)
        })
    }

    /// The budget as it stands at `now`.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn budget(&self, limit_wei: u128, now: u64) -> Result<Budget, JournalError> {
        self.transact(|tx| budget(tx, limit_wei, now))
    }

    /// When the oldest pending relay was accepted, unix seconds.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn oldest_pending(&self) -> Result<Option<u64>, JournalError> {
        self.transact(|tx| {
            let oldest: Option<i64> =
                tx.query_row("SELECT min(created_at) FROM relays WHERE outcome IS NULL", [], |row| {
                    row.get(0)
                })?;
            Ok(oldest.map(i64::cast_unsigned))
        })
    }

    /// Forgets relays that never came to a transaction and ended more than a day ago.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn prune(&self, now: u64) -> Result<usize, JournalError> {
        self.transact(|tx| {
            Ok(tx.execute(
                "DELETE FROM relays WHERE finished_at < ?1
                 AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id)",
                [now.saturating_sub(WINDOW_SECONDS).cast_signed()],
            )?)
        })
    }
}

/// `None`: unknown relay; `Some(None)`: pending.
fn stored_outcome(tx: &Connection, id: &B256) -> Result<Option<Option<Outcome>>, JournalError> {
    let json: Option<Option<String>> =
        tx.query_row("SELECT outcome FROM relays WHERE id = ?1", [id.0], |row| row.get(0)).optional()?;
    json.map(|json| {
        json.map(|json| serde_json::from_str(&json).map_err(|_| JournalError::Corrupt("outcome"))).transpose()
    })
    .transpose()
}

fn new_relay(row: &Row<'_>) -> Result<NewRelay, JournalError> {
    Ok(NewRelay {
        id: column::<[u8; 32]>(row, "id")?.into(),
        signer: column::<[u8; 20]>(row, "signer")?.into(),
        forward_nonce: U256::from_be_bytes(column::<[u8; 32]>(row, "forward_nonce")?),
        deadline: unsigned(row, "deadline")?,
        calldata: column::<Vec<u8>>(row, "calldata")?.into(),
    })
}

/// The sender's view of a relay, from a row that has the relay's columns.
pub(super) fn order(row: &Row<'_>) -> Result<Order, JournalError> {
    let relay = new_relay(row)?;
    Ok(Order {
        id: relay.id,
        signer: relay.signer,
        forward_nonce: relay.forward_nonce,
        deadline: relay.deadline,
        l1_fee_wei: text(row, "l1_fee_wei")?,
    })
}

pub(super) fn finish(tx: &Connection, id: &B256, outcome: &Outcome, now: u64) -> Result<(), JournalError> {
    let json = serde_json::to_string(outcome).map_err(|_| JournalError::Corrupt("outcome"))?;
    tx.execute(
        "UPDATE relays SET outcome = ?2, finished_at = ?3, reserved_wei = '0' WHERE id = ?1",
        params![id.0, json, now.cast_signed()],
    )?;
    Ok(())
}

pub(super) fn set_reserved(tx: &Connection, id: &B256, wei: u128) -> Result<(), JournalError> {
    tx.execute("UPDATE relays SET reserved_wei = ?2 WHERE id = ?1", params![id.0, wei.to_string()])?;
    Ok(())
}

/// What pending relays may still cost, all together.
fn reserved(tx: &Connection) -> Result<u128, JournalError> {
    let mut statement =
        tx.prepare_cached("SELECT reserved_wei FROM relays WHERE outcome IS NULL AND reserved_wei <> '0'")?;
    let rows = statement.query_and_then([], |row| text::<u128>(row, "reserved_wei"))?;
    rows.into_iter().try_fold(0_u128, |sum, wei| Ok(sum.saturating_add(wei?)))
}

pub(super) fn window(tx: &Connection, now: u64) -> Result<Window, JournalError> {
    let mut statement = tx.prepare_cached("SELECT opened_at, settled_wei FROM budget")?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(Window::default()) };
    let opened_at = column::<Option<i64>>(row, "opened_at")?.map(i64::cast_unsigned);
    Ok(Window { opened_at, settled_wei: text(row, "settled_wei")? }.at(now))
}

pub(super) fn write_window(tx: &Connection, window: Window) -> Result<(), JournalError> {
    tx.execute(
        "INSERT INTO budget VALUES (1, ?1, ?2)
         ON CONFLICT (only_row) DO UPDATE SET opened_at = ?1, settled_wei = ?2",
        params![window.opened_at.map(u64::cast_signed), window.settled_wei.to_string()],
    )?;
    Ok(())
}

fn budget(tx: &Connection, limit_wei: u128, now: u64) -> Result<Budget, JournalError> {
    Ok(Budget { limit_wei, window: window(tx, now)?, reserved_wei: reserved(tx)? })
}
