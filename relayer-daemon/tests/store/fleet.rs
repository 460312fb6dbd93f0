// Promises of the store to the daemons of a fleet: an account has one holder, and so has a relay; what a
// former holder writes fails; limits hold over all of them.

use super::SharedStore;
use crate::prelude::*;
use relayer_daemon::store::fleet::{Beat, LEASE, Room};
use relayer_daemon::store::{DaemonId, Payer};
use std::collections::HashSet;

const FIRST: Address = Address::repeat_byte(0xa1);
const SECOND: Address = Address::repeat_byte(0xa2);
const ACCOUNTS: [Address; 2] = [FIRST, SECOND];

fn request(number: u64, nonce: u64) -> NewRelay {
    NewRelay { signer: Address::repeat_byte(7), forward_nonce: U256::from(nonce), ..relay(number) }
}

fn daemon(shared: &SharedStore, name: &str) -> Store {
    shared.store.of_daemon(DaemonId(name.into()))
}

/// Returns a daemon that holds both accounts in their first epoch, and one that has come after it.
fn two_daemons(shared: &SharedStore) -> (Store, Store) {
    let (a, b) = (daemon(shared, "a"), daemon(shared, "b"));
    assert_eq!(beat(&a), [(FIRST, 1), (SECOND, 1)]);
    assert_eq!(beat(&b), [], "both are taken");
    (a, b)
}

/// Returns two daemons: one that holds the first account, and one that was given the second.
fn one_account_each(shared: &SharedStore) -> ((Store, Payer), (Store, Payer)) {
    let (a, b) = two_daemons(shared);
    a.release(payer(SECOND, 1)).unwrap();
    assert_eq!(beat(&b), [(SECOND, 2)]);
    ((a, payer(FIRST, 1)), (b, payer(SECOND, 2)))
}

fn beat(store: &Store) -> Vec<(Address, u64)> {
    let Beat { held, .. } = store.beat(&ACCOUNTS, false, None).unwrap();
    held.into_iter().map(|held| (held.payer.account, held.payer.epoch.unwrap())).collect()
}

fn payer(account: Address, epoch: u64) -> Payer {
    Payer { account, epoch: Some(epoch) }
}

#[test]
fn an_account_has_one_holder_and_passes_on_when_its_lease_has_ended() {
    let shared = SharedStore::new();
    let (a, b) = two_daemons(&shared);
    shared.pass(LEASE / 2);
    assert_eq!(beat(&a), [(FIRST, 1), (SECOND, 1)], "renewed");
    shared.pass(LEASE / 2 + Duration::from_secs(1));
    assert_eq!(beat(&b).len(), 0, "still");
    shared.pass(LEASE);
    assert_eq!(beat(&b), [(FIRST, 2), (SECOND, 2)], "with a higher epoch");
    assert_eq!(beat(&a), [], "the former holder finds out");
    assert_eq!(daemon(&shared, "c").fleet().unwrap().daemons, 2);
}

#[test]
fn a_daemon_that_joins_gets_its_share_once_given_back_and_leases_renounced_or_lost_have_new_epochs() {
    let shared = SharedStore::new();
    let (a, b) = two_daemons(&shared);
    let held = a.beat(&ACCOUNTS, true, None).unwrap().held;
    let wanted: Vec<_> = held.iter().map(|held| (held.payer, held.is_wanted)).collect();
    assert_eq!(wanted, [(payer(FIRST, 2), true), (payer(SECOND, 2), false)], "renounced: new epochs");
    assert_eq!(a.lose(payer(FIRST, 1), 0, NOW), Err(StoreError::Fenced), "also for the same daemon");
    a.release(payer(SECOND, 2)).unwrap();
    assert_eq!(beat(&b), [(SECOND, 3)]);
    assert_eq!(beat(&a), [(FIRST, 2)]);
    b.leave().unwrap();
    assert_eq!(beat(&a), [(FIRST, 2), (SECOND, 4)], "a daemon that leaves is replaced at once");
    let known = a.beat(&ACCOUNTS, false, None).unwrap().alive_until;
    for (known, epochs) in [(known, [2, 4]), (known - 1, [2, 4]), (i64::MAX, [3, 5])] {
        let Beat { held, has_lost, .. } = a.beat(&ACCOUNTS, false, Some(known)).unwrap();
        assert_eq!(held.iter().map(|held| held.payer.epoch.unwrap()).collect::<Vec<_>>(), epochs);
        assert_eq!(has_lost, epochs == [3, 5], "a beat that is not there any more was lost");
    }
}

