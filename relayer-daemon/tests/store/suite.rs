// The store's promises: what is reserved, charged, given back and remembered, restart or not.

use super::Journal;
use super::shares::{ALLOWANCE, LIMIT, reserve};
use crate::prelude::*;
use alloy::consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Encodable2718;
use alloy::primitives::{Bytes, Signature};
use relayer_daemon::budget::WINDOW_SECONDS;
use relayer_daemon::outcome::ErrorCode::{self, CallReverted, ForwarderRefused};
use relayer_daemon::outcome::{BlockHeads, Finality};
use relayer_daemon::store::TransactionPurpose::{Gap, Rejected, Superseded};
use relayer_daemon::store::control::{Effect, Order};
use relayer_daemon::store::{Identity, NonceAssignment, RelayTerms, Sendable};

pub(super) fn accepted(relays: &[u64]) -> Store {
    let store = Journal::fresh();
    for number in relays {
        assert_eq!(store.accept(&relay(*number), NOW).unwrap(), Accepted::Pending);
    }
    store
}

pub(super) fn used(store: &Store, now: u64) -> (u128, u128) {
    let budget = store.budget(LIMIT, now).unwrap();
    (budget.window.settled_wei, budget.reserved_wei)
}

#[test]
fn reservations_stop_at_the_limit_and_are_replaced_and_what_was_never_sent_costs_nothing() {
    let store = accepted(&[1, 2]);
    for (relay, wei, is_reserved) in [(1, 600, true), (2, 401, false), (1, 700, true), (2, 300, true)] {
        assert_eq!(store.reserve(id(relay), wei, LIMIT, NOW).unwrap(), is_reserved, "{wei}");
    }
    assert_eq!(used(&store, NOW), (0, 1_000));
    assert!(!store.reserve(id(1), 701, LIMIT, NOW).unwrap());
    assert_eq!(used(&store, NOW), (0, 1_000));
    assert_eq!(store.budget(LIMIT, NOW).unwrap().resets_at(), Some(NOW + WINDOW_SECONDS));
    store.finish_unsent(id(1), &dropped(RpcTimeout), NOW + 5).unwrap();
    store.finish_unsent(id(2), &dropped(RpcTimeout), NOW + 7).unwrap();
    assert_eq!(used(&store, NOW + 8), (0, 0));
    assert_eq!(store.budget(LIMIT, NOW + 8).unwrap().resets_at(), None);
}

#[test]
fn a_receipt_is_charged_once_a_reorganisation_the_difference_and_a_no_op_too() {
    let store = accepted(&[1]);
    store.reserve(id(1), 600, LIMIT, NOW).unwrap();
    sign(&store, 4, Some(1), transaction(0xa, Relay));
    let RelayOutcome::Executed { mined, .. } = executed(0xa) else { unreachable!() };
    let largest = RelayOutcome::Executed { mined, agent_id: Some(U256::MAX) };
    for _ in 0..2 {
        settle(&store, 4, 0xa, 250, Some(largest.clone()));
    }
    assert_eq!(used(&store, NOW + 1), (250, 0));
    let record = store.relay(id(1)).unwrap().unwrap();
    assert_eq!((record.outcome, record.hashes), (Some(largest), vec![id(0xa)]));

    let mined = store.mined_from(ACCOUNT, 4, 9).unwrap();
    assert_eq!(mined[0].inclusion, Inclusion { tx_hash: id(0xa), block: at(9) });
    assert!(store.reopen(ACCOUNT, 4, 600, NOW).unwrap());
    assert_eq!((outcome(&store, 1), used(&store, NOW)), (None, (250, 350)));
    assert_eq!(store.open_nonces(ACCOUNT).unwrap().len(), 1);
    settle(&store, 4, 0xa, 300, Some(executed(0xa)));
    assert_eq!(used(&store, NOW), (300, 0));

    sign(&store, 5, None, transaction(0xb, Gap));
    settle(&store, 5, 0xb, 21, None);
    assert_eq!(used(&store, NOW + WINDOW_SECONDS - 1), (321, 0));
    assert_eq!(used(&store, NOW + WINDOW_SECONDS), (0, 0));
}

