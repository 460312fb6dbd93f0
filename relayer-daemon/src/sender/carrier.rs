//! The rule that says which daemon's accounts carry relays now. By it relays are taken in, checked, handed
//! over and claimed, and `/readyz` says that requests are refused.
//!
//! | the accounts | carried by |
//! |---|---|
//! | each one, at all daemons, is cordoned | [`Carrier::Paused`] |
//! | none here takes relays | [`Carrier::Others`] |
//! | the best one is another daemon's | [`Carrier::Others`] |
//! | none here is able, and another's state is unknown, as while it changes daemons | [`Carrier::Others`] |
//! | all else | [`Carrier::Here`] |
//!
//! The states have one order for all daemons, so that of two with the same knowledge one keeps the relay.

use super::health::AccountState;
use crate::outcome::ErrorCode;

/// The daemon that carries relays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// This one: one of its accounts sends a relay, or it ends for want of one that is able.
    Here,
    /// Another one, which takes the relays that are handed over.
    Others,
    /// None before an account is uncordoned: accepted relays wait, and no new ones are taken in.
    Paused,
}

/// The states of the accounts, as far as a daemon knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownStates {
    /// The best of this daemon's accounts; `Elsewhere` without one that takes relays.
    pub(super) own: AccountState,
    /// The best of the others; `Elsewhere` where none is known.
    pub(super) others: AccountState,
    /// True if the state of any account is not known.
    pub(super) is_any_unknown: bool,
}

impl KnownStates {
    pub(super) fn carrier(self) -> Carrier {
        let may_come = self.is_any_unknown && !self.own.is_able();
        if self.own.min(self.others) == AccountState::Cordoned && !self.is_any_unknown {
            Carrier::Paused
        } else if self.own == AccountState::Elsewhere || self.others < self.own || may_come {
            Carrier::Others
        } else {
            Carrier::Here
        }
    }

    /// Returns why new requests make no sense, if so: no account of any daemon is able to send.
    pub(super) fn refuses(self) -> Option<ErrorCode> {
        if self.is_any_unknown {
            return None;
        }
        match self.own.min(self.others) {
            AccountState::Ready | AccountState::Short | AccountState::Stuck | AccountState::Elsewhere => None,
            AccountState::SignerFailed => Some(ErrorCode::SignerFailed),
            AccountState::Empty => Some(ErrorCode::RelayerBalanceTooLow),
            AccountState::Delegated => Some(ErrorCode::AccountDelegated),
            AccountState::Cordoned => Some(ErrorCode::IntakePaused),
        }
    }

    /// Returns whether a relay that no account of this daemon can pay for waits here: an account that can may
    /// come, or be another daemon's that is stuck. Other relays do not leave for a stuck one.
    pub(super) fn awaits_account(self) -> bool {
        let may_come = self.is_any_unknown && self.others != AccountState::Ready;
        (may_come || self.others == AccountState::Stuck) && self.carrier() == Carrier::Here
    }

    /// Returns why a relay that no account of this daemon can pay for ends here, if it does.
    pub(super) fn ends(self) -> Option<ErrorCode> {
        (self.carrier() == Carrier::Here).then_some(match self.own {
            AccountState::Delegated => ErrorCode::AccountDelegated,
            // One is empty, or cannot pay beside what it has in flight.
            _ => ErrorCode::RelayerBalanceTooLow,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(own: AccountState, others: AccountState) -> KnownStates {
        KnownStates { own, others, is_any_unknown: false }
    }

    #[test]
    fn of_two_daemons_that_know_each_others_accounts_one_at_least_keeps_a_relay() {
        let keeps = |own, others| known(own, others).carrier() == Carrier::Here;
        for a in AccountState::ALL {
            for b in AccountState::ALL.into_iter().filter(|b| a.min(*b) < AccountState::Cordoned) {
                let expected = if a == b { [true, true] } else { [a < b, b < a] };
                assert_eq!([keeps(a, b), keeps(b, a)], expected, "{a:?} {b:?}");
            }
        }
        assert!(!keeps(AccountState::Elsewhere, AccountState::Elsewhere), "it has no account");
        for own in [AccountState::Cordoned, AccountState::Elsewhere] {
            assert_eq!(known(own, AccountState::Cordoned).carrier(), Carrier::Paused);
        }
        for own in AccountState::ALL {
            let states = KnownStates { is_any_unknown: true, ..known(own, AccountState::Elsewhere) };
            assert_eq!(states.carrier() == Carrier::Here, own.is_able(), "{own:?}: another may be able");
            assert_eq!(states.refuses(), None);
            assert_eq!(states.awaits_account(), own.is_able(), "{own:?}: another may hold enough");
            assert!(!KnownStates { others: AccountState::Ready, ..states }.awaits_account(), "it may pay");
            assert!(!known(own, AccountState::Elsewhere).awaits_account());
            let is_best = own <= AccountState::Stuck;
            assert_eq!(known(own, AccountState::Stuck).awaits_account(), is_best, "{own:?}: it may pay");
            assert!(!known(own, AccountState::Short).awaits_account(), "{own:?}: that one cannot pay either");
        }
    }

    #[test]
    fn requests_are_refused_where_no_account_is_able_for_the_reason_of_the_best_one() {
        use AccountState::{Cordoned, Delegated, Empty, Ready, Short, SignerFailed, Stuck};
        for (own, others, code) in [
            (Empty, Ready, None),
            (Empty, Stuck, None),
            (Empty, Short, None),
            (Cordoned, SignerFailed, Some(ErrorCode::SignerFailed)),
            (Cordoned, Empty, Some(ErrorCode::RelayerBalanceTooLow)),
            (Cordoned, Delegated, Some(ErrorCode::AccountDelegated)),
            (Cordoned, Cordoned, Some(ErrorCode::IntakePaused)),
        ] {
            assert_eq!(known(own, others).refuses(), code, "{own:?} {others:?}");
            assert_eq!(known(others, own).refuses(), code, "{own:?} {others:?}");
        }
    }
}
