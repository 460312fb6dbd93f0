//! Retention: old relays shrink to what `GET /relay/:id` answers and are later deleted, in small steps, and a
//! year of them fits on any disk.
//!
//! `RETENTION_RELAYS=1000000 cargo test --test retention a_journal -- --nocapture` is the long one, and
//! prints what it measured. It takes minutes, and some 3 GB in the directory for temporary files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::{
    env,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use alloy::{
    primitives::{Address, B256, Bytes, U256, aliases::U48, keccak256},
    signers::local::PrivateKeySigner,
    sol_types::SolCall as _,
};
use futures_util::FutureExt as _;
use registry_core::eth::abi::{ForwardRequest, IForwarder};
use relayer_daemon::{
    budget::share::{Allowance, Shares},
    gas::fees::Fees,
    outcome::{ErrorCode, Failure, MinedTransaction, RelayOutcome},
    sender::signing::Wallet,
    store::{
        Accepted, BlockId, ExpectedCost, Inclusion, NewRelay, NewTransaction, Retention, Settlement,
        SignedTransaction, Store,
    },
};
use rusqlite::Connection;

const NOW: u64 = 1_700_000_000;
const DAY: u64 = 24 * 60 * 60;
const ACCOUNT: Address = Address::repeat_byte(0xaa);
const RETENTION: Retention = Retention::of_days(30);
/// The newest nonces, which stay whole.
const NEWEST: u64 = 256;
/// How many relays one step takes at most.
const STEP: usize = 64;

fn id(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
}

fn hash(index: u64) -> B256 {
    keccak256(id(index))
}

/// Calldata and transaction.
type Real = (Bytes, SignedTransaction);

/// A realistic relay: a registration with a name, a link and a short description.
fn real_transaction() -> Real {
    let req = ForwardRequest {
        from: Address::repeat_byte(0x11),
        to: Address::repeat_byte(0x22),
        value: U256::ZERO,
        gas: U256::from(400_000),
        nonce: U256::from(3),
        deadline: U48::from(NOW),
        data: vec![0x5a; 4 + 9 * 32].into(),
    };
    let calldata =
        Bytes::from(IForwarder::executeCall { req, signature: vec![0x7b; 65].into() }.abi_encode());
    let wallet = Wallet::new(PrivateKeySigner::random(), 84_532, Address::repeat_byte(0x33));
    let fees = Fees { max_fee: 3_000_000_000, tip: 1_000_000 };
    // A local key signs at once.
    let signed = wallet.relay(1_000_000, calldata.clone(), 600_000, fees).now_or_never();
    (calldata, signed.unwrap().unwrap())
}

fn relay(index: u64, calldata: &Bytes) -> NewRelay {
    NewRelay {
        id: id(index),
        signer: Address::from_word(id(index)),
        forward_nonce: U256::from(index),
        deadline: NOW + DAY,
        calldata: calldata.clone(),
        client: Some("2001:db8:1:1::".parse().unwrap()),
    }
}

fn executed(index: u64) -> RelayOutcome {
    let mined =
        MinedTransaction { tx_hash: hash(index), block_number: 30_000_000 + index, gas_used: 277_676 };
    RelayOutcome::Executed { mined, agent_id: Some(U256::from(index)) }
}

/// Accepts, reserves, signs, and settles one relay at `now`, as pipeline and sender do.
fn carry_out(store: &Store, index: u64, now: u64, real: &Real) {
    let shares = Shares { signer: 100, client: 100, network: 100 };
    let allowance = Allowance { limit_wei: u128::MAX / 2, shares };
    assert_eq!(store.accept(&relay(index, &real.0), now).unwrap(), Accepted::Pending);
    let cost =
        ExpectedCost { wei: 1_000_000_000_000_000, gas: 270_000, l1_fee_wei: 0, least_wei: 1, no_op_wei: 0 };
    store.reserve_share(id(index), &cost, &allowance, now).unwrap();
    sign(store, index, Some(id(index)), index, now, real);
    settle(store, index, index, Some(executed(index)), now);
}

/// Records the transaction with this index as signed for a nonce.
fn sign(store: &Store, nonce: u64, relay: Option<B256>, index: u64, now: u64, real: &Real) {
    let transaction = SignedTransaction { hash: hash(index), ..real.1.clone() };
    store.record(ACCOUNT, &[NewTransaction { nonce, relay, transaction }], now).unwrap();
}