#[test]
fn what_each_of_a_relays_two_nonces_may_cost_is_reserved_until_it_is_mined() {
    let store = accepted(&[1]);
    sign(&store, 4, Some(1), transaction(0xa, Rejected));
    settle(&store, 4, 0xa, 21, Some(dropped(TransactionRejected)));
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Pending);
    assert_eq!(store.reserve(id(1), 600, LIMIT, NOW), Ok(true));
    sign(&store, 5, Some(1), transaction(0xb, Relay));
    assert!(store.reopen(ACCOUNT, 4, 30, NOW).unwrap());
    assert_eq!(used(&store, NOW), (21, 609));
    let replace = |nonce, number, wei| {
        store.record_replacement(ACCOUNT, id(1), &signed(nonce, Some(1), number), wei, LIMIT, NOW)
    };
    assert_eq!(replace(5, 0xc, 700), Ok(true));
    assert_eq!(replace(4, 0xd, 41), Ok(true));
    assert_eq!(used(&store, NOW), (21, 720));
    assert_eq!(replace(4, 0xe, 600), Ok(false), "beyond the limit");
    settle(&store, 4, 0xd, 41, None);
    assert_eq!(used(&store, NOW), (41, 700));

    // The other one executes it first: what is left stays reserved.
    assert!(store.reopen(ACCOUNT, 4, 50, NOW).unwrap());
    settle(&store, 5, 0xc, 100, Some(executed(0xc)));
    assert!(used(&store, NOW).1 > 0);
    settle(&store, 4, 0xd, 50, None);
    assert_eq!(used(&store, NOW), (150, 0));
    assert!(!store.reopen(ACCOUNT, 4, 80, NOW).unwrap());
    assert_eq!(used(&store, NOW), (150, 30), "of a relay that has ended");
}

#[test]
fn nonces_come_back_as_they_were_signed() {
    let store = accepted(&[1]);
    let shares = Shares { signer: 100, without_key: 100, client: 100, network: 100 };
    let cost = ExpectedCost { wei: 600, gas: 5, l1_fee_wei: 77, least_wei: 600, no_op_wei: 0 };
    store.reserve_share(id(1), &cost, &Allowance { limit_wei: LIMIT, shares }, NOW).unwrap();
    sign(&store, 4, Some(1), transaction(0xa, Relay));
    sign(&store, 4, Some(1), transaction(0xb, Superseded));
    sign(&store, 2, None, transaction(0xc, Gap));
    let [gap, slot] = store.open_nonces(ACCOUNT).unwrap().try_into().unwrap();
    assert_eq!((gap.nonce, gap.relay, gap.transactions), (2, None, vec![transaction(0xc, Gap)]));
    assert_eq!(slot.transactions, vec![transaction(0xa, Relay), transaction(0xb, Superseded)]);
    let terms = RelayTerms { l1_fee_wei: 77, expected_gas: Some(5), ..terms(1) };
    assert_eq!((slot.nonce, slot.relay), (4, Some(terms)));
    assert_eq!(store.next_nonce(ACCOUNT).unwrap(), Some(5));
    assert!(store.explains(ACCOUNT, 4, 5).unwrap());
    assert!(!store.explains(ACCOUNT, 3, 5).unwrap());
}

fn terms(number: u64) -> RelayTerms {
    let NewRelay { id, signer, forward_nonce, deadline, client, .. } = relay(number);
    let without_key = client.is_some();
    RelayTerms { id, signer, forward_nonce, deadline, without_key, ..RelayTerms::default() }
}

