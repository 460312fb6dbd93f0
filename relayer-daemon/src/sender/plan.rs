//! What to do next about one transaction in flight: the sender's decisions, without its hands.

use std::time::Duration;

use registry_core::forward::is_expired;

use crate::{
    classify::Verdict,
    fees::{Fees, Market},
    transaction::{NonceAssignment, Purpose, RelayTerms},
};

/// After how many blocks a transaction that the market should have taken is replaced all the same,
pub const STUCK_BLOCKS: u64 = 3;
/// but not before this long: some chains make four blocks a second.
pub const STUCK_AFTER: Duration = Duration::from_secs(6);
/// How long a transaction that was just sent is left alone, however many blocks are made.
pub const QUIET: Duration = Duration::from_secs(1);
/// After how long the same bytes are sent again where no block comes.
pub const RESEND_AFTER: Duration = Duration::from_secs(3);
/// How long past its deadline, by our clock, a request is given up: clocks differ.
const DEADLINE_GRACE_SECONDS: u64 = 30;

/// What is known about a nonce's latest transaction.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The nonce.
    pub slot: &'a NonceAssignment,
    /// The last verdict on its latest transaction.
    pub verdict: Verdict,
    /// Blocks since its latest transaction was last sent.
    pub blocks_since_send: u64,
    /// Blocks since its latest transaction was first sent.
    pub blocks_since_signed: u64,
    /// Time since its latest transaction was last sent.
    pub since_send: Duration,
    /// Time since its latest transaction was first sent.
    pub since_signed: Duration,
    /// The fee market.
    pub market: Market,
    /// The highest fee allowed.
    pub cap: u128,
    /// Unix seconds.
    pub now: u64,
    /// Whether the forwarder's nonce shows that the request was executed by somebody else; `None` if that was
    /// not asked yet.
    pub superseded: Option<bool>,
}

/// The next thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet.
    Wait,
    /// Send the same bytes again.
    Resend,
    /// Find out whether somebody else executed the request, then decide again.
    AskForwarder,
    /// Sign the same call with these fees and send that.
    Replace(Fees),
    /// Sign a no-op with these fees and send that.
    Cancel(Purpose, Fees),
}

/// Decides.
#[must_use]
pub fn next_step(situation: &Situation<'_>) -> Step {
    let Situation { slot, market, .. } = situation;
    let Some(latest) = slot.latest() else { return Step::Wait };
    let patience = if situation.blocks_since_send == 0 { RESEND_AFTER } else { QUIET };
    if situation.since_send < patience {
        return Step::Wait;
    }
    let bumped = latest.fees.bumped(market, situation.cap);
    let relay = slot.relay.filter(|_| latest.purpose == Purpose::Relay);

    if let (Some(relay), Some(fees)) = (relay, bumped)
        && let Some(reason) = hopeless(situation, &relay)
    {
        return Step::Cancel(reason, fees);
    }
    let outbid = market.next_base_fee > latest.fees.max_fee
        || matches!(situation.verdict, Verdict::Underpriced | Verdict::FeeTooLow)
        || (situation.blocks_since_signed >= STUCK_BLOCKS && situation.since_signed >= STUCK_AFTER);
    match (bumped, relay, situation.superseded) {
        (Some(_), Some(_), None) if outbid => Step::AskForwarder,
        (Some(fees), _, _) if outbid => Step::Replace(fees),
        // At the cap, or nothing wrong with the fees: it may have been dropped.
        _ => Step::Resend,
    }
}

