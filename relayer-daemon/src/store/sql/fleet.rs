//! The agreement of a fleet's daemons: which of them holds which account and which pending relay.
//!
//! A lease is taken only as it was read, and a relay only while it is locked: no two daemons take the same
//! account, or the same relay.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use alloy::primitives::{Address, B256, U256};
use registry_core::forward::is_expired;

use super::{
    Store, assignments, budget,
    engine::{Db, all, column, each, single, values},
    locks, relays,
};
use crate::store::{
    AccountState, DaemonId, NewRelay, Payer, StoreError,
    fleet::{Beat, FleetRecord, HeldLease, LEASE, Room, WEBHOOKS, assign},
};

/// The most orphaned relays that a daemon takes at once.
const STEP: usize = 64;
/// The period of a rate limit, milliseconds.
const HOUR: i64 = 3_600_000;

/// The operations of a fleet's daemon; as with the others, each is atomic, and durable when it returns.
impl Store {
    /// Returns whether several daemons use this store.
    pub const fn is_shared(&self) -> bool {
        self.daemon.is_some()
    }

    /// Returns the daemon that uses it; `None` without a fleet.
    pub const fn daemon(&self) -> Option<&DaemonId> {
        self.daemon.as_ref()
    }

    /// Returns the number of commits so far that the database did not confirm. Their writes may be there all
    /// the same, so nothing that is remembered of them can be relied upon.
    pub fn doubts(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.doubts())
    }

    /// Tells the fleet that this daemon lives and has the keys of these accounts. Renews its leases, and
    /// takes those that are free and assigned to it. With `renounce` the leases get new epochs: nothing that
    /// was in progress may go on with them. They also get new ones if the last beat, which wrote
    /// `alive_until`, is not there any more, as after a failover that lost commits.
    pub fn beat(
        &self,
        accounts: &[Address],
        renounce: bool,
        alive_until: Option<i64>,
    ) -> Result<Beat, StoreError> {
        let (daemon, accounts) = (self.must_be_of_a_fleet()?, accounts.to_vec());
        self.write_leases(move |db| beat(db, &daemon, &accounts, renounce, alive_until))
    }

    /// Publishes these states of this daemon's accounts.
    pub fn publish_states(&self, states: Vec<(Address, AccountState)>) -> Result<(), StoreError> {
        let daemon = self.must_be_of_a_fleet()?;
        self.write_leases(move |db| {
            let publish = "UPDATE daemon_keys SET state = $3 WHERE daemon = $1 AND account = $2";
            states
                .iter()
                .try_for_each(|(account, state)| db.run(publish, values![&daemon, account, state.name()]))
        })
    }

    /// Gives an account back.
    pub fn release(&self, payer: Payer) -> Result<(), StoreError> {
        let daemon = self.must_be_of_a_fleet()?;
        self.write_leases(move |db| {
            locks::lease(db, &payer.account)?;
            must_hold_account(db, &daemon, &payer)?;
            let free = "UPDATE account_leases SET holder = NULL, expires_at = 0 WHERE account = $1";
            db.run(free, values![payer.account])
        })
    }

    /// Leaves the fleet: frees all that this daemon holds.
    pub fn leave(&self) -> Result<(), StoreError> {
        let daemon = self.must_be_of_a_fleet()?;
        self.write_leases(move |db| {
            locks::leases_of(db, &daemon)?;
            let free = "UPDATE account_leases SET holder = NULL, expires_at = 0 WHERE holder = $1";
            db.run(free, values![&daemon])?;
            db.run("DELETE FROM daemons WHERE id = $1", values![&daemon])
        })
    }

    /// Takes pending relays without a nonce that no living daemon runs, as many as there is room for: those
    /// of daemons that died, those that were handed over, and its own ones that are not in `known`. Gives
    /// their reservations back; they must run through the pipeline again.
    pub fn claim(&self, known: HashSet<B256>, room: Room, now: u64) -> Result<Vec<NewRelay>, StoreError> {
        self.claim_some(known, room, now, None)
    }

    /// Takes relays as [`Self::claim`] does, but only those that are past their deadline.
    pub fn claim_expired(
        &self,
        known: HashSet<B256>,
        room: Room,
        now: u64,
    ) -> Result<Vec<NewRelay>, StoreError> {
        self.claim_some(known, room, now, Some(now))
    }

    fn claim_some(
        &self,
        known: HashSet<B256>,
        room: Room,
        now: u64,
        expired_at: Option<u64>,
    ) -> Result<Vec<NewRelay>, StoreError> {
        let daemon = self.must_be_of_a_fleet()?;
        // Most often there are none, and no write is needed to find that out.
        if self.read_single(|db| orphans(db, &daemon, &known, room.clone(), expired_at))?.is_empty() {
            return Ok(Vec::new());
        }
        self.write(move |db| {
            let mut claimed = Vec::new();
            let free = locks::free_relays(db, &orphans(db, &daemon, &known, room.clone(), expired_at)?)?;
            // As they are now that they are locked.
            let orphans = orphans(db, &daemon, &known, room, expired_at)?;
            for id in orphans.into_iter().filter(|id| free.contains(id)) {
                relays::take(db, &daemon, &id)?;
                budget::set_reserved(db, &id, 0)?;
                claimed.extend(relays::accepted(db, &id)?);
            }
            budget::close_if_unused(db, now)?;
            Ok(claimed)
        })
    }

    /// Returns this daemon's pending relays without a nonce, by the store, that are not in `known`.
    pub fn left_with(&self, known: HashSet<B256>) -> Result<Vec<B256>, StoreError> {
        let daemon = self.must_be_of_a_fleet()?;
        let query = "SELECT id FROM relays WHERE state = 'pending' AND holder = $1
             AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id AND state = 'open')";
        let mut held: Vec<B256> = self.read_single(|db| each(db, query, values![&daemon]))?;
        held.retain(|id| !known.contains(id));
        Ok(held)
    }

    /// Frees a relay without a nonce for any daemon to take.
    pub fn hand_over(&self, id: B256, now: u64) -> Result<(), StoreError> {
        self.write_about(id, move |db| {
            must_have_no_nonce(db, &id)?;
            db.run("UPDATE relays SET holder = NULL WHERE id = $1", values![id])?;
            budget::set_reserved(db, &id, 0)?;
            budget::close_if_unused(db, now)
        })
    }

    /// Returns the signer's pending relays that come right before this one: with the same forwarder nonce,
    /// those sent or accepted earlier; with the nonce before, those that this daemon does not hold.
    pub fn ahead_of(&self, relay: &NewRelay) -> Result<Vec<(B256, U256)>, StoreError> {
        let daemon = self.must_be_of_a_fleet()?;
        let (nonce, before) = (relay.forward_nonce, relay.forward_nonce.checked_sub(U256::ONE));
        let query =
            "SELECT id, forward_nonce FROM relays WHERE signer = $1 AND state = 'pending' AND id <> $2
             AND ((forward_nonce = $4 AND (holder IS NULL OR holder <> $3))
                 OR (forward_nonce = $5 AND (rowid < (SELECT rowid FROM relays WHERE id = $2)
                     OR EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id AND state = 'open'))))
             ORDER BY rowid";
        let terms = values![relay.signer, relay.id, &daemon, before, nonce];
        self.read_single(|db| {
            all(db, query, terms, |row| Ok((column(row, "id")?, column(row, "forward_nonce")?)))
        })
    }

    /// Returns the forwarder nonces of a signer's pending relays.
    pub fn pending_nonces(&self, signer: Address) -> Result<BTreeSet<U256>, StoreError> {
        let query = "SELECT forward_nonce FROM relays WHERE signer = $1 AND state = 'pending'";
        Ok(self.read_single(|db| each(db, query, values![signer]))?.into_iter().collect())
    }

    /// Charges a party one request of `per_hour`, which all daemons count together. The inner error is the
    /// number of seconds to wait; nothing was charged then.
    pub fn charge_rate(&self, party: String, per_hour: u32) -> Result<Result<(), u64>, StoreError> {
        let gap = HOUR / i64::from(per_hour.max(1));
        self.write_single(move |db| {
            let charge = db.statements().charge_rate;
            if !db.query(charge, values![&party, gap, HOUR, db.own_clock()])?.is_empty() {
                return Ok(Ok(()));
            }
            let query = "SELECT full_at FROM rates WHERE party = $1";
            let full_at: i64 = single(db, query, values![&party])?.unwrap_or_default();
            let wait = full_at.saturating_add(gap) - HOUR - db.now_ms()?;
            Ok(Err(wait.max(1).cast_unsigned().div_ceil(1_000)))
        })
    }

    /// Returns the fleet as it is now.
    pub fn fleet(&self) -> Result<FleetRecord, StoreError> {
        self.read(|db| {
            let now = db.now_ms()?;
            let daemons = members(living(db, now)?).len();
            let query =
                "SELECT account, holder FROM account_leases WHERE holder IS NOT NULL AND expires_at > $1";
            let holders: Vec<(Address, DaemonId)> =
                all(db, query, values![now], |row| Ok((column(row, "account")?, column(row, "holder")?)))?;
            let query = "SELECT count(*) FROM relays WHERE state = 'pending'";
            let pending = single(db, query, values![])?.unwrap_or_default();
            Ok(FleetRecord { daemons, holders: holders.into_iter().collect(), pending })
        })
    }

    fn must_be_of_a_fleet(&self) -> Result<DaemonId, StoreError> {
        self.daemon.clone().ok_or(StoreError::Missing("fleet"))
    }
}

