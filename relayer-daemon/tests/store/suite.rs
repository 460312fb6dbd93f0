// The store's promises: what is reserved, charged, given back and remembered, restart or not.

use alloy::primitives::{Address, B256, U256};
use relayer_daemon::{
    budget::{
        WINDOW_SECONDS,
        share::{Allowance, Denial, PartyKind, Shares},
    },
    gas::fees::Fees,
    outcome::{BlockHeads, ErrorCode, Failure, Finality, MinedTransaction, RelayOutcome},
    store::{
        Accepted, BlockId, ExpectedCost, Inclusion, NewRelay, NewTransaction, NonceAssignment, RelayTerms,
        Settlement, SignedTransaction, Store, StoreError,
        TransactionPurpose::{self, Gap, Relay, Superseded},
    },
};

const NOW: u64 = 1_700_000_000;
/// The account that pays.
const ACCOUNT: Address = Address::repeat_byte(0xaa);
const LIMIT: u128 = 1_000;

fn id(byte: u8) -> B256 {
    B256::repeat_byte(byte)
}

/// Block `number` of the branch that stays.
fn at(number: u64) -> BlockId {
    BlockId { number, hash: B256::with_last_byte(number as u8) }
}

fn relay(byte: u8) -> NewRelay {
    NewRelay {
        id: id(byte),
        signer: Address::repeat_byte(byte),
        forward_nonce: U256::MAX,
        deadline: u64::from(u32::MAX),
        calldata: vec![byte; 3].into(),
        client: None,
    }
}

fn transaction(byte: u8, purpose: TransactionPurpose) -> SignedTransaction {
    let fees = Fees { max_fee: u128::MAX, tip: 1 };
    SignedTransaction { hash: id(byte), raw: vec![byte].into(), fees, gas_limit: u64::MAX, purpose }
}

fn dropped() -> RelayOutcome {
    RelayOutcome::Dropped { failure: Failure::budget_exhausted(7) }
}

fn executed(hash: B256) -> RelayOutcome {
    let mined = MinedTransaction { tx_hash: hash, block_number: 9, gas_used: 21_000 };
    RelayOutcome::Executed { mined, agent_id: Some(U256::MAX) }
}

fn accepted(relays: &[u8]) -> Store {
    let store = fresh();
    for byte in relays {
        assert_eq!(store.accept(&relay(*byte), NOW).unwrap(), Accepted::Pending);
    }
    store
}

fn sign(store: &Store, nonce: u64, relay: Option<B256>, transaction: SignedTransaction) {
    store.record(ACCOUNT, &[NewTransaction { nonce, relay, transaction }], NOW).unwrap();
}

/// Nonce `nonce` was mined by transaction `hash` in block `block`.
fn settle(
    store: &Store,
    nonce: u64,
    hash: u8,
    block: u64,
    paid_wei: u128,
    relay: Option<(u8, RelayOutcome)>,
) {
    let mut assignment = store.assignment(ACCOUNT, nonce).unwrap();
    assert_eq!(assignment.relay.map(|relay| relay.id), relay.as_ref().map(|(byte, _)| id(*byte)));
    assignment.transactions.clear();
    let inclusion = Inclusion { tx_hash: id(hash), block: at(block) };
    let outcome = relay.map(|(_, outcome)| outcome);
    store.settle(ACCOUNT, &Settlement { assignment, inclusion, paid_wei, outcome }, NOW).unwrap();
}

fn used(store: &Store, now: u64) -> (u128, u128) {
    let budget = store.budget(LIMIT, now).unwrap();
    (budget.window.settled_wei, budget.reserved_wei)
}

#[test]
fn reservations_stop_at_the_limit_and_are_replaced_not_added() {
    let store = accepted(&[1, 2]);
    assert!(store.reserve(id(1), 600, LIMIT, NOW).unwrap());
    assert!(!store.reserve(id(2), 401, LIMIT, NOW).unwrap());
    assert!(store.reserve(id(1), 700, LIMIT, NOW).unwrap());
    assert!(store.reserve(id(2), 300, LIMIT, NOW).unwrap());
    assert_eq!(used(&store, NOW), (0, 1_000));
    assert!(!store.reserve(id(1), 701, LIMIT, NOW).unwrap());
    assert_eq!(used(&store, NOW), (0, 1_000));
}

