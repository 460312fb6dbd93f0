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

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(missing_docs, unreachable_pub)]

mod model;

use alloy::primitives::B256;
use model::node::LostSend;
use model::ops::Op::{
    BaseFee, Bypass, DiskFull, Empty, Foreign, HangUp, Ignored, LateReceipts, Latency, Lose, Mine, NoNonces,
    OldViews, Rejecting, Reorganise, Repeat, RepeatEarlier, Request, RequestUntil, Revert, SilentEndpoint,
    Unwilling, Wait, WrongCount,
};
use model::{MAX_PENDING, SIGNERS, SINGLE, Setup, Simulation};
use model::{history, run, simulate, strategies, with_budget};
use proptest::prelude::*;
use relayer_daemon::outcome::{ErrorCode, RelayOutcome};
use std::{sync::atomic::Ordering, time::Duration};
use tokio::time::{Instant, sleep};

proptest! {
    #![proptest_config(strategies::config(200))]

    #[test]
    fn whatever_happens_each_request_is_executed_once_at_most_and_nothing_is_lost(
        (setup, ops) in strategies::history(1..2, false, strategies::op()),
    ) {
        simulate(setup, async |simulation| simulation.play(ops).await)?;
    }
}

proptest! {
    // The daemons of a fleet do something all the time, so each history takes longer.
    #![proptest_config(strategies::config(24))]

    #[test]
    fn daemons_that_share_accounts_execute_each_request_once_at_most_and_nothing_is_lost(
        (setup, ops) in strategies::history(2..4, false, strategies::fleet_op()),
    ) {
        simulate(setup, async |simulation| simulation.play(ops).await)?;
    }
}

#[cfg(feature = "postgres")]
proptest! {
    #![proptest_config(strategies::config(6))]

    #[test]
    fn daemons_that_share_a_postgres_database_execute_each_request_once_at_most_and_nothing_is_lost(
        (setup, ops) in strategies::history(2..4, true, strategies::fleet_op()),
    ) {
        simulate(setup, async |simulation| simulation.play(ops).await)?;
    }
}

#[test]
fn at_a_budget_that_allows_no_replacement_the_same_bytes_wait_for_the_market() {
    let ops = [Request(0), BaseFee(400), Mine(5), Wait(80), Mine(5), Wait(80)];
    history(with_budget(1_000_000), ops, |simulation| assert_eq!(simulation.tries(), [1]));
    // A market that rose tenfold, with more in the pool.
    let mut ops = vec![BaseFee(1), Request(2), Request(1), Request(0)];
    ops.extend([Lose(LostSend::Answer), Request(1), BaseFee(10)]);
    ops.extend([Mine(5), Wait(80)].repeat(20));
    history(with_budget(400_000), ops, |simulation| assert!(!simulation.is_quiet()));
}

#[test]
fn all_that_the_market_has_outgrown_is_replaced_in_one_round_and_reserves_what_the_simulation_used() {
    // At 8.1 gwei the gas limit would come to more than this budget, and what was simulated does not.
    let ops = [Request(0), BaseFee(40), Mine(5), Wait(80)];
    history(with_budget(1_600_000), ops, |simulation| assert_eq!(simulation.tries(), [2], "not replaced"));
    let mut ops: Vec<_> = (0..SIGNERS).map(Request).collect();
    ops.extend([Wait(10), BaseFee(100), Mine(5), Wait(30)]);
    history(SINGLE, ops, |simulation| {
        let replaced = simulation.tries().into_iter().filter(|tries| *tries == 2).count();
        assert_eq!(replaced, MAX_PENDING, "all that are in the pool");
    });
}

