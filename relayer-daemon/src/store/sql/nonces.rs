//! Nonces, and the transactions signed for them.

use alloy::primitives::{Address, B256};

use super::{
    Store, assignments, budget, control,
    engine::{Db, all, each, single, values},
    frequent, given_up, locks,
    relays::{self, RelayStanding},
};
use crate::store::{
    DaemonId, MinedNonce, NewTransaction, NonceAssignment, Payer, Result, Sendable, SendableRelays,
    SignedTransaction, StoreError, TransactionPurpose, Unsettled,
};

/// The most lost nonces that a restart looks up again.
const LOST: i64 = 64;
const OPEN: &str = "SELECT nonce FROM nonces WHERE account = $1 AND state = 'open' ORDER BY nonce";

impl Store {
    /// Writes signed transactions, and with a nonce's first one its assignment: all of them or none. It must
    /// return before any of them is sent; if it fails, none of them may be sent. A relay gets no second nonce
    /// while one is open, of whatever account, and none while another request with its signer and forwarder
    /// nonce has an open one or was executed: [`StoreError::InFlight`].
    pub fn record(&self, payer: impl Into<Payer>, transactions: &[NewTransaction], now: u64) -> Result<()> {
        let payer = payer.into();
        if let Some((daemon, statements)) = self.frequent() {
            let record = |db: &Db| frequent::record(db, statements, &payer, daemon, transactions, now);
            if self.write_committing(record)? {
                return Ok(());
            }
        }
        let (transactions, daemon) = (transactions.to_vec(), self.daemon.clone());
        self.write_for(payer, move |db| record(db, &payer.account, daemon.as_ref(), &transactions, now))
    }

    /// Writes a relay's next transaction for a nonce that it has, if the budget allows the relay `wei` in
    /// all. Returns whether it does; if not, nothing is written. In a fleet the account's lease is enough:
    /// another daemon may run the relay, because of a second nonce of another account.
    pub fn record_replacement(
        &self,
        payer: impl Into<Payer>,
        relay: B256,
        replacement: &NewTransaction,
        wei: u128,
        limit_wei: u128,
        now: u64,
    ) -> Result<bool> {
        let (payer, nonce): (Payer, u64) = (payer.into(), replacement.nonce);
        self.record_if(payer, replacement, now, move |db| {
            locks::requests(db, &[relay])?;
            // A nonce that has a reservation of its own has no part in the relay's.
            let Some((paid, Some(before))) = given_up::charged(db, &payer.account, nonce)? else {
                return budget::reserve(db, &relay, wei, limit_wei, now);
            };
            let left_wei = wei.saturating_sub(paid);
            let allowed = budget::allow(db, left_wei.saturating_sub(before), limit_wei, now)?;
            if allowed {
                given_up::set(db, &payer.account, nonce, left_wei, now)?;
            }
            Ok(allowed)
        })
    }

    /// Writes a no-op that fills a gap, and may cost `extra_wei` more than the gap's earlier no-ops, if the
    /// budget allows that. Returns whether it does; if not, nothing is written. A nonce that was given up is
    /// open again: the gap's reservation is the dearest of all that was signed for it.
    pub fn record_gap(
        &self,
        payer: impl Into<Payer>,
        no_op: &NewTransaction,
        extra_wei: u128,
        limit_wei: u128,
        now: u64,
    ) -> Result<bool> {
        let (payer, nonce): (Payer, u64) = (payer.into(), no_op.nonce);
        let account = payer.account;
        self.record_if(payer, no_op, now, move |db| {
            let allowed = budget::allow(db, extra_wei, limit_wei, now)?;
            if allowed {
                given_up::release(db, &account, nonce)?;
            }
            Ok(allowed)
        })
    }

    /// Writes a transaction that is no relay's first one, if the budget allows it. Returns whether it does.
    fn record_if(
        &self,
        payer: Payer,
        transaction: &NewTransaction,
        now: u64,
        allow: impl FnOnce(&Db) -> Result<bool> + Send + 'static,
    ) -> Result<bool> {
        let transaction = [transaction.clone()];
        self.write_for(payer, move |db| {
            let allowed = allow(db)?;
            if allowed {
                record(db, &payer.account, None, &transaction, now)?;
            }
            Ok(allowed)
        })
    }

    /// Returns one more than the highest nonce ever assigned; `None` if none was.
    pub fn next_nonce(&self, account: Address) -> Result<Option<u64>> {
        self.read_single(|db| next(db, &account))
    }

