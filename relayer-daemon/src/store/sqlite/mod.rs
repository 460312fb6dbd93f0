//! The store in one SQLite file, in WAL mode with `synchronous = FULL`: a write is on disk when it returns.
//!
//! One thread writes ([`writer`]). Reads have a connection of their own, and those for clients another one:
//! they see the last commit and never wait for one. Queries are in [`relays`], [`nonces`] and [`budget`], by
//! table, and in [`finality`] and [`retention`]; a function named like a method of [`Store`] implements it.
//! [`schema`] has the file's format.

mod budget;
mod finality;
mod identity;
mod nonces;
mod open;
#[cfg(test)]
mod query_plans;
mod relays;
mod retention;
mod schema;
mod writer;

use std::{
    net::IpAddr,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use alloy::primitives::{Address, B256};
use rusqlite::{Connection, Params, Row, types::FromSql};

use self::{open::Opener, writer::Writer};
use super::{
    Accepted, BlockId, ExpectedCost, Identity, MinedNonce, NewRelay, NewTransaction, RelayRecord,
    Reservation, Settlement, StoreError,
};
use crate::{
    budget::{Budget, share::Allowance},
    outcome::{BlockHeads, RelayOutcome},
    store::{NonceAssignment, Retention},
};

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error.to_string())
    }
}

/// The store in an SQLite file.
#[derive(Debug)]
pub struct Store {
    /// `None` if the file was opened for reading only.
    writer: Option<Arc<Writer>>,
    reader: Arc<Mutex<Connection>>,
    open: Opener,
    faults: StoreFaults,
}

/// Faults for tests, each injected while its flag is set.
#[derive(Debug, Clone, Default)]
pub struct StoreFaults {
    /// Writes fail as on a full disk.
    pub disk_full: Arc<AtomicBool>,
    /// Every operation fails without effect, as after the death of the process.
    pub dead: Arc<AtomicBool>,
}

impl Store {
    /// Runs a closure on the store without blocking the async runtime.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&store)).await.map_err(|_| StoreError::Interrupted)?
    }

    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.faults.dead.load(Ordering::Relaxed) {
            return Err(StoreError::Interrupted);
        }
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // One transaction: several queries see the same state.
        let tx = reader.transaction()?;
        work(&tx)
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.faults.disk_full.load(Ordering::Relaxed) {
            return Err(StoreError::NotCommitted);
        }
        if self.faults.dead.load(Ordering::Relaxed) {
            return Err(StoreError::Interrupted);
        }
        self.writer.as_ref().ok_or(StoreError::ReadOnly)?.run(work)
    }
}

/// The operations. Each is atomic, and durable when it returns; one that fails has changed nothing. They
/// block: async code uses [`Store::run`]. Times are unix seconds. `account` is the paying address; each has
/// its own nonces.
impl Store {
    /// Confirms that `identity` owns this store, or nothing owns it yet. Fails with [`StoreError::Foreign`].
    pub fn verify(&self, identity: &Identity) -> Result<(), StoreError> {
        self.read(|db| identity::verify(db, identity))
    }

    /// Makes `identity` the owner of this store for good. Fails with [`StoreError::Foreign`].
    pub fn bind(&self, identity: &Identity) -> Result<(), StoreError> {
        let identity = *identity;
        self.write(move |db| identity::bind(db, &identity))
    }

