//! The effect of a mined nonce on its relay and the budget, and its reversal by a reorganisation.

use alloy::primitives::{Address, B256};

use super::{
    Store, assignments, budget, ending,
    engine::{Db, single, values},
    events, frequent, given_up, key_gas, locks, nonces, relays,
};
use crate::{
    outcome::RelayOutcome,
    store::{
        DaemonId, NewRelay, NonceAssignment, Payer, RelayTerms, Result, Settlement, StoreError,
        TransactionPurpose, events::EventKind,
    },
};

impl Store {
    /// Settles a nonce mined by our transaction: ends its relay, and charges the budget the price paid in
    /// place of the reservation. A nonce or relay that is missing (lost by a disk or a backup) is written
    /// anew from the settlement, and the log says so. Returns the relay's outcome if this nonce decides it: a
    /// relay with several nonces goes on while one is open or given up, unless this one has used its request;
    /// one that this nonce had ended so before a reorganisation is pending again.
    pub fn settle(
        &self,
        payer: impl Into<Payer>,
        settlement: &Settlement,
        now: u64,
    ) -> Result<Option<RelayOutcome>> {
        let payer = payer.into();
        if payer.epoch.is_some()
            && let Some((daemon, statements)) = self.frequent()
        {
            let write = |settle: &frequent::SettleFn<'_>| self.write_committing(settle);
            if self.frequent_writes.settle(payer, statements, daemon, settlement, now, write)? {
                return Ok(settlement.outcome.clone());
            }
        }
        let (settlement, daemon) = (settlement.clone(), self.daemon.clone());
        self.write_for(payer, move |db| settle(db, &payer.account, &settlement, daemon.as_ref(), now))
    }

    /// Reopens a mined nonce that a reorg undid: its relay is pending again. Its expected cost above what it
    /// was charged is reserved, even beyond the limit, because it cannot be called back; beside the relay's
    /// reservation if that is for another nonce. A relay that another nonce of its own has executed stays as
    /// it is. Returns whether the nonce's relay is pending now.
    pub fn reopen(&self, payer: impl Into<Payer>, nonce: u64, expected_wei: u128, now: u64) -> Result<bool> {
        let (payer, daemon) = (payer.into(), self.daemon.clone());
        self.write_for(payer, move |db| {
            let reopened = reopen(db, &payer.account, nonce, expected_wei, now)?;
            if let Some((daemon, relay)) = daemon.zip(reopened) {
                relays::take(db, &daemon, &relay)?;
            }
            Ok(reopened.is_some())
        })
    }

    /// Gives up a mined nonce that a reorg undid, if the account's key is missing: its relay is pending
    /// again, for another account. Returns whether it is.
    pub fn undo(&self, payer: impl Into<Payer>, nonce: u64, expected_wei: u128, now: u64) -> Result<bool> {
        let (payer, daemon) = (payer.into(), self.daemon.clone());
        self.write_for(payer, move |db| {
            let account = &payer.account;
            let query = "SELECT state = 'mined' FROM nonces WHERE account = $1 AND nonce = $2";
            if single::<bool>(db, query, values![account, nonce])? != Some(true) {
                return Ok(false);
            }
            let reopened = reopen(db, account, nonce, expected_wei, now)?;
            nonces::lose(db, account, nonce, daemon.as_ref(), now)?;
            Ok(reopened.is_some())
        })
    }
}