    /// Returns these relays with their eligibility for a nonce, and the account's [`Store::next_nonce`].
    pub fn sendable(&self, account: Address, relays: &[B256]) -> Result<SendableRelays> {
        self.read_single(|db| {
            let (mut known, highest) = relays::standings(db, relays, Some(&account), None)?;
            let sendable = relays.iter().map(|id| Ok((*id, sendable(db, id, known.remove(id))?)));
            let sendable = sendable.collect::<Result<_>>()?;
            let next = highest.map_or_else(|| next(db, &account), |it| Ok(Some(it.saturating_add(1))))?;
            Ok((sendable, next))
        })
    }

    /// Returns the nonces not seen mined, lowest first.
    pub fn open_nonces(&self, account: Address) -> Result<Vec<NonceAssignment>> {
        self.read(|db| {
            let nonces: Vec<u64> = each(db, OPEN, values![account])?;
            nonces.into_iter().map(|nonce| assignments::assignment(db, &account, nonce)).collect()
        })
    }

    /// Returns the nonces of an account that are not seen mined, without what was signed for them.
    pub fn open_nonces_at(&self, account: Address) -> Result<Vec<u64>> {
        self.read_single(|db| each(db, OPEN, values![account]))
    }

    /// Returns the nonces of a relay that were given up, of all accounts.
    pub fn given_up_of(&self, relay: B256) -> Result<Vec<(Address, u64)>> {
        self.read_single(|db| assignments::given_up_of(db, &relay))
    }

    /// Returns what of its nonces may still end a pending relay; `None` if it has ended, or nothing may.
    pub fn unsettled(&self, relay: B256) -> Result<Option<Unsettled>> {
        self.read(|db| {
            Ok(if relays::stored_outcome(db, &relay)? != Some(None) {
                None
            } else if !assignments::open_of(db, &relay)?.is_empty() {
                Some(Unsettled::InFlight)
            } else {
                (!assignments::given_up_of(db, &relay)?.is_empty()).then_some(Unsettled::GivenUp)
            })
        })
    }

    /// Returns the accounts with nonces not seen mined.
    pub fn accounts_with_open_nonces(&self) -> Result<Vec<Address>> {
        let query = "SELECT DISTINCT account FROM nonces WHERE state = 'open'";
        self.read_single(|db| each(db, query, values![]))
    }

    /// Returns a nonce with everything ever signed for it.
    pub fn assignment(&self, account: Address, nonce: u64) -> Result<NonceAssignment> {
        self.read(|db| assignments::assignment(db, &account, nonce))
    }

    /// Returns the nonces from `nonce` on that were seen mined, lowest first, at most `count`.
    pub fn mined_from(&self, account: Address, nonce: u64, count: usize) -> Result<Vec<MinedNonce>> {
        let query = "SELECT * FROM nonces WHERE account = $1 AND nonce >= $2 AND state = 'mined' ORDER BY nonce LIMIT $3";
        let chosen = values![account, nonce, count as u64];
        self.read(|db| all(db, query, chosen, |row| assignments::mined_nonce(db, &account, row)))
    }

    /// Returns the newest nonces given up as lost, a bounded number: their receipts may be late.
    pub fn lost(&self, account: Address) -> Result<Vec<u64>> {
        let query =
            "SELECT nonce FROM nonces WHERE account = $1 AND state = 'lost' ORDER BY nonce DESC LIMIT $2";
        self.read_single(|db| each(db, query, values![account, LOST]))
    }

    /// Returns the highest nonce seen mined.
    pub fn highest_mined(&self, account: Address) -> Result<Option<u64>> {
        let query =
            "SELECT nonce FROM nonces WHERE account = $1 AND state = 'mined' ORDER BY nonce DESC LIMIT 1";
        self.read_single(|db| single(db, query, values![account]))
    }

    /// Marks a nonce as used by a foreign transaction. A relay without another one in flight is this daemon's
    /// to run again. The nonce's cost stays reserved for a day: its receipt may be late, if it was ours.
    pub fn lose(&self, payer: impl Into<Payer>, nonce: u64, now: u64) -> Result<()> {
        let (payer, daemon) = (payer.into(), self.daemon.clone());
        self.write_for(payer, move |db| lose(db, &payer.account, nonce, daemon.as_ref(), now))
    }

    /// Returns whether all nonces from `from` to below `to` are ours: if so, the pending transactions are.
    pub fn explains(&self, account: Address, from: u64, to: u64) -> Result<bool> {
        let query = "SELECT count(*) FROM nonces WHERE account = $1 AND nonce >= $2 AND nonce < $3 AND state <> 'lost'";
        let ours: Option<u64> = self.read_single(|db| single(db, query, values![account, from, to]))?;
        Ok(ours == Some(to.saturating_sub(from)))
    }
}

