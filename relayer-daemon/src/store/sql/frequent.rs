//! The writes of a fleet that each relay needs: one message and one wait for a write, or for those of several
//! relays.
//!
//! Each handles only the usual case, or does nothing: then [`super`]'s general way decides.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
};

use alloy::primitives::{B256, U256};

use super::{
    engine::{Db, Value, column, each, first, statements::FrequentStatements, values},
    given_up, locks,
};
use crate::{
    budget::{
        Budget, WINDOW_SECONDS, Window,
        share::{Allowance, PartyKind},
    },
    outcome::RelayOutcome,
    store::{DaemonId, ExpectedCost, NewTransaction, Payer, Reservation, Result, Settlement, StoreError},
};

/// Attempts at a reservation while others change the budget before it.
const ATTEMPTS: usize = 16;
/// The most settlements that are written at once.
const LARGEST_BATCH: usize = 64;

/// Reserves a relay's cost in the usual case; `None` if the general way must decide.
pub(super) fn reserve(
    db: &Db,
    statements: &FrequentStatements,
    id: &B256,
    daemon: &DaemonId,
    cost: &ExpectedCost,
    allowance: &Allowance,
    now: u64,
) -> Result<Option<Reservation>> {
    // In the order of the parties' bytes.
    let shares = [PartyKind::Signer, PartyKind::Client, PartyKind::Network, PartyKind::WithoutKey];
    let shares = shares.map(|kind| Value::from(allowance.of(kind)));
    let values = values![
        id,
        daemon,
        cost.wei,
        now,
        allowance.limit_wei.saturating_sub(cost.no_op_wei),
        Value::Array(shares.to_vec()),
        cost.l1_fee_wei,
        cost.gas,
        WINDOW_SECONDS,
        given_up::reserved_since(now),
    ];
    for _ in 0..ATTEMPTS {
        let reserved = first(db, statements.reserve, values, |row| {
            let opened_at: Option<u64> = column(row, "opened_at")?;
            if opened_at.is_none() {
                return Ok((column(row, "fits")?, None));
            }
            let window = Window { opened_at, settled_wei: column(row, "settled_wei")? };
            let reserved_wei = column::<u128>(row, "reserved_wei")?.saturating_add(cost.wei);
            let budget = Budget { limit_wei: allowance.limit_wei, window, reserved_wei };
            Ok((true, Some(Reservation { denial: None, budget })))
        })?;
        match reserved {
            Some((_, Some(reservation))) => return Ok(Some(reservation)),
            Some((true, None)) => {}
            _ => break,
        }
    }
    Ok(None)
}

/// Writes the first transactions of relays' nonces, and commits, if that is the usual case. Returns whether
/// it is.
pub(super) fn record(
    db: &Db,
    statements: &FrequentStatements,
    payer: &Payer,
    daemon: &DaemonId,
    transactions: &[NewTransaction],
    now: u64,
) -> Result<bool> {
    let Some(epoch) = payer.epoch else { return Ok(false) };
    let relays: Vec<B256> = transactions.iter().filter_map(|transaction| transaction.relay).collect();
    if relays.len() != transactions.len() || relays.is_empty() {
        return Ok(false);
    }
    let array = |value: &dyn Fn(&NewTransaction) -> Value| -> Value {
        Value::Array(transactions.iter().map(value).collect())
    };
    db.begin()?;
    locks::lease_and_requests(db, &payer.account, daemon, epoch, &relays)?;
    let values = values![
        payer.account,
        daemon,
        epoch,
        Value::ids(&relays),
        array(&|one| one.nonce.into()),
        array(&|one| one.transaction.hash.into()),
        array(&|one| (&one.transaction.raw).into()),
        array(&|one| one.transaction.purpose.name().into()),
        array(&|one| one.transaction.fees.max_fee.into()),
        array(&|one| one.transaction.fees.tip.into()),
        array(&|one| one.transaction.gas_limit.into()),
        now,
    ];
    let rows = db.query_and_commit(statements.record, values)?;
    let written: i64 = column(rows.first().ok_or(StoreError::Missing("answer"))?, "written")?;
    Ok(written > 0)
}

