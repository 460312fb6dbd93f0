//! The operator's orders: those in force, the journal of who gave them, and the daemons' reports.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use alloy::primitives::{Address, B256};

use super::{
    Store, assignments, ending,
    engine::{Db, Row, all, column, each, first, single, values},
    given_up, locks, relays,
};
use crate::{
    outcome::{ErrorCode, Failure, RelayOutcome},
    store::{
        Result,
        control::{AccountRecord, DaemonReport, Effect, ExportedRelay, Operation, Order, Orders, SILENT_MS},
        fleet::WEBHOOKS,
        stats::StoreStats,
    },
};

/// Seconds for which the journal of orders is kept.
const KEPT: i64 = 365 * 24 * 60 * 60;
/// Seconds for which a relay stays cancelled, should a reorganisation undo its end.
const CANCELLED: i64 = 24 * 60 * 60;
/// The most operations that are listed.
const LISTED: i64 = 1_000;
/// Relays that one step of an export reads.
const STEP: i64 = 1_000;

// Names of rows in the table `control`.
const PAUSED: &str = "paused";
const CORDONED: &str = "cordoned";
const RELOAD: &str = "reload";
const CANCEL: &str = "cancelled";

/// The operator's operations; as with the others, each is atomic, and durable when it returns. Times are the
/// database's.
impl Store {
    /// Carries out an order and journals it with its result. One that is in force already changes nothing.
    pub fn order(&self, order: Order, operator: &str) -> Result<Effect> {
        let (operator, is_shared) = (operator.to_owned(), self.is_shared());
        self.write(move |db| {
            let effect = carry_out(db, order, is_shared)?;
            let now = seconds(db)?;
            db.run(
                "INSERT INTO operations (at, operator, command, argument, result) VALUES ($1, $2, $3, $4, $5)",
                values![now, operator.as_str(), order.name(), order.argument(), effect.to_string()],
            )?;
            db.run("DELETE FROM operations WHERE at < $1", values![now.saturating_sub(KEPT)])?;
            Ok(effect)
        })
    }

    /// Returns the orders in force.
    pub fn orders(&self) -> Result<Orders> {
        let rows = self.read_single(|db| db.query("SELECT * FROM control", values![]))?;
        let mut orders = Orders::default();
        for row in &rows {
            let since = column(row, "since")?;
            match column::<String>(row, "name")?.as_str() {
                PAUSED => orders.paused_since = Some(since),
                CORDONED => drop(orders.cordoned.insert(column(row, "subject")?, since)),
                CANCEL => drop(orders.cancelled.insert(column(row, "subject")?)),
                RELOAD => orders.reload = column(row, "number")?,
                // Of a later version.
                _ => {}
            }
        }
        Ok(orders)
    }

    /// Returns the orders that were given from `since` on, oldest first: at most the newest thousand.
    pub fn operations(&self, since: u64) -> Result<Vec<Operation>> {
        let query = "SELECT * FROM operations WHERE at >= $1 ORDER BY sequence DESC LIMIT $2";
        let mut found = self.read_single(|db| all(db, query, values![since, LISTED], operation))?;
        found.reverse();
        Ok(found)
    }

    /// Returns the statistics of the journal's writes, and the number of connections made to the database;
    /// `None` if it is only read.
    pub fn stats(&self) -> Option<(&StoreStats, u64)> {
        Some((self.writer.as_ref()?.stats(), self.connects.load(Ordering::Relaxed)))
    }

    /// Returns the order that was given last.
    pub fn last_operation(&self) -> Result<Option<Operation>> {
        let query = "SELECT * FROM operations ORDER BY sequence DESC LIMIT 1";
        self.read_single(|db| first(db, query, values![], operation))
    }

    /// Writes this daemon's report, and deletes those of daemons that are gone.
    pub fn report(&self, report: &DaemonReport) -> Result<()> {
        let report = report.clone();
        self.write_leases(move |db| {
            let now = db.now_ms()?;
            db.run(
                "INSERT INTO daemon_reports VALUES ($1, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (daemon) DO UPDATE SET policy = excluded.policy, reload = excluded.reload,
                     fault = excluded.fault, reported_at = excluded.reported_at",
                values![
                    report.daemon,
                    report.host,
                    report.policy,
                    report.settings,
                    report.reload,
                    report.fault,
                    now
                ],
            )?;
            let gone = "DELETE FROM daemon_reports WHERE reported_at < $1";
            db.run(gone, values![now.saturating_sub(4 * SILENT_MS)])
        })
    }

    /// Deletes the report of a daemon that stops.
    pub fn withdraw_report(&self, daemon: &str) -> Result<()> {
        let daemon = daemon.to_owned();
        self.write_leases(move |db| {
            db.run("DELETE FROM daemon_reports WHERE daemon = $1", values![daemon.as_str()])
        })
    }