#[test]
fn what_was_never_sent_costs_nothing_and_opens_no_window() {
    let store = accepted(&[1, 2]);
    store.reserve(id(1), 600, LIMIT, NOW).unwrap();
    assert_eq!(store.budget(LIMIT, NOW).unwrap().resets_at(), Some(NOW + WINDOW_SECONDS));
    store.finish_unsent(id(1), &dropped(), NOW + 5).unwrap();
    store.reserve(id(2), 600, LIMIT, NOW + 6).unwrap();
    store.finish_unsent(id(2), &dropped(), NOW + 7).unwrap();
    assert_eq!(used(&store, NOW + 8), (0, 0));
    assert_eq!(store.budget(LIMIT, NOW + 8).unwrap().resets_at(), None);
}

#[test]
fn a_receipt_charges_what_was_paid_and_frees_the_rest() {
    let store = accepted(&[1]);
    store.reserve(id(1), 600, LIMIT, NOW).unwrap();
    sign(&store, 4, Some(id(1)), transaction(0xa, Relay));
    let outcome = executed(id(0xa));
    settle(&store, 4, 0xa, 9, 250, Some((1, outcome.clone())));
    assert_eq!(used(&store, NOW + 1), (250, 0));
    let record = store.relay(id(1)).unwrap().unwrap();
    assert_eq!((record.outcome, record.hashes), (Some(outcome), vec![id(0xa)]));

    assert_eq!(used(&store, NOW + WINDOW_SECONDS - 1), (250, 0));
    assert_eq!(used(&store, NOW + WINDOW_SECONDS), (0, 0));
}

#[test]
fn no_ops_are_charged_too() {
    let store = accepted(&[]);
    sign(&store, 0, None, transaction(0xa, Gap));
    settle(&store, 0, 0xa, 9, 21, None);
    assert_eq!(used(&store, NOW), (21, 0));
}

#[test]
fn settling_twice_charges_once_and_a_reorganisation_charges_the_difference() {
    let store = accepted(&[1]);
    store.reserve(id(1), 600, LIMIT, NOW).unwrap();
    sign(&store, 4, Some(id(1)), transaction(0xa, Relay));
    let outcome = executed(id(0xa));
    for _ in 0..2 {
        settle(&store, 4, 0xa, 9, 250, Some((1, outcome.clone())));
    }
    assert_eq!(used(&store, NOW), (250, 0));

    let mined = store.mined(ACCOUNT, 4).unwrap().unwrap();
    assert_eq!(mined.inclusion, Inclusion { tx_hash: id(0xa), block: at(9) });
    assert!(store.reopen(ACCOUNT, 4, 600, NOW).unwrap());
    assert_eq!(store.relay(id(1)).unwrap().unwrap().outcome, None);
    assert_eq!(used(&store, NOW), (250, 350));
    assert_eq!(store.open_nonces(ACCOUNT).unwrap().len(), 1);

    settle(&store, 4, 0xa, 11, 300, Some((1, outcome.clone())));
    assert_eq!(used(&store, NOW), (300, 0));
}

#[test]
fn a_reorganisation_of_one_nonce_does_not_reopen_a_relay_that_another_nonce_has_executed() {
    let store = accepted(&[1]);
    sign(&store, 4, Some(id(1)), transaction(0xa, Relay));
    store.lose(ACCOUNT, 4).unwrap();
    sign(&store, 5, Some(id(1)), transaction(0xb, Relay));
    let outcome = executed(id(0xa));
    settle(&store, 4, 0xa, 9, 250, Some((1, outcome.clone())));
    let assignment = store.assignment(ACCOUNT, 5).unwrap();
    let inclusion = Inclusion { tx_hash: id(0xb), block: at(10) };
    let reverted = Settlement { assignment, inclusion, paid_wei: 60, outcome: None };
    store.settle(ACCOUNT, &reverted, NOW).unwrap();

    assert!(!store.reopen(ACCOUNT, 5, 600, NOW).unwrap());
    assert_eq!(store.relay(id(1)).unwrap().unwrap().outcome, Some(outcome));
    assert_eq!(store.open_nonces(ACCOUNT).unwrap().len(), 1, "the nonce itself is open again");
    assert!(store.reopen(ACCOUNT, 4, 600, NOW).unwrap());
    assert_eq!(store.relay(id(1)).unwrap().unwrap().outcome, None);
}

