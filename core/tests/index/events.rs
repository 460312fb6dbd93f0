//! Events as nodes list them: late, hidden, pruned, or a few blocks at a time.

use std::collections::BTreeMap;

use registry_core::index::{Basis, Phase};

use crate::{
    common::{Logs, Mined, Proofs, number_of, record},
    promises::{attest, filled, idle, is_right, mine, show},
};

#[test]
fn an_event_is_asked_for_again_once_a_minute_however_often_changes_are_found() {
    let (mut index, mut history, mut chance) = filled(60, 0);
    index.work().unwrap();
    let mut ages = BTreeMap::<u64, Vec<u64>>::new();
    for round in 0..300 {
        attest(&mut history, 1 + round * 37 % 60, 1, &mut chance, true);
        let newest = history.newest();
        // Blocks of 2 s: a refresh after each of them would ask for each event 60 times.
        let mined = history.blocks[&newest].clone();
        let seconds = history.blocks[&(newest - 1)].seconds + 2;
        history.blocks.insert(newest, Mined { seconds, ..mined });
        show(&mut index, &history);
        index.node.log.clear();
        index.work().unwrap();
        is_right(&index, &history);
        let filters = index.node.log.iter().flatten().filter(|(method, _)| method == "eth_getLogs");
        for (_, filter) in filters {
            let [from, to] = ["fromBlock", "toBlock"].map(|end| number_of(filter[end].as_str().unwrap()));
            let asked = history.blocks.range(from..=to);
            asked.for_each(|(number, block)| ages.entry(*number).or_default().push(seconds - block.seconds));
        }
    }
    let newest = history.newest();
    for (number, ages) in ages.range(..newest - 120) {
        assert!((2..=4).contains(&ages.len()), "block {number}: {ages:?}");
        assert!(ages.last().is_some_and(|age| (60..=240).contains(age)), "block {number}: {ages:?}");
    }
}

#[test]
fn late_events_are_waited_for_and_every_answer_is_true_meanwhile() {
    for (late, slice) in [(1, 10_000), (5, 10_000), (30, 10_000), (30, 20)] {
        let (mut index, mut history, mut chance) = filled(60, 0);
        index.config.slice = slice;
        index.work().unwrap();
        index.node.quirks.late_logs = late;
        for round in 0..80 {
            if round < 40 {
                attest(&mut history, 1 + round * 37 % 60, 1, &mut chance, true);
            }
            idle(&mut history);
            show(&mut index, &history);
            index.now += 2;
            index.work().unwrap();
            let block = index.state().as_of().unwrap();
            index.is_like(&history.ever[&block.hash], block.seconds + 1_000).unwrap();
        }
        is_right(&index, &history);
        let (state, full) = (index.state(), index.state().comparisons);
        assert_eq!((state.basis, state.phase), (Basis::StorageRoot, Phase::Complete));
        assert!(
            full <= if late == 30 { 4 } else { 0 },
            "{late} blocks late, slices of {slice}: {full} comparisons"
        );
    }
}

#[test]
fn an_event_that_is_late_after_a_reorganisation_of_all_recent_blocks_is_asked_for_again() {
    for depth in 4..16 {
        let (mut index, mut history, mut chance) = filled(60, 0);
        index.node.quirks.proofs = Proofs::Newest;
        for round in 0..16 {
            attest(&mut history, 1 + round, 1, &mut chance, true);
            show(&mut index, &history);
            index.work().unwrap();
        }
        history.reorganise(depth, &mut chance);
        attest(&mut history, 40, 1, &mut chance, true);
        index.node.quirks.late_logs = 3;
        for _ in 0..6 {
            show(&mut index, &history);
            index.now += 2;
            index.work().unwrap();
            idle(&mut history);
        }
        is_right(&index, &history);
    }
}

#[test]
fn an_event_that_is_hidden_for_good_is_found_by_the_root_and_all_agents_are_read_once() {
    for slice in [10_000, 20] {
        let (mut index, mut history, mut chance) = filled(60, 0);
        index.config.slice = slice;
        index.work().unwrap();
        attest(&mut history, 7, 1, &mut chance, true);
        attest(&mut history, 33, 2, &mut chance, false);
        attest(&mut history, 8, 1, &mut chance, true);
        for _ in 0..12 {
            idle(&mut history);
            show(&mut index, &history);
            index.now += 8;
            index.work().unwrap();
            let block = index.state().as_of().unwrap();
            index.is_like(&history.ever[&block.hash], block.seconds + 1_000).unwrap();
        }
        is_right(&index, &history);
        let state = index.state();
        assert_eq!((state.basis, state.phase), (Basis::StorageRoot, Phase::Complete));
        assert_eq!((state.comparisons, state.unannounced), (1, 2), "slices of {slice}");
        idle(&mut history);
        show(&mut index, &history);
        index.node.log.clear();
        index.work().unwrap();
        assert_eq!(index.node.round_trips(), 1, "back to events");
    }
}