/// Settles a nonce mined by the transaction with this index.
fn settle(store: &Store, nonce: u64, index: u64, outcome: Option<RelayOutcome>, now: u64) {
    let assignment = store.assignment(ACCOUNT, nonce).unwrap();
    let inclusion =
        Inclusion { tx_hash: hash(index), block: BlockId { number: 30_000_000 + index, hash: hash(index) } };
    let settlement = Settlement { assignment, inclusion, paid_wei: 271_828_182_845, outcome };
    store.settle(ACCOUNT, &settlement, now).unwrap();
}

/// Carries out many, side by side, so that they share commits.
fn carry_out_all(store: &Store, indexes: std::ops::Range<u64>, now: u64) {
    let real = real_transaction();
    thread::scope(|threads| {
        for first in 0..64 {
            let (real, indexes) = (&real, indexes.clone());
            threads.spawn(move || {
                indexes.skip(first).step_by(64).for_each(|index| carry_out(store, index, now, real));
            });
        }
    });
}

fn carry_out_in_order(store: &Store, indexes: std::ops::Range<u64>, now: u64) {
    let real = real_transaction();
    indexes.for_each(|index| carry_out(store, index, now, &real));
}

/// Prunes until nothing is due; how many steps that took, and the longest.
fn prune_all(store: &Store, now: u64) -> (usize, Duration) {
    let (mut steps, mut longest) = (0, Duration::ZERO);
    loop {
        let started = Instant::now();
        let taken = store.prune(&RETENTION, now).unwrap();
        longest = longest.max(started.elapsed());
        if taken == 0 {
            return (steps, longest);
        }
        // Four kinds of work, each bounded.
        assert!(taken <= 4 * STEP, "{taken} in one step");
        steps += 1;
    }
}

/// Bytes of the file, and of these what is in use.
fn size(path: &Path) -> (u64, u64) {
    let db = Connection::open(path).unwrap();
    let pragma = |name: &str| -> u64 {
        db.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
    };
    let (pages, free, page) = (pragma("page_count"), pragma("freelist_count"), pragma("page_size"));
    (pages * page, (pages - free) * page)
}

#[test]
fn a_journal_of_a_million_relays_stays_below_a_gigabyte() {
    let relays: u64 = env::var("RETENTION_RELAYS").map_or(2_000, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.sqlite");
    let store = Store::open(&path).unwrap();
    carry_out_all(&store, 0..relays, NOW);
    let (whole, _) = size(&path);

    let later = NOW + 30 * DAY + 1;
    let (steps, longest) = prune_all(&store, later);
    let (after, archived) = size(&path);
    let archived_each = (archived - NEWEST.min(relays) * whole / relays) / relays;
    println!("{relays} relays: {} bytes each while whole, {archived_each} archived", whole / relays);
    println!("file {whole} bytes, then {archived} of {after} in use; {steps} steps, the longest {longest:?}");
    assert!(whole / relays < 3_300, "{} bytes a relay", whole / relays);
    assert!(archived_each < 500, "{archived_each} bytes an archived relay: a million are no gigabyte");

    // As many again: what was freed is used before the file grows.
    carry_out_all(&store, relays..2 * relays, later);
    let (again, _) = size(&path);
    println!("{relays} more: file {again} bytes");
    assert!(again < whole + relays * 500 + (1 << 20), "{again} after {whole}: free pages are not used again");

    let much_later = later + 360 * DAY;
    prune_all(&store, much_later);
    let (file, used) = size(&path);
    println!("a year later: {used} of {file} bytes in use");
    assert!(used < NEWEST * 3_300 + (1 << 20), "{used} bytes for nothing but the newest");
    assert_eq!(store.relay(id(0)).unwrap(), None);
    assert!(store.relay(id(2 * relays - 1)).unwrap().is_some());
}

#[test]
fn the_address_of_a_client_is_kept_for_a_day_after_the_relays_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.sqlite");
    let store = Store::open(&path).unwrap();
    carry_out_in_order(&store, 0..3, NOW);
    let known = || -> i64 {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.query_row("SELECT count(client) FROM relays", [], |row| row.get(0)).unwrap()
    };
    prune_all(&store, NOW + DAY);
    assert_eq!(known(), 3);
    prune_all(&store, NOW + DAY + 1_000);
    assert_eq!(known(), 0, "addresses are left");
}

#[allow(dead_code, unreachable_pub, reason = "the end-to-end tests use it too")]
#[path = "../../../tests/src/postgres.rs"]
mod postgres_server;

mod sqlite {
    use super::*;

    fn fresh() -> Store {
        Store::in_memory().unwrap()
    }

    include!("suite.rs");
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::{postgres_server::Postgres, *};
    use std::sync::LazyLock;

    static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(&["fsync=off"]));

    fn fresh() -> Store {
        Store::connect(&SERVER.schema()).unwrap()
    }

    include!("suite.rs");
}
