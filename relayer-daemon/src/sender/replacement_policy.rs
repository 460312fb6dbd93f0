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
    /// True if the operator has cancelled the relay.
    pub is_cancelled: bool,
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

/// Returns the reason to cancel a relay's transaction, if there is one.
fn unpayable(situation: &Situation<'_>, relay: &RelayTerms) -> Option<TransactionPurpose> {
    if situation.superseded == Some(true) {
        return Some(TransactionPurpose::Superseded);
    }
    if situation.is_cancelled {
        return Some(TransactionPurpose::Cancelled);
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
    use BroadcastVerdict::{
        Accepted, FeeTooLow, InsufficientFunds, NonceTooHigh, NonceTooLow, Underpriced, Unknown,
    };
    use TransactionPurpose::{Rejected, Relay, Superseded};
    use alloy::primitives::B256;

    const GWEI: u128 = 1_000_000_000;

    fn assignment(purpose: TransactionPurpose, max_fee: u128, deadline: u64) -> NonceAssignment {
        let relay = RelayTerms { deadline, ..RelayTerms::default() };
        let fees = Fees { max_fee, tip: GWEI };
        let transaction =
            SignedTransaction { hash: B256::ZERO, raw: [].into(), fees, gas_limit: 100_000, purpose };
        NonceAssignment { nonce: 7, relay: Some(relay), transactions: vec![transaction] }
    }

    /// Returns a relay at a good price, sent in the block before.
    fn relay() -> NonceAssignment {
        assignment(Relay, 3 * GWEI, 0)
    }

    fn market(next_base_fee: u128) -> Market {
        Market { head: 10, next_base_fee, tip: GWEI }
    }

    fn situation(assignment: &NonceAssignment) -> Situation<'_> {
        Situation {
            assignment,
            verdict: Accepted,
            is_lowest: true,
            blocks_since_send: 1,
            since_send: QUIET,
            since_signed: QUIET,
            since_forwarder_asked: QUIET,
            market: market(GWEI),
            cap: 50 * GWEI,
            now: 1_000,
            superseded: None,
            is_cancelled: false,
        }
    }

    /// Returns the step without its fees, which are asserted where they matter.
    fn step(situation: &Situation<'_>) -> String {
        match next_step(situation) {
            Replace(_) => "Replace".to_owned(),
            Cancel(purpose, _) => format!("Cancel {purpose:?}"),
            step => format!("{step:?}"),
        }
    }

    #[test]
    fn each_situation_has_its_step() {
        let (nonce, dear, capped) =
            (relay(), assignment(Relay, 15 * GWEI / 2, 0), assignment(Relay, 48 * GWEI, 0));
        let (expiring, no_op) = (assignment(Relay, 3 * GWEI, 900), assignment(Superseded, 3 * GWEI, 1));
        let usual = situation(&nonce);
        let at_rest = Situation { blocks_since_send: 0, ..usual };
        // However long an unwilling sequencer takes at a flat market, it is offered no more.
        let late = Situation { blocks_since_send: 3_600, since_signed: Duration::from_secs(7_200), ..usual };
        let outbid = Situation { market: market(10 * GWEI), ..usual };
        let known = Situation { superseded: Some(false), ..usual };
        let outgrown = Situation { superseded: Some(false), ..outbid };
        let stuck = Situation { since_forwarder_asked: STUCK_AFTER, ..usual };
        let within_grace = Situation { now: 925, ..situation(&expiring) };
        let refused = Situation { verdict: BroadcastVerdict::Rejected, ..within_grace };
        let cancelled = Situation { superseded: Some(true), ..situation(&no_op) };
        let mut rows = vec![
            // Nothing is done before a block or some seconds.
            (at_rest, "Wait"),
            (Situation { since_send: Duration::ZERO, ..usual }, "Wait"),
            (Situation { since_send: RESEND_AFTER, ..at_rest }, "Resend"),
            // The lower nonces may be there now.
            (Situation { verdict: NonceTooHigh, ..at_rest }, "Resend"),
            // A market that moved away means replacement after asking the forwarder.
            (outbid, "AskForwarder"),
            (Situation { is_lowest: false, ..outbid }, "AskForwarder"),
            (outgrown, "Replace"),
            (Situation { is_lowest: false, ..outgrown }, "Replace"),
            (Situation { superseded: Some(true), ..outbid }, "Cancel Superseded"),
            (Situation { superseded: Some(true), is_lowest: false, ..outbid }, "Cancel Superseded"),
            // A shortage of funds is not answered by offering more.
            (Situation { verdict: InsufficientFunds, ..outgrown }, "Resend"),
            // The lowest that no block takes is asked about now and then.
            (stuck, "AskForwarder"),
            (Situation { is_lowest: false, ..stuck }, "Resend"),
            (Situation { superseded: Some(false), ..stuck }, "Resend"),
            (Situation { superseded: Some(true), ..stuck }, "Cancel Superseded"),
            // At the cap the same bytes go out each block.
            (Situation { assignment: &capped, market: market(100 * GWEI), ..known }, "Resend"),
            // What is not worth its gas is cancelled, and one answer ends nothing.
            (situation(&expiring), "Cancel Expired"),
            (within_grace, "Resend"),
            (refused, "Resend"),
            (Situation { since_signed: PATIENCE, ..refused }, "Cancel Rejected"),
            (Situation { is_cancelled: true, ..usual }, "Cancel Cancelled"),
            (Situation { is_cancelled: true, ..at_rest }, "Wait"),
            (Situation { is_cancelled: true, superseded: Some(true), ..usual }, "Cancel Superseded"),
            // A no-op is never cancelled again.
            (cancelled, "Resend"),
            (Situation { market: market(10 * GWEI), ..cancelled }, "Replace"),
        ];
        for verdict in [Accepted, Unknown, InsufficientFunds, NonceTooLow] {
            rows.extend([usual, late].map(|waiting| (Situation { verdict, ..waiting }, "Resend")));
        }
        // Called underpriced, it is replaced up to four times the market.
        for verdict in [Underpriced, FeeTooLow] {
            let cheap = Situation { verdict, ..known };
            rows.extend([(cheap, "Replace"), (Situation { assignment: &dear, ..cheap }, "Resend")]);
        }
        for (situation, expected) in rows {
            assert_eq!(step(&situation), expected, "{situation:?}");
        }
        let Replace(fees) = next_step(&outgrown) else { panic!("not replaced") };
        assert!(fees.max_fee >= 20 * GWEI && fees.tip * 10 >= GWEI * 11);
    }

    #[test]
    fn what_every_node_refuses_is_cancelled_in_any_market_and_at_the_cap() {
        let nonce = assignment(Relay, 30 * GWEI, 0);
        let market = Market { tip: 0, ..market(GWEI / 10) };
        let (verdict, since_signed) = (BroadcastVerdict::Rejected, PATIENCE);
        let rejected = Situation { verdict, since_signed, market, ..situation(&nonce) };
        let Cancel(Rejected, fees) = next_step(&rejected) else { panic!("not cancelled") };
        assert_eq!(fees.max_fee, 33 * GWEI, "outbids what another machine may hold");
        let at_the_cap = Situation { cap: 30 * GWEI, ..rejected };
        let superseded = Situation { superseded: Some(true), ..at_the_cap };
        let same = nonce.latest().unwrap().fees;
        for (situation, expected) in [
            // It outbids what the refused one has replaced.
            (at_the_cap, Cancel(Rejected, same)),
            // A no-op needs less funds.
            (Situation { verdict: InsufficientFunds, ..superseded }, Cancel(Superseded, same)),
            // A transaction that a node may hold is not cancelled for less.
            (Situation { verdict: Accepted, ..superseded }, Resend),
        ] {
            assert_eq!(next_step(&situation), expected, "{situation:?}");
        }
    }
}