#[test]
fn one_wrong_count_reopens_nothing_and_leaves_no_gap_to_fill() {
    let mut ops = [Request(0), Request(1), Wait(10), Mine(8), Wait(20)].repeat(30);
    // The first is what the next relay's nonce is taken from, the second is what the round after it sees.
    ops.extend([WrongCount(0), WrongCount(0), Request(2), Wait(20), Mine(8), Wait(20)]);
    history(SINGLE, ops, |simulation| {
        let sends = simulation.world.chain().sends;
        assert_eq!(simulation.mined(), 61);
        assert!(sends < 61 + 8, "{sends} sends: mined transactions were sent again");
    });
    let relay = |signer| [Request(signer), Wait(20), Mine(8), Wait(20)];
    let ops = [&relay(0)[..], &[WrongCount(1_000_000)], &relay(1)].concat();
    history(SINGLE, ops, |simulation| {
        let sends = simulation.world.chain().sends;
        assert!(sends < 6, "{sends} sends: no-ops up to an unused nonce");
        assert_eq!(simulation.mined(), 2);
    });
}

/// Histories that ended wrongly once. Only what must always hold in the end is checked.
#[test]
fn what_once_went_wrong_goes_right() {
    let seeded = Setup { seed: 557_358_809_340_181_883, ..SINGLE };
    let undone = Reorganise(1, false);
    let elsewhere = [Request(0), Wait(5), Bypass(0), LateReceipts(240), Mine(5)];
    let late = [LateReceipts(31), Revert, Request(0), Wait(1_403), Request(0), Mine(1), Empty(0, true)];
    // A dropped request comes again after another with its forwarder nonce was executed, which the node has
    // not heard of: it is not paid for.
    let mined = [Mine(3), Wait(50), Rejecting(false), Request(0), Wait(10), Mine(2), Wait(30)];
    let again = [OldViews(84), RepeatEarlier(0, 1), Wait(30), Mine(2), Wait(30)];
    let two_accounts = Setup { accounts: 2, seed: 14, ..SINGLE };
    let doomed =
        [Ignored(1, false), Request(2), Request(0), Wait(503), Request(1), Request(0), RepeatEarlier(1, 2)];
    let replaced =
        [Mine(0), Request(0), WrongCount(1 << 40), Reorganise(3, false), Mine(3), HangUp(3, 4), Mine(2)];
    let behind =
        [Request(3), Request(1), HangUp(1, 1), Wait(36), OldViews(18), Wait(10), undone, Request(0), Revert];
    let late_again = [Mine(2), Request(3), Latency(4), Wait(173), Wait(9), LateReceipts(20)];
    for (setup, ops) in [
        (SINGLE, [&[Rejecting(true), RequestUntil(0, 250), Wait(400)][..], &mined, &again].concat()),
        // A relay was executed elsewhere first, ours reverts; its receipt is four minutes late, and charged.
        (SINGLE, [&elsewhere[..], &[Wait(600), Mine(5)].repeat(3)].concat()),
        // The late receipt of a no-op does not change what the client was told.
        (SINGLE, vec![LateReceipts(32), RequestUntil(0, 1), Wait(600), Mine(1), Wait(1_200)]),
        // Nor does that of a transaction that reverted as a whole, of an account that is empty by now.
        (seeded, [&late[..], &[Wait(600)]].concat()),
        // The budget bounds what fills a gap, when gas costs forty times as much.
        (with_budget(1_000_000), vec![WrongCount(1), Request(0), Bypass(0), BaseFee(417), Wait(2), Mine(1)]),
        // What waits for a gap, a replacement and a second relay, leaves budget to fill it.
        (with_budget(11_000_000), vec![Foreign(0), Request(0), BaseFee(172), Wait(33), Request(1), undone]),
        // So does what was signed for the gap before.
        (with_budget(9_000_000), vec![BaseFee(236), Request(0), Wait(10), Foreign(0), Wait(600), undone]),
        // What was taken for lost may be charged yet: both transactions of the request are within the budget.
        (
            with_budget(10_000_000),
            vec![LateReceipts(32), Revert, Request(0), BaseFee(449), Wait(100), Mine(1), Wait(313), Mine(1)],
        ),
        // A block of a branch that is gone was found on the chain by a machine that is 18 s behind.
        (two_accounts, [&doomed[..], &replaced, &behind, &late_again].concat()),
        // Gaps that a window's budget does not fill are filled in the next ones.
        (with_budget(1_000_000), vec![WrongCount(14), Request(0), Request(1)]),
    ] {
        println!("{setup:?} {ops:?}");
        history(setup, ops, |_| {});
    }
}