#[test]
fn the_last_one_of_two_nonces_that_are_settled_at_the_same_time_ends_their_relay() {
    let store = accepted(&[1]);
    sign(&store, 4, Some(id(1)), transaction(0xa, Superseded));
    store.lose(ACCOUNT, 4).unwrap();
    sign(&store, 5, Some(id(1)), transaction(0xb, Superseded));
    assert!(store.reopen(ACCOUNT, 4, 600, NOW).unwrap());
    let dropped = RelayOutcome::Dropped { failure: Failure::of(ErrorCode::TransactionRejected) };
    let ended: Vec<RelayOutcome> = std::thread::scope(|threads| {
        let settle = |(nonce, hash)| {
            let (store, outcome) = (&store, Some(dropped.clone()));
            threads.spawn(move || {
                let assignment = store.assignment(ACCOUNT, nonce).unwrap();
                let inclusion = Inclusion { tx_hash: id(hash), block: at(9) };
                store.settle(ACCOUNT, &Settlement { assignment, inclusion, paid_wei: 1, outcome }, NOW).unwrap()
            })
        };
        let settling = [(4, 0xa), (5, 0xb)].map(settle);
        settling.into_iter().filter_map(|settled| settled.join().unwrap()).collect()
    });
    assert_eq!(ended, std::slice::from_ref(&dropped));
    assert_eq!(store.relay(id(1)).unwrap().unwrap().outcome, Some(dropped));
}

#[test]
fn nonces_come_back_as_they_were_signed() {
    let store = accepted(&[1]);
    let shares = Shares { signer: 100, client: 100, network: 100 };
    let cost = ExpectedCost { wei: 600, gas: 5, l1_fee_wei: 77, least_wei: 600, no_op_wei: 0 };
    store.reserve_share(id(1), &cost, &Allowance { limit_wei: LIMIT, shares }, NOW).unwrap();
    sign(&store, 4, Some(id(1)), transaction(0xa, Relay));
    sign(&store, 4, Some(id(1)), transaction(0xb, Superseded));
    sign(&store, 2, None, transaction(0xc, Gap));
    let [gap, slot] = store.open_nonces(ACCOUNT).unwrap().try_into().unwrap();
    assert_eq!((gap.nonce, gap.relay, gap.transactions), (2, None, vec![transaction(0xc, Gap)]));
    assert_eq!(slot.transactions, vec![transaction(0xa, Relay), transaction(0xb, Superseded)]);
    let relay = slot.relay.unwrap();
    assert_eq!((relay.id, relay.signer), (id(1), Address::repeat_byte(1)));
    assert_eq!((relay.l1_fee_wei, relay.expected_gas), (77, Some(5)));
    assert_eq!((relay.forward_nonce, relay.deadline), (U256::MAX, u64::from(u32::MAX)));
    assert_eq!(store.next_nonce(ACCOUNT).unwrap(), Some(5));
    assert!(store.explains(ACCOUNT, 4, 5).unwrap());
    assert!(!store.explains(ACCOUNT, 3, 5).unwrap());
}

#[test]
fn only_accepted_relays_without_a_nonce_start_over() {
    let store = accepted(&[1, 2, 3, 4]);
    for byte in 1..=3 {
        store.reserve(id(byte), 100, LIMIT, NOW).unwrap();
    }
    sign(&store, 0, Some(id(2)), transaction(0xa, Relay));
    sign(&store, 1, Some(id(3)), transaction(0xb, Relay));
    store.lose(ACCOUNT, 1).unwrap();
    store.finish_unsent(id(4), &dropped(), NOW).unwrap();
    let unsent = store.unsent(NOW).unwrap();
    assert_eq!(unsent, vec![relay(1), relay(3)]);
    assert_eq!(used(&store, NOW), (0, 100), "only what is signed for stays reserved");
}

