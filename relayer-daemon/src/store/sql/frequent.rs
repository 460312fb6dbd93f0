//! The writes of a fleet that each relay needs, in Postgres's own words: one message for a write, or for those of
//! several relays, and one wait.
//!
//! Each does the usual case alone, or nothing: then [`super`]'s general way decides, which knows all cases.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
};

use alloy::primitives::B256;

use super::{
    engine::{Db, Value, all, column, first, text, values},
    locks,
};
use crate::{
    budget::{
        Budget, WINDOW_SECONDS, Window,
        share::{Allowance, PartyKind},
    },
    outcome::RelayOutcome,
    store::{DaemonId, ExpectedCost, NewTransaction, Payer, Reservation, Settlement, StoreError},
};

/// How often a reservation is tried that others have come before.
const ATTEMPTS: usize = 16;
/// The most settlements that are written at once.
const LARGEST_BATCH: usize = 64;

/// Reserves what the budget and the shares of the relay's parties allow, while a window is open. The relay is
/// locked before the budget, and the budget has not changed since the sums were read.
const RESERVE: &str = "
WITH seen AS (
    SELECT version, opened_at, CAST(settled_wei AS NUMERIC) AS settled FROM budget
    WHERE opened_at <= ?4 AND ?4 - opened_at < ?9
), own AS (
    SELECT id, signer, client, forward_nonce FROM relays
    WHERE id = ?1 AND state = 'pending' AND holder = ?2 FOR NO KEY UPDATE
), held AS (
    SELECT signer, client, CAST(reserved_wei AS NUMERIC) AS wei FROM relays
    WHERE state = 'pending' AND reserved_wei <> '0' AND id <> ?1
), gaps AS (
    SELECT coalesce(sum((
        SELECT max(CAST(max_fee_wei AS NUMERIC)
            * (gas_limit + CASE WHEN gas_limit < 0 THEN 18446744073709551616 ELSE 0 END))
        FROM transactions WHERE account = gap.account AND nonce = gap.nonce)), 0) AS wei
    FROM nonces AS gap WHERE state = 'open' AND relay IS NULL
), used AS (
    SELECT party,
        coalesce((SELECT CAST(settled_wei AS NUMERIC) FROM spending WHERE spending.party = parties.party), 0)
        + coalesce((SELECT sum(wei) FROM held
            WHERE parties.party = ANY (relay_parties(held.signer, held.client))), 0) AS wei
    FROM (SELECT unnest(relay_parties(signer, client)) AS party FROM own) AS parties
), asked AS (
    SELECT CAST(CAST(?3 AS TEXT) AS NUMERIC) AS wei, CAST(CAST(?5 AS TEXT) AS NUMERIC) AS most
), fits AS (
    SELECT seen.*, gaps.wei + coalesce((SELECT sum(wei) FROM held), 0) AS reserved FROM seen, gaps, asked
    WHERE settled + gaps.wei + coalesce((SELECT sum(wei) FROM held), 0) + asked.wei <= asked.most
    AND NOT EXISTS (SELECT 1 FROM used WHERE used.wei > 0 AND used.wei + asked.wei
        > CAST((CAST(?6 AS TEXT[]))[get_byte(party, 0) + 1] AS NUMERIC))
    AND NOT EXISTS (
        SELECT 1 FROM own JOIN relays AS other ON other.signer = own.signer
            AND other.forward_nonce = own.forward_nonce AND other.id <> own.id
            JOIN nonces ON nonces.relay = other.id
        WHERE other.state IN ('executed', 'reverted') AND mined_hash = other.tx_hash AND finality >= 0)
), locked AS (
    UPDATE budget SET version = budget.version + 1 FROM own, fits WHERE budget.version = fits.version
    RETURNING fits.opened_at, fits.settled, fits.reserved
), done AS (
    UPDATE relays SET reserved_wei = ?3, l1_fee_wei = ?7, expected_gas = ?8 FROM locked WHERE relays.id = ?1
    RETURNING locked.opened_at, CAST(locked.settled AS TEXT) AS settled_wei,
        CAST(locked.reserved AS TEXT) AS reserved_wei
)
SELECT EXISTS (SELECT 1 FROM fits) AND EXISTS (SELECT 1 FROM own) AS fits, done.*
FROM (SELECT 1) AS one LEFT JOIN done ON TRUE";