#[test]
fn only_accepted_relays_without_a_nonce_start_over() {
    let store = accepted(&[1, 2, 3, 4]);
    for number in 1..=3 {
        store.reserve(id(number), 100, LIMIT, NOW).unwrap();
    }
    sign(&store, 0, Some(2), transaction(0xa, Relay));
    sign(&store, 1, Some(3), costing(70, 0xb));
    store.lose(ACCOUNT, 1, NOW).unwrap();
    store.finish_unsent(id(4), &dropped(RpcTimeout), NOW).unwrap();
    assert_eq!(store.unsent(NOW).unwrap(), vec![relay(1), relay(3)]);
    assert_eq!(used(&store, NOW), (0, 170), "only what is signed for stays reserved");
}

#[test]
fn a_nonce_that_was_given_up_holds_up_nothing_and_its_cost_is_reserved_for_a_day_or_until_it_is_charged() {
    let lose = |store: &Store, nonce| store.lose(ACCOUNT, nonce, NOW).unwrap();
    let abandon = |store: &Store, _| {
        for (account, effect) in [(Address::ZERO, Effect::Already), (ACCOUNT, Effect::GivenUp(1))] {
            assert_eq!(store.order(Order::Abandon { account }, "operator").unwrap(), effect);
        }
    };
    for give_up in [&lose as &dyn Fn(&Store, u64), &abandon] {
        let store = accepted(&[1]);
        store.reserve(id(1), 300, LIMIT, NOW).unwrap();
        sign(&store, 4, Some(1), costing(300, 0xa));
        give_up(&store, 4);
        assert!(store.accounts_with_open_nonces().unwrap().is_empty());
        assert_eq!(store.unsent(NOW).unwrap(), [relay(1)]);
        // The relay goes on with another nonce, and both transactions may be paid for.
        assert!(!store.reserve(id(1), LIMIT - 299, LIMIT, NOW).unwrap());
        assert!(store.reserve(id(1), LIMIT - 300, LIMIT, NOW).unwrap());
        sign(&store, 5, Some(1), transaction(0xb, Relay));
        settle(&store, 5, 0xb, 600, Some(executed(0xb)));
        assert_eq!(used(&store, NOW), (600, 300));
        settle(&store, 4, 0xa, 250, None);
        assert_eq!(used(&store, NOW), (850, 0));
    }
    let store = accepted(&[]);
    sign(&store, 6, None, costing(150, 0xc));
    store.lose(ACCOUNT, 6, NOW - 5).unwrap();
    lose(&store, 6);
    assert_eq!(used(&store, NOW + WINDOW_SECONDS - 1), (0, 150));
    assert_eq!(used(&store, NOW + WINDOW_SECONDS), (0, 0));
    // As a gap that is filled it is reserved once, at the dearest of its transactions.
    let no_op = |nonce, transaction| NewTransaction { nonce, relay: None, transaction };
    assert!(store.record_gap(ACCOUNT, &no_op(6, costing(200, 0xd)), 50, LIMIT, NOW).unwrap());
    assert_eq!(used(&store, NOW), (0, 200));
    assert!(store.record_gap(ACCOUNT, &no_op(6, costing(100, 0xe)), 0, LIMIT, NOW).unwrap());
    assert_eq!(used(&store, NOW), (0, 200));
}

#[test]
fn a_dropped_relay_may_be_tried_again_and_an_executed_one_stays_executed() {
    let store = accepted(&[1]);
    let with_a_wait = RelayOutcome::Dropped { failure: Failure::budget_exhausted(7) };
    store.finish_unsent(id(1), &with_a_wait, NOW).unwrap();
    assert_eq!(outcome(&store, 1), Some(with_a_wait));
    assert!(store.accepted(id(1)).unwrap().unwrap().calldata.is_empty(), "a refused relay keeps its calldata");
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Pending);
    assert_eq!(store.accepted(id(1)).unwrap(), Some(relay(1)));
    assert_eq!(outcome(&store, 1), None);

    sign(&store, 0, Some(1), transaction(0xa, Relay));
    settle(&store, 0, 0xa, 1, Some(executed(0xa)));
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Finished(executed(0xa)));
    let ended = store.finish_unsent(id(1), &dropped(RpcTimeout), NOW).unwrap();
    assert_eq!((&ended, outcome(&store, 1)), (&executed(0xa), Some(ended.clone())), "the chain has executed it");
}