#[test]
fn a_dropped_relay_may_be_tried_again_and_an_executed_one_may_not() {
    let store = accepted(&[1]);
    store.finish_unsent(id(1), &dropped(), NOW).unwrap();
    assert_eq!(store.relay(id(1)).unwrap().unwrap().outcome, Some(dropped()));
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Pending);
    assert_eq!(store.relay(id(1)).unwrap().unwrap().outcome, None);

    sign(&store, 0, Some(id(1)), transaction(0xa, Relay));
    let outcome = executed(id(0xa));
    settle(&store, 0, 0xa, 9, 1, Some((1, outcome.clone())));
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Finished(outcome));
}

#[test]
fn a_drop_never_takes_the_place_of_what_the_chain_has_said() {
    let store = accepted(&[1]);
    sign(&store, 0, Some(id(1)), transaction(0xa, Relay));
    let outcome = executed(id(0xa));
    settle(&store, 0, 0xa, 9, 21, Some((1, outcome.clone())));
    store.finish_unsent(id(1), &dropped(), NOW).unwrap();
    assert_eq!(store.relay(id(1)).unwrap().unwrap().outcome, Some(outcome));
}

#[test]
fn a_batch_is_journalled_whole_or_not_at_all() {
    let store = accepted(&[1]);
    let unknown_relay = NewTransaction { nonce: 1, relay: Some(id(9)), transaction: transaction(0xb, Relay) };
    let good = NewTransaction { nonce: 0, relay: Some(id(1)), transaction: transaction(0xa, Relay) };
    assert!(store.record(ACCOUNT, &[good, unknown_relay], NOW).is_err());
    assert_eq!(store.next_nonce(ACCOUNT).unwrap(), None);
    assert_eq!(store.open_nonces(ACCOUNT).unwrap(), vec![]);
}

#[test]
fn a_restart_never_refills_the_budget() {
    let journal = Journal::new();
    let before = {
        let store = journal.open();
        store.accept(&relay(1), NOW).unwrap();
        store.accept(&relay(2), NOW).unwrap();
        store.reserve(id(1), 600, LIMIT, NOW).unwrap();
        sign(&store, 0, Some(id(1)), transaction(0xa, Relay));
        settle(&store, 0, 0xa, 9, 123, Some((1, executed(id(0xa)))));
        store.reserve(id(2), 400, LIMIT, NOW).unwrap();
        sign(&store, 1, Some(id(2)), transaction(0xb, Relay));
        store.budget(LIMIT, NOW).unwrap()
    };
    let store = journal.open();
    store.unsent(NOW + 1).unwrap();
    assert_eq!(store.budget(LIMIT, NOW + 1).unwrap(), before);
}

#[test]
fn what_the_file_has_lost_is_written_anew_when_it_is_mined() {
    let store = fresh();
    let lost = relay(1);
    let terms = RelayTerms {
        id: lost.id,
        signer: lost.signer,
        forward_nonce: lost.forward_nonce,
        deadline: lost.deadline,
        ..RelayTerms::default()
    };
    let assignment = NonceAssignment {
        nonce: 4,
        relay: Some(terms),
        transactions: vec![transaction(0xa, Relay), transaction(0xb, Relay)],
    };
    let settlement = Settlement {
        assignment: assignment.clone(),
        inclusion: Inclusion { tx_hash: id(0xb), block: at(9) },
        paid_wei: 250,
        outcome: Some(executed(id(0xb))),
    };
    store.settle(ACCOUNT, &settlement, NOW).unwrap();
    assert_eq!(used(&store, NOW), (250, 0));
    let record = store.relay(id(1)).unwrap().unwrap();
    assert_eq!((record.outcome, record.hashes), (Some(executed(id(0xb))), vec![id(0xa), id(0xb)]));
    assert_eq!(store.mined(ACCOUNT, 4).unwrap().unwrap().assignment, assignment);
    assert_eq!(store.next_nonce(ACCOUNT).unwrap(), Some(5));
    store.settle(ACCOUNT, &settlement, NOW).unwrap();
    assert_eq!(used(&store, NOW), (250, 0), "once");
}