fn settle(
    db: &Db,
    statements: &FrequentStatements,
    daemon: &DaemonId,
    batch: &[&PendingSettlement],
) -> Result<Vec<B256>> {
    let array = |value: &dyn Fn(&PendingSettlement) -> Value| -> Value {
        Value::Array(batch.iter().map(|one| value(one)).collect())
    };
    let values = values![
        array(&|one| one.payer.account.into()),
        array(&|one| one.payer.epoch.into()),
        array(&|one| one.settlement.assignment.nonce.into()),
        array(&|one| one.relay.into()),
        array(&|one| one.settlement.inclusion.tx_hash.into()),
        array(&|one| one.settlement.inclusion.block.number.into()),
        array(&|one| one.settlement.inclusion.block.hash.into()),
        array(&|one| one.settlement.paid_wei.into()),
        array(&|one| one.gas_used.into()),
        array(&|one| one.agent_id.into()),
        daemon,
        batch.iter().map(|one| one.now).max().unwrap_or_default(),
        WINDOW_SECONDS,
        [given_up::KIND].as_slice(),
    ];
    each(db, statements.settle, values)
}

/// Writes a batch of settlements. Returns the relays that are settled.
pub(super) type SettleFn<'a> = dyn Fn(&Db) -> Result<Vec<B256>> + 'a;

struct PendingSettlement {
    payer: Payer,
    settlement: Settlement,
    relay: B256,
    gas_used: u64,
    agent_id: Option<U256>,
    now: u64,
    /// Receives whether it was written.
    answer: mpsc::SyncSender<Result<bool>>,
}

/// A daemon's frequent writes that wait for one another.
#[derive(Default)]
pub(super) struct FrequentWrites {
    /// Settlements that wait for the one message that is under way.
    waiting: Mutex<Vec<PendingSettlement>>,
    settling: Mutex<()>,
    reserving: Mutex<()>,
}

impl FrequentWrites {
    /// Makes a daemon's reservations wait for one another: otherwise they would change the budget under each
    /// other.
    pub(super) fn turn_to_reserve(&self) -> MutexGuard<'_, ()> {
        self.reserving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles a nonce, together with others that wait, if that is the usual case. Returns whether it is.
    pub(super) fn settle(
        &self,
        payer: Payer,
        statements: &FrequentStatements,
        daemon: &DaemonId,
        settlement: &Settlement,
        now: u64,
        write: impl Fn(&SettleFn<'_>) -> Result<Vec<B256>>,
    ) -> Result<bool> {
        let Settlement { assignment, inclusion, outcome, .. } = settlement;
        let (Some(relay), Some(RelayOutcome::Executed { mined, agent_id })) = (&assignment.relay, outcome)
        else {
            return Ok(false);
        };
        if (mined.tx_hash, mined.block_number) != (inclusion.tx_hash, inclusion.block.number) {
            return Ok(false);
        }
        let (answer, answered) = mpsc::sync_channel(1);
        let settlement = settlement.clone();
        let (gas_used, agent_id) = (mined.gas_used, *agent_id);
        let own = PendingSettlement { payer, settlement, relay: relay.id, gas_used, agent_id, now, answer };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(own);
        let _settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        // Others may have written it, or come before it.
        loop {
            if let Ok(settled) = answered.try_recv() {
                return settled;
            }
            let batch: Vec<PendingSettlement> = {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let count = waiting.len().min(LARGEST_BATCH);
                waiting.drain(..count).collect()
            };
            // A relay's second nonce is no usual case.
            let mut relays = BTreeSet::new();
            let (usual, others): (Vec<&PendingSettlement>, Vec<&PendingSettlement>) =
                batch.iter().partition(|one| relays.insert(one.relay));
            let settled = write(&|db| settle(db, statements, daemon, &usual));
            for (one, is_usual) in
                usual.iter().map(|one| (one, true)).chain(others.iter().map(|one| (one, false)))
            {
                let told = settled.clone().map(|settled| is_usual && settled.contains(&one.relay));
                // The caller may be gone.
                let _ = one.answer.send(told);
            }
        }
    }
}