#[test]
fn a_request_is_carried_out_when_it_is_sent_again_after_its_transaction_reverted_as_a_whole() {
    let mined = [Wait(10), Mine(5), Wait(20)];
    let ops = [&[Revert, Request(0)][..], &mined, &[Repeat(0)], &mined].concat();
    history(SINGLE, ops, |simulation| {
        assert!(simulation.is_executed(simulation.only()));
        assert_eq!(simulation.tries(), [2], "both transactions are told");
    });
}

#[test]
fn a_request_that_another_transaction_executed_first_is_never_called_repeatable() {
    for seed in 1..8 {
        let ops = [Request(0), Wait(5), Bypass(0), Mine(5), Wait(60), Repeat(0), Wait(20)];
        history(Setup { seed, ..SINGLE }, ops, |simulation| {
            let outcome = simulation.record(simulation.only()).outcome.unwrap();
            assert_eq!(outcome.parts().1.unwrap().code, ErrorCode::Superseded);
            assert_eq!(simulation.mined(), 1, "sent again");
        });
    }
}

fn newest(simulation: &Simulation) -> B256 {
    let newest = simulation.requests.iter().max_by_key(|(_, (_, nonce))| *nonce);
    *newest.unwrap().0
}

#[test]
fn confirmations_hold_up_neither_sends_nor_receipts() {
    // Sixteen relays of each signer were mined within a minute, and are due to be confirmed together.
    let mut round: Vec<_> = (0..SIGNERS).map(Request).collect();
    round.extend([Wait(10), Mine(8), Wait(10), Mine(8), Wait(10)]);
    run(SINGLE, async |simulation| {
        simulation.play(round.repeat(16)).await;
        simulation.play([Wait(370), Latency(100), Request(0)]).await;
        let id = newest(simulation);
        let started = Instant::now();
        while simulation.is_waited_for(id) {
            assert!(started.elapsed() < Duration::from_secs(60), "never told");
            simulation.world.chain().mine(8);
            sleep(Duration::from_millis(50)).await;
        }
        let took = started.elapsed();
        assert!(took < Duration::from_millis(1_500), "{took:?} with {} relays to confirm", 16 * SIGNERS);
    });
}

#[test]
fn the_pool_never_holds_more_than_it_may_and_what_waits_is_priced_when_it_is_sent() {
    // The market stays as it is, or rises ninefold while they wait.
    for base_fee in [10, 90] {
        run(SINGLE, async |simulation| {
            let wait = [vec![Unwilling(true)], (0..SIGNERS).map(Request).collect(), vec![Wait(40)]];
            simulation.play(wait.concat()).await;
            assert_eq!(simulation.world.chain().pool(), MAX_PENDING, "in the pool");
            let waits = |id: &B256| simulation.record(*id).hashes.is_empty();
            let waiting: Vec<B256> = simulation.requests.keys().copied().filter(waits).collect();
            assert_eq!(waiting.len(), usize::from(SIGNERS) - MAX_PENDING);
            let writes = |simulation: &Simulation| simulation.store.stats().unwrap().0.counts()[1];
            let before = writes(simulation);
            simulation.play([BaseFee(base_fee), Unwilling(false), Wait(30), Mine(8), Wait(20)]).await;
            if base_fee == 10 {
                // Before blocks are compared.
                let least = 1 + MAX_PENDING as u64;
                assert_eq!(writes(simulation) - before, least, "its nonce, and the ends of the others");
            }
            simulation.play([Mine(8), Wait(20)].repeat(4)).await;
            for id in waiting {
                assert_eq!(simulation.record(id).hashes.len(), 1, "offered too little at first");
            }
        });
    }
}