fn settle(
    tx: &Db,
    account: &Address,
    settlement: &Settlement,
    daemon: Option<&DaemonId>,
    now: u64,
) -> Result<Option<RelayOutcome>> {
    let Settlement { assignment, inclusion, paid_wei, .. } = settlement;
    let relay = assignment.relay.as_ref().map(|relay| &relay.id);
    relay.map_or(Ok(()), |relay| locks::relay(tx, relay))?;
    // After a reorg a nonce is settled again: only the difference is charged.
    let (before, reserved) = match given_up::charged(tx, account, assignment.nonce)? {
        Some(known) => known,
        None => {
            restore(tx, account, assignment, now)?;
            (0, None)
        }
    };
    tx.run(
        "UPDATE nonces SET state = 'mined', mined_hash = $3, mined_block = $4, paid_wei = $5, mined_at = $6,
             mined_block_hash = $7, finality = 0
         WHERE account = $1 AND nonce = $2",
        values![
            account,
            assignment.nonce,
            inclusion.tx_hash,
            inclusion.block.number,
            (*paid_wei).max(before),
            now,
            inclusion.block.hash,
        ],
    )?;
    let decided = match (relay, &settlement.outcome) {
        (Some(relay), Some(outcome)) => match verdict(tx, relay, outcome, assignment)? {
            SettlementEffect::Ends => {
                ending::finish(tx, relay, outcome, now)?;
                // What else it has in flight is not called back, and the relay's reservation is over.
                for (account, nonce) in assignments::open_of(tx, relay)? {
                    given_up::reserve(tx, &account, nonce, now)?;
                }
                Some(outcome.clone())
            }
            SettlementEffect::Reopens => {
                undecide(tx, relay, daemon, now)?;
                None
            }
            SettlementEffect::Nothing => None,
        },
        _ => None,
    };
    if reserved.is_some() {
        given_up::release(tx, account, assignment.nonce)?;
    }
    budget::charge(tx, relay, paid_wei.saturating_sub(before), now)?;
    Ok(decided)
}

/// The effect of a settled nonce on its relay.
enum SettlementEffect {
    /// The relay ends with the nonce's outcome.
    Ends,
    /// The relay is pending again: the nonce had used its request, a reorganisation undid that, and another
    /// nonce may use it now.
    Reopens,
    /// The relay stays as it is.
    Nothing,
}

/// Decides the effect of a settled nonce on its relay.
///
/// A relay has several nonces if the first was given up as lost, or was cancelled before the client sent the
/// request again and a reorg then undid the cancellation. The one that has used the request counts, whichever
/// comes first: executed, or failed inside of it.
fn verdict(
    tx: &Db,
    relay: &B256,
    outcome: &RelayOutcome,
    settled: &NonceAssignment,
) -> Result<SettlementEffect> {
    const fn weight(outcome: &RelayOutcome) -> u8 {
        match outcome {
            RelayOutcome::Dropped { .. } => 0,
            RelayOutcome::Reverted { .. } if !outcome.has_used_request() => 1,
            RelayOutcome::Reverted { .. } => 2,
            RelayOutcome::Executed { .. } => 3,
        }
    }
    let known = relays::stored_outcome(tx, relay)?.flatten();
    let is_of_this_nonce = known
        .as_ref()
        .and_then(|known| known.parts().0)
        .is_some_and(|mined| settled.transactions.iter().any(|own| own.hash == mined.tx_hash));
    // One that is open or was given up may have used it, or may yet.
    if !outcome.has_used_request()
        && (!assignments::open_of(tx, relay)?.is_empty() || !assignments::given_up_of(tx, relay)?.is_empty())
    {
        let had_used = is_of_this_nonce && known.is_some_and(|known| known.has_used_request());
        return Ok(if had_used { SettlementEffect::Reopens } else { SettlementEffect::Nothing });
    }
    let ends = match &known {
        Some(known) if known == outcome => false,
        // What the client was told stands, unless a late receipt shows that this nonce has used the request.
        // By then the signer may have used it elsewhere, which is no news of this relay.
        Some(RelayOutcome::Dropped { .. }) => outcome.has_used_request(),
        // A request is used once: of two receipts the later one is of the chain as it is now.
        Some(known) if known.has_used_request() && outcome.has_used_request() => true,
        Some(known) => is_of_this_nonce || weight(outcome) > weight(known),
        None => true,
    };
    Ok(if ends { SettlementEffect::Ends } else { SettlementEffect::Nothing })
}

