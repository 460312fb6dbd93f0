//! Events as nodes list them: late, hidden, pruned, or a few blocks at a time.

use std::collections::BTreeMap;

use registry_core::index::{Basis, Counters, IndexError};

use crate::{TestIndex, common::prelude::*, snapshot};

#[test]
fn an_event_is_asked_for_again_once_a_minute_however_often_changes_are_found() {
    let mut index = TestIndex::filled(20, 0);
    index.work().unwrap();
    let mut ages = BTreeMap::<u64, Vec<u64>>::new();
    for round in 0..300 {
        let before = index.newest().seconds;
        index.attest(1 + round * 7 % 20, 1);
        // Blocks of 2 s: a refresh after each of them would ask for each event 60 times.
        index.history.edit(|mined| mined.seconds = before + 2);
        index.refresh();
        if round % 20 == 0 {
            index.is_right();
        }
        let filters = index.node.log.iter().flatten().filter(|(method, _)| method == "eth_getLogs");
        for (_, filter) in filters {
            let [from, to] = ["fromBlock", "toBlock"].map(|end| number_of(filter[end].as_str().unwrap()));
            for (number, block) in index.history.blocks.range(from..=to) {
                ages.entry(*number).or_default().push(before + 2 - block.seconds);
            }
        }
    }
    for (number, ages) in ages.range(..index.history.number() - 120) {
        assert!((2..=4).contains(&ages.len()), "block {number}: {ages:?}");
        assert!(ages.last().is_some_and(|age| (60..=240).contains(age)), "block {number}: {ages:?}");
    }
}

#[test]
fn an_event_that_is_hidden_for_good_is_found_by_the_root_and_all_agents_are_read_once() {
    for slice in [10_000, 20] {
        let mut index = TestIndex::filled(60, 0);
        index.config.slice = slice;
        index.work().unwrap();
        index.attest(7, 1);
        index.attest_silently(33, 2);
        index.attest(8, 1);
        for _ in 0..14 {
            index.idle_for(8);
            index.is_right_at_its_block();
        }
        index.is_right();
        let state = index.state();
        assert_eq!((state.basis(), state.is_complete()), (Basis::StorageRoot, true));
        assert_eq!((state.counters.comparisons, state.counters.unannounced), (1, 2), "slices of {slice}");
        index.idle_for(0);
        assert_eq!(index.node.round_trips(), 1, "back to events");
    }
}

#[test]
fn logs_that_were_pruned_are_missed_by_an_event_that_is_known() {
    for proofs in [Proofs::All, Proofs::Newest] {
        for logs in [Logs::Empty, Logs::From(9)] {
            let mut index = TestIndex::filled(40, 0);
            index.node.quirks.proofs = proofs;
            index.attest(3, 1);
            index.refresh();
            // The Worker is down, and the node keeps logs for a few blocks.
            (10..20).for_each(|first| index.attest(first, 1));
            index.node.quirks.logs = logs;
            index.refresh();
            let state = index.state();
            let expected = (Basis::StorageRoot, 1, true);
            assert_eq!((state.basis(), state.counters.without_events, state.is_complete()), expected);
            index.is_right();
            // Later events are listed: the one that is gone for good is not requested any more.
            index.node.quirks.logs = Logs::From(index.history.number() + 1);
            for round in 0..5 {
                index.idle();
                if round % 2 == 1 {
                    index.attest(5, 2);
                }
                index.refresh_after(60);
                index.is_right();
            }
            assert_eq!(index.state().counters.without_events, 1, "{proofs:?}, {logs:?}");
        }
    }
}

#[test]
fn logs_that_were_pruned_are_missed_between_two_comparisons_as_well() {
    let mut index = TestIndex::filled(30, 0);
    index.attest(3, 1);
    index.refresh();
    // Comparisons that find no difference, until there is a pause between them.
    for round in 0..200 {
        index.mine(|registry, _| registry.grace_seconds = Some(700_000 + round));
        index.refresh_after(45);
    }
    let before = index.state().counters;
    assert!((3..15).contains(&before.comparisons), "ever less often: {}", before.comparisons);
    index.attest(7, 1);
    index.node.quirks.logs = Logs::Empty;
    index.refresh_after(1);
    let after = index.state().counters;
    assert_eq!(after.comparisons, before.comparisons + 1);
    assert_eq!(after.without_events, before.without_events + 1);
    index.is_right();
}

#[test]
fn proofs_of_another_block_than_the_one_asked_for_prove_nothing_of_it() {
    let mut index = TestIndex::filled(40, 0);
    index.attest(3, 1);
    index.refresh();
    // Events are lost, and agents are read anew, in slices, while they go on changing: nothing is vouched for
    // that is not so.
    (index.node.quirks.logs, index.node.quirks.proofs) = (Logs::Empty, Proofs::IgnoringBlocks);
    index.config.slice = 10;
    index.attest(5, 1);
    index.show();
    for replies in 2..12 {
        index.dies_after = Some(replies);
        index.work().unwrap();
        let read_at = index.state().read_at;
        if snapshot::manifest(&index).is_ok_and(|manifest| manifest.confirmed_at == read_at) {
            index.is_right_at_its_block();
        }
        index.now += 1;
        index.attest(1 + replies, 1);
        index.show();
    }
    index.dies_after = None;
    index.catch_up().unwrap();
    index.is_right();
}

