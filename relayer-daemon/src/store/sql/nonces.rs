//! Nonces, the transactions signed for them, and what mining them cost.

use alloy::primitives::{Address, B256, Bytes};

use super::{
    assignments, budget, ending,
    engine::{Db, all, column, first, text, unsigned, values},
    events, key_gas, locks,
    relays::{self, Standing},
};
use crate::{
    outcome::RelayOutcome,
    store::{
        DaemonId, MinedNonce, NewRelay, NewTransaction, NonceAssignment, RelayTerms, Sendable,
        SendableRelays, Settlement, SignedTransaction, StoreError, events::EventKind,
    },
};

pub(super) fn record(
    tx: &Db,
    account: &Address,
    daemon: Option<&DaemonId>,
    transactions: &[NewTransaction],
    now: u64,
) -> Result<(), StoreError> {
    let relays: Vec<B256> = transactions.iter().filter_map(|transaction| transaction.relay).collect();
    locks::requests(tx, &relays)?;
    for NewTransaction { nonce, relay, transaction } in transactions {
        if let Some(relay) = relay {
            let standing = relays::standing(tx, relay, Some((account, *nonce)), daemon.is_some())?
                .ok_or(StoreError::Missing("relay"))?;
            // With this nonce already it is a replacement: the account's lease is enough.
            if !standing.has_this_nonce {
                standing.must_be_held_by(daemon)?;
                let is_over = match daemon {
                    Some(_) => !standing.is_pending,
                    // Since it was checked.
                    None => {
                        relays::stored_outcome(tx, relay)?.flatten().is_some_and(|end| end.is_cancelled())
                    }
                };
                if is_over {
                    return Err(StoreError::HeldElsewhere);
                }
                if standing.has_nonce || standing.rival.is_some() {
                    return Err(StoreError::InFlight);
                }
            }
        }
        tx.run(
            "INSERT INTO nonces (account, nonce, relay, state) VALUES (?1, ?2, ?3, 'open')
             ON CONFLICT (account, nonce) DO UPDATE SET relay = ?3, state = 'open', is_second = FALSE
             WHERE nonces.state = 'lost'",
            values![account.0.0, nonce.cast_signed(), relay.map(|id| id.0)],
        )?;
        insert_transaction(tx, account, *nonce, transaction, now)?;
    }
    Ok(())
}

pub(super) fn all_sendable(
    db: &Db,
    account: &Address,
    relays: &[B256],
) -> Result<SendableRelays, StoreError> {
    let (mut standings, highest) = match relays::standings(db, account, relays)? {
        Some((standings, Some(highest))) => (standings, Some(highest.saturating_add(1))),
        known => (known.map(|(standings, _)| standings).unwrap_or_default(), next(db, account)?),
    };
    let sendable = relays.iter().map(|id| Ok((*id, sendable(db, id, standings.remove(id))?)));
    Ok((sendable.collect::<Result<_, StoreError>>()?, highest))
}

/// Whether a relay may be given a nonce; `known` is its standing, where it was read.
fn sendable(db: &Db, relay: &B256, mut known: Option<Standing>) -> Result<Sendable, StoreError> {
    // Each statement is a transaction of its own: a relay may be reopened between two of them.
    loop {
        let standing =
            known.take().map_or_else(|| relays::standing(db, relay, None, false), |it| Ok(Some(it)))?;
        match standing.filter(|standing| standing.is_pending) {
            Some(standing) if standing.has_nonce => return Ok(Sendable::InFlight),
            Some(standing) if standing.rival.is_none() => return Ok(Sendable::Yes),
            Some(_) => return Ok(Sendable::NotNext),
            None => {}
        }
        match relays::stored_outcome(db, relay)? {
            Some(Some(outcome)) => return Ok(Sendable::Ended(outcome)),
            Some(None) => {}
            None => return Ok(Sendable::NotNext),
        }
    }
}

fn insert_transaction(
    tx: &Db,
    account: &Address,
    nonce: u64,
    transaction: &SignedTransaction,
    now: u64,
) -> Result<(), StoreError> {
    tx.run(
        "INSERT INTO transactions (hash, account, nonce, purpose, raw, max_fee_wei, tip_wei, gas_limit, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
        values![
            transaction.hash.0,
            account.0.0,
            nonce.cast_signed(),
            transaction.purpose.name(),
            transaction.raw.to_vec(),
            transaction.fees.max_fee.to_string(),
            transaction.fees.tip.to_string(),
            transaction.gas_limit.cast_signed(),
            now.cast_signed()
        ],
    )?;
    Ok(())
}

pub(super) fn next(db: &Db, account: &Address) -> Result<Option<u64>, StoreError> {
    let query = "SELECT max(nonce) AS highest FROM nonces WHERE account = ?1";
    let highest = first(db, query, values![account.0.0], |row| column::<Option<i64>>(row, "highest"))?;
    Ok(highest.flatten().map(|nonce| nonce.cast_unsigned().saturating_add(1)))
}

