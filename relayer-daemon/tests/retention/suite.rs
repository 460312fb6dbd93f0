// What stays, what shrinks, and what goes.

#[test]
fn an_archived_relay_answers_as_before_and_its_copies_are_replays() {
    let store = fresh();
    carry_out_in_order(&store, 0..NEWEST + 2, NOW);
    let before = store.relay(id(0)).unwrap().unwrap();
    assert_eq!((before.outcome.clone(), before.hashes.clone()), (Some(executed(0)), vec![hash(0)]));
    let budget = store.budget(1, NOW + 30 * DAY).unwrap();

    prune_all(&store, NOW + 30 * DAY);
    assert!(store.mined(ACCOUNT, 0).unwrap().is_some(), "not a second too early");
    prune_all(&store, NOW + 30 * DAY + 1);
    assert_eq!(store.mined(ACCOUNT, 0).unwrap(), None);
    assert_eq!(store.accepted(id(0)).unwrap(), None, "its calldata is gone");
    assert_eq!(store.relay(id(0)).unwrap(), Some(before));
    let again = store.accept(&relay(0, &Bytes::new()), NOW + 40 * DAY).unwrap();
    assert_eq!(again, Accepted::Finished(executed(0)));
    assert_eq!(store.budget(1, NOW + 30 * DAY).unwrap(), budget);

    prune_all(&store, NOW + 360 * DAY);
    assert!(store.relay(id(0)).unwrap().is_some());
    prune_all(&store, NOW + 360 * DAY + 1);
    assert_eq!(store.relay(id(0)).unwrap(), None);
}

#[test]
fn the_newest_nonces_stay_whole_whatever_the_clock_says() {
    let store = fresh();
    carry_out_in_order(&store, 0..NEWEST + 10, NOW);
    prune_all(&store, NOW + 100_000 * DAY);
    let kept = store.mined_from(ACCOUNT, 0, usize::MAX >> 1).unwrap();
    let kept: Vec<u64> = kept.iter().map(|mined| mined.assignment.nonce).collect();
    assert_eq!(kept, (10..NEWEST + 10).collect::<Vec<_>>());
    assert_eq!(store.highest_mined(ACCOUNT).unwrap(), Some(NEWEST + 9));
    assert_eq!(store.next_nonce(ACCOUNT).unwrap(), Some(NEWEST + 10));
    assert_eq!(store.archived_nonce(ACCOUNT).unwrap(), Some(9));
    assert_eq!(store.archived_nonce(Address::ZERO).unwrap(), None);
    let newest = store.mined(ACCOUNT, NEWEST + 9).unwrap().unwrap();
    assert!(!newest.assignment.transactions[0].raw.is_empty(), "it can be sent again");
}

#[test]
fn what_is_not_over_is_not_archived() {
    let store = fresh();
    let real = real_transaction();
    // Relay 0 was executed by nonce 1; nonce 0, taken for lost, was given to a no-op that is not mined.
    store.accept(&relay(0, &real.0), NOW).unwrap();
    sign(&store, 0, Some(id(0)), 1_000_000, NOW, &real);
    carry_out_in_order(&store, 2..NEWEST + 10, NOW);
    store.finish_unsent(id(0), &executed(0), NOW).unwrap();
    // Accepted and never ended.
    store.accept(&relay(1, &real.0), NOW).unwrap();
    prune_all(&store, NOW + 400 * DAY);
    assert_eq!(store.open_nonces(ACCOUNT).unwrap().len(), 1);
    assert!(store.accepted(id(0)).unwrap().is_some(), "one of its nonces is open");
    assert!(store.accepted(id(1)).unwrap().is_some(), "it is pending");
    assert_eq!(store.relay(id(2)).unwrap(), None);
}

#[test]
fn gaps_go_with_the_relays_of_their_time() {
    let store = fresh();
    let real = real_transaction();
    for nonce in 0..3 {
        sign(&store, nonce, None, 900 + nonce, NOW, &real);
    }
    // The first was mined, the second lost; the third is open.
    settle(&store, 0, 900, None, NOW);
    store.lose(ACCOUNT, 1).unwrap();
    carry_out_in_order(&store, 3..NEWEST + 10, NOW);
    prune_all(&store, NOW + 30 * DAY);
    assert_eq!(store.lost(ACCOUNT).unwrap(), [1]);
    prune_all(&store, NOW + 30 * DAY + 1);
    assert_eq!((store.mined(ACCOUNT, 0).unwrap(), store.lost(ACCOUNT).unwrap()), (None, vec![]));
    assert_eq!(store.open_nonces(ACCOUNT).unwrap().len(), 1);
}

#[test]
fn what_never_came_to_a_transaction_goes_after_a_day() {
    let store = fresh();
    let real = real_transaction();
    let dropped = RelayOutcome::Dropped { failure: Failure::budget_exhausted(7) };
    let many = 3 * STEP as u64;
    for index in 1_000..1_000 + many {
        store.accept(&relay(index, &real.0), NOW).unwrap();
        store.finish_unsent(id(index), &dropped, NOW).unwrap();
    }
    store.accept(&relay(1, &real.0), NOW).unwrap();
    carry_out_in_order(&store, 2..3, NOW);
    assert_eq!(prune_all(&store, NOW + DAY).0, 0);
    assert_eq!(prune_all(&store, NOW + DAY + 1).0, 3, "in steps");
    assert!((1_000..1_000 + many).all(|index| store.relay(id(index)).unwrap().is_none()));
    assert!(store.relay(id(1)).unwrap().is_some() && store.relay(id(2)).unwrap().is_some());
}

#[test]
fn an_archived_relay_that_was_dropped_may_be_sent_again_and_keeps_its_history() {
    let store = fresh();
    let real = real_transaction();
    let sign = |nonce, index| sign(&store, nonce, Some(id(0)), index, NOW, &real);
    let settle = |nonce, index, outcome| settle(&store, nonce, index, Some(outcome), NOW);
    store.accept(&relay(0, &real.0), NOW).unwrap();
    sign(0, 700);
    settle(0, 700, RelayOutcome::Dropped { failure: Failure::of(ErrorCode::InvalidSignatureOrNonce) });
    carry_out_in_order(&store, 1..NEWEST + 10, NOW);
    prune_all(&store, NOW + 31 * DAY);
    assert_eq!(store.accepted(id(0)).unwrap(), None);

    let later = NOW + 31 * DAY;
    assert_eq!(store.accept(&relay(0, &real.0), later).unwrap(), Accepted::Pending);
    let pending = store.relay(id(0)).unwrap().unwrap();
    assert_eq!((pending.outcome, pending.hashes), (None, vec![hash(700)]));
    sign(NEWEST + 10, 0);
    settle(NEWEST + 10, 0, executed(0));
    let both = store.relay(id(0)).unwrap().unwrap();
    assert_eq!((both.outcome.clone(), both.hashes.clone()), (Some(executed(0)), vec![hash(700), hash(0)]));
    carry_out_in_order(&store, NEWEST + 11..2 * NEWEST + 20, later);
    prune_all(&store, later + 31 * DAY);
    assert_eq!(store.accepted(id(0)).unwrap(), None);
    assert_eq!(store.relay(id(0)).unwrap(), Some(both));
}