/// An account of which a living daemon has the key.
struct LivingKey {
    daemon: DaemonId,
    account: Address,
    /// Time until which the daemon lives without another beat, milliseconds.
    until: i64,
    /// The account's state as the daemon has published it.
    state: AccountState,
}

/// Returns the accounts of each daemon that lives.
fn living(db: &Db, now: i64) -> Result<Vec<LivingKey>, StoreError> {
    let query =
        "SELECT daemon, account, expires_at, state FROM daemon_keys JOIN daemons ON daemons.id = daemon
         WHERE expires_at > $1";
    all(db, query, values![now], |row| {
        let state: Option<String> = column(row, "state")?;
        Ok(LivingKey {
            daemon: column(row, "daemon")?,
            account: column(row, "account")?,
            until: column(row, "expires_at")?,
            // A later version may have others.
            state: state.and_then(|name| AccountState::named(&name)).unwrap_or(AccountState::Elsewhere),
        })
    })
}

fn members(living: Vec<LivingKey>) -> BTreeMap<DaemonId, BTreeSet<Address>> {
    let mut members: BTreeMap<DaemonId, BTreeSet<Address>> = BTreeMap::new();
    for key in living {
        members.entry(key.daemon).or_default().insert(key.account);
    }
    members
}

/// Fills in the states published by a daemon, which has keys of these accounts, and by other daemons.
fn published_states(beat: &mut Beat, daemon: &DaemonId, accounts: &[Address], living: &[LivingKey]) {
    let own = accounts.iter().map(|account| (*account, AccountState::Elsewhere));
    beat.states = own.filter(|(account, _)| *account != WEBHOOKS).collect();
    for LivingKey { daemon: of, account, state, .. } in living.iter().filter(|key| key.account != WEBHOOKS) {
        if of == daemon {
            beat.published.insert(*account, *state);
        } else {
            let best = beat.states.entry(*account).or_insert(*state);
            *best = (*best).min(*state);
        }
    }
}

