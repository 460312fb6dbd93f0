//! The health of one account: funds, signer, code and stalled loops. An unhealthy account gets no relays; the
//! others go on.

use std::{fmt::Display, time::Duration};

use tokio::time::Instant;

use super::{Sender, SenderState, nonce_state::NonceState};
pub use crate::store::AccountState;
use crate::{chain::ChainNode, metrics::gauge_value, signer::SignerError};

/// An account must hold this much, wei (service.md section 8: 0.001 ETH).
pub const MINIMUM_BALANCE_WEI: u128 = 1_000_000_000_000_000;
/// Age of the oldest transaction in flight from which on the account counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);
/// Time without a finished round after which the loops count as stalled; idle ones finish one every 15
/// seconds.
const SILENCE: Duration = Duration::from_secs(45);
/// Time for which an account that could give no nonce is passed over.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// Time within which a signer's failure may be over, as one of a single transaction is: by then it was tried
/// again, more than once.
const SIGNER_PATIENCE: Duration = Duration::from_secs(5);
/// Time for which relays go to another daemon's account, after this one could not pay for one of them.
const SHORT_FOR: Duration = Duration::from_secs(60);

/// The facts about an account besides its nonces.
#[derive(Debug, Default)]
pub(super) struct AccountHealth {
    /// The balance that was last read, wei.
    balance_wei: Option<u128>,
    /// The most that a relay could cost which it could not pay for, wei, and when.
    short: Option<(u128, Instant)>,
    /// True if it has code.
    delegated: bool,
    /// Time since which its signer does not sign, if so.
    signer_failed_at: Option<Instant>,
    /// Time at which its loops last finished a round.
    pub(super) round_at: Option<Instant>,
    /// Time at which it could give no nonce, unless it has given one since.
    pub(super) failed_at: Option<Instant>,
}

impl SenderState {
    fn account_state(&self) -> AccountState {
        let has_failed = self.health.failed_at.is_some_and(|at| at.elapsed() < AFTER_FAILURE);
        let signs = self.health.signer_failed_at.is_none();
        match self.lasting_state() {
            AccountState::Ready | AccountState::Stuck if !signs => AccountState::SignerFailed,
            AccountState::Ready if has_failed => AccountState::Stuck,
            state => state,
        }
    }

    /// Returns the state without what is over within seconds.
    fn lasting_state(&self) -> AccountState {
        let AccountHealth { balance_wei, delegated, signer_failed_at, round_at, .. } = &self.health;
        let longer = |since: &Option<Instant>, limit| since.is_some_and(|since| since.elapsed() > limit);
        let oldest =
            self.nonces.values().filter_map(NonceState::in_flight).map(|nonce| nonce.opened_at).min();
        if *delegated {
            AccountState::Delegated
        } else if balance_wei.is_some_and(|wei| wei < MINIMUM_BALANCE_WEI) {
            AccountState::Empty
        } else if longer(signer_failed_at, SIGNER_PATIENCE) {
            AccountState::SignerFailed
        } else if longer(&oldest, STUCK_AFTER) || longer(round_at, SILENCE) {
            AccountState::Stuck
        } else {
            AccountState::Ready
        }
    }

    /// Returns the expected cost of the relays in flight and in the queue, wei.
    fn expected_wei(&self) -> u128 {
        let in_flight = self.nonces.values().filter_map(NonceState::in_flight);
        let in_flight = in_flight.map(|nonce| nonce.assignment.expected_wei());
        let queued = self.queue.iter().map(super::SendJob::expected_wei);
        in_flight.chain(queued).chain([self.assigning.1]).fold(0, u128::saturating_add)
    }
}

impl<N: ChainNode> Sender<N> {
    /// Returns the account's state.
    pub fn account_state(&self) -> AccountState {
        if self.is_cordoned() { AccountState::Cordoned } else { self.state().account_state() }
    }

    /// Returns the state by which daemons choose where relays go, without what is over within seconds.
    /// `Elsewhere` where the account is given back and its next holder may send with it, `Empty` also where
    /// all that it holds is needed for what it has, and `Short` where it cannot pay for a recent relay.
    pub(super) fn lasting_state(&self) -> AccountState {
        if self.is_cordoned() {
            return AccountState::Cordoned;
        }
        if !self.parts.lease.is_valid() {
            return AccountState::Elsewhere;
        }
        // Not in the match, which would hold the lock.
        let state = self.state().lasting_state();
        match state {
            state if state.is_able() && !self.can_pay(0) => AccountState::Empty,
            state if state.is_able() && self.parts.lease.is_ending() => AccountState::Elsewhere,
            AccountState::Ready if self.is_short() => AccountState::Short,
            state => state,
        }
    }

    /// Notes that the account could not pay for a relay that may cost so much, wei.
    pub(super) fn fell_short(&self, wei: u128) {
        let mut state = self.state();
        let recent = state.health.short.filter(|(_, at)| at.elapsed() < SHORT_FOR);
        state.health.short = Some((recent.map_or(wei, |(most, _)| most.max(wei)), Instant::now()));
    }