pub(super) fn open(db: &Db, account: &Address) -> Result<Vec<NonceAssignment>, StoreError> {
    let query = "SELECT nonce FROM nonces WHERE account = ?1 AND state = 'open' ORDER BY nonce";
    all(db, query, values![account.0.0], |row| assignments::assignment(db, account, column(row, "nonce")?))
}

pub(super) fn accounts_with_open(db: &Db) -> Result<Vec<Address>, StoreError> {
    let query = "SELECT DISTINCT account FROM nonces WHERE state = 'open'";
    all(db, query, values![], |row| Ok(column::<[u8; 20]>(row, "account")?.into()))
}

pub(super) fn mined(db: &Db, account: &Address, nonce: u64) -> Result<Option<MinedNonce>, StoreError> {
    let query = "SELECT * FROM nonces WHERE account = ?1 AND nonce = ?2 AND state = 'mined'";
    first(db, query, values![account.0.0, nonce.cast_signed()], |row| {
        assignments::mined_nonce(db, account, row)
    })
}

pub(super) fn mined_from(
    db: &Db,
    account: &Address,
    nonce: u64,
    count: usize,
) -> Result<Vec<MinedNonce>, StoreError> {
    let query =
        "SELECT * FROM nonces WHERE account = ?1 AND nonce >= ?2 AND state = 'mined' ORDER BY nonce LIMIT ?3";
    let params = values![account.0.0, nonce.cast_signed(), count as i64];
    all(db, query, params, |row| assignments::mined_nonce(db, account, row))
}

/// How many lost nonces a restart looks up again.
const LOST: i64 = 64;

pub(super) fn lost(db: &Db, account: &Address) -> Result<Vec<u64>, StoreError> {
    let query = "SELECT nonce FROM nonces WHERE account = ?1 AND state = 'lost' ORDER BY nonce DESC LIMIT ?2";
    all(db, query, values![account.0.0, LOST], |row| unsigned(row, "nonce"))
}

pub(super) fn highest_mined(db: &Db, account: &Address) -> Result<Option<u64>, StoreError> {
    let query = "SELECT nonce FROM nonces WHERE account = ?1 AND state = 'mined' ORDER BY nonce DESC LIMIT 1";
    first(db, query, values![account.0.0], |row| unsigned(row, "nonce"))
}

pub(super) fn settle(
    tx: &Db,
    account: &Address,
    settlement: &Settlement,
    now: u64,
) -> Result<Option<RelayOutcome>, StoreError> {
    let Settlement { assignment, inclusion, paid_wei, .. } = settlement;
    let nonce = assignment.nonce.cast_signed();
    let relay = assignment.relay.as_ref().map(|relay| &relay.id);
    relay.map_or(Ok(()), |relay| locks::relay(tx, relay))?;
    // After a reorg a nonce is settled again: only the difference is charged.
    let before = match charged(tx, account, nonce)? {
        Some(before) => before,
        None => {
            restore(tx, account, assignment, now)?;
            0
        }
    };
    tx.run(
        "UPDATE nonces SET state = 'mined', mined_hash = ?3, mined_block = ?4, paid_wei = ?5, mined_at = ?6,
             mined_block_hash = ?7, finality = 0
         WHERE account = ?1 AND nonce = ?2",
        values![
            account.0.0,
            nonce,
            inclusion.tx_hash.0,
            inclusion.block.number.cast_signed(),
            (*paid_wei).max(before).to_string(),
            now.cast_signed(),
            inclusion.block.hash.0,
        ],
    )?;
    let decided = match (relay, &settlement.outcome) {
        (Some(relay), Some(outcome)) if decides(tx, relay, outcome, assignment)? => {
            ending::finish(tx, relay, outcome, now)?;
            Some(outcome.clone())
        }
        _ => None,
    };
    budget::charge(tx, relay, paid_wei.saturating_sub(before), now)?;
    Ok(decided)
}

/// Whether a nonce that was just settled decides its relay's outcome.
///
/// A relay has several nonces if the first was given up as lost, or was cancelled before the client sent the
/// request again and a reorg then undid the cancellation. The executing one counts, whichever comes first.
fn decides(
    tx: &Db,
    relay: &B256,
    outcome: &RelayOutcome,
    settled: &NonceAssignment,
) -> Result<bool, StoreError> {
    const fn weight(outcome: &RelayOutcome) -> u8 {
        match outcome {
            RelayOutcome::Dropped { .. } => 0,
            RelayOutcome::Reverted { .. } => 1,
            RelayOutcome::Executed { .. } => 2,
        }
    }
    if !matches!(outcome, RelayOutcome::Executed { .. }) && !assignments::open_of(tx, relay)?.is_empty() {
        return Ok(false);
    }
    let known = relays::stored_outcome(tx, relay)?.flatten();
    Ok(match &known {
        // The client was told that it may send the request again: a late receipt that says no more than that
        // changes nothing.
        Some(RelayOutcome::Dropped { .. }) => !outcome.is_repeatable(),
        Some(known @ (RelayOutcome::Executed { mined, .. } | RelayOutcome::Reverted { mined, .. })) => {
            let is_of_this_nonce = settled.transactions.iter().any(|own| own.hash == mined.tx_hash);
            is_of_this_nonce || weight(outcome) > weight(known)
        }
        None => true,
    })
}

