//! The journal's promises: what is reserved, charged, given back and remembered, restart or not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use alloy::primitives::{Address, B256, U256};
use relayer_daemon::{
    budget::WINDOW_SECONDS,
    fees::Fees,
    journal::{Accepted, Journal, NewRelay, Signed},
    outcome::{Failure, Mined, Outcome},
    sender::slot::{Attempt, Purpose},
};

const NOW: u64 = 1_700_000_000;
const LIMIT: u128 = 1_000;

fn id(byte: u8) -> B256 {
    B256::repeat_byte(byte)
}

fn relay(byte: u8) -> NewRelay {
    NewRelay {
        id: id(byte),
        signer: Address::repeat_byte(byte),
        forward_nonce: U256::MAX,
        deadline: u64::from(u32::MAX),
        calldata: vec![byte; 3].into(),
    }
}

fn attempt(byte: u8, purpose: Purpose) -> Attempt {
    let fees = Fees { max_fee: u128::MAX, tip: 1 };
    Attempt { hash: id(byte), raw: vec![byte].into(), fees, gas_limit: u64::MAX, purpose }
}

fn dropped() -> Outcome {
    Outcome::Dropped { failure: Failure::budget_exhausted(7) }
}

fn executed(hash: B256) -> Outcome {
    let mined = Mined { tx_hash: hash, block_number: 9, gas_used: 21_000 };
    Outcome::Executed { mined, agent_id: Some(U256::MAX) }
}

fn accepted(relays: &[u8]) -> Journal {
    let journal = Journal::in_memory().unwrap();
    for byte in relays {
        assert_eq!(journal.accept(&relay(*byte), NOW).unwrap(), Accepted::Pending);
    }
    journal
}

fn sign(journal: &Journal, nonce: u64, relay: Option<B256>, attempt: Attempt) {
    journal.record(&[Signed { nonce, relay, attempt }], NOW).unwrap();
}

fn used(journal: &Journal, now: u64) -> (u128, u128) {
    let budget = journal.budget(LIMIT, now).unwrap();
    (budget.window.settled_wei, budget.reserved_wei)
}

#[test]
fn reservations_stop_at_the_limit_and_are_replaced_not_added() {
    let journal = accepted(&[1, 2]);
    assert!(journal.reserve(id(1), 600, 5, LIMIT, NOW).unwrap());
    assert!(!journal.reserve(id(2), 401, 0, LIMIT, NOW).unwrap());
    assert!(journal.reserve(id(1), 700, 5, LIMIT, NOW).unwrap());
    assert!(journal.reserve(id(2), 300, 0, LIMIT, NOW).unwrap());
    assert_eq!(used(&journal, NOW), (0, 1_000));
    assert!(!journal.reserve(id(1), 701, 5, LIMIT, NOW).unwrap());
    assert_eq!(used(&journal, NOW), (0, 1_000));
}

#[test]
fn what_was_never_sent_costs_nothing_and_opens_no_window() {
    let journal = accepted(&[1, 2]);
    journal.reserve(id(1), 600, 0, LIMIT, NOW).unwrap();
    assert_eq!(journal.budget(LIMIT, NOW).unwrap().resets_at(), Some(NOW + WINDOW_SECONDS));
    journal.finish_unsent(id(1), &dropped(), NOW + 5).unwrap();
    journal.reserve(id(2), 600, 0, LIMIT, NOW + 6).unwrap();
    journal.release(id(2), NOW + 7).unwrap();
    assert_eq!(used(&journal, NOW + 8), (0, 0));
    assert_eq!(journal.budget(LIMIT, NOW + 8).unwrap().resets_at(), None);
}

#[test]
fn a_receipt_charges_what_was_paid_and_frees_the_rest() {
    let journal = accepted(&[1]);
    journal.reserve(id(1), 600, 0, LIMIT, NOW).unwrap();
    sign(&journal, 4, Some(id(1)), attempt(0xa, Purpose::Relay));
    let outcome = executed(id(0xa));
    journal.settle(4, (id(0xa), 9), 250, Some((id(1), &outcome)), NOW + 1).unwrap();
    assert_eq!(used(&journal, NOW + 1), (250, 0));
    let record = journal.relay(id(1)).unwrap().unwrap();
    assert_eq!((record.outcome, record.hashes), (Some(outcome), vec![id(0xa)]));

    assert_eq!(used(&journal, NOW + WINDOW_SECONDS - 1), (250, 0));
    assert_eq!(used(&journal, NOW + WINDOW_SECONDS), (0, 0));
}

#[test]
fn no_ops_are_charged_too() {
    let journal = accepted(&[]);
    sign(&journal, 0, None, attempt(0xa, Purpose::Gap));
    journal.settle(0, (id(0xa), 9), 21, None, NOW).unwrap();
    assert_eq!(used(&journal, NOW), (21, 0));
}

#[test]
fn settling_twice_charges_once_and_a_reorganisation_charges_the_difference() {
    let journal = accepted(&[1]);
    journal.reserve(id(1), 600, 0, LIMIT, NOW).unwrap();
    sign(&journal, 4, Some(id(1)), attempt(0xa, Purpose::Relay));
    let outcome = executed(id(0xa));
    for _ in 0..2 {
        journal.settle(4, (id(0xa), 9), 250, Some((id(1), &outcome)), NOW).unwrap();
    }
    assert_eq!(used(&journal, NOW), (250, 0));

    assert_eq!(journal.mined_from(4, 8).unwrap(), vec![], "a node that is behind proves nothing");
    let undone = journal.mined_from(3, 9).unwrap();
    assert_eq!((undone[0].slot.nonce, undone[0].mined), (4, (id(0xa), 9)));
    journal.reopen(4, 600).unwrap();
    assert_eq!(journal.relay(id(1)).unwrap().unwrap().outcome, None);
    assert_eq!(used(&journal, NOW), (250, 350));
    assert_eq!(journal.open_slots().unwrap().len(), 1);

    journal.settle(4, (id(0xa), 11), 300, Some((id(1), &outcome)), NOW).unwrap();
    assert_eq!(used(&journal, NOW), (300, 0));
}