#[test]
fn of_two_requests_with_one_forwarder_nonce_one_is_sent_and_the_other_only_where_it_was_refused_or_dropped() {
    let RelayOutcome::Executed { mined, .. } = executed(0xa) else { unreachable!() };
    let reverted = |code| RelayOutcome::Reverted { mined, failure: Failure::of(code) };
    for (outcome, is_left) in [
        (executed(0xa), false),
        (reverted(ForwarderRefused), true),
        (dropped(TransactionRejected), true),
        (reverted(CallReverted), false),
        (reverted(ErrorCode::Superseded), false),
    ] {
        let store = Journal::fresh();
        let [own, other] = [1, 2].map(|number| NewRelay { signer: ACCOUNT, ..relay(number) });
        let sendable = || store.sendable(ACCOUNT, &[own.id, other.id]).unwrap().0;
        let record = || store.record(ACCOUNT, &[signed(1, Some(2), 0xb)], NOW);
        let cost = ExpectedCost { wei: 1, gas: 1, l1_fee_wei: 0, least_wei: 1, no_op_wei: 0 };
        let reserve_other = || store.reserve_share(other.id, &cost, &ALLOWANCE, NOW).map(drop);
        assert_eq!((reserve(&store, &own, 1), reserve(&store, &other, 1)), (None, None));
        assert_eq!(sendable(), [(own.id, Sendable::Yes), (other.id, Sendable::Yes)]);
        sign(&store, 0, Some(1), transaction(0xa, Relay));
        assert_eq!(sendable(), [(own.id, Sendable::InFlight), (other.id, Sendable::NotNext)]);
        assert_eq!(record(), Err(StoreError::InFlight));
        settle(&store, 0, 0xa, 1, Some(outcome.clone()));
        let left = if is_left { Sendable::Yes } else { Sendable::NotNext };
        assert_eq!(sendable(), [(own.id, Sendable::Ended(outcome.clone())), (other.id, left)]);
        let refused = |error| if is_left { Ok(()) } else { Err(error) };
        assert_eq!(reserve_other(), refused(StoreError::NonceUsed), "{outcome:?}");
        assert_eq!(record(), refused(StoreError::InFlight), "{outcome:?}");
        if outcome == executed(0xa) {
            // Its block is gone, and what became of it is not known.
            store.give_up(ACCOUNT, 0).unwrap();
            reserve_other().unwrap();
        }
    }
}

#[test]
fn a_store_belongs_to_one_chain_and_forwarder_and_learns_its_block_0_later_where_it_is_not_known() {
    let pruned = Identity { chain_id: 31_337, genesis: None, forwarder: ACCOUNT };
    let own = Identity { genesis: Some(id(1)), ..pruned };
    let other_genesis = Identity { genesis: Some(id(9)), ..own };
    let journal = Journal::new();
    let store = journal.open();
    store.verify(&own).unwrap();
    store.verify(&other_genesis).expect("a store without an owner fits all");
    for identity in [&pruned, &own, &own, &pruned] {
        store.bind(identity).unwrap();
    }
    for store in [store, journal.open()] {
        for (other, what) in [
            (Identity { chain_id: 1, ..own }, "chain id"),
            (other_genesis, "chain (its block 0 differs)"),
            (Identity { forwarder: Address::ZERO, ..own }, "forwarder"),
        ] {
            for refused in [store.bind(&other), store.verify(&other)] {
                assert!(matches!(refused, Err(StoreError::Foreign(found)) if found == what));
            }
        }
    }
}