#[test]
fn events_that_no_header_vouches_for_are_not_relied_on() {
    let mut index = TestIndex::filled(40, 0);
    index.node.quirks.batch_limit = Some(1);
    index.attest(3, 2);
    // Some machine behind the node's address has not got the block, and lists no events of it.
    index.node.quirks.logs = Logs::Empty;
    index.refresh();
    assert_eq!(index.state().counters, Counters { without_events: 1, comparisons: 1, unannounced: 0 });
    index.is_right();
}

#[test]
fn a_cap_on_ranges_is_found_by_halving_once_and_kept_to() {
    let mut index = TestIndex::filled(40, 0);
    index.node.quirks.logs = Logs::Blocks(10);
    for (round, trips) in [(0, 5..10), (1, 3..5)] {
        (1..30).for_each(|first| index.attest(first, 1));
        index.refresh();
        assert!(trips.contains(&index.node.round_trips()), "{round}: {:?}", index.node.log);
        assert_eq!(index.state().counters.without_events, 0);
        index.is_right();
        // Events of the two minutes before the rows' block are asked for again: here that has none.
        (0..7).for_each(|_| index.idle());
        index.refresh();
    }
}

#[test]
fn a_cap_that_takes_more_calls_than_reading_all_agents_is_not_kept_to() {
    let mut index = TestIndex::filled(40, 0);
    index.node.quirks.logs = Logs::Blocks(10);
    (0..1_200).for_each(|_| index.history.mine(0, &mut index.random));
    index.attest(3, 1);
    index.refresh();
    assert_eq!((index.state().counters.without_events, index.state().is_complete()), (1, true));
    let calls = index.node.log.iter().flatten().filter(|(method, _)| method == "eth_getLogs").count();
    assert!(calls < 20, "{calls}");
    index.is_right();
}

#[test]
fn small_batches_and_logs_a_block_behind_cost_no_events() {
    let small = |batch_status| Quirks { batch_limit: Some(3), batch_status, ..Quirks::default() };
    let behind = Quirks { logs_behind: true, ..Quirks::default() };
    for quirks in [small(Some(400)), small(None), behind] {
        let mut index = TestIndex::filled(40, 0);
        index.node.quirks = quirks.clone();
        for round in 1..4 {
            index.attest(round, 2);
            // The newest block alone is left for the next refresh.
            index.idle_for(45);
        }
        assert_eq!(index.state().counters, Counters::default(), "{quirks:?}");
        index.node.quirks = Quirks::default();
        index.refresh_after(45);
        index.is_right();
    }
}

#[test]
fn logs_of_the_only_new_block_are_left_for_the_next_refresh_where_the_node_serves_them_later() {
    let mut index = TestIndex::filled(40, 0);
    index.node.quirks.logs_behind = true;
    index.attest(1, 2);
    let attested_in = index.history.number();
    index.now += 45;
    index.show();
    // The rows stay those of their block.
    let refused = index.work();
    assert!(matches!(refused, Err(IndexError::Query(_))), "{refused:?}");
    assert_eq!(index.state().counters, Counters::default());
    index.idle_for(5);
    assert_eq!(index.state().as_of().unwrap().number, attested_in);
    assert_eq!(index.state().counters, Counters::default());
    index.is_right_at_its_block();
}

#[test]
fn a_reorganisation_to_a_lower_block_whose_logs_are_served_later_loses_no_event_of_it() {
    let mut index = TestIndex::filled(40, 0);
    index.node.quirks.proofs = Proofs::Newest;
    (0..3).for_each(|_| index.idle_for(20));
    let kept = index.history.number();
    let begun = index.newest().seconds;
    let attest = |index: &mut TestIndex, first: u64, seconds: u64| {
        index.attest(first, 2);
        index.history.edit(|mined| mined.seconds = begun + seconds);
        index.now += 15;
        index.show();
    };
    for (first, seconds) in [(1, 2), (5, 4)] {
        attest(&mut index, first, seconds);
        index.work().unwrap();
    }
    index.history.blocks.retain(|number, _| *number <= kept);
    attest(&mut index, 20, 6);
    index.node.quirks.logs_behind = true;
    let refused = index.work();
    assert!(matches!(refused, Err(IndexError::Query(_))), "{refused:?}");
    assert_eq!(index.state().counters, Counters::default());
    index.node.quirks.logs_behind = false;
    index.idle_for(15);
    index.is_right();
}
