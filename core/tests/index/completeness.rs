//! The time up to which the rows lack nothing, on nodes that prove their newest block alone and a registry
//! that is never quiet: blocks of 2 s with changes in each of them, and a refresh every 15 s.

use registry_core::index::Counters;

use crate::{TestIndex, common::prelude::*, snapshot};

/// Further changes of a block, apart from its attestations.
type BlockChange = fn(&mut TestIndex, u64);

/// Creates an index, and refreshes it `refreshes` times.
fn busy(refreshes: u64) -> TestIndex {
    let mut index = TestIndex::filled(60, 0);
    index.node.quirks.proofs = Proofs::Newest;
    index.work().unwrap();
    for round in 0..refreshes {
        refresh(&mut index, round, |_, _| ());
    }
    index
}

/// Mines a block 2 s after the last one, with two attestations and some agent suspended or active again.
fn mine(index: &mut TestIndex, round: u64) {
    let seconds = index.newest().seconds + 2;
    let [one, other, third] = [3, 7, 11].map(|step| round * step % 40);
    index.mine(|registry, _| {
        registry.agents[one as usize].lastAttestation = seconds;
        registry.agents[other as usize].lastAttestation = seconds;
        let third = &mut registry.agents[third as usize];
        third.status = u8::from(third.status == 0);
    });
    index.history.edit(|mined| mined.seconds = seconds);
}

/// Refreshes after eight blocks, and returns the age of the snapshot in seconds; `None` without one.
fn refresh(index: &mut TestIndex, round: u64, also: BlockChange) -> Option<u64> {
    for block in 0..8 {
        mine(index, round * 8 + block);
        also(index, round * 8 + block);
    }
    index.refresh_after(15);
    Some(index.now - snapshot::manifest(index).ok()?.confirmed_at / 1_000)
}

/// Adds a registration or a report to the newest block in some rounds.
fn register_or_report(index: &mut TestIndex, round: u64) {
    index.history.edit(|mined| {
        let mut registry = (*mined.registry).clone();
        let id = registry.agents.len() as u64 + 1;
        match round % 8 {
            0 => {
                registry.agents.push(record(id, 0));
                mined.events.push(id);
            }
            4 => {
                registry.reports.push(report(5, 1));
                mined.events.push(5);
            }
            _ => {}
        }
        mined.registry = registry.into();
    });
}

#[test]
fn where_every_block_has_a_change_the_newest_block_alone_proves_that_nothing_is_lacking() {
    let mut index = busy(1);
    for round in 1..40 {
        // The first step has no earlier root: its events are requested again.
        let age = refresh(&mut index, round, |_, _| ()).unwrap();
        assert!(if round < 4 { age < 60 } else { age == 0 }, "round {round}: {age} s");
        let (trips, calls) = (index.node.round_trips(), index.node.log.iter().flatten().count());
        assert!(round < 4 || (trips <= 4 && calls <= 10), "{trips}, {calls}: {:?}", index.node.log);
        index.is_right();
    }
    let state = index.state();
    assert_eq!((state.counters, state.is_complete()), (Counters::default(), true));
}

#[test]
fn where_each_refresh_has_registrations_the_rows_lack_nothing_but_a_few_seconds_later() {
    let mut index = busy(0);
    for round in 0..60 {
        let age = refresh(&mut index, round, register_or_report).unwrap();
        // Events may be 20 s late until some refreshes have shown that they are not.
        assert!(age <= if round < 34 { 50 } else { 30 }, "round {round}: {age} s");
        index.is_right();
    }
    assert_eq!(index.state().counters, Counters::default());
}

#[test]
fn a_change_that_a_block_with_other_events_hides_is_found_within_a_minute() {
    let mut index = busy(5);
    mine(&mut index, 1);
    index.history.edit(|mined| {
        let mut registry = (*mined.registry).clone();
        registry.agents[45].status = 1 - registry.agents[45].status.min(1);
        mined.registry = registry.into();
    });
    let before = index.newest().seconds;
    for round in 6..10 {
        if refresh(&mut index, round, |_, _| ()) == Some(0) {
            break;
        }
    }
    assert!(index.newest().seconds <= before + 64, "{:?}", index.state());
    index.is_right();
    assert!(index.state().counters.unannounced > 0);
}

#[test]
fn where_events_are_listed_late_the_snapshot_goes_on_and_no_agents_are_compared_again_and_again() {
    for blocks in [1, 3] {
        let mut index = busy(5);
        index.node.quirks.late_logs = blocks;
        for round in 5..60 {
            let age = refresh(&mut index, round, |_, _| ());
            assert!(age.is_some_and(|age| age < 60), "{blocks} blocks, round {round}: {age:?}");
        }
        assert!(index.state().counters.comparisons <= 1, "{:?}", index.state());
        index.node.quirks.late_logs = 0;
        for round in 0..6 {
            refresh(&mut index, round, |_, _| ());
        }
        index.is_right();
    }
}

#[test]
fn where_logs_come_a_block_later_than_their_header_there_is_a_snapshot_again_after_a_change() {
    let mut index = TestIndex::filled(40, 0);
    (index.node.quirks.logs_behind, index.node.quirks.proofs) = (true, Proofs::Newest);
    index.attest(1, 2);
    for round in 0..12 {
        index.idle_for(20);
        index.is_right_at_its_block();
        assert!(round == 0 || snapshot::manifest(&index).is_ok(), "round {round}: {:?}", index.state());
    }
    let age = index.now - snapshot::manifest(&index).unwrap().confirmed_at / 1_000;
    assert_eq!((age, index.node.round_trips(), index.state().retry_at()), (0, 1, None));
    assert_eq!(index.state().counters, Counters::default());
}