#[test]
fn a_restart_never_refills_the_budget() {
    let journal = Journal::new();
    let before = {
        let store = journal.open();
        for (number, wei) in [(1, 600), (2, 400)] {
            store.accept(&relay(number), NOW).unwrap();
            store.reserve(id(number), wei, LIMIT, NOW).unwrap();
            sign(&store, number, Some(number), transaction(number, Relay));
        }
        settle(&store, 1, 1, 123, Some(executed(1)));
        store.budget(LIMIT, NOW).unwrap()
    };
    let store = journal.open();
    store.unsent(NOW + 1).unwrap();
    assert_eq!(store.budget(LIMIT, NOW + 1).unwrap(), before);
}

#[test]
fn what_the_file_has_lost_is_written_anew_when_it_is_mined() {
    let store = Journal::fresh();
    let assignment = NonceAssignment {
        nonce: 4,
        relay: Some(terms(1)),
        transactions: vec![calling(0xa, b"execute"), transaction(0xb, Relay)],
    };
    let settlement = Settlement {
        assignment: assignment.clone(),
        inclusion: Inclusion { tx_hash: id(0xb), block: at(9) },
        paid_wei: 250,
        outcome: Some(executed(0xb)),
    };
    store.settle(ACCOUNT, &settlement, NOW).unwrap();
    assert_eq!(used(&store, NOW), (250, 0));
    let record = store.relay(id(1)).unwrap().unwrap();
    assert_eq!((record.outcome, record.hashes), (Some(executed(0xb)), vec![id(0xa), id(0xb)]));
    assert_eq!(store.mined_from(ACCOUNT, 4, 9).unwrap()[0].assignment, assignment);
    assert_eq!(store.next_nonce(ACCOUNT).unwrap(), Some(5));
    store.settle(ACCOUNT, &settlement, NOW).unwrap();
    assert_eq!(used(&store, NOW), (250, 0), "once");
    // Undone by a reorganisation it may have to run again, by another account.
    assert_eq!(store.accepted(id(1)).unwrap().unwrap().calldata, Bytes::from_static(b"execute"));
}

/// Returns a relay's transaction: its bytes are a transaction with this calldata.
fn calling(number: u64, calldata: &'static [u8]) -> SignedTransaction {
    let call = TxEip1559 { input: Bytes::from_static(calldata), ..TxEip1559::default() };
    let signed = TxEnvelope::from(call.into_signed(Signature::test_signature()));
    SignedTransaction { raw: signed.encoded_2718().into(), ..transaction(number, Relay) }
}

fn heads(safe: u64, finalized: u64) -> BlockHeads {
    BlockHeads { safe, finalized, seconds: 0 }
}

/// Promotes all that the heads allow, as if each block was found on the chain once more.
fn promote(store: &Store, heads: BlockHeads, now: u64) {
    let blocks = store.promotable(ACCOUNT, &heads, now, 9).unwrap();
    store.promote(ACCOUNT, &heads, &blocks, now).unwrap();
}

fn finality(store: &Store) -> [Option<Finality>; 2] {
    [1, 2].map(|number| store.relay(id(number)).unwrap().unwrap().finality)
}