#[test]
fn what_a_former_holder_writes_about_a_nonce_fails() {
    let shared = SharedStore::new();
    let (a, b) = two_daemons(&shared);
    let (old, new) = (payer(FIRST, 1), payer(FIRST, 2));
    a.accept(&relay(1), NOW).unwrap();
    a.record(old, &[signed(0, Some(1), 0x11)], NOW).unwrap();
    shared.pass(LEASE * 2);
    beat(&b);

    let fenced = [
        a.record(old, &[signed(1, None, 0x12)], NOW),
        a.record(old, &[signed(0, Some(1), 0x13)], NOW),
        a.record_gap(old, &signed(1, None, 0x14), 1, 1_000, NOW).map(drop),
        a.record_replacement(old, id(1), &signed(0, Some(1), 0x17), 1, 1_000, NOW).map(drop),
        a.settle(old, &settlement(&a, FIRST, 0, 0x11, Some(executed(0x11))), NOW).map(drop),
        a.reopen(old, 0, 1, NOW).map(drop),
        a.lose(old, 0, NOW),
        a.give_up(old, 0),
        a.doubt(old),
        a.checked(old, &[]),
        a.release(old),
        // Without an epoch nothing is written about an account that any daemon holds.
        a.record(FIRST, &[signed(1, None, 0x15)], NOW),
        b.record(FIRST, &[signed(1, None, 0x15)], NOW),
    ];
    for result in fenced {
        assert_eq!(result, Err(StoreError::Fenced));
    }
    let [open] = b.open_nonces(FIRST).unwrap().try_into().unwrap();
    assert_eq!(open.transactions.len(), 1, "nothing was written");
    b.record(new, &[signed(0, Some(1), 0x16)], NOW).unwrap();
    b.settle(new, &settlement(&b, FIRST, 0, 0x16, Some(executed(0x16))), NOW).unwrap();
    assert_eq!(outcome(&a, 1), Some(executed(0x16)));
}

#[test]
fn what_an_account_has_mined_that_no_daemon_holds_is_any_daemons_to_follow() {
    let shared = SharedStore::new();
    let (a, b) = two_daemons(&shared);
    let payer = payer(FIRST, 1);
    a.accept(&relay(1), NOW).unwrap();
    a.record(payer, &[signed(0, Some(1), 0x11)], NOW).unwrap();
    a.settle(payer, &settlement(&a, FIRST, 0, 0x11, Some(executed(0x11))), NOW).unwrap();
    assert_eq!(b.unsettled_accounts(NOW).unwrap().into_iter().collect::<Vec<_>>(), [FIRST]);
    assert_eq!(b.checked(FIRST, &[at(9)]), Err(StoreError::Fenced), "it has a holder");
    a.leave().unwrap();
    b.checked(FIRST, &[at(9)]).unwrap();
    assert_eq!(b.anchor(FIRST).unwrap(), Some(at(9)));
    assert_eq!([b.undo(FIRST, 0, 1, NOW), b.undo(FIRST, 0, 1, NOW)], [Ok(true), Ok(false)], "once");
    assert_eq!((outcome(&b, 1), b.given_up_of(id(1)).unwrap()), (None, vec![(FIRST, 0)]));
    assert_eq!(b.unsettled_accounts(NOW).unwrap().len(), 1, "it may be mined yet");
    assert_eq!(b.unsettled_accounts(NOW + 2 * DAY).unwrap().len(), 0);
    assert_eq!(beat(&b), [(FIRST, 2), (SECOND, 2)]);
    assert_eq!(b.checked(FIRST, &[]), Err(StoreError::Fenced), "nor is it this daemon's without the epoch");
}