    /// A write without effect, to learn whether writing works.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.write(schema::rewrite_version)
    }

    /// Writes an accepted relay. A dropped one starts afresh; one that was carried out stays as it is.
    pub fn accept(&self, relay: &NewRelay, now: u64) -> Result<Accepted, StoreError> {
        let relay = relay.clone();
        self.write(move |db| relays::accept(db, &relay, now))
    }

    /// Replaces the reservation of a relay in flight. Returns whether the budget allows the difference.
    pub fn reserve(&self, id: B256, wei: u128, limit_wei: u128, now: u64) -> Result<bool, StoreError> {
        self.write(move |db| budget::reserve(db, &id, wei, limit_wei, now))
    }

    /// Whether the budget and the shares of the request's parties would allow `wei` more, where the cheapest
    /// relay costs `least_wei`.
    pub fn affordable(
        &self,
        signer: Address,
        client: Option<IpAddr>,
        wei: u128,
        least_wei: u128,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation, StoreError> {
        let asks = budget::Asks { id: None, signer, client, wei, least_wei, no_op_wei: 0 };
        self.read(|db| budget::check(db, &asks, allowance, now))
    }

    /// Replaces the reservation of a pending relay if the budget and the shares of its parties allow that.
    pub fn reserve_share(
        &self,
        id: B256,
        cost: &ExpectedCost,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation, StoreError> {
        let (cost, allowance) = (*cost, *allowance);
        self.write(move |db| budget::reserve_share(db, &id, &cost, &allowance, now))
    }

    /// Ends a pending relay for which nothing was mined, and gives its reservation back. A relay that has
    /// ended by the late receipt of a nonce given up as lost stays as it is.
    pub fn finish_unsent(&self, id: B256, outcome: &RelayOutcome, now: u64) -> Result<(), StoreError> {
        let outcome = outcome.clone();
        self.write(move |db| {
            if relays::is_pending(db, &id)? {
                relays::finish(db, &id, &outcome, now)?;
            }
            budget::close_if_unused(db, now)
        })
    }

    /// What is known of a relay.
    pub fn relay(&self, id: B256) -> Result<Option<RelayRecord>, StoreError> {
        self.read(|db| relays::record(db, &id))
    }

    /// A relay as it was accepted, to run it again.
    pub fn accepted(&self, id: B256) -> Result<Option<NewRelay>, StoreError> {
        self.read(|db| relays::accepted(db, &id))
    }

    /// Pending relays without a nonce in flight: the daemon died between accepting and signing. Gives their
    /// reservations back; they must run through the pipeline again.
    pub fn unsent(&self, now: u64) -> Result<Vec<NewRelay>, StoreError> {
        self.write(move |db| {
            let unsent = relays::unsent(db)?;
            for relay in &unsent {
                budget::set_reserved(db, &relay.id, 0)?;
            }
            budget::close_if_unused(db, now)?;
            Ok(unsent)
        })
    }

    /// The budget as it stands at `now`.
    pub fn budget(&self, limit_wei: u128, now: u64) -> Result<Budget, StoreError> {
        self.read(|db| budget::at(db, limit_wei, now))
    }

    /// When the oldest pending relay was accepted.
    pub fn oldest_pending(&self) -> Result<Option<u64>, StoreError> {
        self.read(relays::oldest_pending)
    }

    /// One small step of pruning: relays without any transaction go a day after their end; others are
    /// archived, and later deleted, as `retention` says. [`Store::relay`] and [`Store::accept`] know archived
    /// relays; their nonces are gone, except the newest of each account. Returns the number of pruned rows; 0
    /// means that nothing is due.
    pub fn prune(&self, retention: &Retention, now: u64) -> Result<usize, StoreError> {
        let retention = *retention;
        self.write(move |db| retention::prune(db, &retention, now))
    }

    /// The highest nonce deleted with its archived relay: no nonce up to it is a gap.
    pub fn archived_nonce(&self, account: Address) -> Result<Option<u64>, StoreError> {
        self.read(|db| retention::archived_nonce(db, &account))
    }

    /// Writes signed transactions, and with a nonce's first one its assignment: all of them or none. It must
    /// return before any of them is sent; if it fails, none of them may be sent. A relay gets no second nonce
    /// while one is open, of whatever account: [`StoreError::InFlight`].
    pub fn record(
        &self,
        account: Address,
        transactions: &[NewTransaction],
        now: u64,
    ) -> Result<(), StoreError> {
        let transactions = transactions.to_vec();
        self.write(move |db| nonces::record(db, &account, &transactions, now))
    }

    /// Writes a no-op that fills a gap, and may cost `extra_wei` more than the gap's earlier no-ops, if the
    /// budget allows that. Returns whether it does; if not, nothing is written.
    pub fn record_gap(
        &self,
        account: Address,
        no_op: &NewTransaction,
        extra_wei: u128,
        limit_wei: u128,
        now: u64,
    ) -> Result<bool, StoreError> {
        let no_op = [no_op.clone()];
        self.write(move |db| {
            let allowed = budget::allow(db, extra_wei, limit_wei, now)?;
            if allowed {
                nonces::record(db, &account, &no_op, now)?;
            }
            Ok(allowed)
        })
    }

    /// One more than the highest nonce ever assigned; `None` if none was.
    pub fn next_nonce(&self, account: Address) -> Result<Option<u64>, StoreError> {
        self.read(|db| nonces::next(db, &account))
    }

    /// The nonces not seen mined, lowest first.
    pub fn open_nonces(&self, account: Address) -> Result<Vec<NonceAssignment>, StoreError> {
        self.read(|db| nonces::open(db, &account))
    }

    /// The nonces of a relay that are not seen mined, of all accounts.
    pub fn open_nonces_of(&self, relay: B256) -> Result<Vec<(Address, u64)>, StoreError> {
        self.read(|db| nonces::open_of(db, &relay))
    }

    /// The accounts with nonces not seen mined.
    pub fn accounts_with_open_nonces(&self) -> Result<Vec<Address>, StoreError> {
        self.read(nonces::accounts_with_open)
    }

    /// Everything ever signed for a nonce.
    pub fn assignment(&self, account: Address, nonce: u64) -> Result<NonceAssignment, StoreError> {
        self.read(|db| nonces::assignment(db, &account, nonce.cast_signed()))
    }

    /// A nonce that was seen mined; `None` if it was not, or a reorg undid it.
    pub fn mined(&self, account: Address, nonce: u64) -> Result<Option<MinedNonce>, StoreError> {
        self.read(|db| nonces::mined(db, &account, nonce))
    }

    /// The nonces from `nonce` on that were seen mined, lowest first, at most `count`.
    pub fn mined_from(
        &self,
        account: Address,
        nonce: u64,
        count: usize,
    ) -> Result<Vec<MinedNonce>, StoreError> {
        self.read(|db| nonces::mined_from(db, &account, nonce, count))
    }

    /// The blocks of mined nonces that were not compared with the chain yet, lowest first, at most `count`.
    pub fn unchecked_blocks(&self, account: Address, count: usize) -> Result<Vec<BlockId>, StoreError> {
        self.read(|db| finality::unchecked_blocks(db, &account, count))
    }

    /// The highest block that is not final and was found on the chain. While it is on the chain, so are all
    /// those below it that were found there.
    pub fn anchor(&self, account: Address) -> Result<Option<BlockId>, StoreError> {
        self.read(|db| finality::anchor(db, &account))
    }

    /// The mined nonces of a block that was not found on the chain, at most `count`.
    pub fn nonces_of(
        &self,
        account: Address,
        block: &BlockId,
        count: usize,
    ) -> Result<Vec<MinedNonce>, StoreError> {
        self.read(|db| finality::nonces_of(db, &account, block, count))
    }

    /// Writes that these blocks were found on the chain.
    pub fn checked(&self, account: Address, blocks: &[BlockId]) -> Result<(), StoreError> {
        let blocks = blocks.to_vec();
        self.write(move |db| finality::checked(db, &account, &blocks))
    }

    /// Has all blocks that are not final compared with the chain once more.
    pub fn doubt(&self, account: Address) -> Result<(), StoreError> {
        self.write(move |db| finality::doubt(db, &account))
    }

    /// Compares a mined nonce's block no more: it is gone, and what became of the nonce cannot be known.
    pub fn give_up(&self, account: Address, nonce: u64) -> Result<(), StoreError> {
        self.write(move |db| finality::give_up(db, &account, nonce))
    }

    /// The blocks that these heads make safe or final and that were found on the chain, lowest first, at most
    /// `count`.
    pub fn promotable(
        &self,
        account: Address,
        heads: &BlockHeads,
        now: u64,
        count: usize,
    ) -> Result<Vec<BlockId>, StoreError> {
        self.read(|db| finality::promotable(db, &account, heads, now, count))
    }

    /// Makes these blocks safe or final, as the heads say.
    pub fn promote(
        &self,
        account: Address,
        heads: &BlockHeads,
        blocks: &[BlockId],
        now: u64,
    ) -> Result<(), StoreError> {
        let (heads, blocks) = (*heads, blocks.to_vec());
        self.write(move |db| finality::promote(db, &account, &heads, &blocks, now))
    }

    /// The newest nonces given up as lost, a bounded number: their receipts may be late.
    pub fn lost(&self, account: Address) -> Result<Vec<u64>, StoreError> {
        self.read(|db| nonces::lost(db, &account))
    }

    /// The highest nonce seen mined.
    pub fn highest_mined(&self, account: Address) -> Result<Option<u64>, StoreError> {
        self.read(|db| nonces::highest_mined(db, &account))
    }

    /// Settles a nonce mined by our transaction: ends its relay, and charges the budget the price paid in
    /// place of the reservation. A nonce or relay that is missing (lost by a disk or a backup) is written
    /// anew from the settlement, and the log says so.
    pub fn settle(&self, account: Address, settlement: &Settlement, now: u64) -> Result<(), StoreError> {
        let settlement = settlement.clone();
        self.write(move |db| nonces::settle(db, &account, &settlement, now))
    }

    /// Reopens a mined nonce that a reorg undid: its relay is pending again, and its expected cost above what
    /// it was charged is reserved, even beyond the limit, because it cannot be called back. A relay that
    /// another nonce of its own has executed stays as it is. Returns whether the nonce's relay is pending
    /// now.
    pub fn reopen(&self, account: Address, nonce: u64, expected_wei: u128) -> Result<bool, StoreError> {
        self.write(move |db| nonces::reopen(db, &account, nonce, expected_wei))
    }

    /// Marks a nonce as used by a foreign transaction: ours can never be mined.
    pub fn lose(&self, account: Address, nonce: u64) -> Result<(), StoreError> {
        self.write(move |db| nonces::lose(db, &account, nonce))
    }

    /// Whether all nonces from `from` to below `to` are ours: if so, the pending transactions are.
    pub fn explains(&self, account: Address, from: u64, to: u64) -> Result<bool, StoreError> {
        self.read(|db| nonces::explains(db, &account, from, to))
    }
}

/// The first row that a query finds.
fn first<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    db.prepare_cached(sql)?.query(params)?.next()?.map(read).transpose()
}

