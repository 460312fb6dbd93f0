//! The store in a database: SQLite in WAL mode with `synchronous = FULL`, or Postgres.
//!
//! [`engine::writer`] writes; on Postgres several transactions at once, which lock what they rely upon
//! ([`locks`]). Reads have connections of their own, and those for clients others:
//! they see the last commit and never wait for one. Queries are by table, and in [`finality`], [`retention`] and
//! [`fleet`]; a function named like a method of [`Store`] implements it. [`engine`] has the two databases.

mod access;
mod assignments;
mod budget;
mod control;
mod ending;
mod engine;
mod events;
mod finality;
mod fleet;
mod frequent;
mod identity;
mod key_gas;
mod locks;
mod migrate;
mod nonces;
mod open;
#[cfg(test)]
mod query_plans;
mod relays;
mod retention;
mod sponsorship;

use std::sync::{Arc, atomic::AtomicU64};

use alloy::primitives::{Address, B256};
use tokio::sync::Semaphore;

pub use self::access::StoreFaults;
use self::{
    engine::{connections::Connections, values, writer::Writer},
    open::Opener,
};
use super::{
    Accepted, BlockId, DaemonId, ExpectedCost, MinedNonce, NewRelay, NewTransaction, Payer, RelayRecord,
    Reservation, SendableRelays, Settlement, Sponsored, Sponsorship, StoreError,
};
use crate::{
    budget::{
        Budget,
        share::{Allowance, Party},
    },
    outcome::{BlockHeads, RelayOutcome},
    store::{NonceAssignment, Retention},
};

/// The store in a database.
#[derive(Debug, Clone)]
pub struct Store {
    /// `None` if it was opened for reading only.
    writer: Option<Arc<Writer>>,
    /// What writes leases: the same, or a connection of their own.
    leases: Option<Arc<Writer>>,
    readers: Arc<Connections>,
    /// Whether the connections that read may run a write that is one statement, too.
    has_single_writes: bool,
    /// Bounds what blocks a thread.
    permits: Arc<Semaphore>,
    /// The frequent writes that wait for one another.
    frequent_writes: Arc<frequent::FrequentWrites>,
    /// Counts the connections to the database.
    connects: Arc<AtomicU64>,
    open: Opener,
    faults: StoreFaults,
    /// The daemon of a fleet that uses it; `None` where it has one daemon alone.
    daemon: Option<DaemonId>,
}