#[test]
fn a_request_sent_to_two_daemons_at_once_is_one_relay() {
    let shared = SharedStore::new();
    let (a, b) = two_daemons(&shared);
    for number in 1..20 {
        let accepted = std::thread::scope(|threads| {
            let accepts = [&a, &b].map(|daemon| threads.spawn(move || daemon.accept(&relay(number), NOW)));
            accepts.map(|accept| accept.join().unwrap().unwrap())
        });
        assert!(
            [Accepted::Pending, Accepted::Elsewhere].iter().all(|one| accepted.contains(one)),
            "{accepted:?}"
        );
    }
}

#[test]
fn relays_of_a_daemon_that_died_are_claimed_once_and_it_may_not_go_on_with_them() {
    let shared = SharedStore::new();
    let (a, b) = two_daemons(&shared);
    let c = daemon(&shared, "c");
    for number in 1..=3 {
        a.accept(&relay(number), NOW).unwrap();
        a.reserve(id(number), 100, 1_000, NOW).unwrap();
    }
    a.record(payer(FIRST, 1), &[signed(0, Some(1), 0x11)], NOW).unwrap();
    let room = |places| Room { places, per_signer: 64, ..Room::default() };
    let claim_some = |store: &Store, places| -> Vec<B256> {
        store.claim(HashSet::new(), room(places), NOW).unwrap().into_iter().map(|relay| relay.id).collect()
    };
    let claim = |store: &Store| claim_some(store, 64);
    beat(&c);
    assert_eq!([claim(&b), claim(&c)].concat(), [B256::ZERO; 0], "it lives");

    shared.pass(LEASE * 2);
    beat(&b);
    beat(&c);
    assert_eq!(claim_some(&b, 1), [id(2)], "as many as there is room for");
    assert_eq!(claim_some(&c, 0), [B256::ZERO; 0]);
    assert_eq!(b.claim(HashSet::from([id(2)]), room(9), NOW).unwrap(), [relay(3)], "not the sent one");
    assert_eq!(claim(&c), [B256::ZERO; 0], "once");
    assert_eq!(b.budget(1_000, NOW).unwrap().reserved_wei, 100, "what is not sent reserves nothing");

    // It had only stood still.
    assert_eq!(a.reserve(id(2), 100, 1_000, NOW), Err(StoreError::HeldElsewhere));
    assert_eq!(a.finish_unsent(id(2), &dropped(RpcTimeout), NOW), Err(StoreError::HeldElsewhere));
    assert_eq!(a.accept(&relay(2), NOW).unwrap(), Accepted::Elsewhere);
    let holder = if beat(&b).iter().any(|(account, _)| *account == FIRST) { &b } else { &c };
    let epoch = beat(holder)[0].1;
    let mined = settlement(holder, FIRST, 0, 0x11, Some(executed(0x11)));
    holder.settle(payer(FIRST, epoch), &mined, NOW).unwrap();
}

#[test]
fn the_holder_of_an_account_replaces_its_transactions_whichever_daemon_runs_the_relay() {
    let shared = SharedStore::new();
    let ((a, first), (b, second)) = one_account_each(&shared);
    a.accept(&relay(1), NOW).unwrap();
    a.record(first, &[signed(0, Some(1), 0x11)], NOW).unwrap();
    // Cancelled, so the client sent the request again, to the other daemon; then a reorg undid the no-op.
    let cancelled = settlement(&a, FIRST, 0, 0x11, Some(dropped(TransactionRejected)));
    a.settle(first, &cancelled, NOW).unwrap();
    assert_eq!(b.accept(&relay(1), NOW).unwrap(), Accepted::Pending);
    b.record(second, &[signed(0, Some(1), 0x21)], NOW).unwrap();
    assert!(a.reopen(first, 0, 1, NOW).unwrap());

    for (holder, payer, number) in [(&a, first, 0x12), (&b, second, 0x22)] {
        let replacement = signed(0, Some(1), number);
        assert_eq!(holder.record_replacement(payer, id(1), &replacement, 1, 1_000, NOW), Ok(true));
    }
    // Both nonces end, and the second one ends the relay.
    assert_eq!(a.settle(first, &cancelled, NOW), Ok(None));
    let last: Settlement = settlement(&b, SECOND, 0, 0x22, Some(dropped(TransactionRejected)));
    assert_eq!(b.settle(second, &last, NOW), Ok(Some(dropped(TransactionRejected))));
}

