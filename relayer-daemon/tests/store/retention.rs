// Retention: old relays shrink to what `GET /relay/:id` answers and are later deleted, in small steps.

use super::Journal;
use crate::carried_out::{Registration, carry_out, settle};
use crate::prelude::*;
use relayer_daemon::outcome::ErrorCode::GasBudgetExhausted;
use relayer_daemon::store::Retention;

/// Largest number of relays that one step takes.
const STEP: usize = 64;

/// Prunes until nothing is due, in steps each of which is bounded; returns how many steps that took.
pub(crate) fn prune(store: &Store, now: u64) -> usize {
    let steps = std::iter::repeat_with(|| store.prune(&Retention::of_days(30), now).unwrap());
    // Four kinds of work, each bounded.
    steps.take_while(|taken| *taken > 0).inspect(|taken| assert!(*taken <= 4 * STEP, "{taken}")).count()
}

#[test]
fn an_archived_relay_answers_as_before_its_copies_are_replays_and_the_newest_nonces_stay_whole() {
    let store = Journal::fresh();
    carry_out(&store, 0..NEWEST + 2, NOW);
    let before = store.relay(id(0)).unwrap().unwrap();
    assert_eq!((before.outcome.clone(), before.hashes.clone()), (Some(executed(0)), vec![id(0)]));
    let budget = store.budget(1, NOW + 30 * DAY).unwrap();
    let has_client = |number| store.accepted(id(number)).unwrap().unwrap().client.is_some();
    prune(&store, NOW + DAY);
    assert!((0..3).all(has_client));
    prune(&store, NOW + DAY + 1_000);
    assert!(!(0..3).any(has_client), "addresses are left");

    prune(&store, NOW + 30 * DAY);
    let first_mined = || store.mined_from(ACCOUNT, 0, 1).unwrap()[0].assignment.nonce;
    assert_eq!(first_mined(), 0, "not a second too early");
    prune(&store, NOW + 30 * DAY + 1);
    assert_eq!(first_mined(), 2);
    assert_eq!(store.accepted(id(0)).unwrap(), None, "its calldata is gone");
    assert_eq!(store.relay(id(0)).unwrap(), Some(before));
    assert_eq!(store.accept(&relay(0), NOW + 40 * DAY).unwrap(), Accepted::Finished(executed(0)));
    assert_eq!(store.budget(1, NOW + 30 * DAY).unwrap(), budget);

    prune(&store, NOW + 360 * DAY);
    assert!(store.relay(id(0)).unwrap().is_some());
    prune(&store, NOW + 360 * DAY + 1);
    assert_eq!(store.relay(id(0)).unwrap(), None);

    prune(&store, NOW + 100_000 * DAY);
    let kept = store.mined_from(ACCOUNT, 0, usize::MAX >> 1).unwrap();
    assert!(kept.iter().map(|mined| mined.assignment.nonce).eq(2..NEWEST + 2));
    assert!(kept.iter().all(|mined| !mined.assignment.transactions[0].raw.is_empty()), "may be sent again");
    assert_eq!(store.highest_mined(ACCOUNT).unwrap(), Some(NEWEST + 1));
    assert_eq!(store.next_nonce(ACCOUNT).unwrap(), Some(NEWEST + 2));
    assert_eq!(store.archived_nonce(ACCOUNT).unwrap(), Some(1));
    assert_eq!(store.archived_nonce(Address::ZERO).unwrap(), None);
}

#[test]
fn what_is_not_over_is_not_archived_and_gaps_go_with_the_relays_of_their_time() {
    let (store, registration) = (Journal::fresh(), Registration::new());
    // Relay 0 was executed by another nonce; nonce 0, taken for lost, was given to a no-op that is not mined.
    store.accept(&registration.relay(0), NOW).unwrap();
    store.finish_unsent(id(0), &executed(0), NOW).unwrap();
    registration.sign(&store, 0, Some(0), 1_000_000);
    // Of three gaps one was mined, one lost, and one is open.
    (1..4).for_each(|nonce| registration.sign(&store, nonce, None, 900 + nonce));
    settle(&store, 1, 901, None, NOW);
    store.lose(ACCOUNT, 2, NOW).unwrap();
    carry_out(&store, 4..NEWEST + 12, NOW);
    // Accepted and never ended.
    store.accept(&registration.relay(1), NOW).unwrap();
    prune(&store, NOW + 30 * DAY);
    assert_eq!(store.lost(ACCOUNT).unwrap(), [2]);
    prune(&store, NOW + 30 * DAY + 1);
    assert!(store.mined_from(ACCOUNT, 0, 1).unwrap()[0].assignment.nonce > 1);
    assert!(store.lost(ACCOUNT).unwrap().is_empty());
    prune(&store, NOW + 400 * DAY);
    assert_eq!(store.open_nonces(ACCOUNT).unwrap().len(), 2);
    assert!(store.accepted(id(0)).unwrap().is_some(), "one of its nonces is open");
    assert!(store.accepted(id(1)).unwrap().is_some(), "it is pending");
    assert_eq!(store.relay(id(4)).unwrap(), None);
}

#[test]
fn what_never_came_to_a_transaction_goes_after_a_day() {
    let store = Journal::fresh();
    let many = 3 * STEP as u64;
    for number in 1_000..1_000 + many {
        store.accept(&relay(number), NOW).unwrap();
        store.finish_unsent(id(number), &dropped(GasBudgetExhausted), NOW).unwrap();
    }
    store.accept(&relay(1), NOW).unwrap();
    carry_out(&store, 2..3, NOW);
    assert_eq!(prune(&store, NOW + DAY), 0);
    assert_eq!(prune(&store, NOW + DAY + 1), 3, "in steps");
    assert!((1_000..1_000 + many).all(|number| store.relay(id(number)).unwrap().is_none()));
    assert!(store.relay(id(1)).unwrap().is_some() && store.relay(id(2)).unwrap().is_some());
}

#[test]
fn an_archived_relay_that_was_dropped_may_be_sent_again_and_keeps_its_history() {
    let (store, registration) = (Journal::fresh(), Registration::new());
    store.accept(&registration.relay(0), NOW).unwrap();
    registration.sign(&store, 0, Some(0), 700);
    settle(&store, 0, 700, Some(dropped(InvalidSignatureOrNonce)), NOW);
    carry_out(&store, 1..NEWEST + 10, NOW);
    prune(&store, NOW + 31 * DAY);
    assert_eq!(store.accepted(id(0)).unwrap(), None);

    let later = NOW + 31 * DAY;
    assert_eq!(store.accept(&registration.relay(0), later).unwrap(), Accepted::Pending);
    let pending = store.relay(id(0)).unwrap().unwrap();
    assert_eq!((pending.outcome, pending.hashes), (None, vec![id(700)]));
    registration.sign(&store, NEWEST + 10, Some(0), 0);
    settle(&store, NEWEST + 10, 0, Some(executed(0)), NOW);
    let both = store.relay(id(0)).unwrap().unwrap();
    assert_eq!((outcome(&store, 0), both.hashes.clone()), (Some(executed(0)), vec![id(700), id(0)]));
    carry_out(&store, NEWEST + 11..2 * NEWEST + 20, later);
    prune(&store, later + 31 * DAY);
    assert_eq!(store.accepted(id(0)).unwrap(), None);
    assert_eq!(store.relay(id(0)).unwrap(), Some(both));
}
