//! The decision on one request, without I/O: signature, verdict, policy, and last of all the nonce. Each host
//! drives it: the daemon, and the package's gate in a service's own process.
//!
//! ```text
//!   decide --> Account --answer--> Nonce --answer--> Done(Admitted)
//!     |         |  ^                 |
//!     |         |  +-- next candidate, where this one is refused
//!     v         v                    v
//!    Done      Done: denied, unavailable, or no candidate left
//! ```
//!
//! Each step is a value that its answer consumes: a nonce cannot be spent for a request that is not admitted.

use std::sync::Arc;

use super::{
    answer::{Outcome, Subject, Unavailable},
    candidate::{AccountState, Attempt},
    policy::{AgentPolicy, Verdict},
    refusal::RefusalCode,
    request::Request,
    settings::RoutePolicy,
    verifier::Attempts,
};
use crate::eth::timestamp::Timestamp;

/// What the host does next.
#[derive(Debug)]
pub enum DecisionStep<'a> {
    /// It asks for an account and its verdict.
    Account(AccountStep<'a>),
    /// It spends a nonce.
    Nonce(NonceStep<'a>),
    /// Nothing: this became of the request.
    Done(Outcome),
}

/// What became of a nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spending {
    /// It is spent now.
    Spent,
    /// It was spent before.
    Reused,
    /// The signature is older than the store, which cannot say whether its nonce was spent.
    SignedBeforeStart,
    /// No further nonce can be remembered.
    Full,
    /// The store did not answer: the nonce may be spent now.
    Unavailable,
}

/// A candidate that needs its account read.
#[derive(Debug)]
pub struct AccountStep<'a> {
    candidates: Candidates<'a>,
    attempt: Attempt,
}

/// A candidate that is admitted if its nonce is spent.
#[derive(Debug)]
pub struct NonceStep<'a> {
    candidates: Candidates<'a>,
    attempt: Attempt,
    state: AccountState,
    verdict: Arc<Verdict>,
}

/// The candidates that are left, and what they are judged by.
#[derive(Debug)]
struct Candidates<'a> {
    attempts: Attempts,
    agents: &'a AgentPolicy,
    now: Timestamp,
}

impl RoutePolicy {
    /// Begins the decision on a request.
    pub fn decide(&self, request: &Request<'_>, now: Timestamp) -> DecisionStep<'_> {
        if let Err(fault) = self.requests.check(request) {
            return DecisionStep::Done(Outcome::Faulty(fault));
        }
        match Attempts::of(request, &self.rules, now.seconds()) {
            Ok(attempts) => Candidates { attempts, agents: &self.agents, now }.next(),
            Err(refusal) => DecisionStep::Done(Outcome::Refused(refusal)),
        }
    }
}

impl<'a> Candidates<'a> {
    fn next(mut self) -> DecisionStep<'a> {
        while let Some(attempt) = self.attempts.next() {
            match attempt.prejudge() {
                Ok(()) => return DecisionStep::Account(AccountStep { candidates: self, attempt }),
                Err(refusal) => self.attempts.refuse(refusal),
            }
        }
        DecisionStep::Done(Outcome::Refused(self.attempts.conclude()))
    }

    fn refuse(mut self, refusal: RefusalCode) -> DecisionStep<'a> {
        self.attempts.refuse(refusal);
        self.next()
    }
}

impl<'a> AccountStep<'a> {
    /// The candidate.
    pub const fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Goes on with what is known of its account: `state` is `None` where the chain did not say, or was not
    /// asked, and `verdict` where its source did not give one.
    pub fn answer(self, state: Option<AccountState>, verdict: Option<Arc<Verdict>>) -> DecisionStep<'a> {
        let Self { candidates, attempt } = self;
        let Some(state) = state else {
            return candidates.refuse(RefusalCode::SignatureVerificationUnavailable);
        };
        if let Err(refusal) = attempt.judge(state) {
            return candidates.refuse(refusal);
        }
        let Some(verdict) = verdict else {
            return DecisionStep::Done(Outcome::Unavailable(Unavailable::KyaUnavailable));
        };
        match candidates.agents.judge(&verdict, candidates.now) {
            Ok(()) => DecisionStep::Nonce(NonceStep { candidates, attempt, state, verdict }),
            Err(denial) => DecisionStep::Done(Outcome::Denied(subject(&attempt, &verdict), denial)),
        }
    }
}

impl<'a> NonceStep<'a> {
    /// The candidate.
    pub const fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Its account.
    pub const fn state(&self) -> AccountState {
        self.state
    }

    /// The verdict on its wallet.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Goes on with what became of its nonce.
    pub fn answer(self, spending: Spending) -> DecisionStep<'a> {
        let Self { candidates, attempt, verdict, .. } = self;
        match spending {
            Spending::Spent => DecisionStep::Done(Outcome::Admitted(subject(&attempt, &verdict))),
            Spending::Reused => candidates.refuse(RefusalCode::NonceReused),
            Spending::SignedBeforeStart => candidates.refuse(RefusalCode::SignedBeforeStart),
            Spending::Full => DecisionStep::Done(Outcome::Unavailable(Unavailable::NonceStoreFull)),
            Spending::Unavailable => {
                DecisionStep::Done(Outcome::Unavailable(Unavailable::NonceStoreUnavailable))
            }
        }
    }
}

fn subject(attempt: &Attempt, verdict: &Verdict) -> Subject {
    Subject { wallet: attempt.account.address, verdict: verdict.clone(), token: None }
}