/// Why a relay's transaction can no longer do any good, if so.
fn hopeless(situation: &Situation<'_>, relay: &RelayTerms) -> Option<Purpose> {
    if situation.superseded == Some(true) {
        return Some(Purpose::Superseded);
    }
    if is_expired(relay.deadline, situation.now.saturating_sub(DEADLINE_GRACE_SECONDS)) {
        return Some(Purpose::Expired);
    }
    (situation.verdict == Verdict::Rejected).then_some(Purpose::Rejected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::SignedTransaction;
    use alloy::primitives::{Address, B256, U256};

    const GWEI: u128 = 1_000_000_000;

    fn slot(purpose: Purpose, max_fee: u128, deadline: u64) -> NonceAssignment {
        let relay = RelayTerms {
            id: B256::ZERO,
            signer: Address::ZERO,
            forward_nonce: U256::ZERO,
            deadline,
            l1_fee_wei: 0,
        };
        let transaction = SignedTransaction {
            hash: B256::ZERO,
            raw: [].into(),
            fees: Fees { max_fee, tip: GWEI },
            gas_limit: 100_000,
            purpose,
        };
        NonceAssignment { nonce: 7, relay: Some(relay), transactions: vec![transaction] }
    }

    fn situation(slot: &NonceAssignment) -> Situation<'_> {
        Situation {
            slot,
            verdict: Verdict::Accepted,
            blocks_since_send: 1,
            blocks_since_signed: 1,
            since_send: QUIET,
            since_signed: QUIET,
            market: Market { head: 10, next_base_fee: GWEI, tip: GWEI },
            cap: 50 * GWEI,
            now: 1_000,
            superseded: None,
        }
    }

    #[test]
    fn nothing_is_done_before_a_block_or_some_seconds() {
        let slot = slot(Purpose::Relay, 3 * GWEI, 0);
        let just_sent = Situation { since_send: Duration::ZERO, ..situation(&slot) };
        assert_eq!(next_step(&just_sent), Step::Wait);
        let at_rest = Situation { blocks_since_send: 0, ..situation(&slot) };
        assert_eq!(next_step(&at_rest), Step::Wait);
        assert_eq!(next_step(&Situation { since_send: RESEND_AFTER, ..at_rest }), Step::Resend);
    }

    #[test]
    fn a_block_without_it_means_the_same_bytes_again() {
        let slot = slot(Purpose::Relay, 3 * GWEI, 0);
        for verdict in [Verdict::Accepted, Verdict::Unknown, Verdict::InsufficientFunds, Verdict::NonceTooLow]
        {
            assert_eq!(next_step(&Situation { verdict, ..situation(&slot) }), Step::Resend);
        }
    }

    #[test]
    fn a_market_that_moved_away_means_replacement_after_asking_the_forwarder() {
        let slot = slot(Purpose::Relay, 3 * GWEI, 0);
        let market = Market { next_base_fee: 10 * GWEI, ..situation(&slot).market };
        let outbid = Situation { market, ..situation(&slot) };
        assert_eq!(next_step(&outbid), Step::AskForwarder);
        let Step::Replace(fees) = next_step(&Situation { superseded: Some(false), ..outbid }) else {
            panic!("not replaced");
        };
        assert!(fees.max_fee >= 20 * GWEI && fees.tip * 10 >= GWEI * 11);
        let step = next_step(&Situation { superseded: Some(true), ..outbid });
        assert!(matches!(step, Step::Cancel(Purpose::Superseded, _)));
    }

    #[test]
    fn stuck_or_underpriced_is_replaced_too() {
        let slot = slot(Purpose::Relay, 3 * GWEI, 0);
        let known = Situation { superseded: Some(false), ..situation(&slot) };
        let stuck = Situation { blocks_since_signed: STUCK_BLOCKS, since_signed: STUCK_AFTER, ..known };
        assert!(matches!(next_step(&stuck), Step::Replace(_)));
        let fast_chain = Situation { since_signed: Duration::from_secs(1), ..stuck };
        assert_eq!(next_step(&fast_chain), Step::Resend);
        for verdict in [Verdict::Underpriced, Verdict::FeeTooLow] {
            assert!(matches!(next_step(&Situation { verdict, ..known }), Step::Replace(_)));
        }
    }

    #[test]
    fn at_the_cap_the_same_bytes_go_out_each_block() {
        let slot = slot(Purpose::Relay, 48 * GWEI, 0);
        let market = Market { next_base_fee: 100 * GWEI, ..situation(&slot).market };
        let capped = Situation { market, superseded: Some(false), ..situation(&slot) };
        assert_eq!(next_step(&capped), Step::Resend);
    }

    #[test]
    fn what_can_do_no_good_is_cancelled() {
        let slot = slot(Purpose::Relay, 3 * GWEI, 900);
        let expired = situation(&slot);
        assert!(matches!(next_step(&expired), Step::Cancel(Purpose::Expired, _)));
        let within_grace = Situation { now: 925, ..expired };
        assert_eq!(next_step(&within_grace), Step::Resend);
        let rejected = Situation { verdict: Verdict::Rejected, ..within_grace };
        assert!(matches!(next_step(&rejected), Step::Cancel(Purpose::Rejected, _)));
    }

    #[test]
    fn a_no_op_is_never_cancelled_again() {
        let slot = slot(Purpose::Superseded, 3 * GWEI, 1);
        let situation = Situation { superseded: Some(true), ..situation(&slot) };
        assert_eq!(next_step(&situation), Step::Resend);
        let market = Market { next_base_fee: 10 * GWEI, ..situation.market };
        assert!(matches!(next_step(&Situation { market, ..situation }), Step::Replace(_)));
    }
}