#[test]
fn each_account_counts_its_own_nonces_and_all_share_the_budget() {
    let store = accepted(&[1, 2]);
    let other = Address::repeat_byte(0xbb);
    sign(&store, 7, Some(id(1)), transaction(0xa, Relay));
    let second = NewTransaction { nonce: 0, relay: Some(id(2)), transaction: transaction(0xb, Relay) };
    store.record(other, &[second], NOW).unwrap();
    assert_eq!((store.next_nonce(ACCOUNT).unwrap(), store.next_nonce(other).unwrap()), (Some(8), Some(1)));
    assert_eq!(store.open_nonces(other).unwrap()[0].relay.unwrap().id, id(2));
    assert_eq!(store.unsent(NOW).unwrap(), vec![], "what one account has in flight no other starts over");
    settle(&store, 7, 0xa, 9, 250, Some((1, executed(id(0xa)))));
    assert_eq!(store.highest_mined(other).unwrap(), None);
    assert_eq!(used(&store, NOW), (250, 0));
}

fn from(byte: u8, signer: u8, client: &str) -> NewRelay {
    NewRelay { signer: Address::repeat_byte(signer), client: Some(client.parse().unwrap()), ..relay(byte) }
}

fn cost(wei: u128) -> ExpectedCost {
    ExpectedCost { wei, gas: 1, l1_fee_wei: 0, least_wei: wei, no_op_wei: 0 }
}

/// Reserves for a relay; why it was denied, if so.
fn reserve(store: &Store, relay: &NewRelay, wei: u128) -> Option<Denial> {
    store.accept(relay, NOW).unwrap();
    let shares = Shares { signer: 20, client: 40, network: 60 };
    store.reserve_share(relay.id, &cost(wei), &Allowance { limit_wei: LIMIT, shares }, NOW).unwrap().denial
}

#[test]
fn a_signer_a_client_and_a_network_have_a_share_of_the_budget_each() {
    let store = fresh();
    let denied = |kind| Some(Denial::Reserved(Some(kind)));
    assert_eq!(reserve(&store, &from(1, 1, "2001:db8:1:1::"), 200), None);
    assert_eq!(reserve(&store, &from(2, 1, "192.0.2.1"), 1), denied(PartyKind::Signer));
    assert_eq!(reserve(&store, &from(3, 3, "2001:db8:1:1::"), 200), None);
    assert_eq!(reserve(&store, &from(4, 4, "2001:db8:1:1::"), 1), denied(PartyKind::Client));
    assert_eq!(reserve(&store, &from(5, 5, "2001:db8:1:2::"), 200), None);
    assert_eq!(reserve(&store, &from(6, 6, "2001:db8:1:3::"), 1), denied(PartyKind::Network));
    assert_eq!(reserve(&store, &from(7, 7, "2001:db8:2:3::"), 200), None);
    assert_eq!(reserve(&store, &from(1, 1, "2001:db8:1:1::"), 200), None, "its own is no obstacle");
    assert_eq!(reserve(&store, &from(8, 8, "192.0.2.1"), 201), Some(Denial::Reserved(None)));
}

#[test]
fn a_dropped_relay_that_somebody_else_sends_again_counts_for_them() {
    let store = fresh();
    assert_eq!(reserve(&store, &from(1, 1, "192.0.2.1"), 400), None);
    let again = from(2, 2, "192.0.2.1");
    assert_eq!(reserve(&store, &again, 1), Some(Denial::Reserved(Some(PartyKind::Client))));
    store.finish_unsent(id(2), &dropped(), NOW).unwrap();
    assert_eq!(reserve(&store, &from(2, 2, "198.51.100.1"), 1), None);
    assert_eq!(store.accepted(id(2)).unwrap().unwrap().client, Some("198.51.100.1".parse().unwrap()));
}