struct StoredLease {
    holder: Option<DaemonId>,
    epoch: u64,
    expires_at: i64,
}

fn beat(
    db: &Db,
    daemon: &DaemonId,
    accounts: &[Address],
    renounce: bool,
    alive_until: Option<i64>,
) -> Result<Beat, StoreError> {
    let now = db.now_ms()?;
    let living = living(db, now)?;
    let stored = living.iter().find(|key| key.daemon == *daemon).map(|key| key.until);
    // Not another value: a beat without an answer may have been written.
    let has_lost = alive_until.is_some_and(|until| stored.is_none_or(|stored| stored < until));
    if has_lost {
        tracing::warn!("this daemon's last beat is over or lost: its accounts start anew from the store");
    }
    let renounce = renounce || has_lost;
    let until = now.saturating_add(i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX));
    db.run(
        "INSERT INTO daemons VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at",
        values![daemon, until],
    )?;
    // Of dead daemons only their leases are needed. Others may be deleting them.
    db.run(db.statements().delete_daemons, values![now])?;
    let mut beat = Beat { alive_until: until, has_lost, ..Beat::default() };
    published_states(&mut beat, daemon, accounts, &living);
    let mut members = members(living);
    let known = members.entry(daemon.clone()).or_default();
    for account in accounts.iter().filter(|account| known.insert(**account)) {
        db.run(
            "INSERT INTO daemon_keys (daemon, account) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            values![daemon, account],
        )?;
    }

    // What is not another's by now stays this daemon's until the transaction ends.
    locks::leases_to_renew(db, daemon, accounts, now)?;
    db.run("UPDATE account_leases SET expires_at = $2 WHERE holder = $1", values![daemon, until])?;
    let leases = all(db, "SELECT * FROM account_leases", values![], |row| {
        let (holder, epoch) = (column(row, "holder")?, column(row, "epoch")?);
        Ok((column(row, "account")?, StoredLease { holder, epoch, expires_at: column(row, "expires_at")? }))
    })?;
    let leases: BTreeMap<Address, StoredLease> = leases.into_iter().collect();
    let valid = leases.iter().filter(|(_, lease)| lease.expires_at > now);
    let holders = valid.filter_map(|(account, lease)| Some((*account, lease.holder.clone()?))).collect();
    let assigned = assign(&members, &holders);

    beat.daemons = members.len();
    let mut changed = Vec::new();
    // In the order of all writes: the leases by their accounts, then relays.
    for account in accounts.iter().collect::<BTreeSet<_>>() {
        let lease = leases.get(account);
        let is_ours = lease.is_some_and(|lease| lease.holder.as_ref() == Some(daemon));
        let is_assigned = assigned.get(account) == Some(daemon);
        if !is_ours && (holders.contains_key(account) || !is_assigned) {
            continue;
        }
        let before = lease.map_or(0, |lease| lease.epoch);
        let mut epoch = before;
        if !is_ours || renounce {
            epoch = before.saturating_add(1);
            locks::lease(db, account)?;
            // Another one may have taken it meanwhile.
            let taken = db.execute(
                "INSERT INTO account_leases VALUES ($1, $2, $3, $4) ON CONFLICT (account) DO UPDATE
                 SET holder = excluded.holder, epoch = excluded.epoch, expires_at = excluded.expires_at
                 WHERE account_leases.epoch = $5",
                values![account, daemon, epoch, until, before],
            )?;
            if taken == 0 {
                continue;
            }
            changed.push(*account);
        }
        beat.held.push(HeldLease {
            payer: Payer { account: *account, epoch: Some(epoch) },
            is_wanted: is_assigned,
        });
    }
    if !changed.is_empty() {
        // What these accounts have in flight is this daemon's to end now.
        locks::relays_of(db, &changed)?;
    }
    for account in &changed {
        db.run(
            "UPDATE relays SET holder = $2 WHERE state = 'pending'
             AND id IN (SELECT relay FROM nonces WHERE account = $1 AND state = 'open')",
            values![account, daemon],
        )?;
    }
    Ok(beat)
}

