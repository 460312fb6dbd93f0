//! Nonces, the transactions signed for them, and what mining them cost.

use alloy::primitives::B256;
use rusqlite::{Connection, Row, params};

use super::{Journal, JournalError, column, relays, text, unsigned};
use crate::{
    fees::Fees,
    outcome::Outcome,
    sender::slot::{Attempt, Order, Purpose, Slot},
};

/// A transaction that is signed and not yet sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Its nonce.
    pub nonce: u64,
    /// The relay that the nonce is for; `None` for a gap.
    pub relay: Option<B256>,
    /// The transaction.
    pub attempt: Attempt,
}

/// A nonce that was mined by one of our transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinedSlot {
    /// The nonce with all that was tried for it.
    pub slot: Slot,
    /// The hash that was mined, and the block it was seen in.
    pub mined: (B256, u64),
}

impl Journal {
    /// Writes signed transactions, and with a nonce's first one its assignment: all of them or none. Must
    /// return before any byte of them goes to the network.
    ///
    /// # Errors
    /// [`JournalError`]; then none of them may be sent.
    pub fn record(&self, signed: &[Signed], now: u64) -> Result<(), JournalError> {
        self.transact(|tx| {
            for Signed { nonce, relay, attempt } in signed {
                tx.execute(
                    "INSERT INTO nonces (nonce, relay, state) VALUES (?1, ?2, 'open')
                     ON CONFLICT DO UPDATE SET relay = ?2, state = 'open' WHERE state = 'lost'",
                    params![nonce.cast_signed(), relay.map(|id| id.0)],
                )?;
                tx.execute(
                    "INSERT INTO transactions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
                    params![
                        attempt.hash.0,
                        nonce.cast_signed(),
                        attempt.purpose.name(),
                        attempt.raw.as_ref(),
                        attempt.fees.max_fee.to_string(),
                        attempt.fees.tip.to_string(),
                        attempt.gas_limit.cast_signed(),
                        now.cast_signed()
                    ],
                )?;
            }
            Ok(())
        })
    }