#[test]
fn slots_come_back_as_they_were_signed() {
    let journal = accepted(&[1]);
    journal.reserve(id(1), 600, 77, LIMIT, NOW).unwrap();
    sign(&journal, 4, Some(id(1)), attempt(0xa, Purpose::Relay));
    sign(&journal, 4, Some(id(1)), attempt(0xb, Purpose::Superseded));
    sign(&journal, 2, None, attempt(0xc, Purpose::Gap));
    let [gap, slot] = journal.open_slots().unwrap().try_into().unwrap();
    assert_eq!((gap.nonce, gap.order, gap.attempts), (2, None, vec![attempt(0xc, Purpose::Gap)]));
    assert_eq!(slot.attempts, vec![attempt(0xa, Purpose::Relay), attempt(0xb, Purpose::Superseded)]);
    let order = slot.order.unwrap();
    assert_eq!((order.id, order.signer, order.l1_fee_wei), (id(1), Address::repeat_byte(1), 77));
    assert_eq!((order.forward_nonce, order.deadline), (U256::MAX, u64::from(u32::MAX)));
    assert_eq!(journal.next_nonce().unwrap(), Some(5));
    assert!(journal.explains(4, 5).unwrap());
    assert!(!journal.explains(3, 5).unwrap());
}

#[test]
fn only_accepted_relays_without_a_nonce_start_over() {
    let journal = accepted(&[1, 2, 3, 4]);
    for byte in 1..=3 {
        journal.reserve(id(byte), 100, 0, LIMIT, NOW).unwrap();
    }
    sign(&journal, 0, Some(id(2)), attempt(0xa, Purpose::Relay));
    sign(&journal, 1, Some(id(3)), attempt(0xb, Purpose::Relay));
    journal.lose(1).unwrap();
    journal.finish_unsent(id(4), &dropped(), NOW).unwrap();
    let unsent = journal.unsent(NOW).unwrap();
    assert_eq!(unsent, vec![relay(1), relay(3)]);
    assert_eq!(used(&journal, NOW), (0, 100), "only what is signed for stays reserved");
}

#[test]
fn a_dropped_relay_may_be_tried_again_and_an_executed_one_may_not() {
    let journal = accepted(&[1]);
    journal.finish_unsent(id(1), &dropped(), NOW).unwrap();
    assert_eq!(journal.relay(id(1)).unwrap().unwrap().outcome, Some(dropped()));
    assert_eq!(journal.accept(&relay(1), NOW).unwrap(), Accepted::Pending);
    assert_eq!(journal.relay(id(1)).unwrap().unwrap().outcome, None);

    sign(&journal, 0, Some(id(1)), attempt(0xa, Purpose::Relay));
    let outcome = executed(id(0xa));
    journal.settle(0, (id(0xa), 9), 1, Some((id(1), &outcome)), NOW).unwrap();
    assert_eq!(journal.accept(&relay(1), NOW).unwrap(), Accepted::Finished(outcome));
}

#[test]
fn a_batch_is_journalled_whole_or_not_at_all() {
    let journal = accepted(&[1]);
    let unknown_relay = Signed { nonce: 1, relay: Some(id(9)), attempt: attempt(0xb, Purpose::Relay) };
    let good = Signed { nonce: 0, relay: Some(id(1)), attempt: attempt(0xa, Purpose::Relay) };
    assert!(journal.record(&[good, unknown_relay], NOW).is_err());
    assert_eq!(journal.next_nonce().unwrap(), None);
    assert_eq!(journal.open_slots().unwrap(), vec![]);
}

#[test]
fn pruning_forgets_only_what_never_came_to_a_transaction() {
    let journal = accepted(&[1, 2, 3]);
    journal.finish_unsent(id(1), &dropped(), NOW).unwrap();
    sign(&journal, 0, Some(id(2)), attempt(0xa, Purpose::Relay));
    journal.settle(0, (id(0xa), 9), 1, Some((id(2), &executed(id(0xa)))), NOW).unwrap();
    assert_eq!(journal.prune(NOW + WINDOW_SECONDS).unwrap(), 0);
    assert_eq!(journal.prune(NOW + WINDOW_SECONDS + 1).unwrap(), 1);
    assert_eq!(journal.relay(id(1)).unwrap(), None);
    assert!(journal.relay(id(2)).unwrap().is_some() && journal.relay(id(3)).unwrap().is_some());
}

#[test]
fn a_restart_never_refills_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.sqlite");
    let before = {
        let journal = Journal::open(&path).unwrap();
        journal.accept(&relay(1), NOW).unwrap();
        journal.accept(&relay(2), NOW).unwrap();
        journal.reserve(id(1), 600, 0, LIMIT, NOW).unwrap();
        sign(&journal, 0, Some(id(1)), attempt(0xa, Purpose::Relay));
        journal.settle(0, (id(0xa), 9), 123, Some((id(1), &executed(id(0xa)))), NOW).unwrap();
        journal.reserve(id(2), 400, 0, LIMIT, NOW).unwrap();
        sign(&journal, 1, Some(id(2)), attempt(0xb, Purpose::Relay));
        journal.budget(LIMIT, NOW).unwrap()
    };
    let journal = Journal::open(&path).unwrap();
    journal.unsent(NOW + 1).unwrap();
    assert_eq!(journal.budget(LIMIT, NOW + 1).unwrap(), before);
}
