//! Histories with several accounts: each carries its part, and what stops one stops it alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use alloy::primitives::B256;
use relayer_daemon::outcome::{ErrorCode, RelayOutcome};
use tokio::time::{Instant, sleep};

use super::{MAX_PENDING, SIGNERS, Simulation, ops::Op, runtime};

/// Runs a history with so many accounts, checks, lets the faults pass, and checks what must always hold.
fn history(accounts: u8, ops: &[Op], check: impl FnOnce(&Simulation)) {
    runtime().block_on(async {
        let mut simulation = Simulation::with_accounts(accounts, u128::MAX, 7).await;
        for op in ops {
            simulation.apply(*op).await;
        }
        check(&simulation);
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

/// Nonces that each account has given.
fn given<const N: usize>(simulation: &Simulation) -> [u64; N] {
    std::array::from_fn(|index| simulation.nonces_given(index as u8))
}

fn is_executed(simulation: &Simulation, id: &B256) -> bool {
    let outcome = simulation.store.relay(*id).unwrap().unwrap().outcome;
    matches!(outcome, Some(RelayOutcome::Executed { .. }))
}

/// One request of each signer, one after the other.
fn requests() -> Vec<Op> {
    (0..SIGNERS).flat_map(|index| [Op::Request(index), Op::Wait(5)]).collect()
}

#[test]
fn each_relay_goes_to_the_least_loaded_account() {
    let mut ops = vec![Op::Unwilling(true)];
    ops.extend(requests());
    history(2, &ops, |simulation| assert_eq!(given(simulation), [2, 2]));
}

#[test]
fn each_account_has_its_own_place_in_the_pool() {
    let mut ops = vec![Op::Unwilling(true)];
    ops.extend((0..4).flat_map(|_| requests()));
    runtime().block_on(async {
        let mut simulation = Simulation::with_accounts(1, u128::MAX, 7).await;
        for op in &ops {
            simulation.apply(*op).await;
        }
        assert_eq!(simulation.world.chain().pool(), MAX_PENDING, "one account");
    });
    history(2, &ops, |simulation| {
        assert_eq!(simulation.world.chain().pool(), usize::from(SIGNERS), "all that are next");
    });
}

#[test]
fn an_empty_account_gets_no_relays_until_it_is_funded_and_the_others_go_on() {
    let mut ops = vec![Op::Empty(0, true)];
    let round = [requests(), vec![Op::Mine(8), Op::Wait(20)]].concat();
    ops.extend(round.repeat(2));
    runtime().block_on(async {
        let mut simulation = Simulation::with_accounts(3, u128::MAX, 7).await;
        for op in &ops {
            simulation.apply(*op).await;
        }
        assert_eq!(given(&simulation), [0, 4, 4]);
        assert_eq!(simulation.requests.len(), 8);
        assert!(simulation.requests.keys().all(|id| is_executed(&simulation, id)));
        for op in [vec![Op::Empty(0, false), Op::Wait(10)], round].concat() {
            simulation.apply(op).await;
        }
        assert!(simulation.nonces_given(0) > 0, "not used again");
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

#[test]
fn an_account_that_is_emptied_with_relays_in_flight_keeps_only_these_waiting() {
    let mut ops = vec![Op::Unwilling(true), Op::Request(0), Op::Wait(10), Op::Empty(0, true), Op::Wait(10)];
    ops.push(Op::Unwilling(false));
    for _ in 0..3 {
        ops.extend([Op::Request(1), Op::Request(2), Op::Request(3), Op::Wait(10), Op::Mine(8), Op::Wait(20)]);
    }
    history(2, &ops, |simulation| {
        assert_eq!(given(simulation), [1, 9]);
        let waiting = simulation.requests.keys().filter(|id| !is_executed(simulation, id));
        assert_eq!(waiting.count(), 1);
    });
}

#[test]
fn an_account_that_got_code_gets_no_relays_and_where_all_have_got_some_the_reason_is_told() {
    runtime().block_on(async {
        let mut simulation = Simulation::with_accounts(2, u128::MAX, 7).await;
        simulation.found_code(0, true);
        for op in [requests(), vec![Op::Mine(8), Op::Wait(20)]].concat() {
            simulation.apply(op).await;
        }
        let [delegated, other] = given(&simulation);
        assert_eq!((delegated, other > 0), (0, true));
        simulation.found_code(1, true);
        simulation.apply(Op::Request(0)).await;
        simulation.apply(Op::Wait(20)).await;
        let dropped = simulation.requests.keys().find_map(|id| {
            let outcome = simulation.store.relay(*id).unwrap().unwrap().outcome;
            if let Some(RelayOutcome::Dropped { failure }) = outcome { Some(failure.code) } else { None }
        });
        assert_eq!(dropped, Some(ErrorCode::AccountDelegated));
        // The delegation is taken back.
        simulation.found_code(0, false);
        simulation.apply(Op::Repeat(0)).await;
        simulation.apply(Op::Wait(10)).await;
        assert_eq!(simulation.nonces_given(0), 1);
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

#[test]
fn an_account_whose_oldest_transaction_is_stuck_gets_no_more_while_others_can_take_them() {
    let mut ops = vec![Op::Ignored(0, true), Op::Request(0), Op::Wait(1_300)];
    for _ in 0..3 {
        ops.extend([Op::Request(1), Op::Request(2), Op::Request(3), Op::Wait(10), Op::Mine(8), Op::Wait(20)]);
    }
    history(3, &ops, |simulation| {
        let [stuck, second, third] = given(simulation);
        assert_eq!((stuck, second + third), (1, 9));
    });
}

#[test]
fn where_all_accounts_are_stuck_relays_are_sent_all_the_same() {
    let ops =
        [Op::Unwilling(true), Op::Request(0), Op::Request(1), Op::Wait(1_300), Op::Request(2), Op::Wait(10)];
    history(2, &ops, |simulation| assert_eq!(given::<2>(simulation).iter().sum::<u64>(), 3));
}

#[test]
fn a_signers_requests_are_executed_in_order_whatever_account_sends_them() {
    let mut ops = vec![Op::Request(0); 6];
    ops.extend([Op::Wait(10), Op::Mine(8)].repeat(25));
    history(3, &ops, |simulation| {
        let executed = simulation.requests.keys().filter(|id| is_executed(simulation, id)).count();
        assert_eq!(executed, 6);
        let tries = |id: &B256| simulation.store.relay(*id).unwrap().unwrap().hashes.len();
        assert!(simulation.requests.keys().all(|id| tries(id) == 1), "sent before its turn");
    });
}

#[test]
fn the_account_that_sees_a_block_first_has_the_others_look_at_once() {
    runtime().block_on(async {
        let mut simulation = Simulation::with_accounts(3, u128::MAX, 7).await;
        simulation.apply(Op::Unwilling(true)).await;
        // Each account looks once a second, and at its own time of the second.
        for index in 0..3 {
            simulation.apply(Op::Request(index)).await;
            simulation.apply(Op::Wait(3)).await;
        }
        assert_eq!(given(&simulation), [1, 1, 1]);
        for op in [Op::Wait(60), Op::Unwilling(false), Op::Mine(8)] {
            simulation.apply(op).await;
        }
        let mut ended = BTreeMap::new();
        while ended.len() < 3 {
            let waited_for = |id: &&B256| simulation.is_waited_for(**id);
            let over: Vec<B256> = simulation.requests.keys().filter(|id| !waited_for(id)).copied().collect();
            for id in over {
                ended.entry(id).or_insert_with(Instant::now);
            }
            sleep(Duration::from_millis(10)).await;
        }
        let (first, last) = (ended.values().min().unwrap(), ended.values().max().unwrap());
        assert!(*last - *first < Duration::from_millis(250), "{:?} apart", *last - *first);
    });
}

#[test]
fn a_restart_with_relays_pending_on_several_accounts_sends_none_a_second_time() {
    let mut ops = vec![Op::Unwilling(true)];
    ops.extend(requests());
    ops.extend([Op::Restart, Op::Wait(20), Op::Restart, Op::Wait(20), Op::Unwilling(false)]);
    ops.extend([Op::Mine(8), Op::Wait(20)]);
    history(3, &ops, |simulation| {
        assert_eq!(given::<3>(simulation).iter().sum::<u64>(), u64::from(SIGNERS));
        let hashes = simulation.requests.keys().flat_map(|id| {
            assert!(is_executed(simulation, id));
            simulation.store.relay(*id).unwrap().unwrap().hashes
        });
        assert_eq!(hashes.collect::<BTreeSet<B256>>().len(), usize::from(SIGNERS), "one transaction each");
    });
}
