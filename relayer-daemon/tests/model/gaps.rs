//! Nonce gaps: what fills them, within the budget and the fee cap, also where nodes hold what was sent
//! before.

use relayer_daemon::store::TransactionPurpose;

use super::ops::Op::*;
use super::*;

#[test]
fn a_no_op_that_was_taken_for_lost_and_undone_by_a_reorganisation_fills_its_gap_with_the_same_bytes() {
    // The relay at nonce 1 is cancelled, and its no-op's receipt comes only after the nonce was given up. Of
    // the second price, ten percent more is above the cap.
    for base_fee in [100, 207] {
        let cancelled = [Foreign(0), BaseFee(base_fee), Rejecting(true), Request(0)];
        let lost = [Wait(700), LateReceipts(90), Mine(2), Wait(500), Rejecting(false)];
        let undone = [Request(1), Wait(10), Reorganise(2, false), Wait(100), Mine(8)];
        history(SINGLE, [&cancelled[..], &lost, &undone].concat(), |simulation| {
            let signed = simulation.store.assignment(simulation.account(0), 1).unwrap().transactions;
            let purposes: Vec<TransactionPurpose> = signed.iter().map(|one| one.purpose).collect();
            assert_eq!(purposes, [TransactionPurpose::Relay, TransactionPurpose::Rejected]);
        });
    }
}

#[test]
fn a_gap_whose_earlier_bytes_cannot_be_outbid_within_the_cap_is_filled_by_them_or_by_a_no_op_as_dear() {
    // The relay at nonce 1 reverts as a whole, and its receipt comes only after the nonce was given up. Both
    // gaps are below the relay's next nonce.
    let begin = [Foreign(0), BaseFee(236), Revert, Request(0), Wait(10)];
    for forgotten in [false, true] {
        let lost = [LateReceipts(90), Mine(2), Wait(500), BaseFee(10)];
        let undone = [Reorganise(2, forgotten), Wait(100), Mine(8)];
        history(SINGLE, [&begin[..], &lost, &undone].concat(), |simulation| {
            let signed = simulation.store.assignment(simulation.account(0), 1).unwrap().transactions;
            assert_eq!(signed[1].fees, signed[0].fees, "{signed:?}");
        });
    }
}

/// A gap may wait for a day. A second costs a count and a look at the market, and no signature.
#[test]
fn a_gap_that_the_budget_does_not_allow_costs_few_calls_while_it_waits() {
    let ops = [BaseFee(40), Wait(300), WrongCount(12), Request(0), Wait(400)];
    run(with_budget(2_000_000), async |simulation| {
        simulation.play(ops).await;
        let calls = simulation.world.calls.load(Ordering::Relaxed);
        simulation.play([Wait(600)]).await;
        let calls = simulation.world.calls.load(Ordering::Relaxed) - calls;
        let open = simulation.store.open_nonces_at(simulation.account(0)).unwrap();
        assert!(open.len() < 13 && open.last() == Some(&12), "no gap waits: {open:?}");
        assert!(calls <= 150, "{calls} calls in a minute");
    });
}

#[test]
fn a_no_op_that_was_stored_before_the_next_one_failed_is_sent() {
    run(SINGLE, async |simulation| {
        simulation.play([WrongCount(3), Request(0)]).await;
        simulation.until(|simulation| simulation.given() == [4]).await;
        simulation.lose_database_after_a_write().await;
        let open = |simulation: &Simulation| simulation.store.open_nonces_at(simulation.account(0)).unwrap();
        assert_eq!(open(simulation), [0, 3], "the first gap is filled in the store, and no other");
        simulation.play([Wait(30), Mine(8), Wait(20)]).await;
        assert_eq!((open(simulation), simulation.mined()), (vec![], 4));
    });
}
