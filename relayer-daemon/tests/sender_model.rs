//! The pipeline, the sender and the store against a model of the chain, through any order of what can happen:
//! transactions dropped, blocks undone, answers lost or old or wrong, receipts late, an endpoint silent, a
//! sequencer unwilling, a disk full, a clock set, foreign transactions with the same key, kills at any
//! moment.
//!
//! Once the faults are over, always: nothing is stuck, no request was carried out twice or paid for twice,
//! every outcome reported is the chain's, and what was spent is within the budget and the store's sum of it.
//! At any time: no transaction is sent that is not stored, and none offers more than the market gives
//! reason for.
//!
//! `PROPTEST_CASES` sets the number of histories, of one daemon and of a fleet each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

mod model;

use alloy::primitives::B256;
use model::{MAX_PENDING, SIGNERS, Simulation, chain::GWEI, node::Lost, ops::Op, runtime, strategies};
use proptest::prelude::*;
use relayer_daemon::outcome::RelayOutcome;
use std::{sync::atomic::Ordering, time::Duration};
use tokio::time::{Instant, sleep};

proptest! {
    #![proptest_config(strategies::config())]

    #[test]
    fn whatever_happens_each_request_is_executed_once_at_most_and_nothing_is_lost(
        ops in prop::collection::vec(strategies::op(), 1..60),
        budget in prop_oneof![Just(u128::MAX), (1_u128..40).prop_map(|milli| milli * 1_000_000 * GWEI)],
        accounts in 1_u8..4,
        seed in any::<u64>(),
    ) {
        runtime().block_on(async {
            let mut simulation = Simulation::with_accounts(accounts, budget, seed).await;
            for op in ops {
                simulation.apply(op).await;
            }
            simulation.settle_down().await;
            simulation.check()
        })?;
    }
}

proptest! {
    #![proptest_config(strategies::fleet_config())]

    #[test]
    fn daemons_that_share_accounts_execute_each_request_once_at_most_and_nothing_is_lost(
        ops in prop::collection::vec(strategies::fleet_op(), 1..60),
        budget in prop_oneof![Just(u128::MAX), (1_u128..40).prop_map(|milli| milli * 1_000_000 * GWEI)],
        daemons in 2_usize..4,
        accounts in 1_u8..4,
        seed in any::<u64>(),
    ) {
        runtime().block_on(async {
            let mut simulation = Simulation::with_daemons(daemons, accounts, budget, seed).await;
            for op in ops {
                simulation.apply(op).await;
            }
            simulation.settle_down().await;
            simulation.check()
        })?;
    }
}

