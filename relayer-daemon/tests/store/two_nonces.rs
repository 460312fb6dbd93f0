// Relays with two nonces: one that was given up, and the one that came after it.

use super::shares::LIMIT;
use super::suite::{accepted, used};
use crate::prelude::*;
use relayer_daemon::outcome::ErrorCode::{self, CallReverted, ForwarderRefused};
use relayer_daemon::store::TransactionPurpose::Superseded;
use relayer_daemon::store::Unsettled;

#[test]
fn of_a_relays_two_nonces_the_one_that_used_the_request_decides_or_else_the_last_one_to_end() {
    let store = accepted(&[1]);
    sign(&store, 4, Some(1), transaction(0xa, Relay));
    store.lose(ACCOUNT, 4, NOW).unwrap();
    sign(&store, 5, Some(1), transaction(0xb, Relay));
    settle(&store, 4, 0xa, 250, Some(executed(0xa)));
    settle(&store, 5, 0xb, 60, None);

    assert!(!store.reopen(ACCOUNT, 5, 600, NOW).unwrap());
    assert_eq!(outcome(&store, 1), Some(executed(0xa)));
    assert_eq!(store.open_nonces(ACCOUNT).unwrap().len(), 1, "the nonce itself is open again");
    assert!(store.reopen(ACCOUNT, 4, 600, NOW).unwrap());
    assert_eq!(outcome(&store, 1), None);

    let store = accepted(&[1]);
    sign(&store, 4, Some(1), transaction(0xa, Relay));
    store.lose(ACCOUNT, 4, NOW).unwrap();
    assert_eq!(store.given_up_of(id(1)).unwrap(), [(ACCOUNT, 4)]);
    sign(&store, 5, Some(1), transaction(0xb, Superseded));
    assert_eq!(settle(&store, 5, 0xb, 60, Some(dropped(TransactionRejected))), None);
    assert_eq!(store.unsettled(id(1)).unwrap(), Some(Unsettled::GivenUp), "which may have executed it");
    assert_eq!(settle(&store, 4, 0xa, 250, Some(executed(0xa))), Some(executed(0xa)));
    assert_eq!(settle(&store, 4, 0xa, 250, Some(executed(0xa))), None, "told once");
    assert_eq!(store.unsettled(id(1)).unwrap(), None);

    // The first one's call failed, and has used the request: the other one's forwarder refuses it.
    let store = accepted(&[1]);
    sign(&store, 4, Some(1), transaction(0xa, Relay));
    store.lose(ACCOUNT, 4, NOW).unwrap();
    sign(&store, 5, Some(1), transaction(0xb, Relay));
    let failed = reverted(0xa, CallReverted);
    assert_eq!(settle(&store, 4, 0xa, 250, Some(failed.clone())), Some(failed.clone()));
    assert_eq!(settle(&store, 5, 0xb, 60, Some(reverted(0xb, ErrorCode::Superseded))), None);
    assert_eq!(outcome(&store, 1), Some(failed));

    let store = accepted(&[1]);
    sign(&store, 4, Some(1), transaction(0xa, Superseded));
    store.lose(ACCOUNT, 4, NOW).unwrap();
    sign(&store, 5, Some(1), transaction(0xb, Superseded));
    assert!(store.reopen(ACCOUNT, 4, 600, NOW).unwrap());
    let dropped = dropped(TransactionRejected);
    let ended: Vec<RelayOutcome> = std::thread::scope(|threads| {
        let settling = [(4, 0xa), (5, 0xb)].map(|(nonce, number)| {
            let (store, outcome) = (&store, Some(dropped.clone()));
            threads.spawn(move || settle(store, nonce, number, 1, outcome))
        });
        settling.into_iter().filter_map(|settled| settled.join().unwrap()).collect()
    });
    assert_eq!(ended, std::slice::from_ref(&dropped));
    assert_eq!(outcome(&store, 1), Some(dropped));
}

/// Returns a store with a relay with two nonces: 4, which was given up, and 5, which is in flight.
fn with_two_nonces() -> Store {
    let store = accepted(&[1]);
    assert!(store.reserve(id(1), 600, LIMIT, NOW).unwrap());
    sign(&store, 4, Some(1), transaction(0xa, Relay));
    store.lose(ACCOUNT, 4, NOW).unwrap();
    sign(&store, 5, Some(1), transaction(0xb, Relay));
    store
}

fn reverted(number: u64, code: ErrorCode) -> RelayOutcome {
    let mined = MinedTransaction { tx_hash: id(number), block_number: 9, gas_used: 21_000 };
    RelayOutcome::Reverted { mined, failure: Failure::of(code) }
}

#[test]
fn a_reorganisation_that_turns_a_relays_two_nonces_round_leaves_the_one_that_used_it() {
    for before in [executed(0xa), reverted(0xa, CallReverted)] {
        for after in [executed(0xb), reverted(0xb, CallReverted)] {
            let turned = [(4, 0xa, reverted(0xa, ErrorCode::Superseded)), (5, 0xb, after.clone())];
            for order in [[0, 1], [1, 0]] {
                let store = with_two_nonces();
                settle(&store, 4, 0xa, 250, Some(before.clone()));
                settle(&store, 5, 0xb, 60, Some(reverted(0xb, ErrorCode::Superseded)));
                assert_eq!(outcome(&store, 1), Some(before.clone()));
                for (nonce, number, outcome) in order.map(|index| turned[index].clone()) {
                    settle(&store, nonce, number, 250, Some(outcome));
                }
                assert_eq!(outcome(&store, 1), Some(after.clone()), "{order:?}");
                assert_eq!(used(&store, NOW), (500, 0), "each nonce at its dearer price");
            }
        }
    }
}

#[test]
fn a_relay_whose_execution_a_reorganisation_undoes_ends_by_its_other_nonce() {
    let undone = |store: &Store| {
        settle(store, 4, 0xa, 250, Some(executed(0xa)));
        assert_eq!(settle(store, 4, 0xa, 250, Some(reverted(0xa, ForwarderRefused))), None);
        assert_eq!(outcome(store, 1), None, "the other one may execute it");
        store.unsettled(id(1)).unwrap()
    };
    for last in [executed(0xb), reverted(0xb, ForwarderRefused)] {
        let store = with_two_nonces();
        assert_eq!(undone(&store), Some(Unsettled::InFlight));
        let (settled, reserved) = used(&store, NOW);
        assert!(settled == 250 && reserved > 0, "what the other one may cost");
        assert_eq!(settle(&store, 5, 0xb, 60, Some(last.clone())), Some(last.clone()));
        assert_eq!((outcome(&store, 1), used(&store, NOW)), (Some(last), (310, 0)));
    }
    // The other one was given up, too: it may be mined all the same.
    let store = with_two_nonces();
    store.lose(ACCOUNT, 5, NOW).unwrap();
    assert_eq!(undone(&store), Some(Unsettled::GivenUp));
    settle(&store, 5, 0xb, 60, Some(executed(0xb)));
    assert_eq!((outcome(&store, 1), used(&store, NOW)), (Some(executed(0xb)), (310, 0)));
}
