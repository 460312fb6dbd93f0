//! Nonce gaps: what fills them, within the budget and the fee cap, also where nodes hold what was sent
//! before.

use relayer_daemon::store::TransactionPurpose;

use super::{
    SINGLE, history,
    ops::Op::{
        BaseFee, Bypass, Foreign, LateReceipts, Mine, Rejecting, Reorganise, Request, Revert, Wait,
        WrongCount,
    },
    with_budget,
};

#[test]
fn the_budget_bounds_what_fills_a_gap_too() {
    // The wrong count leaves a gap below the relay; the next block comes when gas costs forty times as much.
    let ops = [WrongCount(1), Request(0), Bypass(0), BaseFee(417), Wait(2), Mine(1)];
    history(with_budget(1_000_000), ops, |_| {});
}

#[test]
fn what_waits_for_a_gap_never_keeps_the_budget_from_filling_it() {
    // A foreign transaction below the two relays is undone, after a replacement and the second relay have
    // taken nearly all of the budget.
    let ops = [Foreign(0), Request(0), BaseFee(172), Wait(33), Request(1), Reorganise(1, false)];
    history(with_budget(11_000_000), ops, |_| {});
}

#[test]
fn what_was_signed_for_a_gap_before_never_keeps_the_budget_from_filling_it() {
    // A foreign transaction takes the relay's nonce and is undone. Two relays at this price are more than the
    // budget: the one that now waits for the gap, and the old bytes in it.
    let ops = [BaseFee(236), Request(0), Wait(10), Foreign(0), Wait(600), Reorganise(1, false)];
    history(with_budget(9_000_000), ops, |_| {});
}

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

#[test]
fn gaps_that_a_windows_budget_does_not_fill_are_filled_in_the_next_ones() {
    history(with_budget(1_000_000), [WrongCount(14), Request(0), Request(1)], |_| {});
}