/// Reserves a relay's cost, if that is the usual case.
pub(super) fn reserve(
    db: &Db,
    id: &B256,
    daemon: &DaemonId,
    cost: &ExpectedCost,
    allowance: &Allowance,
    now: u64,
) -> Result<Option<Reservation>, StoreError> {
    // In the order of the parties' bytes.
    let shares = [PartyKind::Signer, PartyKind::Client, PartyKind::Network, PartyKind::WithoutKey];
    let shares = shares.map(|kind| Value::from(allowance.of(kind).to_string()));
    let values = values![
        id.0,
        daemon.0.as_ref(),
        cost.wei.to_string(),
        now.cast_signed(),
        allowance.limit_wei.saturating_sub(cost.no_op_wei).to_string(),
        Value::Array(shares.to_vec()),
        cost.l1_fee_wei.to_string(),
        cost.gas.cast_signed(),
        WINDOW_SECONDS.cast_signed(),
    ];
    for _ in 0..ATTEMPTS {
        let reserved = first(db, RESERVE, values, |row| {
            let Some(opened_at) = column::<Option<i64>>(row, "opened_at")? else {
                return Ok((column(row, "fits")?, None));
            };
            let (settled_wei, reserved_wei): (u128, u128) =
                (text(row, "settled_wei")?, text(row, "reserved_wei")?);
            let window = Window { opened_at: Some(opened_at.cast_unsigned()), settled_wei };
            let reserved_wei = reserved_wei.saturating_add(cost.wei);
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

/// Writes the first transactions of these relays' nonces: all of them, or none.
const RECORD: &str = "
WITH given AS (
    SELECT * FROM unnest(CAST(?4 AS BYTEA[]), CAST(?5 AS BIGINT[]), CAST(?6 AS BYTEA[]), CAST(?7 AS BYTEA[]),
        CAST(?8 AS TEXT[]), CAST(?9 AS TEXT[]), CAST(?10 AS TEXT[]), CAST(?11 AS BIGINT[]))
    AS given (relay, nonce, hash, raw, purpose, max_fee, tip, gas)
), able AS (
    SELECT count(DISTINCT own.id) AS relays FROM given JOIN relays AS own ON own.id = given.relay
    WHERE own.state = 'pending' AND own.holder = ?2
    AND EXISTS (SELECT 1 FROM account_leases WHERE account = ?1 AND holder = ?2 AND epoch = ?3)
    AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = own.id AND state = 'open')
    AND NOT EXISTS (SELECT 1 FROM nonces WHERE account = ?1 AND nonces.nonce = given.nonce)
    AND NOT EXISTS (
        SELECT 1 FROM relays AS other JOIN nonces ON nonces.relay = other.id
        WHERE other.signer = own.signer AND other.forward_nonce = own.forward_nonce AND other.id <> own.id
        AND ((other.state = 'pending' AND nonces.state = 'open')
            OR (other.state IN ('executed', 'reverted') AND mined_hash = other.tx_hash AND finality >= 0)))
), written AS (
    INSERT INTO nonces (account, nonce, relay, state)
    SELECT CAST(?1 AS BYTEA), nonce, relay, 'open' FROM given, able
    WHERE able.relays = (SELECT count(*) FROM given) RETURNING nonces.nonce
), signed AS (
    INSERT INTO transactions (hash, account, nonce, purpose, raw, max_fee_wei, tip_wei, gas_limit, created_at)
    SELECT hash, CAST(?1 AS BYTEA), nonce, purpose, raw, max_fee, tip, gas, CAST(?12 AS BIGINT)
    FROM given JOIN written USING (nonce)
)
SELECT count(*) AS written FROM written";

/// Writes the first transactions of relays' nonces, and commits, if that is the usual case. Returns whether it is.
pub(super) fn record(
    db: &Db,
    payer: &Payer,
    daemon: &DaemonId,
    transactions: &[NewTransaction],
    now: u64,
) -> Result<bool, StoreError> {
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
        payer.account.0.0,
        daemon.0.as_ref(),
        epoch.cast_signed(),
        Value::ids(&relays),
        array(&|one| one.nonce.cast_signed().into()),
        array(&|one| one.transaction.hash.0.into()),
        array(&|one| one.transaction.raw.to_vec().into()),
        array(&|one| one.transaction.purpose.name().into()),
        array(&|one| one.transaction.fees.max_fee.to_string().into()),
        array(&|one| one.transaction.fees.tip.to_string().into()),
        array(&|one| one.transaction.gas_limit.cast_signed().into()),
        now.cast_signed(),
    ];
    let rows = db.query_and_commit(RECORD, values)?;
    let written: i64 = column(rows.first().ok_or(StoreError::Missing("answer"))?, "written")?;
    Ok(written > 0)
}

/// Settles nonces of relays that were executed, are pending, and have no API key, while a window is open: their
/// outcomes, and what was paid, to the budget and all parties. Returns those relays.
const SETTLE: &str = "
WITH given AS (
    SELECT * FROM unnest(CAST(?1 AS BYTEA[]), CAST(?2 AS BIGINT[]), CAST(?3 AS BIGINT[]), CAST(?4 AS BYTEA[]),
        CAST(?5 AS BYTEA[]), CAST(?6 AS BIGINT[]), CAST(?7 AS BYTEA[]), CAST(?8 AS TEXT[]), CAST(?9 AS BIGINT[]),
        CAST(?10 AS BYTEA[]))
    AS given (account, epoch, nonce, relay, tx_hash, block, block_hash, paid_wei, gas, agent)
    WHERE EXISTS (SELECT 1 FROM budget WHERE opened_at <= ?12 AND ?12 - opened_at < ?13)
), held AS (
    SELECT account FROM account_leases WHERE holder = ?11
    AND (account, epoch) IN (SELECT account, epoch FROM given) ORDER BY account FOR KEY SHARE
), own AS (
    SELECT id, signer, client FROM relays
    WHERE id IN (SELECT relay FROM given) AND state = 'pending' AND api_key IS NULL AND EXISTS (SELECT 1 FROM held)
    ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE
), mined AS (
    UPDATE nonces SET state = 'mined', mined_hash = given.tx_hash, mined_block = given.block,
        mined_block_hash = given.block_hash, mined_at = ?12, paid_wei = given.paid_wei, finality = 0
    FROM given, held, own
    WHERE held.account = given.account AND own.id = given.relay AND nonces.account = given.account
    AND nonces.nonce = given.nonce AND nonces.relay = given.relay AND nonces.state = 'open' AND nonces.paid_wei = '0'
    RETURNING own.signer, own.client, given.relay, given.tx_hash, given.block, given.gas, given.agent, given.paid_wei
), ended AS (
    UPDATE relays SET state = 'executed', error_code = NULL, error_detail = NULL, error_retry = NULL,
        tx_hash = mined.tx_hash, block_number = mined.block, gas_used = mined.gas, agent_id = mined.agent,
        finished_at = ?12, reserved_wei = '0'
    FROM mined WHERE relays.id = mined.relay
    RETURNING mined.relay, mined.signer, mined.client, CAST(mined.paid_wei AS NUMERIC) AS paid
), charged AS (
    UPDATE budget SET opened_at = coalesce(budget.opened_at, ?12),
        settled_wei = CAST(CAST(budget.settled_wei AS NUMERIC) + paid.wei AS TEXT)
    FROM (SELECT sum(paid) AS wei FROM ended) AS paid WHERE paid.wei IS NOT NULL
    RETURNING budget.only_row
), spent AS (
    INSERT INTO spending
    SELECT party, CAST(sum(paid) AS TEXT)
    FROM (SELECT unnest(relay_parties(signer, client)) AS party, paid FROM ended, charged) AS parts
    GROUP BY party ORDER BY party
    ON CONFLICT (party) DO UPDATE
    SET settled_wei = CAST(CAST(spending.settled_wei AS NUMERIC) + CAST(excluded.settled_wei AS NUMERIC) AS TEXT)
)
SELECT relay FROM ended";

fn settle(db: &Db, daemon: &DaemonId, batch: &[&Waiting]) -> Result<Vec<B256>, StoreError> {
    let array = |value: &dyn Fn(&Waiting) -> Value| -> Value {
        Value::Array(batch.iter().map(|one| value(one)).collect())
    };
    let values = values![
        array(&|one| one.payer.account.0.0.into()),
        array(&|one| one.payer.epoch.map(u64::cast_signed).into()),
        array(&|one| one.settlement.assignment.nonce.cast_signed().into()),
        array(&|one| one.relay.0.into()),
        array(&|one| one.settlement.inclusion.tx_hash.0.into()),
        array(&|one| one.settlement.inclusion.block.number.cast_signed().into()),
        array(&|one| one.settlement.inclusion.block.hash.0.into()),
        array(&|one| one.settlement.paid_wei.to_string().into()),
        array(&|one| one.gas_used.cast_signed().into()),
        array(&|one| one.agent_id.into()),
        daemon.0.as_ref(),
        batch.iter().map(|one| one.now).max().unwrap_or_default().cast_signed(),
        WINDOW_SECONDS.cast_signed(),
    ];
    all(db, SETTLE, values, |row| Ok(column::<[u8; 32]>(row, "relay")?.into()))
}

/// Writes a batch of settlements. Returns the relays that are settled.
pub(super) type Settle<'a> = dyn Fn(&Db) -> Result<Vec<B256>, StoreError> + 'a;

/// A settlement that waits to be written.
#[derive(Debug)]
struct Waiting {
    payer: Payer,
    settlement: Settlement,
    relay: B256,
    gas_used: u64,
    agent_id: Option<[u8; 32]>,
    now: u64,
    /// Hears whether it was written.
    answer: mpsc::SyncSender<Result<bool, StoreError>>,
}

/// A daemon's frequent writes that wait for one another.
#[derive(Debug, Default)]
pub(super) struct FrequentWrites {
    /// Settlements that wait for the one message that is under way.
    waiting: Mutex<Vec<Waiting>>,
    settling: Mutex<()>,
    reserving: Mutex<()>,
}

impl FrequentWrites {
    /// Has a daemon's reservations come one after the other: others of its own would change the budget meanwhile.
    pub(super) fn turn_to_reserve(&self) -> MutexGuard<'_, ()> {
        self.reserving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles a nonce, together with others that wait, if that is the usual case. Returns whether it is.
    pub(super) fn settle(
        &self,
        payer: Payer,
        daemon: &DaemonId,
        settlement: &Settlement,
        now: u64,
        write: impl Fn(&Settle<'_>) -> Result<Vec<B256>, StoreError>,
    ) -> Result<bool, StoreError> {
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
        let (gas_used, agent_id) = (mined.gas_used, agent_id.map(|id| id.to_be_bytes::<32>()));
        let own = Waiting { payer, settlement, relay: relay.id, gas_used, agent_id, now, answer };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(own);
        let _settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        // Others may have written it, or come before it.
        loop {
            if let Ok(settled) = answered.try_recv() {
                return settled;
            }
            let batch: Vec<Waiting> = {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let count = waiting.len().min(LARGEST_BATCH);
                waiting.drain(..count).collect()
            };
            // A relay's second nonce is no usual case.
            let mut relays = BTreeSet::new();
            let (usual, others): (Vec<&Waiting>, Vec<&Waiting>) =
                batch.iter().partition(|one| relays.insert(one.relay));
            let settled = write(&|db| settle(db, daemon, &usual));
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