/// Returns pending relays without a nonce in flight that this daemon may take, as many as there is room for.
/// With `expired_at`, only those that are past their deadline then.
fn orphans(
    db: &Db,
    daemon: &DaemonId,
    known: &HashSet<B256>,
    mut room: Room,
    expired_at: Option<u64>,
) -> Result<Vec<B256>, StoreError> {
    let query = "SELECT id, signer, deadline, holder = $2 AS is_ours FROM relays WHERE state = 'pending'
         AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id AND state = 'open')
         AND (holder IS NULL OR holder = $2
             OR NOT EXISTS (SELECT 1 FROM daemons WHERE daemons.id = holder AND expires_at > $1))
         ORDER BY created_at, rowid";
    let mut found: Vec<(B256, Address, bool, u64)> = all(db, query, values![db.now_ms()?, daemon], |row| {
        let is_ours: Option<bool> = column(row, "is_ours")?;
        let is_ours = is_ours.unwrap_or_default();
        Ok((column(row, "id")?, column(row, "signer")?, is_ours, column(row, "deadline")?))
    })?;
    found.retain(|(.., deadline)| expired_at.is_none_or(|now| is_expired(*deadline, now)));
    let orphans = found
        .into_iter()
        .filter(|(id, signer, is_ours, _)| !(*is_ours && known.contains(id)) && room.admit(id, *signer));
    Ok(orphans.map(|(id, ..)| id).take(STEP).collect())
}