/// All rows that a query finds.
fn all<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    db.prepare_cached(sql)?.query_and_then(params, read)?.collect()
}

/// A column of a type that SQLite lacks, stored as text.
fn text<T: FromStr>(row: &Row<'_>, column: &'static str) -> Result<T, StoreError> {
    row.get::<_, String>(column)?.parse().map_err(|_| StoreError::Corrupt(column))
}

/// A column as SQLite has it.
fn column<T: FromSql>(row: &Row<'_>, name: &'static str) -> Result<T, StoreError> {
    Ok(row.get(name)?)
}

/// An unsigned 64-bit column, which SQLite stores signed.
fn unsigned(row: &Row<'_>, name: &'static str) -> Result<u64, StoreError> {
    Ok(row.get::<_, i64>(name)?.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_for_a_client_does_not_hold_up_the_senders() {
        let store = Store::in_memory().unwrap();
        let clients = store.with_own_reader().unwrap();
        let (reading, is_reading) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                clients.read(|_| {
                    reading.send(()).unwrap();
                    may_go.recv().unwrap();
                    Ok(())
                })
            });
            is_reading.recv().unwrap();
            assert_eq!(store.oldest_pending().unwrap(), None, "waits for the client's read");
            go.send(()).unwrap();
        });
    }

    #[test]
    fn what_was_written_is_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("journal.sqlite")).unwrap();
        let read = |db: &Connection| -> Result<(String, i64), StoreError> {
            let mode = db.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
            Ok((mode, db.query_row("PRAGMA synchronous", [], |row| row.get(0))?))
        };
        let (mode, synchronous) = store.write(read).unwrap();
        assert_eq!((mode.as_str(), synchronous), ("wal", 2), "not WAL with synchronous FULL");
    }

    #[test]
    fn a_read_does_not_wait_for_a_write() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("journal.sqlite")).unwrap();
        let (started, has_started) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|threads| {
            let store = &store;
            let write = threads.spawn(move || {
                store.write(move |db| {
                    db.execute("INSERT INTO budget VALUES (1, 5, '7')", [])?;
                    started.send(()).unwrap();
                    may_go.recv().unwrap();
                    Ok(())
                })
            });
            has_started.recv().unwrap();
            assert_eq!(store.budget(10, 6).unwrap().window.settled_wei, 0, "nothing is committed yet");
            go.send(()).unwrap();
            write.join().unwrap().unwrap();
        });
        assert_eq!(store.budget(10, 6).unwrap().window.settled_wei, 7);
    }
}