    /// Returns the reports of the daemons that have not been silent.
    pub fn reports(&self) -> Result<Vec<DaemonReport>> {
        self.read(|db| {
            let query = "SELECT * FROM daemon_reports WHERE reported_at > $1 ORDER BY host, daemon";
            all(db, query, values![db.now_ms()?.saturating_sub(SILENT_MS)], |row| {
                Ok(DaemonReport {
                    daemon: column(row, "daemon")?,
                    host: column(row, "host")?,
                    policy: column(row, "policy")?,
                    settings: column(row, "settings")?,
                    reload: column(row, "reload")?,
                    fault: column(row, "fault")?,
                })
            })
        })
    }

    /// Returns the accounts that the store knows: those with open nonces, in a fleet also all ever leased.
    pub fn account_records(&self) -> Result<Vec<AccountRecord>> {
        let is_shared = self.is_shared();
        self.read(|db| {
            let mut accounts = BTreeMap::new();
            let query = "SELECT account, count(*) AS open FROM nonces WHERE state = 'open' GROUP BY account";
            for row in &db.query(query, values![])? {
                record(&mut accounts, column(row, "account")?).open_nonces = column(row, "open")?;
            }
            if is_shared {
                let query =
                    "SELECT account, CASE WHEN expires_at > $1 THEN holder END AS holder FROM account_leases";
                for row in &db.query(query, values![db.now_ms()?])? {
                    record(&mut accounts, column(row, "account")?).holder = column(row, "holder")?;
                }
            }
            accounts.remove(&WEBHOOKS);
            Ok(accounts.into_values().collect())
        })
    }

    /// Returns relays that ended at or after `since`, in the order of their ends: some of those after the
    /// place `after`. Archived ones are left out, because their keys and costs are not kept.
    pub fn ended_relays(&self, since: u64, after: Option<(u64, B256)>) -> Result<Vec<ExportedRelay>> {
        let (from, id) = after.map_or((since, Vec::new()), |(at, id)| (at, id.to_vec()));
        let query = "SELECT ended.*, nonces.account, nonces.mined_hash, nonces.paid_wei
             FROM (SELECT id, signer, api_key, state, error_code, tx_hash, gas_used, created_at, finished_at
                 FROM relays WHERE finished_at >= $1 AND (finished_at > $1 OR id > $2)
                 ORDER BY finished_at, id LIMIT $3) AS ended
             LEFT JOIN nonces ON nonces.relay = ended.id ORDER BY finished_at, id";
        self.read_single(|db| {
            let mut ended: Vec<ExportedRelay> = Vec::new();
            for row in &db.query(query, values![from, id, STEP])? {
                let relay: B256 = column(row, "id")?;
                if ended.last().is_none_or(|last| last.relay != relay) {
                    ended.push(exported(row, relay)?);
                }
                let Some(last) = ended.last_mut() else { continue };
                let paid: Option<u128> = column(row, "paid_wei")?;
                last.paid_wei = last.paid_wei.saturating_add(paid.unwrap_or_default());
                let mined: Option<B256> = column(row, "mined_hash")?;
                if mined.is_some() && (last.account.is_none() || mined == last.tx_hash) {
                    last.account = column(row, "account")?;
                }
            }
            Ok(ended)
        })
    }
}

fn record(accounts: &mut BTreeMap<Address, AccountRecord>, account: Address) -> &mut AccountRecord {
    accounts.entry(account).or_insert(AccountRecord { account, holder: None, open_nonces: 0 })
}

fn operation(row: &Row) -> Result<Operation> {
    Ok(Operation {
        at: column(row, "at")?,
        operator: column(row, "operator")?,
        command: column(row, "command")?,
        argument: column(row, "argument")?,
        result: column(row, "result")?,
    })
}

fn exported(row: &Row, relay: B256) -> Result<ExportedRelay> {
    Ok(ExportedRelay {
        relay,
        key: column(row, "api_key")?,
        signer: column(row, "signer")?,
        account: None,
        tx_hash: column(row, "tx_hash")?,
        gas_used: column(row, "gas_used")?,
        paid_wei: 0,
        accepted_at: column(row, "created_at")?,
        ended_at: column(row, "finished_at")?,
        outcome: column(row, "state")?,
        code: column(row, "error_code")?,
    })
}

pub(super) fn seconds(db: &Db) -> Result<i64> {
    Ok(db.now_ms()?.div_euclid(1_000))
}

fn carry_out(db: &Db, order: Order, is_shared: bool) -> Result<Effect> {
    Ok(match order {
        Order::Pause => put(db, PAUSED, &[])?,
        Order::Resume => remove(db, PAUSED, &[])?,
        Order::Cordon { account } => put(db, CORDONED, account.as_slice())?,
        Order::Uncordon { account } => remove(db, CORDONED, account.as_slice())?,
        Order::Cancel { relay } => cancel(db, relay)?,
        Order::Abandon { account } => abandon(db, account, is_shared)?,
        Order::Reload => {
            db.run(
                "INSERT INTO control (name, subject, since, number) VALUES ($1, $2, $3, 1) ON CONFLICT (name, subject)
                 DO UPDATE SET number = control.number + 1, since = excluded.since",
                values![RELOAD, Vec::<u8>::new(), seconds(db)?],
            )?;
            let query = "SELECT number FROM control WHERE name = $1";
            Effect::Number(single(db, query, values![RELOAD])?.unwrap_or_default())
        }
        Order::Keys | Order::Export { .. } => Effect::Done,
    })
}