/// What a nonce was charged so far; `None` if it is not stored.
fn charged(tx: &Db, account: &Address, nonce: i64) -> Result<Option<u128>, StoreError> {
    let query = "SELECT paid_wei FROM nonces WHERE account = ?1 AND nonce = ?2";
    first(tx, query, values![account.0.0, nonce], |row| text(row, "paid_wei"))
}

/// Writes a nonce again that the file has lost and the chain has.
fn restore(tx: &Db, account: &Address, assignment: &NonceAssignment, now: u64) -> Result<(), StoreError> {
    let NonceAssignment { nonce, relay, transactions } = assignment;
    tracing::error!(nonce, relay = ?relay.map(|relay| relay.id), "mined, but not in the journal: written anew");
    if let Some(RelayTerms { id, signer, forward_nonce, deadline, .. }) = *relay {
        let relay = NewRelay { id, signer, forward_nonce, deadline, calldata: Bytes::new(), client: None };
        relays::insert(tx, &relay, None, now)?;
    }
    tx.run(
        "INSERT INTO nonces (account, nonce, relay, state, is_second) VALUES (?1, ?2, ?3, 'open', TRUE)",
        values![account.0.0, nonce.cast_signed(), relay.map(|relay| relay.id.0)],
    )?;
    transactions.iter().try_for_each(|transaction| insert_transaction(tx, account, *nonce, transaction, now))
}

pub(super) fn reopen(
    tx: &Db,
    account: &Address,
    nonce: u64,
    expected_wei: u128,
    now: u64,
) -> Result<bool, StoreError> {
    let nonce = nonce.cast_signed();
    let paid = charged(tx, account, nonce)?.ok_or(StoreError::Missing("nonce"))?;
    let query = "SELECT relay FROM nonces WHERE account = ?1 AND nonce = ?2";
    let relay =
        first(tx, query, values![account.0.0, nonce], |row| column::<Option<[u8; 32]>>(row, "relay"))?;
    relay.flatten().map_or(Ok(()), |id| locks::relay(tx, &id.into()))?;
    tx.run(
        "UPDATE nonces SET state = 'open', mined_hash = NULL, mined_block = NULL, mined_block_hash = NULL, finality = 0,
             is_second = EXISTS (SELECT 1 FROM nonces AS other WHERE other.relay = nonces.relay AND other.state = 'open'
                 AND (other.account, other.nonce) <> (nonces.account, nonces.nonce))
         WHERE account = ?1 AND nonce = ?2",
        values![account.0.0, nonce],
    )?;
    let Some(id) = relay.flatten() else { return Ok(false) };
    if !is_undone(tx, id, account, nonce)? {
        return Ok(false);
    }
    if let Some(sponsor) = key_gas::sponsor(tx, &id.into())? {
        key_gas::refund(tx, &sponsor)?;
    }
    relays::reopen(tx, &id.into())?;
    budget::set_reserved(tx, &id.into(), expected_wei.saturating_sub(paid))?;
    events::note(tx, &id.into(), EventKind::Reorganised, now)?;
    Ok(true)
}

/// Whether undoing this nonce undoes its relay's outcome. It does not if another nonce's transaction has
/// decided it: a relay has two nonces if the first was given up as lost.
fn is_undone(tx: &Db, id: [u8; 32], account: &Address, nonce: i64) -> Result<bool, StoreError> {
    let query = "SELECT tx_hash IS NULL
             OR tx_hash IN (SELECT hash FROM transactions WHERE account = ?2 AND nonce = ?3) AS is_undone
         FROM relays WHERE id = ?1";
    let is_undone = first(tx, query, values![id, account.0.0, nonce], |row| column(row, "is_undone"))?;
    is_undone.ok_or(StoreError::Missing("relay"))
}

pub(super) fn lose(tx: &Db, account: &Address, nonce: u64) -> Result<(), StoreError> {
    tx.run(
        "UPDATE nonces SET state = 'lost' WHERE account = ?1 AND nonce = ?2",
        values![account.0.0, nonce.cast_signed()],
    )?;
    Ok(())
}

pub(super) fn explains(db: &Db, account: &Address, from: u64, to: u64) -> Result<bool, StoreError> {
    let query = "SELECT count(*) AS ours FROM nonces
         WHERE account = ?1 AND nonce >= ?2 AND nonce < ?3 AND state <> 'lost'";
    let range = values![account.0.0, from.cast_signed(), to.cast_signed()];
    let ours = first(db, query, range, |row| unsigned(row, "ours"))?;
    Ok(ours == Some(to.saturating_sub(from)))
}
