// The gas that API keys use, in the store, and the events for their owners.

use super::Journal;
use crate::prelude::*;
use relayer_daemon::outcome::ErrorCode::DeadlinePassed;
use relayer_daemon::store::events::{DeliveryResult, Replay};
use relayer_daemon::store::{Sponsored, Sponsorship};

fn accept(store: &Store, number: u64, gas: u64, now: u64) -> Sponsored {
    let sponsorship = Sponsorship { key: "acme".to_owned(), gas, gas_per_day: Some(1_000), is_told: true };
    store.accept_sponsored(&relay(number), &sponsorship, now).unwrap()
}

/// Executes relay 1 by the account's first nonce.
fn mine(store: &Store, gas_used: u64, now: u64) {
    mine_relay(store, 1, gas_used, now);
}

/// Executes a relay by the nonce before its number.
fn mine_relay(store: &Store, number: u64, gas_used: u64, now: u64) {
    let nonce = number - 1;
    sign(store, nonce, Some(number), transaction(number, Relay));
    let mined = MinedTransaction { tx_hash: id(number), block_number: 9, gas_used };
    let outcome = RelayOutcome::Executed { mined, agent_id: None };
    store.settle(ACCOUNT, &settlement(store, ACCOUNT, nonce, number, Some(outcome)), now).unwrap();
}

const ACCEPTED: Sponsored = Sponsored::Accepted(Accepted::Pending);

#[test]
fn relays_in_flight_count_with_the_most_they_may_use_and_ended_or_undone_ones_with_what_they_used() {
    let store = Journal::fresh();
    assert_eq!(accept(&store, 1, 600, NOW), ACCEPTED);
    assert!(matches!(accept(&store, 2, 401, NOW), Sponsored::Exhausted(_)));
    assert_eq!(store.relay(id(2)).unwrap(), None, "nothing was stored");
    mine(&store, 300, NOW + 5);
    assert_eq!(accept(&store, 2, 700, NOW + 10), ACCEPTED);
    store.finish_unsent(id(2), &dropped(DeadlinePassed), NOW + 11).unwrap();
    assert_eq!(accept(&store, 2, 700, NOW + 12), ACCEPTED, "a dropped relay used nothing");
    assert_eq!(accept(&store, 3, 1, NOW + 15), Sponsored::Exhausted(DAY - 10), "until the window ends");
    assert!(matches!(accept(&store, 3, 301, NOW + 5 + DAY), Sponsored::Exhausted(_)), "one is in flight");
    assert_eq!(accept(&store, 3, 300, NOW + 5 + DAY), ACCEPTED);

    let store = Journal::fresh();
    assert_eq!(accept(&store, 1, 600, NOW), ACCEPTED);
    mine(&store, 600, NOW);
    store.reopen(ACCOUNT, 0, 1, NOW).unwrap();
    assert_eq!(accept(&store, 2, 400, NOW), ACCEPTED, "in flight again, with the most it may use");
    mine(&store, 500, NOW);
    mine(&store, 500, NOW);
    assert_eq!(accept(&store, 3, 100, NOW), ACCEPTED);
    assert!(matches!(accept(&store, 4, 1, NOW), Sponsored::Exhausted(_)));
}

#[test]
fn a_relay_that_is_undone_after_its_keys_day_gives_nothing_back_to_the_next_one() {
    let store = Journal::fresh();
    assert_eq!(accept(&store, 1, 600, NOW), ACCEPTED);
    mine(&store, 600, NOW);
    let next = NOW + DAY;
    assert_eq!(accept(&store, 2, 300, next), ACCEPTED);
    mine_relay(&store, 2, 300, next);
    // In flight again, with the most it may use.
    assert!(store.reopen(ACCOUNT, 0, 1, next).unwrap());
    assert!(matches!(accept(&store, 3, 101, next), Sponsored::Exhausted(_)));
    assert_eq!(accept(&store, 3, 100, next), ACCEPTED);
}

