//! The decision on one request, without I/O: signature, verdict, policy, and last of all the nonce. Each host
//! drives it: the daemon, and the package's gate in a service's own process.
//!
//! ```text
//!   decide --> Account --answer--> [Acceptance] [Attested] --answer--> Nonce --answer--> Done(Admitted)
//!     |         |  ^                    |                              |
//!     |         |  +-- next candidate, where this one is refused -------+
//!     v         v                       v                              v
//!    Done      Done: denied, unavailable, or no candidate left
//! ```
//!
//! Each step is a value that its answer consumes: a nonce cannot be spent for a request that is not admitted.

use std::sync::Arc;

use alloy_primitives::B256;

use super::{
    answer::{Outcome, Subject, Unavailable},
    attested::AttestedQuery,
    candidate::{AccountState, Attempt},
    policy::{AgentDenial, Verdict},
    refusal::RefusalCode,
    request::Request,
    settings::RoutePolicy,
    verifier::Attempts,
};
use crate::{
    chain::{SignerCode, SignerQuery},
    eth::timestamp::Timestamp,
    liability::{self, Acceptance, Basis, Moment, PinnedRecord, Problem},
};

/// What the host does next.
#[derive(Debug)]
pub enum DecisionStep<'a> {
    /// It asks for an account and its verdict.
    Account(AccountStep<'a>),
    /// It asks whether the liable wallet has code, and if so what that says of the acceptance's signature.
    Acceptance(AcceptanceStep<'a>),
    /// It asks when the liable wallet last attested.
    Attested(AttestedStep<'a>),
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

/// A candidate whose request presents an acceptance by its agent's liable wallet.
#[derive(Debug)]
pub struct AcceptanceStep<'a> {
    judging: Judging<'a>,
    acceptance: Acceptance,
    scope_hash: B256,
}

/// A candidate that is served if the liable wallet has attested for its agent, which no index has said.
#[derive(Debug)]
pub struct AttestedStep<'a> {
    judging: Judging<'a>,
    query: AttestedQuery,
    problem: Option<Problem>,
}

/// A candidate whose signature is verified.
#[derive(Debug)]
struct Judging<'a> {
    candidates: Candidates<'a>,
    attempt: Attempt,
    state: AccountState,
    verdict: Arc<Verdict>,
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
    policy: &'a RoutePolicy,
    /// The value of the request's acceptance, unread.
    acceptance: Option<String>,
    now: Timestamp,
}