/// Checks that the daemon holds the account, and keeps it so until the transaction ends: a lease changes
/// hands only once nothing is written under it any more. A renewal waits for nothing.
///
/// # Errors
/// [`StoreError::Fenced`] if the account was given to another daemon, or to this one anew; without an epoch,
/// if any daemon holds it.
pub(super) fn must_hold_account(db: &Db, daemon: &DaemonId, payer: &Payer) -> Result<(), StoreError> {
    if payer.epoch.is_none() {
        return must_be_free(db, &payer.account);
    }
    let held = values![payer.account, daemon];
    let epoch: Option<u64> = single(db, db.statements().hold_lease, held)?;
    if epoch.is_some() && epoch == payer.epoch { Ok(()) } else { Err(StoreError::Fenced) }
}

/// Checks that no daemon holds the account, and keeps it so until the transaction ends.
fn must_be_free(db: &Db, account: &Address) -> Result<(), StoreError> {
    // The account may never have been leased, as of a journal that was in a file before.
    let row = "INSERT INTO account_leases VALUES ($1, NULL, 0, 0) ON CONFLICT (account) DO NOTHING";
    db.run(row, values![account])?;
    locks::lease(db, account)?;
    let query =
        "SELECT account FROM account_leases WHERE account = $1 AND holder IS NOT NULL AND expires_at > $2";
    let is_free = db.query(query, values![account, db.now_ms()?])?.is_empty();
    if is_free { Ok(()) } else { Err(StoreError::Fenced) }
}

/// Fails with [`StoreError::HeldElsewhere`] if another daemon runs the relay, or any may take it.
pub(super) fn must_hold_relay(db: &Db, daemon: &DaemonId, id: &B256) -> Result<(), StoreError> {
    let holder: Option<DaemonId> = single(db, "SELECT holder FROM relays WHERE id = $1", values![id])?
        .ok_or(StoreError::Missing("relay"))?;
    let is_ours = holder.as_ref() == Some(daemon);
    if is_ours { Ok(()) } else { Err(StoreError::HeldElsewhere) }
}

/// Fails with [`StoreError::HeldElsewhere`] if the relay has a nonce in flight, as after a commit that was
/// not confirmed: the account's sender ends it.
pub(super) fn must_have_no_nonce(db: &Db, id: &B256) -> Result<(), StoreError> {
    if assignments::open_of(db, id)?.is_empty() { Ok(()) } else { Err(StoreError::HeldElsewhere) }
}

/// Deletes the rates of parties that have made no request for an hour.
pub(super) fn forget_rates(db: &Db) -> Result<(), StoreError> {
    db.run("DELETE FROM rates WHERE full_at <= $1", values![db.now_ms()?])
}