/// Runs a history, lets the faults pass, and checks what must always hold.
fn history(budget: u128, ops: &[Op], check: impl FnOnce(&Simulation)) {
    runtime().block_on(async {
        let mut simulation = Simulation::new(budget, 7).await;
        for op in ops {
            simulation.apply(*op).await;
        }
        check(&simulation);
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

fn transactions(simulation: &Simulation) -> usize {
    let hashes = |id| simulation.store.relay(id).unwrap().unwrap().hashes.len();
    simulation.requests.keys().map(|id| hashes(*id)).sum()
}

#[test]
fn an_answer_lost_after_the_node_took_the_transaction_is_not_sent_under_a_second_nonce() {
    let ops = [Op::Lose(Lost::Answer), Op::Request(0), Op::Restart, Op::Wait(20), Op::Mine(5), Op::Wait(20)];
    history(u128::MAX, &ops, |simulation| {
        assert_eq!(simulation.world.chain().now().mined(simulation.account(0)), 1)
    });
}

#[test]
fn at_a_budget_that_allows_no_replacement_the_same_bytes_wait_for_the_market() {
    let ops = [Op::Request(0), Op::BaseFee(400), Op::Mine(5), Op::Wait(80), Op::Mine(5), Op::Wait(80)];
    history(1_000_000 * GWEI, &ops, |simulation| assert_eq!(transactions(simulation), 1));
}

#[test]
fn at_a_budget_that_allows_no_replacement_a_market_that_rose_tenfold_is_waited_for_too() {
    let mut ops = vec![Op::BaseFee(1), Op::Request(2), Op::Request(1), Op::Request(0)];
    ops.extend([Op::Lose(Lost::Answer), Op::Request(1), Op::BaseFee(10)]);
    ops.extend([Op::Mine(5), Op::Wait(80)].repeat(20));
    history(400_000 * GWEI, &ops, |simulation| assert!(!simulation.is_quiet()));
}

#[test]
fn a_replacement_reserves_what_the_simulation_used_and_not_its_gas_limit() {
    // At 8.1 gwei the gas limit would come to more than this budget, and what was simulated does not.
    let ops = [Op::Request(0), Op::BaseFee(40), Op::Mine(5), Op::Wait(80)];
    history(1_600_000 * GWEI, &ops, |simulation| assert_eq!(transactions(simulation), 2, "not replaced"));
}

#[test]
fn a_late_receipt_is_not_a_stolen_nonce() {
    // Blocks go by, as on a chain that makes one every 200 ms, and the receipt is a minute late.
    let mut ops = vec![Op::LateReceipts(60), Op::Request(0), Op::Mine(5)];
    ops.extend([Op::Mine(5), Op::Wait(2)].repeat(100));
    ops.push(Op::Wait(300));
    history(u128::MAX, &ops, |simulation| {
        let id = *simulation.requests.keys().next().unwrap();
        let record = simulation.store.relay(id).unwrap().unwrap();
        assert_eq!((record.outcome, record.hashes.len()), (None, 1), "unknown is not dropped");
    });
}

#[test]
fn with_views_as_late_as_the_receipts_no_request_is_carried_out_twice() {
    let mut ops = vec![Op::LateReceipts(90), Op::OldViews(90), Op::Request(0), Op::Wait(20)];
    ops.extend([Op::Mine(5), Op::Wait(50)].repeat(24));
    history(u128::MAX, &ops, |simulation| {
        assert_eq!(simulation.world.chain().now().mined(simulation.account(0)), 1, "a second transaction");
    });
}

#[test]
fn an_unwilling_sequencer_at_a_flat_market_is_not_bid_up() {
    let mut ops = vec![Op::Unwilling(true)];
    ops.extend((0..SIGNERS).map(Op::Request));
    // Six minutes of blocks without ours.
    ops.extend([Op::Mine(5), Op::Wait(20)].repeat(180));
    history(u128::MAX, &ops, |simulation| {
        assert_eq!(transactions(simulation), MAX_PENDING, "replaced for nothing");
    });
}

#[test]
fn one_wrong_count_reopens_nothing() {
    let mut ops = Vec::new();
    for _ in 0..30 {
        ops.extend([Op::Request(0), Op::Request(1), Op::Wait(10), Op::Mine(8), Op::Wait(20)]);
    }
    // The first is what the next relay's nonce is taken from, the second is what the round after it sees.
    ops.extend([
        Op::WrongCount(0),
        Op::WrongCount(0),
        Op::Request(2),
        Op::Wait(20),
        Op::Mine(8),
        Op::Wait(20),
    ]);
    history(u128::MAX, &ops, |simulation| {
        let chain = simulation.world.chain();
        assert_eq!(chain.now().mined(simulation.account(0)), 61);
        assert!(chain.sends < 61 + 8, "{} sends: mined transactions were sent again", chain.sends);
    });
}

#[test]
fn one_wrong_high_count_leaves_no_gap_to_fill() {
    let relay = |signer| [Op::Request(signer), Op::Wait(20), Op::Mine(8), Op::Wait(20)];
    let mut ops = relay(0).to_vec();
    ops.push(Op::WrongCount(1_000_000));
    ops.extend(relay(1));
    history(u128::MAX, &ops, |simulation| {
        let chain = simulation.world.chain();
        assert!(chain.sends < 6, "{} sends: no-ops up to an unused nonce", chain.sends);
        assert_eq!(chain.now().mined(simulation.account(0)), 2);
    });
}

#[test]
fn a_receipt_that_turns_up_after_its_nonce_was_given_up_is_charged_and_reported() {
    // The request is executed elsewhere first, ours reverts; its receipt is four minutes late.
    let mut ops = vec![Op::Request(0), Op::Wait(5), Op::Bypass(0), Op::LateReceipts(240), Op::Mine(5)];
    ops.extend([Op::Wait(600), Op::Mine(5)].repeat(3));
    history(u128::MAX, &ops, |_| {});
}

#[test]
fn the_late_receipt_of_a_no_op_does_not_change_what_the_client_was_told() {
    let ops = [Op::LateReceipts(32), Op::RequestUntil(0, 1), Op::Wait(600), Op::Mine(1)];
    history(u128::MAX, &[&ops[..], &[Op::Wait(1_200)]].concat(), |_| {});
}

#[test]
fn a_late_receipt_of_a_transaction_that_did_nothing_leaves_a_dropped_relay_dropped() {
    // It reverted as a whole, its receipt is late, and meanwhile the account has lost its funds.
    let mut ops = vec![Op::LateReceipts(31), Op::Revert, Op::Request(0), Op::Wait(1_403), Op::Request(0)];
    ops.extend([Op::Mine(1), Op::Empty(0, true), Op::Wait(600)]);
    runtime().block_on(async {
        let mut simulation = Simulation::new(u128::MAX, 557_358_809_340_181_883).await;
        for op in ops {
            simulation.apply(op).await;
        }
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

#[test]
fn a_relay_that_one_nonce_has_executed_is_not_in_flight_again_for_another_nonce_of_its_own() {
    runtime().block_on(async {
        let mut simulation = Simulation::new(u128::MAX, 7).await;
        for op in [Op::Request(0), Op::Wait(10), Op::Mine(5), Op::Wait(20)] {
            simulation.apply(op).await;
        }
        let id = *simulation.requests.keys().next().unwrap();
        let executed = simulation.store.relay(id).unwrap().unwrap().outcome;
        assert!(matches!(executed, Some(RelayOutcome::Executed { .. })), "{executed:?}");

        // Its first nonce was given up as lost, it got a second one, then the first one's receipt was found.
        simulation.kill();
        simulation.assign_a_second_nonce(id);
        simulation.apply(Op::Wait(20)).await;
        assert!(!simulation.is_waited_for(id), "in flight after a restart");

        // The second is mined, reverts, and is undone.
        for op in [Op::Mine(5), Op::Wait(20), Op::Reorganise(1, false), Op::Wait(20)] {
            simulation.apply(op).await;
        }
        assert!(!simulation.is_waited_for(id), "in flight after a reorganisation");
        assert_eq!(simulation.store.relay(id).unwrap().unwrap().outcome, executed);
        simulation.settle_down().await;
        assert!(simulation.is_quiet(), "a client waits for ever");
        assert_eq!(simulation.store.relay(id).unwrap().unwrap().outcome, executed);
    });
}

#[test]
fn a_client_that_hangs_up_leaves_nothing_in_flight_and_its_request_is_carried_out_or_forgotten() {
    for moments in 1..6 {
        let mut ops = vec![Op::HangUp(0, moments), Op::Wait(20), Op::Request(0)];
        ops.extend([Op::Wait(20), Op::Mine(5)].repeat(5));
        history(u128::MAX, &ops, |simulation| {
            assert!(simulation.is_quiet(), "hung up after {moments} moments: a relay is in flight for ever");
        });
    }
}

#[test]
fn a_request_is_carried_out_when_it_is_sent_again_after_its_transaction_reverted_as_a_whole() {
    let mut ops = vec![Op::Revert, Op::Request(0)];
    ops.extend([
        Op::Wait(10),
        Op::Mine(5),
        Op::Wait(20),
        Op::Repeat(0),
        Op::Wait(10),
        Op::Mine(5),
        Op::Wait(20),
    ]);
    history(u128::MAX, &ops, |simulation| {
        let id = *simulation.requests.keys().next().unwrap();
        let record = simulation.store.relay(id).unwrap().unwrap();
        assert!(matches!(record.outcome, Some(RelayOutcome::Executed { .. })), "{record:?}");
        assert_eq!(record.hashes.len(), 2, "both transactions are told");
    });
}

#[test]
fn what_every_node_calls_invalid_is_cancelled_though_the_base_fee_fell_by_60_percent() {
    let mut ops = vec![Op::Rejecting(true), Op::Request(0), Op::Wait(10), Op::BaseFee(4)];
    ops.extend([Op::Mine(5), Op::Wait(20)].repeat(30));
    history(u128::MAX, &ops, |simulation| {
        let id = *simulation.requests.keys().next().unwrap();
        let outcome = simulation.store.relay(id).unwrap().unwrap().outcome;
        assert!(matches!(outcome, Some(RelayOutcome::Dropped { .. })), "{outcome:?}");
    });
}

#[test]
fn what_every_node_calls_invalid_at_the_cap_is_cancelled_though_a_node_holds_what_it_replaced() {
    // The first transaction is in the pool, too cheap by now. Ten percent more than its replacement is above
    // the cap.
    let mut ops = vec![Op::Request(0), Op::Wait(10), Op::Rejecting(true), Op::BaseFee(227)];
    ops.extend([Op::Mine(5), Op::Wait(20)].repeat(30));
    history(u128::MAX, &ops, |simulation| {
        let id = *simulation.requests.keys().next().unwrap();
        let outcome = simulation.store.relay(id).unwrap().unwrap().outcome;
        assert!(matches!(outcome, Some(RelayOutcome::Dropped { .. })), "{outcome:?}");
        let signed = simulation.store.assignment(simulation.account(0), 0).unwrap().transactions;
        assert_eq!(signed.last().unwrap().fees, signed[1].fees, "the same offer as the replacement's");
    });
}

/// The request with the highest nonce.
fn newest(simulation: &Simulation) -> B256 {
    let newest = simulation.requests.iter().max_by_key(|(_, (_, nonce))| *nonce);
    *newest.unwrap().0
}

/// So many relays of each signer, one after the other, all of them mined.
fn relays(rounds: usize) -> Vec<Op> {
    let mut round: Vec<Op> = (0..SIGNERS).map(Op::Request).collect();
    round.extend([Op::Wait(10), Op::Mine(8), Op::Wait(10), Op::Mine(8), Op::Wait(10)]);
    round.repeat(rounds)
}

#[test]
fn confirmations_hold_up_neither_sends_nor_receipts() {
    runtime().block_on(async {
        let mut simulation = Simulation::new(u128::MAX, 7).await;
        // All of them were mined within a minute, and are due to be confirmed together.
        for op in relays(16).into_iter().chain([Op::Wait(370), Op::Latency(100)]) {
            simulation.apply(op).await;
        }
        simulation.apply(Op::Request(0)).await;
        let id = newest(&simulation);
        let started = Instant::now();
        while simulation.is_waited_for(id) {
            assert!(started.elapsed() < Duration::from_secs(60), "never told");
            simulation.world.chain().mine(8);
            sleep(Duration::from_millis(50)).await;
        }
        let took = started.elapsed();
        assert!(took < Duration::from_millis(1_500), "{took:?} with {} relays to confirm", 16 * SIGNERS);
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

#[test]
fn all_that_the_market_has_outgrown_is_replaced_in_one_round() {
    let mut ops: Vec<Op> = (0..SIGNERS).map(Op::Request).collect();
    ops.extend([Op::Wait(10), Op::BaseFee(100), Op::Mine(5), Op::Wait(30)]);
    history(u128::MAX, &ops, |simulation| {
        let tried = |id: &B256| simulation.store.relay(*id).unwrap().unwrap().hashes.len();
        let replaced = simulation.requests.keys().filter(|id| tried(id) == 2).count();
        assert_eq!(replaced, MAX_PENDING, "all that are in the pool");
    });
}

#[test]
fn the_pool_never_holds_more_than_it_may_and_what_waits_is_priced_when_it_is_sent() {
    let mut ops = vec![Op::Unwilling(true)];
    ops.extend((0..SIGNERS).map(Op::Request));
    ops.extend([Op::Wait(50)].repeat(3));
    runtime().block_on(async {
        let mut simulation = Simulation::new(u128::MAX, 7).await;
        for op in ops {
            simulation.apply(op).await;
        }
        assert_eq!(simulation.world.chain().pool(), MAX_PENDING, "in the pool");
        let tried = |id: &B256| simulation.store.relay(*id).unwrap().unwrap().hashes.len();
        let waiting: Vec<B256> = simulation.requests.keys().copied().filter(|id| tried(id) == 0).collect();
        assert_eq!(waiting.len(), usize::from(SIGNERS) - MAX_PENDING);
        // The market rises ninefold while they wait.
        for op in [Op::BaseFee(90), Op::Unwilling(false), Op::Wait(30), Op::Mine(8), Op::Wait(20)] {
            simulation.apply(op).await;
        }
        for _ in 0..4 {
            simulation.apply(Op::Mine(8)).await;
            simulation.apply(Op::Wait(20)).await;
        }
        for id in waiting {
            let record = simulation.store.relay(id).unwrap().unwrap();
            assert_eq!(record.hashes.len(), 1, "offered too little at first");
        }
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

#[test]
fn a_reorganisation_after_15_idle_minutes_is_found_and_the_relay_is_carried_out_again() {
    let mut ops = vec![Op::Request(0), Op::Wait(10), Op::Mine(5), Op::Wait(9_000)];
    ops.extend([Op::Reorganise(1, true), Op::Wait(200)]);
    history(u128::MAX, &ops, |simulation| {
        let id = newest(simulation);
        assert_eq!(simulation.store.relay(id).unwrap().unwrap().outcome, None, "still told as executed");
        assert_eq!(simulation.world.chain().pool(), 1, "sent again");
    });
}

#[test]
fn a_transaction_that_a_reorganisation_moved_to_another_block_is_told_there_after_idle_minutes_too() {
    let mut ops = vec![Op::Request(0), Op::Wait(10), Op::Mine(5), Op::Wait(9_000)];
    ops.extend([Op::Mine(0), Op::Reorganise(2, false), Op::Mine(5), Op::Wait(400)]);
    history(u128::MAX, &ops, |simulation| {
        let record = simulation.store.relay(newest(simulation)).unwrap().unwrap();
        let Some(RelayOutcome::Executed { mined, .. }) = record.outcome else { panic!("{record:?}") };
        let block = simulation.world.chain().now().receipt(mined.tx_hash).unwrap();
        assert_eq!(mined.block_number, block.block.number, "told of a block that is gone");
    });
}

#[test]
fn a_block_that_only_a_machine_of_a_dead_branch_confirmed_is_found_before_it_is_final() {
    runtime().block_on(async {
        for seed in 1..40 {
            let mut simulation = Simulation::new(u128::MAX, seed).await;
            // A block is found on the chain, and later undone. For a minute and a half, machines that have
            // not heard of that answer beside others that show the next relay's block on the new branch.
            let mut ops = vec![Op::Request(0), Op::Wait(10), Op::Mine(5), Op::Wait(900), Op::OldViews(96)];
            ops.extend([Op::Mine(0), Op::Reorganise(2, false), Op::Mine(5), Op::Request(1), Op::Wait(10)]);
            ops.extend([Op::Mine(5), Op::Wait(100)].repeat(10));
            for op in ops {
                simulation.apply(op).await;
            }
            simulation.settle_down().await;
            simulation.check().unwrap();
            for id in simulation.requests.keys() {
                let record = simulation.store.relay(*id).unwrap().unwrap();
                let Some(RelayOutcome::Executed { mined, .. }) = record.outcome else { panic!("{record:?}") };
                let receipt = simulation.world.chain().now().receipt(mined.tx_hash).unwrap();
                assert_eq!(mined.block_number, receipt.block.number, "seed {seed}: a block that is gone");
            }
        }
    });
}

#[test]
fn while_the_chain_fails_few_calls_are_made_however_many_relays_wait() {
    runtime().block_on(async {
        let mut simulation = Simulation::new(u128::MAX, 7).await;
        simulation.apply(Op::NoNonces(true)).await;
        for index in 0..SIGNERS {
            simulation.apply(Op::Request(index)).await;
        }
        let before = simulation.world.calls.load(Ordering::Relaxed);
        simulation.apply(Op::Wait(600)).await;
        let calls = simulation.world.calls.load(Ordering::Relaxed) - before;
        assert!(calls < 200, "{calls} calls in a minute for {SIGNERS} relays");
        simulation.settle_down().await;
        simulation.check().unwrap();
        for id in simulation.requests.keys() {
            let outcome = simulation.store.relay(*id).unwrap().unwrap().outcome;
            assert!(matches!(outcome, Some(RelayOutcome::Executed { .. })), "{outcome:?}");
        }
    });
}
