// Writes of three daemons at the same time, each on a connection of its own: what each has read still holds
// when it writes.

use super::SERVER;
use crate::prelude::*;
use relayer_daemon::store::control::{Effect, Order};
use relayer_daemon::store::events::DeliveryResult;
use relayer_daemon::store::fleet::Room;
use relayer_daemon::store::{DaemonId, Payer, Sponsored, Sponsorship};
use std::collections::HashSet;

const ACCOUNTS: [Address; 3] = [Address::repeat_byte(1), Address::repeat_byte(2), Address::repeat_byte(3)];

type FleetDaemon = (Store, Payer);

/// Returns three daemons with an account each.
fn fleet() -> Vec<FleetDaemon> {
    let url = SERVER.schema();
    let daemon = |account: Address| {
        let store = Store::connect(&url).unwrap().of_daemon(DaemonId(account.to_string().into()));
        let beat = store.beat(&[account], false, None).unwrap();
        (store, beat.held[0].payer)
    };
    ACCOUNTS.map(daemon).into()
}

/// Runs `work` on the numbers below `count` at once, each at one of the daemons, and returns the results.
fn at_once<T: Send>(
    fleet: &[FleetDaemon],
    count: u64,
    work: impl Fn(&Store, Payer, u64) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let one = |number: u64| {
            let (store, payer) = &fleet[number as usize % fleet.len()];
            scope.spawn(move || work(store, *payer, number))
        };
        let threads: Vec<_> = (0..count).map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn sponsorship(gas_per_day: Option<u64>) -> Sponsorship {
    Sponsorship { key: "acme".to_owned(), gas: 10, gas_per_day, is_told: true }
}

#[test]
fn the_budget_its_shares_and_a_keys_gas_are_never_overdrawn_and_what_is_paid_is_counted_once() {
    const RELAYS: u64 = 48;
    let fleet = fleet();
    let shares = Shares { signer: 100, without_key: 50, client: 100, network: 100 };
    let allowance = Allowance { limit_wei: 200, shares };
    let cost = ExpectedCost { wei: 10, gas: 1, l1_fee_wei: 0, least_wei: 1, no_op_wei: 0 };
    // Each other one without an API key: they have half of the budget.
    let client = |number: u64| number.is_multiple_of(2).then(|| "192.0.2.7".parse().unwrap());
    let reserved = at_once(&fleet, RELAYS, |store, payer, number| {
        store.accept(&NewRelay { client: client(number), ..relay(number) }, NOW).unwrap();
        let reservation = store.reserve_share(id(number), &cost, &allowance, NOW).unwrap();
        let is_reserved = reservation.denial.is_none();
        if is_reserved {
            store.record(payer, &[signed(number, Some(number), number)], NOW).unwrap();
        }
        is_reserved
    });
    let without_key = reserved.iter().step_by(2).filter(|is_reserved| **is_reserved).count();
    let all = reserved.iter().filter(|is_reserved| **is_reserved).count();
    assert!(all == 20 && without_key <= 10, "{all}, {without_key} of them without a key");
    assert_eq!(fleet[0].0.budget(200, NOW).unwrap().reserved_wei, 200);
    at_once(&fleet, RELAYS, |store, payer, number| {
        if reserved[number as usize] {
            let mined = settlement(store, payer.account, number, number, Some(executed(number)));
            // Twice: as after a commit of which nothing is known.
            for _ in 0..2 {
                store.settle(payer, &Settlement { paid_wei: 7, ..mined.clone() }, NOW).unwrap();
            }
        }
    });
    let budget = fleet[0].0.budget(200, NOW).unwrap();
    assert_eq!((budget.window.settled_wei, budget.reserved_wei), (140, 0));
    let next = NewRelay { client: client(0), ..relay(RELAYS) };
    let rest = 100 - 7 * without_key as u128;
    for (wei, is_denied) in [(rest.min(60), false), (rest + 1, true)] {
        let denial = fleet[0].0.look_up(&next, wei, wei, &allowance, NOW).unwrap().1.denial;
        assert_eq!(denial.is_some(), is_denied, "{wei} of {rest}: {denial:?}");
    }

    let accepted = at_once(&fleet, RELAYS, |store, _, number| {
        store.accept_sponsored(&relay(100 + number), &sponsorship(Some(105)), NOW).unwrap()
    });
    let accepted = accepted.iter().filter(|accepted| matches!(accepted, Sponsored::Accepted(_))).count();
    assert_eq!(accepted, 10, "10 times 10 of 105");
}

#[test]
fn copies_and_requests_with_one_nonce_have_one_transaction_in_flight_and_a_cancelled_one_none() {
    const ROUNDS: u64 = 20;
    let fleet = fleet();
    for round in 0..ROUNDS {
        let rival = |number: u64| NewRelay {
            signer: Address::repeat_byte(7),
            forward_nonce: U256::from(round),
            ..relay(round * 10 + number)
        };
        at_once(&fleet, 3, |store, _, number| store.accept(&rival(number), NOW).unwrap());
        let nonce = round;
        let signs = at_once(&fleet, 3, |store, payer, number| {
            store.record(payer, &[signed(nonce, Some(round * 10 + number), round * 10 + number)], NOW)
        });
        let refused = signs.iter().filter(|signed| **signed == Err(StoreError::InFlight)).count();
        assert_eq!((refused, signs.iter().filter(|signed| signed.is_ok()).count()), (2, 1), "{signs:?}");

        // The same request at all three.
        let copy = NewRelay { forward_nonce: U256::from(1_000 + round), ..rival(9) };
        let copies = at_once(&fleet, 3, |store, _, _| store.accept(&copy, NOW).unwrap());
        let answered = |answer: Accepted| copies.iter().filter(|accepted| **accepted == answer).count();
        assert_eq!([Accepted::Pending, Accepted::Elsewhere].map(answered), [1, 2], "{copies:?}");
        // While it is signed it is cancelled: one of the two comes first.
        let holder = copies.iter().position(|accepted| *accepted == Accepted::Pending).unwrap();
        let done = at_once(&fleet, 2, |store, _, number| match number {
            0 => store.order(Order::Cancel { relay: copy.id }, "operator").unwrap() == Effect::Cancelled,
            _ => {
                let (store, payer) = &fleet[holder];
                store.record(*payer, &[signed(500 + nonce, Some(round * 10 + 9), round * 10 + 9)], NOW).is_ok()
            }
        });
        assert_ne!(done[0], done[1], "cancelled, and signed");
    }
}

#[test]
fn an_event_that_comes_while_the_one_before_it_is_delivered_is_due_and_an_orphan_is_taken_once() {
    const RELAYS: u64 = 30;
    let fleet = fleet();
    at_once(&fleet, RELAYS, |store, payer, number| {
        store.accept_sponsored(&relay(number), &sponsorship(None), NOW).unwrap();
        store.record(payer, &[signed(number, Some(number), number)], NOW).unwrap();
    });
    let due = fleet[0].0.due_events("acme", NOW, 100).unwrap();
    assert_eq!(due.len() as u64, RELAYS);
    at_once(&fleet, 2 * RELAYS, |store, _, turn| {
        let number = turn / 2;
        if turn.is_multiple_of(2) {
            let event = due.iter().find(|event| event.relay == id(number)).unwrap();
            store.attempted(event, DeliveryResult::Delivered, NOW).unwrap();
        } else {
            let (store, payer) = &fleet[number as usize % fleet.len()];
            let mined = settlement(store, payer.account, number, number, Some(executed(number)));
            store.settle(*payer, &mined, NOW).unwrap();
        }
    });
    let next = fleet[0].0.due_events("acme", NOW, 100).unwrap();
    assert_eq!(next.len() as u64, RELAYS, "each has its second event due");

    let (first, _) = &fleet[0];
    for number in 100..100 + RELAYS {
        first.accept(&relay(number), NOW).unwrap();
        first.hand_over(id(number), NOW).unwrap();
    }
    let claimed = at_once(&fleet, 3, |store, _, _| {
        let room = Room { places: 64, per_signer: 64, ..Room::default() };
        store.claim(HashSet::new(), room, NOW).unwrap()
    });
    let ids: Vec<B256> = claimed.iter().flatten().map(|relay| relay.id).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "none by two daemons");
    assert!(ids.len() as u64 <= RELAYS);
}