#[test]
fn a_reorganisation_after_15_idle_minutes_is_found_and_its_relay_told_anew() {
    let ops = [Request(0), Wait(10), Mine(5), Wait(9_000), Reorganise(1, true), Wait(200)];
    history(SINGLE, ops, |simulation| {
        assert_eq!(simulation.record(simulation.only()).outcome, None, "still told as executed");
        assert_eq!(simulation.world.chain().pool(), 1, "sent again");
    });
    let mut ops = vec![Request(0), Wait(10), Mine(5), Wait(9_000)];
    ops.extend([Mine(0), Reorganise(2, false), Mine(5), Wait(400)]);
    history(SINGLE, ops, assert_told_of_blocks_of_the_chain);
}

#[test]
fn a_nonce_that_a_reorganisation_undid_is_sent_again_though_the_store_fails_after_it_is_reopened() {
    run(SINGLE, async |simulation| {
        simulation.play([Request(0), Wait(10), Mine(5), Wait(20), Reorganise(1, true)]).await;
        assert!(simulation.record(simulation.only()).outcome.is_some());
        simulation.lose_database_after_a_write().await;
        assert_eq!(simulation.record(simulation.only()).outcome, None);
        simulation.play([Wait(300)]).await;
        assert_eq!(simulation.world.chain().pool(), 1, "not sent again");
    });
}

#[test]
fn a_nonce_that_a_foreign_transaction_took_in_a_reorganisation_is_looked_up_until_all_endpoints_answer() {
    let mut ops = vec![Request(0), Wait(10), Mine(5), Wait(10)];
    ops.extend([SilentEndpoint(true), Reorganise(1, true), Foreign(0), Wait(200), SilentEndpoint(false)]);
    ops.push(Wait(600));
    history(SINGLE, ops, |simulation| {
        assert_eq!(simulation.record(simulation.only()).outcome, None, "still told as executed");
    });
}

#[test]
fn a_relay_that_is_dropped_while_the_disk_is_full_is_told_so_once_there_is_room() {
    let full = [DiskFull(true), Wait(600), DiskFull(false), Wait(600)];
    let ops = [&[NoNonces(true), RequestUntil(0, 20), Wait(5)][..], &full].concat();
    history(SINGLE, ops, |simulation| {
        let outcome = simulation.record(simulation.only()).outcome;
        assert!(matches!(outcome, Some(RelayOutcome::Dropped { .. })), "{outcome:?}");
    });
}

#[test]
fn a_block_that_only_a_machine_of_a_dead_branch_confirmed_is_found_before_it_is_final() {
    // A block is found on the chain, and later undone. For a minute and a half, machines that have not heard
    // of that answer beside others that show the next relay's block on the new branch.
    let mut ops = vec![Request(0), Wait(10), Mine(5), Wait(900), OldViews(96)];
    ops.extend([Mine(0), Reorganise(2, false), Mine(5), Request(1), Wait(10)]);
    ops.extend([Mine(5), Wait(100)].repeat(10));
    for seed in 1..40 {
        let setup = Setup { seed, ..SINGLE };
        let ended = run(setup, async |simulation| simulation.play(&ops).await);
        assert_told_of_blocks_of_the_chain(&ended);
    }
}

fn assert_told_of_blocks_of_the_chain(simulation: &Simulation) {
    for id in simulation.requests.keys() {
        let record = simulation.record(*id);
        let Some(RelayOutcome::Executed { mined, .. }) = record.outcome else { panic!("{record:?}") };
        let receipt = simulation.world.chain().now().receipt(mined.tx_hash).unwrap();
        assert_eq!(mined.block_number, receipt.block.number, "told of a block that is gone");
    }
}

#[test]
fn while_the_chain_fails_few_calls_are_made_however_many_relays_wait() {
    let ended = run(SINGLE, async |simulation| {
        simulation.play([NoNonces(true)]).await;
        simulation.play((0..SIGNERS).map(Request).collect::<Vec<_>>()).await;
        let before = simulation.world.calls.load(Ordering::Relaxed);
        simulation.play([Wait(600)]).await;
        let calls = simulation.world.calls.load(Ordering::Relaxed) - before;
        assert!(calls < 200, "{calls} calls in a minute for {SIGNERS} relays");
    });
    assert_eq!(ended.executed(), usize::from(SIGNERS));
}