#[test]
fn a_nonce_with_its_own_reservation_gives_it_back_when_it_is_mined_as_the_only_one_in_flight() {
    let shared = SharedStore::new();
    let (a, _b) = two_daemons(&shared);
    let payer = payer(FIRST, 1);
    let sign = |nonce, wei, number| {
        let transaction = costing(wei, number);
        a.record(payer, &[NewTransaction { nonce, relay: Some(id(1)), transaction }], NOW).unwrap();
    };
    let settle = |nonce, number| {
        let mined = settlement(&a, FIRST, nonce, number, Some(executed(number)));
        assert_eq!(a.settle(payer, &mined, NOW), Ok(Some(executed(number))));
    };
    a.accept(&relay(1), NOW).unwrap();
    sign(4, 100, 0xa);
    a.lose(payer, 4, NOW).unwrap();
    sign(5, 30, 0xb);
    // The first one's late receipt ends the relay, and a reorganisation undoes that.
    settle(4, 0xa);
    assert!(a.reopen(payer, 4, 100, NOW).unwrap());
    a.lose(payer, 4, NOW).unwrap();
    settle(5, 0xb);
    let budget = a.budget(1_000, NOW).unwrap();
    assert_eq!((budget.window.settled_wei, budget.reserved_wei), (2, 99), "of the one that was given up");
}

#[test]
fn the_daemon_whose_nonce_of_a_relay_is_lost_runs_it_where_no_other_nonce_is_left() {
    let shared = SharedStore::new();
    let ((a, first), (b, second)) = one_account_each(&shared);
    let shares = Shares { signer: 100, without_key: 100, client: 100, network: 100 };
    let allowance = Allowance { limit_wei: 1_000, shares };
    let cost = ExpectedCost { wei: 9, gas: 9, l1_fee_wei: 0, least_wei: 1, no_op_wei: 0 };
    a.accept(&relay(1), NOW).unwrap();
    a.record(first, &[signed(0, Some(1), 0x11)], NOW).unwrap();
    let cancelled = settlement(&a, FIRST, 0, 0x11, Some(dropped(TransactionRejected)));
    a.settle(first, &cancelled, NOW).unwrap();
    b.accept(&relay(1), NOW).unwrap();
    b.record(second, &[signed(0, Some(1), 0x21)], NOW).unwrap();
    // A reorganisation gives it to the first daemon, which ends its nonce again.
    assert!(a.reopen(first, 0, 1, NOW).unwrap());
    assert_eq!(a.settle(first, &cancelled, NOW), Ok(None));
    let runs = |store: &Store| store.reserve_share(id(1), &cost, &allowance, NOW).map(drop);
    assert_eq!((runs(&a), runs(&b)), (Ok(()), Err(StoreError::HeldElsewhere)));
    b.lose(second, 0, NOW).unwrap();
    assert_eq!((runs(&a), runs(&b)), (Err(StoreError::HeldElsewhere), Ok(())));
}