impl RoutePolicy {
    /// Begins the decision on a request.
    pub fn decide(&self, request: &Request<'_>, now: Timestamp) -> DecisionStep<'_> {
        if let Err(fault) = self.requests.check(request) {
            return DecisionStep::Done(Outcome::Faulty(fault));
        }
        match Attempts::of(request, &self.rules, now.seconds()) {
            Ok(attempts) => {
                let is_there = request.has(liability::FIELD);
                let acceptance = is_there.then(|| request.field(liability::FIELD).unwrap_or_default());
                Candidates { attempts, policy: self, acceptance, now }.next()
            }
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
        let judging = Judging { candidates, attempt, state, verdict };
        match judging.presented() {
            None => judging.conclude(None),
            Some(Err(problem)) => judging.conclude(Some(problem)),
            Some(Ok((acceptance, scope_hash))) => {
                DecisionStep::Acceptance(AcceptanceStep { judging, acceptance, scope_hash })
            }
        }
    }
}

impl<'a> Judging<'a> {
    /// The acceptance that the request presents, checked but for its signature, and the hash of the agent's scope.
    /// `None` where there is none, or no agent to accept.
    fn presented(&self) -> Option<Result<(Acceptance, B256), Problem>> {
        let value = self.candidates.acceptance.as_ref()?;
        let agent = self.verdict.agent.as_ref()?;
        let (policy, now) = (self.candidates.policy, self.candidates.now.seconds());
        let block_time = self.verdict.as_of.block_timestamp.map_or(now, Timestamp::seconds);
        let checked = || {
            let acceptance = Acceptance::from_header(value)?;
            let place = (policy.rules.chain, policy.registry);
            acceptance.check_place_and_time(place, Moment { now, block_time })?;
            acceptance.check_record(&PinnedRecord {
                agent_id: agent.id.parse().map_err(|_| Problem::Member("agentId".into()))?,
                creator: agent.creator,
                agent_wallet: self.attempt.account.address,
                haftungsperson: agent.liable,
                registered_at: agent.registered_at.seconds(),
            })?;
            Ok((acceptance, agent.scope_hash))
        };
        Some(checked())
    }

    /// What is asked of the agent's events, where they decide and are not known.
    fn attested(&self) -> Option<AttestedQuery> {
        let (policy, agent) = (self.candidates.policy, self.verdict.agent.as_ref()?);
        let counts = policy.agents.liability.as_ref()?.basis.contains(&Basis::Attested);
        let denial = policy.agents.judge(&self.verdict, self.candidates.now).err();
        if !counts || agent.basis != Basis::Unknown || denial != Some(AgentDenial::LiableNotProved) {
            return None;
        }
        Some(AttestedQuery {
            registry: policy.registry,
            agent: agent.id.parse().ok()?,
            liable: agent.liable,
            block: self.verdict.as_of.block_number,
        })
    }

    /// Judges the agent, whose acceptance has this problem, if need be by its events.
    fn conclude(self, problem: Option<Problem>) -> DecisionStep<'a> {
        match self.attested() {
            Some(query) => DecisionStep::Attested(AttestedStep { judging: self, query, problem }),
            None => self.judge(problem),
        }
    }

    fn judge(self, problem: Option<Problem>) -> DecisionStep<'a> {
        let Self { candidates, attempt, state, verdict } = self;
        match candidates.policy.agents.judge(&verdict, candidates.now) {
            Ok(()) => DecisionStep::Nonce(NonceStep { candidates, attempt, state, verdict }),
            Err(denial) => {
                let subject = Subject { acceptance_problem: problem, ..subject(&attempt, &verdict) };
                DecisionStep::Done(Outcome::Denied(subject, denial))
            }
        }
    }
}

impl<'a> AcceptanceStep<'a> {
    /// What the liable wallet is asked, if it has code.
    pub fn query(&self) -> SignerQuery {
        SignerQuery::of(&self.acceptance, self.scope_hash, self.judging.verdict.as_of.block_number)
    }

    /// Goes on with what is known of the liable wallet: `None` where the chain did not say, or was not asked.
    pub fn answer(self, code: Option<SignerCode>) -> DecisionStep<'a> {
        let Self { mut judging, acceptance, scope_hash } = self;
        let Some(code) = code else {
            // Served without it, or not told to be refused for it.
            return match judging.judge(None) {
                DecisionStep::Done(Outcome::Denied(_, AgentDenial::LiableNotProved)) => {
                    DecisionStep::Done(Outcome::Unavailable(Unavailable::KyaUnavailable))
                }
                step => step,
            };
        };
        let result = code.check(&acceptance, scope_hash);
        if result.is_ok() {
            let until = Timestamp::from_seconds(acceptance.not_after);
            judging.verdict = Arc::new(judging.verdict.accepted(until));
        }
        judging.conclude(result.err())
    }
}

impl<'a> AttestedStep<'a> {
    /// What is asked.
    pub const fn query(&self) -> &AttestedQuery {
        &self.query
    }

    /// Goes on with the time of the last event by the liable wallet; `None` where there is none, or it is not known.
    pub fn answer(self, at: Option<Timestamp>) -> DecisionStep<'a> {
        let Self { mut judging, problem, .. } = self;
        if let Some(at) = at {
            judging.verdict = Arc::new(judging.verdict.attested(at));
        }
        judging.judge(problem)
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
    let (wallet, verdict) = (attempt.account.address, verdict.clone());
    Subject { wallet, verdict, token: None, acceptance_problem: None }
}
