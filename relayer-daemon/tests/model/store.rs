//! The real store, whose disk can be full and whose process can be dead.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use alloy::primitives::{Address, B256};
use relayer_daemon::{
    budget::{Budget, share::Allowance},
    outcome::RelayOutcome,
    store::{
        Accepted, ExpectedCost, Identity, MinedNonce, NewRelay, NewTransaction, NonceAssignment, RelayRecord,
        Reservation, Retention, Settlement, SqliteStore, Store, StoreError,
    },
};

/// The store as one life of the daemon sees it.
#[derive(Debug)]
pub struct LifeStore {
    pub real: Arc<SqliteStore>,
    pub disk_full: Arc<AtomicBool>,
    pub alive: Arc<AtomicBool>,
}

impl LifeStore {
    fn read(&self) -> Result<&SqliteStore, StoreError> {
        if self.alive.load(Ordering::Relaxed) { Ok(&self.real) } else { Err(StoreError::Interrupted) }
    }

    fn write(&self) -> Result<&SqliteStore, StoreError> {
        if self.disk_full.load(Ordering::Relaxed) { Err(StoreError::NotCommitted) } else { self.read() }
    }
}

macro_rules! pass_on {
    ($($access:ident $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl Store for LifeStore {
            $(fn $name(&self $(, $argument: $kind)*) -> Result<$result, StoreError> {
                self.$access()?.$name($($argument),*)
            })*
        }
    };
}

pass_on! {
    read verify(identity: &Identity) -> ();
    write bind(identity: &Identity) -> ();
    write probe() -> ();
    write accept(relay: &NewRelay, now: u64) -> Accepted;
    write reserve(id: B256, wei: u128, limit_wei: u128, now: u64) -> bool;
    read affordable(signer: Address, client: Option<IpAddr>, wei: u128, allowance: &Allowance, now: u64) -> Reservation;
    write reserve_share(id: B256, cost: &ExpectedCost, allowance: &Allowance, now: u64) -> Reservation;
    write finish_unsent(id: B256, outcome: &RelayOutcome, now: u64) -> ();
    read relay(id: B256) -> Option<RelayRecord>;
    read accepted(id: B256) -> Option<NewRelay>;
    write unsent(now: u64) -> Vec<NewRelay>;
    read budget(limit_wei: u128, now: u64) -> Budget;
    read oldest_pending() -> Option<u64>;
    write prune(retention: &Retention, now: u64) -> usize;
    read archived_nonce(account: Address) -> Option<u64>;
    write record(account: Address, transactions: &[NewTransaction], now: u64) -> ();
    write record_gap(account: Address, no_op: &NewTransaction, extra_wei: u128, limit_wei: u128, now: u64) -> bool;
    read next_nonce(account: Address) -> Option<u64>;
    read open_nonces(account: Address) -> Vec<NonceAssignment>;
    read accounts_with_open_nonces() -> Vec<Address>;
    read assignment(account: Address, nonce: u64) -> NonceAssignment;
    read mined(account: Address, nonce: u64) -> Option<MinedNonce>;
    read mined_since(account: Address, since: u64) -> Vec<u64>;
    read lost(account: Address) -> Vec<u64>;
    read highest_mined(account: Address) -> Option<u64>;
    write settle(account: Address, settlement: &Settlement, now: u64) -> ();
    write reopen(account: Address, nonce: u64, expected_wei: u128) -> bool;
    write lose(account: Address, nonce: u64) -> ();
    read explains(account: Address, from: u64, to: u64) -> bool;
}