#[test]
fn a_reverted_or_overtaken_relay_costs_its_signer_what_was_paid_and_a_new_window_forgets_it() {
    let store = fresh();
    let dropped = RelayOutcome::Dropped { failure: Failure::of(ErrorCode::InvalidSignatureOrNonce) };
    assert_eq!(reserve(&store, &from(1, 1, "192.0.2.1"), 150), None);
    sign(&store, 0, Some(id(1)), transaction(0xa, Superseded));
    settle(&store, 0, 0xa, 9, 150, Some((1, dropped)));
    let next = from(2, 1, "198.51.100.1");
    assert_eq!(reserve(&store, &next, 51), Some(Denial::Spent(Some(PartyKind::Signer))));
    assert_eq!(reserve(&store, &next, 50), None);
    assert!(store.reserve(id(2), 0, LIMIT, NOW).unwrap());

    let shares = Shares { signer: 20, client: 40, network: 60 };
    let allowance = Allowance { limit_wei: LIMIT, shares };
    let tomorrow = NOW + WINDOW_SECONDS;
    let ask = |now| store.affordable(next.signer, None, 51, 51, &allowance, now).unwrap().denial;
    assert_eq!(ask(tomorrow - 1), Some(Denial::Spent(Some(PartyKind::Signer))));
    assert_eq!(ask(tomorrow), None);
    // Signed for yesterday, mined today, and dearer than all of yesterday.
    assert_eq!(store.reserve_share(id(2), &cost(50), &allowance, NOW).unwrap().denial, None);
    sign(&store, 1, Some(id(2)), transaction(0xb, Relay));
    let assignment = store.assignment(ACCOUNT, 1).unwrap();
    let inclusion = Inclusion { tx_hash: id(0xb), block: at(10) };
    let settlement = Settlement { assignment, inclusion, paid_wei: 160, outcome: Some(executed(id(0xb))) };
    store.settle(ACCOUNT, &settlement, tomorrow).unwrap();
    let forty = store.affordable(next.signer, None, 40, 40, &allowance, tomorrow).unwrap();
    assert_eq!((forty.denial, forty.budget.window.settled_wei), (None, 160), "yesterday's 150 are forgotten");
    assert_eq!(ask(tomorrow), Some(Denial::Spent(Some(PartyKind::Signer))));
}

/// A store with relay 1 executed in block 9 and relay 2 in block 12.
fn mined() -> Store {
    let store = accepted(&[1, 2]);
    for (byte, nonce, block) in [(1, 0, 9), (2, 1, 12)] {
        sign(&store, nonce, Some(id(byte)), transaction(0xa0 + byte, Relay));
        settle(&store, nonce, 0xa0 + byte, block, 1, Some((byte, executed(id(0xa0 + byte)))));
    }
    store
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
    [1, 2].map(|byte| store.relay(id(byte)).unwrap().unwrap().finality)
}

#[test]
fn only_what_was_found_on_the_chain_becomes_safe_and_final() {
    let store = mined();
    assert_eq!(store.unchecked_blocks(ACCOUNT, 9).unwrap(), [at(9), at(12)]);
    assert_eq!(store.anchor(ACCOUNT).unwrap(), None);
    let latest = Some(Finality::Latest);
    promote(&store, heads(99, 99), NOW);
    assert_eq!(finality(&store), [latest, latest], "not compared yet");
    store.checked(ACCOUNT, &[at(9), BlockId { hash: id(0xff), ..at(12) }]).unwrap();
    assert_eq!(
        (store.unchecked_blocks(ACCOUNT, 9).unwrap(), store.anchor(ACCOUNT).unwrap()),
        (vec![at(12)], Some(at(9)))
    );
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
}

#[test]
fn after_a_doubt_all_that_is_not_final_is_compared_again() {
    let store = mined();
    store.checked(ACCOUNT, &[at(9), at(12)]).unwrap();
    promote(&store, heads(12, 9), NOW);
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
fn a_relay_gets_no_second_nonce_while_one_is_open_whatever_the_account() {
    let other = Address::repeat_byte(0xcc);
    let store = accepted(&[1]);
    sign(&store, 0, Some(id(1)), transaction(0xa, Relay));
    assert_eq!(store.open_nonces_of(id(1)).unwrap(), [(ACCOUNT, 0)]);
    let second =
        |byte| NewTransaction { nonce: 5, relay: Some(id(1)), transaction: transaction(byte, Relay) };
    for account in [other, ACCOUNT] {
        let refused = store.record(account, &[second(0xb)], NOW);
        assert!(matches!(refused, Err(StoreError::InFlight)), "{refused:?}");
    }
    assert_eq!(store.next_nonce(other).unwrap(), None, "nothing is written");
    // A replacement transaction is none.
    sign(&store, 0, Some(id(1)), transaction(0xc, Relay));
    store.lose(ACCOUNT, 0).unwrap();
    store.record(other, &[second(0xd)], NOW).unwrap();
    assert_eq!(store.open_nonces_of(id(1)).unwrap(), [(other, 5)]);
}