#[test]
fn one_daemon_alone_signs_a_relay_and_with_a_nonce_it_is_neither_dropped_nor_handed_over() {
    let shared = SharedStore::new();
    let (a, b) = two_daemons(&shared);
    (1..=3).for_each(|number| drop(a.accept(&relay(number), NOW).unwrap()));
    a.hand_over(id(1), NOW).unwrap();
    let room = || Room { places: 64, per_signer: 64, ..Room::default() };
    let record = |number| a.record(payer(FIRST, 1), &[signed(0, Some(number), 0x11)], NOW);
    assert_eq!(record(1), Err(StoreError::HeldElsewhere));
    assert_eq!(b.claim(HashSet::new(), room(), NOW).unwrap(), [relay(1)]);
    assert_eq!(record(1), Err(StoreError::HeldElsewhere));
    assert_eq!(a.next_nonce(FIRST).unwrap(), None);
    // One that its own daemon has forgotten, and not those that it runs.
    assert_eq!(a.claim(HashSet::from([id(2), id(3)]), room(), NOW).unwrap(), []);
    assert_eq!(a.claim(HashSet::from([id(3)]), room(), NOW).unwrap(), [relay(2)]);
    // The nonce of a commit that was said to have failed.
    a.reserve(id(3), 100, 1_000, NOW).unwrap();
    record(3).unwrap();
    assert_eq!(a.finish_unsent(id(3), &dropped(RpcTimeout), NOW), Err(StoreError::HeldElsewhere));
    assert_eq!(a.hand_over(id(3), NOW), Err(StoreError::HeldElsewhere));
    assert_eq!(a.budget(1_000, NOW).unwrap().reserved_wei, 100);
}

#[test]
fn a_daemon_without_a_free_place_takes_the_relays_over_that_it_waits_for() {
    let shared = SharedStore::new();
    let (a, b) = two_daemons(&shared);
    for number in 1..=2 {
        a.accept(&relay(number), NOW).unwrap();
        a.hand_over(id(number), NOW).unwrap();
    }
    let room = Room { waited_for: HashSet::from([id(2)]), ..Room::default() };
    assert_eq!(b.claim(HashSet::new(), room, NOW).unwrap(), [relay(2)]);
}

#[test]
fn relays_past_their_deadline_are_taken_over_alone() {
    let shared = SharedStore::new();
    let (a, b) = two_daemons(&shared);
    let until = |number, deadline| NewRelay { deadline, ..relay(number) };
    for relay in [until(1, 0), until(2, NOW), until(3, NOW - 1)] {
        a.accept(&relay, NOW).unwrap();
        a.hand_over(relay.id, NOW).unwrap();
    }
    let room = || Room { places: 9, per_signer: 9, ..Room::default() };
    assert_eq!(b.claim_expired(HashSet::new(), room(), NOW).unwrap(), [until(3, NOW - 1)]);
    assert_eq!(b.claim(HashSet::from([id(3)]), room(), NOW).unwrap(), [until(1, 0), until(2, NOW)]);
}

#[test]
fn a_request_sees_those_before_it_the_sent_ones_first_and_then_the_earliest() {
    let shared = SharedStore::new();
    let (a, b) = (daemon(&shared, "a"), daemon(&shared, "b"));
    a.accept(&request(1, 4), NOW).unwrap();
    let (same, next, own) = (request(2, 4), request(3, 5), request(4, 6));
    for relay in [&same, &next, &own] {
        b.accept(relay, NOW).unwrap();
    }
    assert_eq!(b.ahead_of(&same).unwrap(), [(id(1), U256::from(4))]);
    assert_eq!(a.ahead_of(&request(1, 4)).unwrap(), [], "it came first");
    assert_eq!(b.ahead_of(&next).unwrap(), [(id(1), U256::from(4))], "its own ones it knows");
    assert_eq!(b.ahead_of(&own).unwrap(), []);
    let nonces: Vec<U256> = a.pending_nonces(own.signer).unwrap().into_iter().collect();
    assert_eq!(nonces, [4, 5, 6].map(U256::from));

    let shared = SharedStore::new();
    let (a, _) = two_daemons(&shared);
    let [first, second, third] = [1, 2, 3].map(|number| request(number, 4));
    for relay in [&first, &second, &third] {
        a.accept(relay, NOW).unwrap();
    }
    let ahead = |relay| a.ahead_of(relay).unwrap().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!([ahead(&first), ahead(&second), ahead(&third)], [vec![], vec![id(1)], vec![id(1), id(2)]]);
    a.record(payer(FIRST, 1), &[signed(0, Some(3), 0x11)], NOW).unwrap();
    assert_eq!([ahead(&first), ahead(&second)], [vec![id(3)], vec![id(1), id(3)]]);
}