    /// One more than the highest nonce ever given away; `None` if none was.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn next_nonce(&self) -> Result<Option<u64>, JournalError> {
        self.transact(|tx| {
            let highest: Option<i64> = tx.query_row("SELECT max(nonce) FROM nonces", [], |row| row.get(0))?;
            Ok(highest.map(|nonce| nonce.cast_unsigned().saturating_add(1)))
        })
    }

    /// The nonces that were not seen mined, lowest first.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open_slots(&self) -> Result<Vec<Slot>, JournalError> {
        self.transact(|tx| {
            let mut statement =
                tx.prepare_cached("SELECT nonce FROM nonces WHERE state = 'open' ORDER BY nonce")?;
            let nonces: Vec<i64> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            nonces.into_iter().map(|nonce| slot(tx, nonce)).collect()
        })
    }

    /// Everything ever signed for a nonce, whatever became of it.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn slot(&self, nonce: u64) -> Result<Slot, JournalError> {
        self.transact(|tx| slot(tx, nonce.cast_signed()))
    }

    /// The nonces from `nonce` on that were seen mined in or before block `head`, lowest first: those that a
    /// chain with fewer mined transactions has lost again.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn mined_from(&self, nonce: u64, head: u64) -> Result<Vec<MinedSlot>, JournalError> {
        self.transact(|tx| {
            let mut statement = tx.prepare_cached(
                "SELECT * FROM nonces WHERE state = 'mined' AND nonce >= ?1 AND mined_block <= ?2 ORDER BY nonce",
            )?;
            let range = [nonce.cast_signed(), head.cast_signed()];
            statement.query_and_then(range, |row| mined_slot(tx, row))?.collect()
        })
    }

    /// A nonce that was seen mined; `None` if it was not, or was undone since.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn mined_slot(&self, nonce: u64) -> Result<Option<MinedSlot>, JournalError> {
        self.transact(|tx| {
            let mut statement =
                tx.prepare_cached("SELECT * FROM nonces WHERE state = 'mined' AND nonce = ?1")?;
            let mut rows = statement.query([nonce.cast_signed()])?;
            rows.next()?.map(|row| mined_slot(tx, row)).transpose()
        })
    }

    /// The nonces seen mined since `since`, unix seconds, lowest first.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn mined_since(&self, since: u64) -> Result<Vec<u64>, JournalError> {
        self.transact(|tx| {
            let mut statement = tx.prepare_cached(
                "SELECT nonce FROM nonces WHERE state = 'mined' AND mined_at >= ?1 ORDER BY nonce",
            )?;
            statement.query_and_then([since.cast_signed()], |row| unsigned(row, "nonce"))?.collect()
        })
    }

    /// The highest nonce seen mined by us.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn highest_mined(&self) -> Result<Option<u64>, JournalError> {
        self.transact(|tx| {
            let query = "SELECT max(nonce) FROM nonces WHERE state = 'mined'";
            let highest: Option<i64> = tx.query_row(query, [], |row| row.get(0))?;
            Ok(highest.map(i64::cast_unsigned))
        })
    }

    /// A nonce was mined by one of ours: ends its relay and charges the budget what was really paid, in
    /// place of what was reserved.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn settle(
        &self,
        nonce: u64,
        mined: (B256, u64),
        paid_wei: u128,
        outcome: Option<(B256, &Outcome)>,
        now: u64,
    ) -> Result<(), JournalError> {
        self.transact(|tx| {
            // After a reorganisation a nonce is settled anew: only what it costs more is charged.
            let before: u128 = tx
                .query_row_and_then("SELECT paid_wei FROM nonces WHERE nonce = ?1", [nonce.cast_signed()], |row| {
                    text(row, "paid_wei")
                })?;
            tx.execute(
                "UPDATE nonces SET state = 'mined', mined_hash = ?2, mined_block = ?3, paid_wei = ?4, mined_at = ?5
                 WHERE nonce = ?1",
                params![nonce.cast_signed(), mined.0.0, mined.1.cast_signed(), paid_wei.max(before).to_string(),
                    now.cast_signed()],
            )?;
            if let Some((id, outcome)) = outcome {
                relays::finish(tx, &id, outcome, now)?;
            }
            let window = relays::window(tx, now)?.used(now, paid_wei.saturating_sub(before));
            relays::write_window(tx, window)
        })
    }

    /// A reorganisation took a mined nonce back: it is open again, its relay pending, and what it may still
    /// cost above what it was charged is reserved, even beyond the limit: it cannot be called back.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn reopen(&self, nonce: u64, worst_case_wei: u128) -> Result<(), JournalError> {
        self.transact(|tx| {
            let (relay, paid) = tx.query_row_and_then(
                "SELECT relay, paid_wei FROM nonces WHERE nonce = ?1",
                [nonce.cast_signed()],
                |row| {
                    Ok::<_, JournalError>((
                        column::<Option<[u8; 32]>>(row, "relay")?,
                        text::<u128>(row, "paid_wei")?,
                    ))
                },
            )?;
            let reopen =
                "UPDATE nonces SET state = 'open', mined_hash = NULL, mined_block = NULL WHERE nonce = ?1";
            tx.execute(reopen, [nonce.cast_signed()])?;
            if let Some(id) = relay {
                tx.execute("UPDATE relays SET outcome = NULL, finished_at = NULL WHERE id = ?1", [id])?;
                relays::set_reserved(tx, &id.into(), worst_case_wei.saturating_sub(paid))?;
            }
            Ok(())
        })
    }

    /// Somebody else's transaction was mined with this nonce: ours can never be.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn lose(&self, nonce: u64) -> Result<(), JournalError> {
        self.transact(|tx| {
            tx.execute("UPDATE nonces SET state = 'lost' WHERE nonce = ?1", [nonce.cast_signed()])?;
            Ok(())
        })
    }

    /// The nonces among `from..to` that are ours and open: what explains pending transactions of the account.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn explains(&self, from: u64, to: u64) -> Result<bool, JournalError> {
        self.transact(|tx| {
            let ours: i64 = tx.query_row(
                "SELECT count(*) FROM nonces WHERE state <> 'lost' AND nonce >= ?1 AND nonce < ?2",
                [from.cast_signed(), to.cast_signed()],
                |row| row.get(0),
            )?;
            Ok(ours.cast_unsigned() == to.saturating_sub(from))
        })
    }
}

fn mined_slot(tx: &Connection, row: &Row<'_>) -> Result<MinedSlot, JournalError> {
    let hash: [u8; 32] = column(row, "mined_hash")?;
    Ok(MinedSlot {
        slot: slot(tx, column(row, "nonce")?)?,
        mined: (hash.into(), unsigned(row, "mined_block")?),
    })
}

fn slot(tx: &Connection, nonce: i64) -> Result<Slot, JournalError> {
    let mut orders = tx.prepare_cached(
        "SELECT relays.* FROM nonces JOIN relays ON relays.id = nonces.relay WHERE nonce = ?1",
    )?;
    let order: Option<Order> = orders.query([nonce])?.next()?.map(relays::order).transpose()?;
    let mut statement = tx.prepare_cached("SELECT * FROM transactions WHERE nonce = ?1 ORDER BY rowid")?;
    let attempts = statement.query_and_then([nonce], attempt)?.collect::<Result<_, JournalError>>()?;
    Ok(Slot { nonce: nonce.cast_unsigned(), order, attempts })
}

fn attempt(row: &Row<'_>) -> Result<Attempt, JournalError> {
    let purpose: String = column(row, "purpose")?;
    Ok(Attempt {
        hash: column::<[u8; 32]>(row, "hash")?.into(),
        raw: column::<Vec<u8>>(row, "raw")?.into(),
        fees: Fees { max_fee: text(row, "max_fee_wei")?, tip: text(row, "tip_wei")? },
        gas_limit: unsigned(row, "gas_limit")?,
        purpose: Purpose::from_name(&purpose).ok_or(JournalError::Corrupt("purpose"))?,
    })
}