#[test]
fn only_what_was_found_on_the_chain_becomes_final_and_after_a_doubt_the_rest_is_compared_again() {
    let store = accepted(&[1, 2]);
    for (number, nonce, block) in [(1, 0, 9), (2, 1, 12)] {
        sign(&store, nonce, Some(number), transaction(number, Relay));
        let inclusion = Inclusion { tx_hash: id(number), block: at(block) };
        let mined = settlement(&store, ACCOUNT, nonce, number, Some(executed(number)));
        store.settle(ACCOUNT, &Settlement { inclusion, ..mined }, NOW).unwrap();
    }
    assert_eq!(store.unchecked_blocks(ACCOUNT, 9).unwrap(), [at(9), at(12)]);
    assert_eq!(store.anchor(ACCOUNT).unwrap(), None);
    let latest = Some(Finality::Latest);
    promote(&store, heads(99, 99), NOW);
    assert_eq!(finality(&store), [latest, latest], "not compared yet");
    store.checked(ACCOUNT, &[at(9), BlockId { hash: id(0xff), ..at(12) }]).unwrap();
    assert_eq!(store.unchecked_blocks(ACCOUNT, 9).unwrap(), [at(12)]);
    assert_eq!(store.anchor(ACCOUNT).unwrap(), Some(at(9)));
    store.checked(ACCOUNT, &[at(12)]).unwrap();
    let by_depth = BlockHeads { seconds: 900, ..heads(12, 12) };
    promote(&store, by_depth, NOW + 899);
    assert_eq!(finality(&store), [latest, latest], "deep, but too young");
    store.promote(ACCOUNT, &heads(12, 8), &[at(9)], NOW).unwrap();
    assert_eq!(finality(&store), [Some(Finality::Safe), latest], "the other was not compared once more");
    assert_eq!(store.promotable(ACCOUNT, &heads(12, 8), NOW, 9).unwrap(), [at(12)]);
    promote(&store, heads(12, 8), NOW);
    assert_eq!(finality(&store), [Some(Finality::Safe); 2]);
    assert_eq!(store.promotable(ACCOUNT, &heads(12, 11), NOW, 9).unwrap(), [at(9)]);
    promote(&store, heads(12, 11), NOW);
    assert_eq!(finality(&store), [Some(Finality::Finalized), Some(Finality::Safe)]);
    assert_eq!(store.anchor(ACCOUNT).unwrap(), Some(at(12)), "what is final is watched no more");

    store.doubt(ACCOUNT).unwrap();
    assert_eq!(store.unchecked_blocks(ACCOUNT, 9).unwrap(), [at(12)]);
    assert_eq!(finality(&store), [Some(Finality::Finalized), Some(Finality::Latest)]);
    let suspects = store.nonces_of(ACCOUNT, &at(12), 9).unwrap();
    assert_eq!(suspects.iter().map(|mined| mined.assignment.nonce).collect::<Vec<_>>(), [1]);
    store.give_up(ACCOUNT, 1).unwrap();
    assert_eq!(store.unchecked_blocks(ACCOUNT, 9).unwrap(), []);
    assert_eq!(store.anchor(ACCOUNT).unwrap(), None);
    assert_eq!(finality(&store)[1], Some(Finality::Latest));
    store.reopen(ACCOUNT, 1, 1, NOW).unwrap();
    assert_eq!(finality(&store)[1], None, "pending");
}

#[test]
fn a_batch_is_written_whole_or_not_and_a_relay_with_an_open_nonce_gets_no_second_one_and_is_not_dropped() {
    let other = Address::repeat_byte(0xcc);
    let store = accepted(&[1]);
    assert!(store.record(ACCOUNT, &[signed(0, Some(1), 0xa), signed(1, Some(9), 0xb)], NOW).is_err());
    assert_eq!((store.next_nonce(ACCOUNT).unwrap(), store.open_nonces(ACCOUNT).unwrap()), (None, vec![]));
    sign(&store, 0, Some(1), transaction(0xa, Relay));
    assert_eq!(store.open_nonces_at(ACCOUNT).unwrap(), [0]);
    assert_eq!(store.finish_unsent(id(1), &dropped(RpcTimeout), NOW), Err(StoreError::HeldElsewhere));
    for account in [other, ACCOUNT] {
        let refused = store.record(account, &[signed(5, Some(1), 0xb)], NOW);
        assert!(matches!(refused, Err(StoreError::InFlight)), "{refused:?}");
    }
    assert_eq!(store.next_nonce(other).unwrap(), None, "nothing is written");
    // A replacement transaction is none.
    sign(&store, 0, Some(1), transaction(0xc, Relay));
    store.lose(ACCOUNT, 0, NOW).unwrap();
    store.record(other, &[signed(5, Some(1), 0xd)], NOW).unwrap();
    assert_eq!([ACCOUNT, other].map(|account| store.open_nonces_at(account).unwrap()), [vec![], vec![5]]);
}