fn record(
    tx: &Db,
    account: &Address,
    daemon: Option<&DaemonId>,
    transactions: &[NewTransaction],
    now: u64,
) -> Result<()> {
    let relays: Vec<B256> = transactions.iter().filter_map(|transaction| transaction.relay).collect();
    locks::requests(tx, &relays)?;
    for NewTransaction { nonce, relay, transaction } in transactions {
        if let Some(relay) = relay {
            let standing = relays::standing(tx, relay, Some((account, *nonce)))?;
            let standing = standing.ok_or(StoreError::Missing("relay"))?;
            // With this nonce already it is a replacement: the account's lease is enough.
            if !standing.has_this_nonce {
                standing.must_be_held_by(daemon)?;
                let is_over = match daemon {
                    Some(_) => !standing.is_pending,
                    // It may have been cancelled since it was checked.
                    None => {
                        relays::stored_outcome(tx, relay)?.flatten().is_some_and(|end| end.is_cancelled())
                    }
                };
                // A pending relay is marked so if it has lost the nonce that a no-op was to take.
                let is_cancelled =
                    transaction.purpose == TransactionPurpose::Relay && control::is_marked(tx, relay)?;
                if is_over || is_cancelled {
                    return Err(StoreError::HeldElsewhere);
                }
                if standing.has_nonce || standing.rival.is_some() {
                    return Err(StoreError::InFlight);
                }
            }
        }
        tx.run(
            "INSERT INTO nonces (account, nonce, relay, state) VALUES ($1, $2, $3, 'open')
             ON CONFLICT (account, nonce) DO UPDATE SET relay = $3, state = 'open', is_second = FALSE
             WHERE nonces.state = 'lost'",
            values![account, *nonce, relay.as_ref()],
        )?;
        insert_transaction(tx, account, *nonce, transaction, now)?;
    }
    Ok(())
}

pub(super) fn lose(
    tx: &Db,
    account: &Address,
    nonce: u64,
    daemon: Option<&DaemonId>,
    now: u64,
) -> Result<()> {
    let key = values![account, nonce];
    let relay: Option<B256> =
        single(tx, "SELECT relay FROM nonces WHERE account = $1 AND nonce = $2", key)?.flatten();
    relay.map_or(Ok(()), |id| locks::relay(tx, &id))?;
    tx.run("UPDATE nonces SET state = 'lost' WHERE account = $1 AND nonce = $2", key)?;
    given_up::reserve(tx, account, nonce, now)?;
    match daemon.zip(relay) {
        // The daemon of another account, which had a nonce of it, does not run it.
        Some((daemon, id)) if assignments::open_of(tx, &id)?.is_empty() => relays::take(tx, daemon, &id),
        _ => Ok(()),
    }
}

/// Returns the eligibility of a relay for a nonce; `known` is its standing, if it was read.
fn sendable(db: &Db, relay: &B256, mut known: Option<RelayStanding>) -> Result<Sendable> {
    // Each statement is a transaction of its own: a relay may be reopened between two of them.
    loop {
        match known.filter(|standing| standing.is_pending) {
            Some(standing) if standing.has_nonce => return Ok(Sendable::InFlight),
            Some(standing) if standing.rival.is_none() => return Ok(Sendable::Yes),
            Some(_) => return Ok(Sendable::NotNext),
            None => {}
        }
        match relays::stored_outcome(db, relay)? {
            Some(Some(outcome)) => return Ok(Sendable::Ended(outcome)),
            Some(None) => known = relays::standing(db, relay, None)?,
            None => return Ok(Sendable::NotNext),
        }
    }
}

pub(super) fn insert_transaction(
    tx: &Db,
    account: &Address,
    nonce: u64,
    transaction: &SignedTransaction,
    now: u64,
) -> Result<()> {
    tx.run(
        "INSERT INTO transactions (hash, account, nonce, purpose, raw, max_fee_wei, tip_wei, gas_limit, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
        values![
            transaction.hash,
            account,
            nonce,
            transaction.purpose.name(),
            &transaction.raw,
            transaction.fees.max_fee,
            transaction.fees.tip,
            transaction.gas_limit,
            now,
        ],
    )
}

fn next(db: &Db, account: &Address) -> Result<Option<u64>> {
    let highest = single(db, "SELECT max(nonce) FROM nonces WHERE account = $1", values![account])?;
    Ok(highest.flatten().map(|nonce: u64| nonce.saturating_add(1)))
}