/// The operations. Each is atomic, and durable when it returns; one that fails has changed nothing. They
/// block: async code uses [`Store::run`]. Times are unix seconds. `account` is the paying address; each has
/// its own nonces. In a fleet only the daemon that holds an account writes about its nonces, and only the one
/// that holds a relay writes about it; the others' writes fail with [`StoreError::Fenced`] and
/// [`StoreError::HeldElsewhere`].
impl Store {
    /// A write without effect, to learn whether writing works.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.write(|db| db.probe())
    }

    /// Writes an accepted relay. A dropped one starts afresh; one that was carried out stays as it is.
    pub fn accept(&self, relay: &NewRelay, now: u64) -> Result<Accepted, StoreError> {
        let (relay, daemon) = (relay.clone(), self.daemon.clone());
        if let Some(daemon) = daemon.clone() {
            // Most are new, and one statement then.
            let new = relay.clone();
            if self.write_single(move |db| relays::insert_new(db, &new, &daemon, now))? {
                return Ok(Accepted::Pending);
            }
        }
        self.write(move |db| relays::accept(db, &relay, daemon.as_ref(), now))
    }

    /// The same for a relay that an API key sponsors, if the key's gas of the day covers it.
    pub fn accept_sponsored(
        &self,
        relay: &NewRelay,
        sponsorship: &Sponsorship,
        now: u64,
    ) -> Result<Sponsored, StoreError> {
        let (relay, sponsorship, daemon) = (relay.clone(), sponsorship.clone(), self.daemon.clone());
        self.write(move |db| sponsorship::accept(db, &relay, &sponsorship, daemon.as_ref(), now))
    }

    /// Replaces the reservation of a relay in flight. Returns whether the budget allows the difference.
    pub fn reserve(&self, id: B256, wei: u128, limit_wei: u128, now: u64) -> Result<bool, StoreError> {
        self.write_about(id, move |db| budget::reserve(db, &id, wei, limit_wei, now))
    }

    /// What is known of a relay, as [`Store::outcome`] tells it, and whether the budget and the shares of its
    /// parties would allow it `wei` more, where the cheapest relay costs `least_wei`.
    pub fn look_up(
        &self,
        relay: &NewRelay,
        wei: u128,
        least_wei: u128,
        allowance: &Allowance,
        now: u64,
    ) -> Result<(Option<Option<RelayOutcome>>, Reservation), StoreError> {
        let parties: Vec<Party> = Party::of(relay.signer, relay.client).collect();
        self.read_single(|db| {
            let queries =
                [(relays::OUTCOME, values![relay.id.0]), (budget::USED, &budget::keys(&parties)[..])];
            let mut rows = db.queries(&queries)?.into_iter();
            let known = rows.next().unwrap_or_default().first().map(relays::outcome).transpose()?;
            let used = budget::Usage::of(db, &rows.next().unwrap_or_default(), parties, None, now)?;
            Ok((known, used.check(wei, least_wei, 0, allowance)))
        })
    }

    /// Replaces the reservation of a pending relay if the budget and the shares of its parties allow that. Fails
    /// with [`StoreError::NonceUsed`] if another request has used its forwarder nonce, whatever a node says that
    /// has not heard of that.
    pub fn reserve_share(
        &self,
        id: B256,
        cost: &ExpectedCost,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation, StoreError> {
        if let Some(daemon) = self.frequent() {
            let _turn = self.frequent_writes.turn_to_reserve();
            let reserve = |db: &engine::Db| frequent::reserve(db, &id, daemon, cost, allowance, now);
            if let Some(reservation) = self.write_committing(reserve)? {
                return Ok(reservation);
            }
        }
        let (cost, allowance, daemon) = (*cost, *allowance, self.daemon.clone());
        self.write(move |db| budget::reserve_share(db, &id, daemon.as_ref(), &cost, &allowance, now))
    }

    /// Ends a pending relay for which nothing was mined, and gives its reservation back. A relay that has
    /// ended by the late receipt of a nonce given up as lost stays as it is.
    pub fn finish_unsent(&self, id: B256, outcome: &RelayOutcome, now: u64) -> Result<(), StoreError> {
        let (outcome, in_fleet) = (outcome.clone(), self.is_shared());
        self.write_about(id, move |db| {
            if in_fleet {
                fleet::must_have_no_nonce(db, &id)?;
            }
            if relays::is_pending(db, &id)?.ok_or(StoreError::Missing("relay"))? {
                ending::finish(db, &id, &outcome, now)?;
                ending::forget_calldata(db, &id)?;
            }
            budget::close_if_unused(db, now)
        })
    }

    /// What is known of a relay.
    pub fn relay(&self, id: B256) -> Result<Option<RelayRecord>, StoreError> {
        self.read(|db| retention::record(db, &id))
    }

    /// How a relay ended; `None` if it is not known, `Some(None)` while it is pending.
    pub fn outcome(&self, id: B256) -> Result<Option<Option<RelayOutcome>>, StoreError> {
        self.read_single(|db| relays::stored_outcome(db, &id))
    }

    /// A relay as it was accepted, to run it again.
    pub fn accepted(&self, id: B256) -> Result<Option<NewRelay>, StoreError> {
        self.read_single(|db| relays::accepted(db, &id))
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
        self.read_single(relays::oldest_pending)
    }

    /// One small step of pruning: relays without any transaction go a day after their end; others are
    /// archived, and later deleted, as `retention` says. [`Store::relay`] and [`Store::accept`] know archived
    /// relays; their nonces are gone, except the newest of each account. Returns the number of pruned rows; 0
    /// means that nothing is due.
    pub fn prune(&self, retention: &Retention, now: u64) -> Result<usize, StoreError> {
        let (retention, is_shared) = (*retention, self.is_shared());
        self.write(move |db| {
            if is_shared {
                fleet::forget_rates(db)?;
            }
            retention::prune(db, &retention, now)
        })
    }

    /// The highest nonce deleted with its archived relay: no nonce up to it is a gap.
    pub fn archived_nonce(&self, account: Address) -> Result<Option<u64>, StoreError> {
        self.read_single(|db| retention::archived_nonce(db, &account))
    }

    /// Writes signed transactions, and with a nonce's first one its assignment: all of them or none. It must
    /// return before any of them is sent; if it fails, none of them may be sent. A relay gets no second nonce
    /// while one is open, of whatever account, and none while another request with its signer and forwarder
    /// nonce has an open one or was executed: [`StoreError::InFlight`].
    pub fn record(
        &self,
        payer: impl Into<Payer>,
        transactions: &[NewTransaction],
        now: u64,
    ) -> Result<(), StoreError> {
        let payer = payer.into();
        if let Some(daemon) = self.frequent() {
            let record = |db: &engine::Db| frequent::record(db, &payer, daemon, transactions, now);
            if self.write_committing(record)? {
                return Ok(());
            }
        }
        let (transactions, daemon) = (transactions.to_vec(), self.daemon.clone());
        self.write_for(payer, move |db| {
            nonces::record(db, &payer.account, daemon.as_ref(), &transactions, now)
        })
    }

    /// Writes a relay's next transaction for a nonce that it has, if the budget allows the relay `wei` in all.
    /// Returns whether it does; if not, nothing is written. In a fleet the account's lease is enough: another
    /// daemon may run the relay, because of a second nonce of another account.
    pub fn record_replacement(
        &self,
        payer: impl Into<Payer>,
        relay: B256,
        replacement: &NewTransaction,
        wei: u128,
        limit_wei: u128,
        now: u64,
    ) -> Result<bool, StoreError> {
        let (payer, replacement) = (payer.into(), [replacement.clone()]);
        self.write_for(payer, move |db| {
            locks::relay(db, &relay)?;
            let allowed = budget::reserve(db, &relay, wei, limit_wei, now)?;
            if allowed {
                nonces::record(db, &payer.account, None, &replacement, now)?;
            }
            Ok(allowed)
        })
    }

    /// Writes a no-op that fills a gap, and may cost `extra_wei` more than the gap's earlier no-ops, if the
    /// budget allows that. Returns whether it does; if not, nothing is written.
    pub fn record_gap(
        &self,
        payer: impl Into<Payer>,
        no_op: &NewTransaction,
        extra_wei: u128,
        limit_wei: u128,
        now: u64,
    ) -> Result<bool, StoreError> {
        let (payer, no_op) = (payer.into(), [no_op.clone()]);
        self.write_for(payer, move |db| {
            let allowed = budget::allow(db, extra_wei, limit_wei, now)?;
            if allowed {
                nonces::record(db, &payer.account, None, &no_op, now)?;
            }
            Ok(allowed)
        })
    }

    /// One more than the highest nonce ever assigned; `None` if none was.
    pub fn next_nonce(&self, account: Address) -> Result<Option<u64>, StoreError> {
        self.read_single(|db| nonces::next(db, &account))
    }

    /// The nonces not seen mined, lowest first.
    pub fn open_nonces(&self, account: Address) -> Result<Vec<NonceAssignment>, StoreError> {
        self.read(|db| nonces::open(db, &account))
    }

    /// Which of these relays may be given a nonce, and what [`Store::next_nonce`] says of the account.
    pub fn sendable(&self, account: Address, relays: &[B256]) -> Result<SendableRelays, StoreError> {
        self.read_single(|db| nonces::all_sendable(db, &account, relays))
    }

    /// The nonces of a relay that are not seen mined, of all accounts.
    pub fn open_nonces_of(&self, relay: B256) -> Result<Vec<(Address, u64)>, StoreError> {
        self.read_single(|db| assignments::open_of(db, &relay))
    }

    /// The accounts with nonces not seen mined.
    pub fn accounts_with_open_nonces(&self) -> Result<Vec<Address>, StoreError> {
        self.read_single(nonces::accounts_with_open)
    }

    /// Everything ever signed for a nonce.
    pub fn assignment(&self, account: Address, nonce: u64) -> Result<NonceAssignment, StoreError> {
        self.read(|db| assignments::assignment(db, &account, nonce.cast_signed()))
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
        self.read_single(|db| finality::unchecked_blocks(db, &account, count))
    }

    /// The highest block that is not final and was found on the chain. While it is on the chain, so are all
    /// those below it that were found there.
    pub fn anchor(&self, account: Address) -> Result<Option<BlockId>, StoreError> {
        self.read_single(|db| finality::anchor(db, &account))
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
    pub fn checked(&self, payer: impl Into<Payer>, blocks: &[BlockId]) -> Result<(), StoreError> {
        let (payer, blocks) = (payer.into(), blocks.to_vec());
        self.write_for(payer, move |db| finality::checked(db, &payer.account, &blocks))
    }

    /// Has all blocks that are not final compared with the chain once more.
    pub fn doubt(&self, payer: impl Into<Payer>) -> Result<(), StoreError> {
        let payer = payer.into();
        self.write_for(payer, move |db| finality::doubt(db, &payer.account))
    }

    /// Compares a mined nonce's block no more: it is gone, and what became of the nonce cannot be known.
    pub fn give_up(&self, payer: impl Into<Payer>, nonce: u64) -> Result<(), StoreError> {
        let payer = payer.into();
        self.write_for(payer, move |db| finality::give_up(db, &payer.account, nonce))
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
        self.read_single(|db| finality::promotable(db, &account, heads, now, count))
    }

    /// Makes these blocks safe or final, as the heads say.
    pub fn promote(
        &self,
        payer: impl Into<Payer>,
        heads: &BlockHeads,
        blocks: &[BlockId],
        now: u64,
    ) -> Result<(), StoreError> {
        let (payer, heads, blocks) = (payer.into(), *heads, blocks.to_vec());
        self.write_for(payer, move |db| finality::promote(db, &payer.account, &heads, &blocks, now))
    }

    /// The newest nonces given up as lost, a bounded number: their receipts may be late.
    pub fn lost(&self, account: Address) -> Result<Vec<u64>, StoreError> {
        self.read_single(|db| nonces::lost(db, &account))
    }

    /// The highest nonce seen mined.
    pub fn highest_mined(&self, account: Address) -> Result<Option<u64>, StoreError> {
        self.read_single(|db| nonces::highest_mined(db, &account))
    }

    /// Settles a nonce mined by our transaction: ends its relay, and charges the budget the price paid in
    /// place of the reservation. A nonce or relay that is missing (lost by a disk or a backup) is written
    /// anew from the settlement, and the log says so. Returns the relay's outcome if this nonce decides it: a
    /// relay with several nonces goes on while one is open, unless it was executed.
    pub fn settle(
        &self,
        payer: impl Into<Payer>,
        settlement: &Settlement,
        now: u64,
    ) -> Result<Option<RelayOutcome>, StoreError> {
        let payer = payer.into();
        if let Some(daemon) = self.frequent() {
            let write = |settle: &frequent::Settle<'_>| self.write_committing(settle);
            if self.frequent_writes.settle(payer, daemon, settlement, now, write)? {
                return Ok(settlement.outcome.clone());
            }
        }
        let settlement = settlement.clone();
        self.write_for(payer, move |db| nonces::settle(db, &payer.account, &settlement, now))
    }

    /// Reopens a mined nonce that a reorg undid: its relay is pending again, and its expected cost above what
    /// it was charged is reserved, even beyond the limit, because it cannot be called back. A relay that
    /// another nonce of its own has executed stays as it is. Returns whether the nonce's relay is pending
    /// now.
    pub fn reopen(
        &self,
        payer: impl Into<Payer>,
        nonce: u64,
        expected_wei: u128,
        now: u64,
    ) -> Result<bool, StoreError> {
        let (payer, daemon) = (payer.into(), self.daemon.clone());
        self.write_for(payer, move |db| {
            let is_pending = nonces::reopen(db, &payer.account, nonce, expected_wei, now)?;
            if let Some(daemon) = daemon.filter(|_| is_pending) {
                fleet::take_relay_of(db, &daemon, &payer.account, nonce)?;
            }
            Ok(is_pending)
        })
    }

    /// Marks a nonce as used by a foreign transaction: ours can never be mined.
    pub fn lose(&self, payer: impl Into<Payer>, nonce: u64) -> Result<(), StoreError> {
        let payer = payer.into();
        self.write_for(payer, move |db| nonces::lose(db, &payer.account, nonce))
    }

    /// Whether all nonces from `from` to below `to` are ours: if so, the pending transactions are.
    pub fn explains(&self, account: Address, from: u64, to: u64) -> Result<bool, StoreError> {
        self.read_single(|db| nonces::explains(db, &account, from, to))
    }
}