fn put(db: &Db, name: &str, subject: &[u8]) -> Result<Effect> {
    let changed = db.execute(
        "INSERT INTO control (name, subject, since, number) VALUES ($1, $2, $3, 0) ON CONFLICT DO NOTHING",
        values![name, subject, seconds(db)?],
    )?;
    Ok(if changed > 0 { Effect::Done } else { Effect::Already })
}

fn remove(db: &Db, name: &str, subject: &[u8]) -> Result<Effect> {
    let sql = "DELETE FROM control WHERE name = $1 AND subject = $2";
    let changed = db.execute(sql, values![name, subject])?;
    Ok(if changed > 0 { Effect::Done } else { Effect::Already })
}

/// Ends a relay that has no nonce in flight; if it has one, only marks it for its account's sender.
fn cancel(db: &Db, relay: B256) -> Result<Effect> {
    let now = seconds(db)?;
    locks::relay(db, &relay)?;
    forget_cancelled(db, now)?;
    match relays::stored_outcome(db, &relay)? {
        None => return Ok(Effect::Unknown),
        Some(Some(outcome)) if outcome.is_cancelled() => return Ok(Effect::Already),
        Some(Some(outcome)) => return Ok(Effect::Ended(outcome)),
        Some(None) => {}
    }
    let marked = put(db, CANCEL, relay.as_slice())?;
    if !assignments::open_of(db, &relay)?.is_empty() {
        return Ok(if marked == Effect::Done { Effect::Replacing } else { Effect::Already });
    }
    let outcome = RelayOutcome::Dropped { failure: Failure::of(ErrorCode::Cancelled) };
    ending::finish(db, &relay, &outcome, now.cast_unsigned())?;
    Ok(Effect::Cancelled)
}

/// Forgets the old marks of cancelled relays, except of those that have not ended.
pub(super) fn forget_cancelled(db: &Db, now: i64) -> Result<()> {
    db.run(
        "DELETE FROM control WHERE name = $1 AND since < $2
         AND NOT EXISTS (SELECT 1 FROM relays WHERE id = subject AND state = 'pending')",
        values![CANCEL, now.saturating_sub(CANCELLED)],
    )
}

/// Returns whether a relay is marked as cancelled.
pub(super) fn is_marked(db: &Db, relay: &B256) -> Result<bool> {
    let query = "SELECT since FROM control WHERE name = $1 AND subject = $2";
    Ok(!db.query(query, values![CANCEL, relay.as_slice()])?.is_empty())
}

/// Gives up an account's open nonces, so that other accounts carry their relays: the forwarder's nonce makes
/// that safe, and the worst is one paid revert. If a daemon holds the account, which must be cordoned then,
/// it loses the lease, and with it all that it knows of these nonces.
fn abandon(db: &Db, account: Address, is_shared: bool) -> Result<Effect> {
    if is_shared {
        locks::lease(db, &account)?;
        let query = "SELECT account FROM account_leases WHERE account = $1 AND holder IS NOT NULL AND expires_at > $2";
        let is_held = !db.query(query, values![account, db.now_ms()?])?.is_empty();
        let query = "SELECT since FROM control WHERE name = $1 AND subject = $2";
        if is_held && db.query(query, values![CORDONED, account.as_slice()])?.is_empty() {
            return Ok(Effect::Held);
        }
        locks::relays_of(db, &[account])?;
    }
    let open: Vec<u64> =
        each(db, "SELECT nonce FROM nonces WHERE account = $1 AND state = 'open'", values![account])?;
    if open.is_empty() {
        return Ok(Effect::Already);
    }
    if is_shared {
        db.run(
            "UPDATE account_leases SET holder = NULL, expires_at = 0, epoch = epoch + 1 WHERE account = $1",
            values![account],
        )?;
        db.run(
            "UPDATE relays SET holder = NULL WHERE state = 'pending' AND id IN
                 (SELECT relay FROM nonces WHERE account = $1 AND state = 'open')",
            values![account],
        )?;
    }
    db.run("UPDATE nonces SET state = 'lost' WHERE account = $1 AND state = 'open'", values![account])?;
    // They may be in pools, and be mined yet.
    let now = seconds(db)?.cast_unsigned();
    open.iter().try_for_each(|nonce| given_up::reserve(db, &account, *nonce, now))?;
    Ok(Effect::GivenUp(open.len()))
}
