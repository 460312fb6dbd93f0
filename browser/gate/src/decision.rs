//! The decision on one request, without I/O: signature, verdict, policy, and last of all the nonce.
//!
//! ```text
//!   begin --> Account --answer--> Nonce --answer--> Done(Admitted)
//!     |        |  ^                 |
//!     |        |  +-- next candidate, where this one is refused
//!     v        v                    v
//!    Done     Done: denied, unavailable, or no candidate left
//! ```
//!
//! Each step is a value that its answer consumes: a nonce cannot be spent for a request that is not admitted.

use std::rc::Rc;

use registry_core::{
    eth::timestamp::Timestamp,
    gate::{
        AccountState, AgentPolicy, Attempt, Attempts, Outcome, RefusalCode, Request, RoutePolicy, Subject,
        Unavailable, Verdict,
    },
};

/// What the host does next.
pub(crate) enum Step<'a> {
    /// It asks for an account and its verdict.
    Account(AccountStep<'a>),
    /// It spends a nonce.
    Nonce(NonceStep<'a>),
    /// Nothing: this became of the request.
    Done(Outcome),
}

/// What is known about the account of an attempt.
#[derive(Default)]
pub(crate) struct KnownAccount {
    /// The account; `None` where the chain did not say, or was not asked.
    pub(crate) state: Option<AccountState>,
    /// The verdict; `None` where its source did not give one.
    pub(crate) verdict: Option<Rc<Verdict>>,
}

/// What became of a nonce.
#[derive(Clone, Copy)]
pub(crate) enum Spending {
    /// It is spent now.
    Spent,
    /// It was spent before.
    Reused,
    /// The signature is older than the store: the nonce may have been spent before.
    SignedBeforeStart,
    /// No further nonce can be remembered.
    Full,
    /// The store did not answer: the nonce may be spent now.
    Unavailable,
}

/// A candidate whose account is asked for.
pub(crate) struct AccountStep<'a> {
    candidates: Candidates<'a>,
    attempt: Attempt,
}

/// A candidate that is admitted if its nonce is spent.
pub(crate) struct NonceStep<'a> {
    candidates: Candidates<'a>,
    attempt: Attempt,
    verdict: Rc<Verdict>,
}

/// The candidates that are left, and what they are judged by.
struct Candidates<'a> {
    attempts: Attempts,
    agents: &'a AgentPolicy,
    now: Timestamp,
}

/// Begins the decision on a request.
pub(crate) fn begin<'a>(request: &Request<'_>, policy: &'a RoutePolicy, now: Timestamp) -> Step<'a> {
    if let Err(fault) = policy.requests.check(request) {
        return Step::Done(Outcome::Faulty(fault));
    }
    match Attempts::of(request, &policy.rules, now.seconds()) {
        Ok(attempts) => Candidates { attempts, agents: &policy.agents, now }.next(),
        Err(refusal) => Step::Done(Outcome::Refused(refusal)),
    }
}

impl<'a> Candidates<'a> {
    fn next(mut self) -> Step<'a> {
        while let Some(attempt) = self.attempts.next() {
            match attempt.prejudge() {
                Ok(()) => return Step::Account(AccountStep { candidates: self, attempt }),
                Err(refusal) => self.attempts.refuse(refusal),
            }
        }
        Step::Done(Outcome::Refused(self.attempts.conclude()))
    }

    fn refuse(mut self, refusal: RefusalCode) -> Step<'a> {
        self.attempts.refuse(refusal);
        self.next()
    }
}

impl<'a> AccountStep<'a> {
    /// The candidate.
    pub(crate) const fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Goes on with what is known of its account.
    pub(crate) fn answer(self, known: KnownAccount) -> Step<'a> {
        let Self { candidates, attempt } = self;
        let state = known.state.ok_or(RefusalCode::SignatureVerificationUnavailable);
        if let Err(refusal) = state.and_then(|state| attempt.judge(state)) {
            return candidates.refuse(refusal);
        }
        let Some(verdict) = known.verdict else {
            return Step::Done(Outcome::Unavailable(Unavailable::KyaUnavailable));
        };
        match candidates.agents.judge(&verdict, candidates.now) {
            Ok(()) => Step::Nonce(NonceStep { candidates, attempt, verdict }),
            Err(denial) => Step::Done(Outcome::Denied(subject(&attempt, &verdict), denial)),
        }
    }
}

impl<'a> NonceStep<'a> {
    /// The candidate.
    pub(crate) const fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Goes on with what became of its nonce.
    pub(crate) fn answer(self, spending: Spending) -> Step<'a> {
        let Self { candidates, attempt, verdict } = self;
        match spending {
            Spending::Spent => Step::Done(Outcome::Admitted(subject(&attempt, &verdict))),
            Spending::Reused => candidates.refuse(RefusalCode::NonceReused),
            Spending::SignedBeforeStart => candidates.refuse(RefusalCode::SignedBeforeStart),
            Spending::Full => Step::Done(Outcome::Unavailable(Unavailable::NonceStoreFull)),
            Spending::Unavailable => Step::Done(Outcome::Unavailable(Unavailable::NonceStoreUnavailable)),
        }
    }
}

fn subject(attempt: &Attempt, verdict: &Verdict) -> Subject {
    Subject { wallet: attempt.account.address, verdict: verdict.clone(), token: None }
}
