//! The next step for one transaction in flight: rebroadcast, replace, cancel, or wait.
//!
//! A transaction is replaced when the market has outgrown its offer or a node called it underpriced, never
//! because time passes or the account is short of funds. The pool holds few of them, and all that need it are
//! replaced in one round: one by one, they would take as many blocks. Before each replacement the forwarder
//! is asked whether the request was executed elsewhere; if so, a no-op takes its place.

use std::time::Duration;

use registry_core::forward::is_expired;

use super::PATIENCE;
use crate::{
    chain::BroadcastVerdict,
    gas::fees::{Fees, Market},
    store::{NonceAssignment, RelayTerms, TransactionPurpose},
};

/// The least time between two sends of a transaction, however many blocks are made.
pub const QUIET: Duration = Duration::from_secs(1);
/// Time after which the same bytes are sent again if no block comes.
pub const RESEND_AFTER: Duration = Duration::from_secs(3);
/// Interval at which the forwarder is asked about a request that no block takes at a good price: a sequencer
/// may refuse it because it was executed elsewhere.
pub const STUCK_AFTER: Duration = PATIENCE;
/// Time for which a request is kept past its deadline by our clock, since clocks differ.
const DEADLINE_GRACE_SECONDS: u64 = 30;

/// The facts about a nonce's latest transaction.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The nonce.
    pub assignment: &'a NonceAssignment,
    /// The last verdict on its latest transaction.
    pub verdict: BroadcastVerdict,
    /// True for the lowest nonce that is not mined.
    pub is_lowest: bool,
    /// Blocks since its latest transaction was last sent.
    pub blocks_since_send: u64,
    /// Time since its latest transaction was last sent.
    pub since_send: Duration,
    /// Time since its latest transaction was signed.
    pub since_signed: Duration,
    /// Time since the forwarder was last asked about the request, or since it was signed.
    pub since_forwarder_asked: Duration,
    /// The fee market.
    pub market: Market,
    /// The highest fee allowed.
    pub cap: u128,
    /// Unix seconds.
    pub now: u64,
    /// True if the forwarder's nonce shows the request executed elsewhere; `None` if that was not asked yet.
    pub superseded: Option<bool>,
}

/// The next step for a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacementStep {
    /// Do nothing yet.
    Wait,
    /// Send the same bytes again.
    Resend,
    /// Ask whether the request was executed elsewhere, then decide again.
    AskForwarder,
    /// Sign the same call with these fees and send that.
    Replace(Fees),
    /// Sign a no-op with these fees and send that.
    Cancel(TransactionPurpose, Fees),
}

/// Decides the next step.
pub fn next_step(situation: &Situation<'_>) -> ReplacementStep {
    let Situation { assignment, market, verdict, .. } = situation;
    let Some(latest) = assignment.latest() else { return ReplacementStep::Wait };
    // A node that wants the lower nonces first may have them by now.
    let waits = situation.blocks_since_send == 0 && *verdict != BroadcastVerdict::NonceTooHigh;
    let pause = if waits { RESEND_AFTER } else { QUIET };
    if situation.since_send < pause {
        return ReplacementStep::Wait;
    }
    let relay = assignment.relay.filter(|_| latest.purpose == TransactionPurpose::Relay);
    if let Some(reason) = relay.and_then(|relay| unpayable(situation, &relay)) {
        let outbids = latest.fees.of_cancellation(market, situation.cap);
        // No node holds what all of them refuse, but they may hold what that has replaced.
        let fees = match verdict {
            BroadcastVerdict::Rejected | BroadcastVerdict::InsufficientFunds => {
                outbids.or(latest.fees.of_substitute(market, situation.cap))
            }
            _ => outbids,
        };
        return fees.map_or(ReplacementStep::Resend, |fees| ReplacementStep::Cancel(reason, fees));
    }
    let called_cheap = matches!(verdict, BroadcastVerdict::Underpriced | BroadcastVerdict::FeeTooLow);
    let too_cheap = *verdict != BroadcastVerdict::InsufficientFunds
        && (called_cheap || market.has_outgrown(&latest.fees));
    // The higher ones wait for the lowest.
    let stuck = situation.is_lowest && situation.since_forwarder_asked >= STUCK_AFTER;
    // At the cap, or at four times the market, no better offer is allowed.
    let fees = latest.fees.bumped(market, situation.cap).filter(|_| too_cheap);
    match (relay, situation.superseded, fees) {
        (Some(_), None, fees) if fees.is_some() || stuck => ReplacementStep::AskForwarder,
        (_, _, Some(fees)) => ReplacementStep::Replace(fees),
        (_, _, None) => ReplacementStep::Resend,
    }
}

/// The reason to cancel a relay's transaction, if there is one.
fn unpayable(situation: &Situation<'_>, relay: &RelayTerms) -> Option<TransactionPurpose> {
    if situation.superseded == Some(true) {
        return Some(TransactionPurpose::Superseded);
    }
    if is_expired(relay.deadline, situation.now.saturating_sub(DEADLINE_GRACE_SECONDS)) {
        return Some(TransactionPurpose::Expired);
    }
    let rejected = situation.verdict == BroadcastVerdict::Rejected && situation.since_signed >= PATIENCE;
    rejected.then_some(TransactionPurpose::Rejected)
}