    /// Returns whether the account still cannot pay for a relay that came lately.
    fn is_short(&self) -> bool {
        let recent = self.state().health.short.filter(|(_, at)| at.elapsed() < SHORT_FOR);
        recent.is_some_and(|(wei, _)| !self.can_pay(wei))
    }

    /// Returns whether the operator has taken the account out.
    pub fn is_cordoned(&self) -> bool {
        self.parts.orders.current().cordoned.contains_key(&self.account())
    }

    /// Returns the number of relays that the account has in its queue and in the pool.
    pub fn load(&self) -> usize {
        let state = self.state();
        state.queue.len().saturating_add(state.assigning.0).saturating_add(state.open())
    }

    /// Returns whether the account has room for one more relay.
    pub(super) fn has_room(&self) -> bool {
        self.load() < self.parts.max_pending
    }

    /// Returns the number of the account's transactions that wait to be mined.
    pub fn pending(&self) -> usize {
        self.state().nonces.values().filter(|state| state.in_flight().is_some()).count()
    }

    /// Returns whether the balance that was last read pays for the relays in flight and for `wei` more.
    pub(super) fn can_pay(&self, wei: u128) -> bool {
        let state = self.state();
        let needed = state.expected_wei().saturating_add(wei);
        state.health.balance_wei.is_none_or(|balance| needed <= balance)
    }

    /// Returns the balance that was last read, wei; 0 before the first read.
    pub(super) fn balance_wei(&self) -> u128 {
        self.state().health.balance_wei.unwrap_or_default()
    }

    /// Notes the account's balance. The metrics have it only while the account is this daemon's.
    pub fn saw_balance(&self, wei: u128) {
        let was = self.account_state();
        self.state().health.balance_wei = Some(wei);
        if self.parts.lease.is_valid() {
            let account = self.account().to_string();
            self.parts.metrics.balance_wei.with_label_values(&[account.as_str()]).set(gauge_value(wei));
        }
        self.tell_change(was);
    }

    /// Notes whether the account has code.
    pub fn saw_code(&self, has_code: bool) {
        let was = self.account_state();
        self.state().health.delegated = has_code;
        self.tell_change(was);
    }

    /// Returns whether the signer failed to sign when it was last asked.
    pub(super) fn has_signer_failed(&self) -> bool {
        self.state().health.signer_failed_at.is_some()
    }

    /// Notes that the signer does not sign, and why.
    pub fn signer_failed(&self, why: &impl Display) {
        let account = self.account();
        let mut state = self.state();
        let before = state.health.signer_failed_at;
        state.health.signer_failed_at = before.or_else(|| Some(Instant::now()));
        drop(state);
        if before.is_some() {
            tracing::debug!(%account, %why, "not signed");
            return;
        }
        tracing::error!(%account, %why, "not signed: the account gets no relays until its signer signs again");
        self.signer_failed.notify_one();
    }

    pub(super) fn signer_works(&self) {
        if self.state().health.signer_failed_at.take().is_some() {
            tracing::info!(account = %self.account(), "the account's signer signs again");
            self.made_room();
        }
    }

    /// Notes whether the signer has signed.
    pub(super) fn noted<T>(&self, signed: Result<T, SignerError>) -> Result<T, SignerError> {
        match &signed {
            Ok(_) => self.signer_works(),
            Err(error) => self.signer_failed(error),
        }
        signed
    }

    fn tell_change(&self, was: AccountState) {
        let is = self.account_state();
        if was == is {
            return;
        }
        let account = self.account();
        if is.is_able() {
            tracing::info!(%account, state = is.name(), "the account gets relays again");
            // Relays may wait for an account that can take them.
            self.made_room();
        } else {
            tracing::error!(%account, state = is.name(), "the account gets no more relays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn relays_leave_an_account_that_does_not_sign_at_once_and_the_daemon_once_that_has_lasted() {
        let mut state = SenderState::default();
        let states = |state: &SenderState| (state.account_state(), state.lasting_state());
        assert_eq!(states(&state), (AccountState::Ready, AccountState::Ready));
        state.health.signer_failed_at = Some(Instant::now());
        assert_eq!(states(&state), (AccountState::SignerFailed, AccountState::Ready));
        tokio::time::advance(SIGNER_PATIENCE + Duration::from_millis(1)).await;
        assert_eq!(states(&state), (AccountState::SignerFailed, AccountState::SignerFailed));
        state.health.signer_failed_at = None;
        assert_eq!(states(&state), (AccountState::Ready, AccountState::Ready));
    }

    #[test]
    fn every_alert_and_every_state_has_a_line_in_the_runbook() {
        const RUNBOOK: &str = include_str!("../../../docs/relayer-runbook.md");
        let alerts = include_str!("../../ops/alerts.yaml").lines();
        let alerts: Vec<&str> = alerts.filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
        assert!(alerts.len() > 20, "{alerts:?}");
        let states = AccountState::ALL.into_iter().filter(|state| *state != AccountState::Short);
        for name in alerts.into_iter().chain(states.map(AccountState::name)) {
            assert!(RUNBOOK.contains(&format!("\n| `{name}` |")), "{name}");
        }
    }
}
