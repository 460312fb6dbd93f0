//! Nonce gaps: what fills them, within the budget and the fee cap, also where nodes hold what was sent before.

use relayer_daemon::store::TransactionPurpose;

use super::{chain::GWEI, ops::Op};
use crate::history;

#[test]
fn the_budget_bounds_what_fills_a_gap_too() {
    // The wrong count leaves a gap below the relay; the next block comes when gas costs forty times as much.
    let ops = [Op::WrongCount(1), Op::Request(0), Op::Bypass(0), Op::BaseFee(417), Op::Wait(2), Op::Mine(1)];
    history(1_000_000 * GWEI, &ops, |_| {});
}

#[test]
fn what_waits_for_a_gap_never_keeps_the_budget_from_filling_it() {
    // A foreign transaction below the two relays is undone, after a replacement and the second relay have
    // taken nearly all of the budget.
    let ops = [
        Op::Foreign(0),
        Op::Request(0),
        Op::BaseFee(172),
        Op::Wait(33),
        Op::Request(1),
        Op::Reorganise(1, false),
    ];
    history(11_000_000 * GWEI, &ops, |_| {});
}

#[test]
fn what_was_signed_for_a_gap_before_never_keeps_the_budget_from_filling_it() {
    // A foreign transaction takes the relay's nonce and is undone. Two relays at this price are more than the
    // budget: the one that now waits for the gap, and the old bytes in it.
    let ops = [
        Op::BaseFee(236),
        Op::Request(0),
        Op::Wait(10),
        Op::Foreign(0),
        Op::Wait(600),
        Op::Reorganise(1, false),
    ];
    history(9_000_000 * GWEI, &ops, |_| {});
}

#[test]
fn a_no_op_that_was_taken_for_lost_and_undone_by_a_reorganisation_fills_its_gap_with_the_same_bytes() {
    // The relay at nonce 1 is cancelled, and its no-op's receipt comes only after the nonce was given up. Of
    // the second price, ten percent more is above the cap.
    for base_fee in [100, 207] {
        let cancelled = [Op::Foreign(0), Op::BaseFee(base_fee), Op::Rejecting(true), Op::Request(0)];
        let lost = [Op::Wait(700), Op::LateReceipts(90), Op::Mine(2), Op::Wait(500), Op::Rejecting(false)];
        let undone = [Op::Request(1), Op::Wait(10), Op::Reorganise(2, false), Op::Wait(100), Op::Mine(8)];
        history(u128::MAX, &[&cancelled[..], &lost, &undone].concat(), |simulation| {
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
    let begin = [Op::Foreign(0), Op::BaseFee(236), Op::Revert, Op::Request(0), Op::Wait(10)];
    for forgotten in [false, true] {
        let lost = [Op::LateReceipts(90), Op::Mine(2), Op::Wait(500), Op::BaseFee(10)];
        let undone = [Op::Reorganise(2, forgotten), Op::Wait(100), Op::Mine(8)];
        history(u128::MAX, &[&begin[..], &lost, &undone].concat(), |simulation| {
            let signed = simulation.store.assignment(simulation.account(0), 1).unwrap().transactions;
            assert_eq!(signed[1].fees, signed[0].fees, "{signed:?}");
        });
    }
}

#[test]
fn gaps_that_a_windows_budget_does_not_fill_are_filled_in_the_next_ones() {
    let ops = [Op::WrongCount(14), Op::Request(0), Op::Request(1)];
    history(1_000_000 * GWEI, &ops, |_| {});
}