#[test]
fn of_requests_with_one_nonce_one_is_sent_at_a_time_whichever_daemon_runs_them() {
    let shared = SharedStore::new();
    let ((a, first), (b, second)) = one_account_each(&shared);
    a.accept(&request(1, 4), NOW).unwrap();
    b.accept(&request(2, 4), NOW).unwrap();
    b.accept(&request(3, 5), NOW).unwrap();
    b.record(second, &[signed(0, Some(2), 0x21)], NOW).unwrap();
    let sends = |number| a.record(first, &[signed(0, Some(1), number)], NOW);
    assert_eq!(sends(0x11), Err(StoreError::InFlight));
    assert_eq!(a.next_nonce(FIRST).unwrap(), None, "nothing is written");
    // Neither a replacement nor another nonce's request is held up.
    b.record(second, &[signed(0, Some(2), 0x22), signed(1, Some(3), 0x31)], NOW).unwrap();
    b.settle(second, &settlement(&b, SECOND, 0, 0x21, Some(executed(0x21))), NOW).unwrap();
    assert_eq!(sends(0x12), Err(StoreError::InFlight), "the nonce is used");
    assert!(b.reopen(second, 0, 1, NOW).unwrap());
    b.settle(second, &settlement(&b, SECOND, 0, 0x22, Some(dropped(TransactionRejected))), NOW).unwrap();
    sends(0x12).unwrap();
}

#[test]
fn a_rate_limit_is_one_for_all_daemons() {
    let shared = SharedStore::new();
    let daemons = [daemon(&shared, "a"), daemon(&shared, "b")];
    let charge = |turn: usize| daemons[turn % 2].charge_rate("ip 192.0.2.7".to_owned(), 20).unwrap();
    assert!((0..20).all(|turn| charge(turn).is_ok()));
    let wait = charge(20).unwrap_err();
    assert!((170..=180).contains(&wait), "{wait}");
    assert_eq!(daemons[0].charge_rate("ip 192.0.2.8".to_owned(), 20).unwrap(), Ok(()));
    shared.pass(Duration::from_secs(wait));
    assert_eq!((charge(21), charge(22).is_err()), (Ok(()), true), "one more in three minutes");
}

#[test]
fn each_daemon_has_the_states_of_the_accounts_that_living_daemons_have_published() {
    use relayer_daemon::store::AccountState::{self, Elsewhere, Empty, Ready};
    let shared = SharedStore::new();
    let ((a, _), (b, _)) = one_account_each(&shared);
    let states = |store: &Store| -> Vec<(Address, AccountState)> {
        store.beat(&ACCOUNTS, false, None).unwrap().states.into_iter().collect()
    };
    assert_eq!(states(&a), [(FIRST, Elsewhere), (SECOND, Elsewhere)], "not known");
    a.publish_states(vec![(FIRST, Empty), (SECOND, Elsewhere)]).unwrap();
    b.publish_states(vec![(FIRST, Elsewhere), (SECOND, Ready)]).unwrap();
    assert_eq!(states(&a), [(FIRST, Elsewhere), (SECOND, Ready)], "without its own");
    assert_eq!(states(&b), [(FIRST, Empty), (SECOND, Elsewhere)]);
    assert_eq!(a.beat(&ACCOUNTS, false, None).unwrap().published[&FIRST], Empty);
    b.publish_states(vec![(SECOND, Empty)]).unwrap();
    assert_eq!(states(&a), [(FIRST, Elsewhere), (SECOND, Empty)]);
    assert_eq!(states(&daemon(&shared, "c")), [(FIRST, Empty), (SECOND, Empty)]);
    shared.pass(LEASE * 2);
    assert_eq!(states(&a), [(FIRST, Elsewhere), (SECOND, Elsewhere)], "of the dead");
}