/// Makes a relay pending again: its outcome is undone, and another nonce of it is in flight or was given up.
fn undecide(tx: &Db, relay: &B256, daemon: Option<&DaemonId>, now: u64) -> Result<()> {
    if let Some(sponsor) = key_gas::sponsor(tx, relay)? {
        key_gas::refund(tx, &sponsor)?;
    }
    relays::reopen(tx, relay)?;
    let open = assignments::open_of(tx, relay)?;
    // What the only one in flight may cost is the relay's reservation again.
    if let [(account, nonce)] = open.as_slice() {
        let (_, reserved) = given_up::charged(tx, account, *nonce)?.ok_or(StoreError::Missing("nonce"))?;
        given_up::release(tx, account, *nonce)?;
        budget::set_reserved(tx, relay, reserved.unwrap_or_default())?;
    }
    // The daemons of those in flight bring it to its end; without one this daemon does.
    if let Some(daemon) = daemon.filter(|_| open.is_empty()) {
        relays::take(tx, daemon, relay)?;
    }
    events::note(tx, relay, EventKind::Reorganised, now)
}

/// Writes a nonce again that the store has lost and the chain has.
fn restore(tx: &Db, account: &Address, assignment: &NonceAssignment, now: u64) -> Result<()> {
    let NonceAssignment { nonce, relay, transactions } = assignment;
    tracing::error!(nonce, relay = ?relay.map(|relay| relay.id), "mined, but not in the journal: written anew");
    if let Some(RelayTerms { id, signer, forward_nonce, deadline, .. }) = *relay {
        // With its calldata, as a reorganisation may have it run again.
        let of_relay = transactions.iter().find(|own| own.purpose == TransactionPurpose::Relay);
        let calldata = of_relay.and_then(|own| own.calldata().ok()).unwrap_or_default();
        let relay = NewRelay { id, signer, forward_nonce, deadline, calldata, client: None };
        relays::insert(tx, &relay, None, now)?;
    }
    tx.run(
        "INSERT INTO nonces (account, nonce, relay, state, is_second) VALUES ($1, $2, $3, 'open', TRUE)",
        values![account, *nonce, relay.map(|relay| relay.id)],
    )?;
    transactions
        .iter()
        .try_for_each(|transaction| nonces::insert_transaction(tx, account, *nonce, transaction, now))
}

/// Reopens a nonce. Returns its relay, if that is pending now.
fn reopen(tx: &Db, account: &Address, nonce: u64, expected_wei: u128, now: u64) -> Result<Option<B256>> {
    let key = values![account, nonce];
    let (paid, reserved) = given_up::charged(tx, account, nonce)?.ok_or(StoreError::Missing("nonce"))?;
    let left_wei = expected_wei.saturating_sub(paid);
    let relay: Option<B256> =
        single(tx, "SELECT relay FROM nonces WHERE account = $1 AND nonce = $2", key)?.flatten();
    relay.map_or(Ok(()), |id| locks::relay(tx, &id))?;
    tx.run(
        "UPDATE nonces SET state = 'open', mined_hash = NULL, mined_block = NULL, mined_block_hash = NULL, finality = 0,
             is_second = EXISTS (SELECT 1 FROM nonces AS other WHERE other.relay = nonces.relay AND other.state = 'open'
                 AND (other.account, other.nonce) <> (nonces.account, nonces.nonce))
         WHERE account = $1 AND nonce = $2",
        key,
    )?;
    let release = || if reserved.is_some() { given_up::release(tx, account, nonce) } else { Ok(()) };
    // A gap counts as long as it is open.
    let Some(id) = relay else { return release().map(|()| None) };
    // The outcome stays if another nonce's transaction has decided it: a relay has two nonces if the first
    // was given up as lost.
    let query = "SELECT tx_hash IS NULL OR tx_hash IN (SELECT hash FROM transactions WHERE account = $2 AND nonce = $3)
         FROM relays WHERE id = $1";
    if !single::<bool>(tx, query, values![id, account, nonce])?.ok_or(StoreError::Missing("relay"))? {
        return given_up::set(tx, account, nonce, left_wei, now).map(|()| None);
    }
    if let Some(sponsor) = key_gas::sponsor(tx, &id)? {
        key_gas::refund(tx, &sponsor)?;
    }
    relays::reopen(tx, &id)?;
    if assignments::open_of(tx, &id)?.len() > 1 {
        // The relay's reservation is for the other one.
        given_up::set(tx, account, nonce, left_wei, now)?;
    } else {
        release()?;
        budget::set_reserved(tx, &id, left_wei)?;
    }
    events::note(tx, &id, EventKind::Reorganised, now)?;
    Ok(Some(id))
}