#[test]
fn a_registration_without_an_event_is_found_at_once() {
    let (mut index, mut history, mut chance) = filled(5, 0);
    index.node.quirks.proofs = Proofs::Unsupported;
    while history.blocks[&history.newest()].registry.agents.len() == 5 {
        mine(&mut history, &mut chance, |registry| registry.agents.push(record(6, 0)));
        let newest = history.newest();
        history.blocks.get_mut(&newest).unwrap().events.clear();
    }
    show(&mut index, &history);
    index.work().unwrap();
    assert_eq!((index.state().basis, index.state().unannounced), (Basis::Events, 1));
    is_right(&index, &history);
}

#[test]
fn logs_that_were_pruned_are_missed_by_an_event_that_is_known() {
    let nodes =
        [Proofs::All, Proofs::Newest].map(|proofs| [Logs::Empty, Logs::From(9)].map(|logs| (proofs, logs)));
    for (proofs, logs) in nodes.concat() {
        let (mut index, mut history, mut chance) = filled(40, 0);
        index.node.quirks.proofs = proofs;
        attest(&mut history, 3, 1, &mut chance, true);
        show(&mut index, &history);
        index.work().unwrap();
        // The Worker is down, and the node keeps logs for a few blocks.
        for first in 10..20 {
            attest(&mut history, first, 1, &mut chance, true);
        }
        show(&mut index, &history);
        index.node.quirks.logs = logs;
        index.work().unwrap();
        let state = index.state();
        assert_eq!(
            (state.basis, state.without_events, state.phase),
            (Basis::StorageRoot, 1, Phase::Complete)
        );
        is_right(&index, &history);
    }
}

#[test]
fn logs_that_were_pruned_are_missed_between_two_comparisons_as_well() {
    let (mut index, mut history, mut chance) = filled(30, 0);
    attest(&mut history, 3, 1, &mut chance, true);
    show(&mut index, &history);
    index.work().unwrap();
    // Comparisons that find no difference, until there is a pause between them.
    for round in 0..200 {
        mine(&mut history, &mut chance, |registry| registry.grace_seconds = Some(700_000 + round));
        show(&mut index, &history);
        index.now += 45;
        index.work().unwrap();
    }
    let before = index.state();
    attest(&mut history, 7, 1, &mut chance, true);
    show(&mut index, &history);
    index.node.quirks.logs = Logs::Empty;
    index.now += 1;
    index.work().unwrap();
    let after = index.state();
    assert_eq!(
        (after.comparisons, after.without_events),
        (before.comparisons + 1, before.without_events + 1)
    );
    is_right(&index, &history);
}

#[test]
fn events_that_no_header_vouches_for_are_not_relied_on() {
    let (mut index, mut history, mut chance) = filled(40, 0);
    index.node.quirks.batch_limit = Some(1);
    attest(&mut history, 3, 2, &mut chance, true);
    show(&mut index, &history);
    // Some machine behind the node's address has not got the block, and lists no events of it.
    index.node.quirks.logs = Logs::Empty;
    index.work().unwrap();
    assert_eq!((index.state().without_events, index.state().unannounced), (1, 0));
    is_right(&index, &history);
}

#[test]
fn a_cap_on_ranges_is_found_by_halving_once_and_kept_to() {
    let (mut index, mut history, mut chance) = filled(40, 0);
    index.node.quirks.logs = Logs::Blocks(10);
    for (round, trips) in [(0, 5..10), (1, 3..5)] {
        for first in 1..30 {
            attest(&mut history, first, 1, &mut chance, true);
        }
        show(&mut index, &history);
        index.node.log.clear();
        index.work().unwrap();
        assert!(trips.contains(&index.node.round_trips()), "{round}: {:?}", index.node.log);
        assert_eq!(index.state().without_events, 0);
        is_right(&index, &history);
        // Events of the two minutes before the rows' block are asked for again: here that has none.
        (0..7).for_each(|_| idle(&mut history));
        show(&mut index, &history);
        index.work().unwrap();
    }
}

#[test]
fn a_cap_that_takes_more_calls_than_reading_everybody_is_not_kept_to() {
    let (mut index, mut history, mut chance) = filled(40, 0);
    index.node.quirks.logs = Logs::Blocks(10);
    for _ in 0..1_200 {
        history.mine(0, &mut chance);
    }
    attest(&mut history, 3, 1, &mut chance, true);
    show(&mut index, &history);
    index.node.log.clear();
    index.work().unwrap();
    assert_eq!((index.state().without_events, index.state().phase), (1, Phase::Complete));
    let calls = index.node.log.iter().flatten().filter(|(method, _)| method == "eth_getLogs").count();
    assert!(calls < 20, "{calls}");
    is_right(&index, &history);
}