#[cfg(test)]
mod tests {
    use super::{ReplacementStep::*, *};
    use crate::store::SignedTransaction;
    use alloy::primitives::B256;

    const GWEI: u128 = 1_000_000_000;

    fn assignment(purpose: TransactionPurpose, max_fee: u128, deadline: u64) -> NonceAssignment {
        let relay = RelayTerms { deadline, ..RelayTerms::default() };
        let transaction = SignedTransaction {
            hash: B256::ZERO,
            raw: [].into(),
            fees: Fees { max_fee, tip: GWEI },
            gas_limit: 100_000,
            purpose,
        };
        NonceAssignment { nonce: 7, relay: Some(relay), transactions: vec![transaction] }
    }

    fn situation(assignment: &NonceAssignment) -> Situation<'_> {
        Situation {
            assignment,
            verdict: BroadcastVerdict::Accepted,
            is_lowest: true,
            blocks_since_send: 1,
            since_send: QUIET,
            since_signed: QUIET,
            since_forwarder_asked: QUIET,
            market: Market { head: 10, next_base_fee: GWEI, tip: GWEI },
            cap: 50 * GWEI,
            now: 1_000,
            superseded: None,
        }
    }

    #[test]
    fn nothing_is_done_before_a_block_or_some_seconds() {
        let nonce = assignment(TransactionPurpose::Relay, 3 * GWEI, 0);
        let just_sent = Situation { since_send: Duration::ZERO, ..situation(&nonce) };
        assert_eq!(next_step(&just_sent), Wait);
        let at_rest = Situation { blocks_since_send: 0, ..situation(&nonce) };
        assert_eq!(next_step(&at_rest), Wait);
        assert_eq!(next_step(&Situation { since_send: RESEND_AFTER, ..at_rest }), Resend);
        let too_early = Situation { verdict: BroadcastVerdict::NonceTooHigh, ..at_rest };
        assert_eq!(next_step(&too_early), Resend, "the lower nonces may be there now");
    }

    #[test]
    fn a_block_without_it_means_the_same_bytes_again() {
        let nonce = assignment(TransactionPurpose::Relay, 3 * GWEI, 0);
        for verdict in [
            BroadcastVerdict::Accepted,
            BroadcastVerdict::Unknown,
            BroadcastVerdict::InsufficientFunds,
            BroadcastVerdict::NonceTooLow,
        ] {
            assert_eq!(next_step(&Situation { verdict, ..situation(&nonce) }), Resend);
        }
    }

    #[test]
    fn a_market_that_moved_away_means_replacement_after_asking_the_forwarder() {
        let nonce = assignment(TransactionPurpose::Relay, 3 * GWEI, 0);
        let market = Market { next_base_fee: 10 * GWEI, ..situation(&nonce).market };
        let outbid = Situation { market, ..situation(&nonce) };
        assert_eq!(next_step(&outbid), AskForwarder);
        let Replace(fees) = next_step(&Situation { superseded: Some(false), ..outbid }) else {
            panic!("not replaced");
        };
        assert!(fees.max_fee >= 20 * GWEI && fees.tip * 10 >= GWEI * 11);
        let step = next_step(&Situation { superseded: Some(true), ..outbid });
        assert!(matches!(step, Cancel(TransactionPurpose::Superseded, _)));
    }

    #[test]
    fn an_unwilling_sequencer_at_a_flat_market_is_offered_no_more() {
        let nonce = assignment(TransactionPurpose::Relay, 3 * GWEI, 0);
        let hours = Duration::from_secs(7_200);
        let waiting = Situation { blocks_since_send: 3_600, since_signed: hours, ..situation(&nonce) };
        for verdict in
            [BroadcastVerdict::Accepted, BroadcastVerdict::Unknown, BroadcastVerdict::InsufficientFunds]
        {
            assert_eq!(next_step(&Situation { verdict, ..waiting }), Resend, "{verdict:?}");
        }
    }

    #[test]
    fn what_no_block_takes_is_asked_about_now_and_then() {
        let nonce = assignment(TransactionPurpose::Relay, 3 * GWEI, 0);
        let stuck = Situation { since_forwarder_asked: STUCK_AFTER, ..situation(&nonce) };
        assert_eq!(next_step(&stuck), AskForwarder);
        assert_eq!(next_step(&Situation { superseded: Some(false), ..stuck }), Resend);
        let step = next_step(&Situation { superseded: Some(true), ..stuck });
        assert!(matches!(step, Cancel(TransactionPurpose::Superseded, _)));
    }

    #[test]
    fn called_underpriced_is_replaced_up_to_four_times_the_market() {
        let nonce = assignment(TransactionPurpose::Relay, 3 * GWEI, 0);
        let known = Situation { superseded: Some(false), ..situation(&nonce) };
        for verdict in [BroadcastVerdict::Underpriced, BroadcastVerdict::FeeTooLow] {
            assert!(matches!(next_step(&Situation { verdict, ..known }), Replace(_)));
        }
        let dear = assignment(TransactionPurpose::Relay, 15 * GWEI / 2, 0);
        let verdict = BroadcastVerdict::Underpriced;
        assert_eq!(next_step(&Situation { assignment: &dear, verdict, ..known }), Resend);
    }

    #[test]
    fn a_shortage_of_funds_is_not_answered_by_offering_more() {
        let nonce = assignment(TransactionPurpose::Relay, 3 * GWEI, 0);
        let market = Market { next_base_fee: 10 * GWEI, ..situation(&nonce).market };
        let outgrown = Situation { market, superseded: Some(false), ..situation(&nonce) };
        assert!(matches!(next_step(&outgrown), Replace(_)));
        let short = Situation { verdict: BroadcastVerdict::InsufficientFunds, ..outgrown };
        assert_eq!(next_step(&short), Resend);
    }

    #[test]
    fn whatever_the_market_has_outgrown_is_replaced_and_only_the_lowest_is_asked_about_without_that() {
        let nonce = assignment(TransactionPurpose::Relay, 3 * GWEI, 0);
        let market = Market { next_base_fee: 10 * GWEI, ..situation(&nonce).market };
        let behind = Situation { is_lowest: false, market, ..situation(&nonce) };
        assert_eq!(next_step(&behind), AskForwarder);
        assert!(matches!(next_step(&Situation { superseded: Some(false), ..behind }), Replace(_)));
        let stuck = Situation { is_lowest: false, since_forwarder_asked: STUCK_AFTER, ..situation(&nonce) };
        assert_eq!(next_step(&stuck), Resend);
    }

    #[test]
    fn at_the_cap_the_same_bytes_go_out_each_block() {
        let nonce = assignment(TransactionPurpose::Relay, 48 * GWEI, 0);
        let market = Market { next_base_fee: 100 * GWEI, ..situation(&nonce).market };
        let capped = Situation { market, superseded: Some(false), ..situation(&nonce) };
        assert_eq!(next_step(&capped), Resend);
    }

    #[test]
    fn what_is_not_worth_its_gas_is_cancelled() {
        let nonce = assignment(TransactionPurpose::Relay, 3 * GWEI, 900);
        let expired = situation(&nonce);
        assert!(matches!(next_step(&expired), Cancel(TransactionPurpose::Expired, _)));
        let within_grace = Situation { now: 925, ..expired };
        assert_eq!(next_step(&within_grace), Resend);
        let rejected = Situation { verdict: BroadcastVerdict::Rejected, ..within_grace };
        assert_eq!(next_step(&rejected), Resend, "one answer ends nothing");
        let rejected = Situation { since_signed: PATIENCE, ..rejected };
        assert!(matches!(next_step(&rejected), Cancel(TransactionPurpose::Rejected, _)));
    }

    #[test]
    fn what_every_node_refuses_is_cancelled_in_any_market_and_at_the_cap() {
        let nonce = assignment(TransactionPurpose::Relay, 30 * GWEI, 0);
        let market = Market { next_base_fee: GWEI / 10, tip: 0, ..situation(&nonce).market };
        let rejected = Situation {
            verdict: BroadcastVerdict::Rejected,
            since_signed: PATIENCE,
            market,
            ..situation(&nonce)
        };
        let Cancel(TransactionPurpose::Rejected, fees) = next_step(&rejected) else {
            panic!("not cancelled")
        };
        assert_eq!(fees.max_fee, 33 * GWEI, "outbids what another machine may hold");
        let at_the_cap = Situation { cap: 30 * GWEI, ..rejected };
        // It outbids what the refused one has replaced.
        let same = nonce.latest().unwrap().fees;
        assert_eq!(next_step(&at_the_cap), Cancel(TransactionPurpose::Rejected, same));
        let superseded = Situation { superseded: Some(true), ..at_the_cap };
        // A no-op needs less funds.
        let unfunded = Situation { verdict: BroadcastVerdict::InsufficientFunds, ..superseded };
        assert_eq!(next_step(&unfunded), Cancel(TransactionPurpose::Superseded, same));
        // What a node may hold is not cancelled for less.
        let held = Situation { verdict: BroadcastVerdict::Accepted, ..superseded };
        assert_eq!(next_step(&held), Resend);
    }

    #[test]
    fn a_no_op_is_never_cancelled_again() {
        let nonce = assignment(TransactionPurpose::Superseded, 3 * GWEI, 1);
        let situation = Situation { superseded: Some(true), ..situation(&nonce) };
        assert_eq!(next_step(&situation), Resend);
        let market = Market { next_base_fee: 10 * GWEI, ..situation.market };
        assert!(matches!(next_step(&Situation { market, ..situation }), Replace(_)));
    }
}