#[test]
fn events_are_due_in_order_a_reorganisation_among_them_and_once_more_when_they_are_replayed() {
    let store = Journal::fresh();
    assert_eq!(accept(&store, 1, 600, NOW), ACCEPTED);
    mine(&store, 300, NOW + 1);
    let due = |now| store.due_events("acme", now, 10).unwrap();
    let [pending] = due(NOW + 2).try_into().unwrap();
    assert!(pending.body.contains("relay.pending"), "{}", pending.body);
    store.attempted(&pending, DeliveryResult::Retry(NOW + 9), NOW + 2).unwrap();
    assert_eq!(due(NOW + 8), [], "not before its time");
    assert_eq!(due(NOW + 9)[0].attempts, 1);
    store.attempted(&pending, DeliveryResult::Delivered, NOW + 9).unwrap();
    let [executed] = due(NOW + 9).try_into().unwrap();
    assert!(executed.body.contains("relay.executed"), "{}", executed.body);
    assert_eq!(store.oldest_open_event().unwrap(), Some(NOW + 1));
    store.attempted(&executed, DeliveryResult::GivenUp, NOW + 10).unwrap();
    assert_eq!((due(NOW + 20), store.oldest_open_event().unwrap()), (vec![], None));

    let replay = |relay, given_up_only| {
        let chosen = Replay { key: "acme".to_owned(), relay, since: NOW, given_up_only };
        store.replay(&chosen, None, NOW + 30).unwrap().0
    };
    assert_eq!(replay(Some(id(2)), false), 0, "of another relay");
    assert_eq!(replay(Some(id(1)), true), 1, "the one that was given up");
    assert_eq!(due(NOW + 30)[0].id, executed.id);
    assert_eq!(replay(None, false), 1, "the other one");
    assert_eq!(due(NOW + 30)[0].id, pending.id, "in order");

    let store = Journal::fresh();
    assert_eq!(accept(&store, 1, 600, NOW), ACCEPTED);
    mine(&store, 300, NOW);
    store.reopen(ACCOUNT, 0, 1, NOW).unwrap();
    mine(&store, 400, NOW);
    let mut events = Vec::new();
    while let Some(event) = store.due_events("acme", NOW, 10).unwrap().pop() {
        let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
        events.push((body["type"].as_str().unwrap().to_owned(), body["relay"]["gasUsed"].as_u64()));
        store.attempted(&event, DeliveryResult::Delivered, NOW).unwrap();
    }
    let events: Vec<_> = events.iter().map(|(kind, gas)| (kind.as_str(), *gas)).collect();
    let executed = |gas| ("relay.executed", Some(gas));
    assert_eq!(events, [("relay.pending", None), executed(300), ("relay.reorganised", None), executed(400)]);
}

#[test]
fn events_of_a_key_are_given_up_once_their_day_is_over_however_many_others_have() {
    let store = Journal::fresh();
    let accept = |key: &str, number| {
        let sponsorship = Sponsorship { key: key.to_owned(), gas: 1, gas_per_day: None, is_told: true };
        store.accept_sponsored(&relay(number), &sponsorship, NOW).unwrap();
    };
    (2..70).for_each(|number| accept("acme", number));
    accept("gone", 1);
    store.finish_unsent(id(1), &dropped(RpcTimeout), NOW).unwrap();
    assert_eq!(store.keys_with_open_events().unwrap(), ["acme", "gone"]);
    let given_up = |key: &str, now| store.give_up_overdue(key, now).unwrap().len();
    assert_eq!(given_up("gone", NOW + DAY), 0);
    // The second is due once the first has ended.
    assert_eq!([1, 2, 3].map(|seconds| given_up("gone", NOW + DAY + seconds)), [1, 1, 0]);
    assert_eq!(store.keys_with_open_events().unwrap(), ["acme"]);
    assert_eq!([1, 2, 3].map(|seconds| given_up("acme", NOW + DAY + seconds)), [64, 4, 0]);
    assert_eq!(store.oldest_open_event(), Ok(None));
}
