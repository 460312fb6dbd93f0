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

use std::{sync::Arc, time::Duration};

use alloy_primitives::{Address, B256};

use super::{
    answer::{Outcome, Subject, Unavailable},
    attested::AttestedQuery,
    candidate::{AccountState, Attempt},
    policy::AgentDenial,
    refusal::RefusalCode,
    request::Request,
    settings::RoutePolicy,
    verdict::{DomainWord, Verdict},
    verifier::Attempts,
};
use crate::{
    chain::{SignerCode, SignerQuery},
    eth::timestamp::Timestamp,
    liability::{self, Acceptance, Basis, Moment, PinnedRecord, Problem},
};

/// The host's next step.
#[derive(Debug)]
pub enum DecisionStep<'a> {
    /// Read an account and its verdict.
    Account(AccountStep<'a>),
    /// Ask whether the liable wallet has code and, if so, whether that accepts the acceptance's signature.
    Acceptance(AcceptanceStep<'a>),
    /// Read the time of the liable wallet's last attestation.
    Attested(AttestedStep<'a>),
    /// Spend a nonce.
    Nonce(NonceStep<'a>),
    /// The decision is made: this is the outcome.
    Done(Outcome),
}

/// The result of spending a nonce.
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

/// The most acceptances of domains' files that are verified for one candidate: a file may list many with
/// broken signatures.
const LISTED_TRIES: u8 = 8;

/// A candidate for which the host has to read the account.
#[derive(Debug)]
pub struct AccountStep<'a> {
    candidates: Candidates<'a>,
    attempt: Attempt,
}

/// A candidate with an acceptance by its agent's liable wallet, of which only the signature is unchecked.
#[derive(Debug)]
pub struct AcceptanceStep<'a> {
    judging: VerifiedCandidate<'a>,
    acceptance: Acceptance,
    scope_hash: B256,
    /// The first problem among the acceptances before it.
    problem: Option<Problem>,
}

/// A candidate that is served if the liable wallet has attested for its agent, where no index has said so.
#[derive(Debug)]
pub struct AttestedStep<'a> {
    judging: VerifiedCandidate<'a>,
    query: AttestedQuery,
    problem: Option<Problem>,
}

/// A candidate with a verified signature.
#[derive(Debug)]
struct VerifiedCandidate<'a> {
    candidates: Candidates<'a>,
    attempt: Attempt,
    state: AccountState,
    verdict: Arc<Verdict>,
    /// Its agent's acceptances in domains' files, the next one last, and the tries that are left.
    listed: Vec<Acceptance>,
    tries: u8,
}

/// A candidate that is admitted if its nonce is spent.
#[derive(Debug)]
pub struct NonceStep<'a> {
    candidates: Candidates<'a>,
    attempt: Attempt,
    state: AccountState,
    verdict: Arc<Verdict>,
}

/// The candidates that are left, and the terms on which they are judged.
#[derive(Debug)]
struct Candidates<'a> {
    attempts: Attempts,
    policy: &'a RoutePolicy,
    /// The value of the request's acceptance field, not parsed yet.
    acceptance: Option<String>,
    /// The host's answers about liable wallets, `None` where there was none. Another signature of the same
    /// wallet needs the same ones, and would else repeat their reads.
    signers: Vec<(SignerQuery, Option<SignerCode>)>,
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
                Candidates { attempts, policy: self, acceptance, signers: Vec::new(), now }.next()
            }
            Err(refusal) => DecisionStep::Done(Outcome::Refused(refusal)),
        }
    }

    /// Returns the query for the agent's attestations, where they decide and are not known.
    pub fn attested_query(&self, verdict: &Verdict, now: Timestamp) -> Option<AttestedQuery> {
        let (agent, rule) = (verdict.agent.as_ref()?, self.agents.liability.as_ref()?);
        let counts = rule.basis.contains(&Basis::Attested);
        let denial = self.agents.judge(verdict, now).err();
        if !counts || agent.basis != Basis::Unknown || denial != Some(AgentDenial::LiableNotProved) {
            return None;
        }
        Some(AttestedQuery {
            registry: self.registry,
            agent: agent.id.parse().ok()?,
            liable: agent.liable,
            block: verdict.as_of.block_number,
            since: rule.attested_since(verdict.time(now, Duration::ZERO)),
        })
    }
}

impl DecisionStep<'_> {
    /// Turns the denial [`AgentDenial::LiableNotProved`] into "unavailable", for a liable wallet or events
    /// that could not be read: they might have proved the agent.
    fn unless_not_proved(self) -> Self {
        match self {
            Self::Done(Outcome::Denied(_, AgentDenial::LiableNotProved)) => {
                Self::Done(Outcome::Unavailable(Unavailable::KyaUnavailable))
            }
            step => step,
        }
    }
}

impl<'a> Candidates<'a> {
    fn next(mut self) -> DecisionStep<'a> {
        match self.attempts.next() {
            Some(attempt) => DecisionStep::Account(AccountStep { candidates: self, attempt }),
            None => DecisionStep::Done(Outcome::Refused(self.attempts.conclude())),
        }
    }

    fn refuse(mut self, refusal: RefusalCode) -> DecisionStep<'a> {
        self.attempts.refuse(refusal);
        self.next()
    }
}

impl<'a> AccountStep<'a> {
    /// Returns the candidate.
    pub const fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Continues with the account: `state` is `None` where the chain did not answer or was not asked,
    /// `verdict` where its source gave none.
    pub fn answer(self, state: Option<AccountState>, verdict: Option<Arc<Verdict>>) -> DecisionStep<'a> {
        self.answer_with(state, verdict, Vec::new())
    }

    /// Continues as [`answer`](Self::answer), with the acceptances of the agent in domains' files. The last
    /// one is tried first.
    pub fn answer_with(
        self,
        state: Option<AccountState>,
        verdict: Option<Arc<Verdict>>,
        listed: Vec<Acceptance>,
    ) -> DecisionStep<'a> {
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
        let word = verdict.agent.as_ref().map(|agent| agent.domains);
        let judging = VerifiedCandidate { candidates, attempt, state, verdict, listed, tries: LISTED_TRIES };
        // Where acceptances do not count, one would hide the basis that does.
        let counts = judging.candidates.policy.agents.counts(Basis::Accepted);
        match (word, &judging.candidates.acceptance) {
            (None, _) => judging.conclude(None),
            (Some(DomainWord::Disowned), _) => judging.judge(Some(Problem::Member("notOurs".into()))),
            _ if !counts => judging.conclude(None),
            (_, None) => judging.try_listed(None),
            (_, Some(value)) => {
                let presented = Acceptance::from_header(value);
                judging.try_presented(presented)
            }
        }
    }
}

impl Verdict {
    /// Checks an acceptance of this wallet's agent, except its signature. Returns the hash of its scope.
    ///
    /// # Errors
    ///
    /// [`Problem`]: the member that differs, or the time.
    pub fn check_acceptance(
        &self,
        acceptance: &Acceptance,
        wallet: Address,
        policy: &RoutePolicy,
        now: Timestamp,
    ) -> Result<B256, Problem> {
        let no_agent = || Problem::Member("agentId".into());
        let agent = self.agent.as_ref().ok_or_else(no_agent)?;
        let block_time = self.as_of.block_timestamp.unwrap_or(now);
        let moment = Moment { now: now.seconds(), block_time: block_time.seconds() };
        acceptance.check_place_and_time((policy.rules.chain, policy.registry), moment)?;
        acceptance.check_record(&PinnedRecord {
            agent_id: agent.id.parse().map_err(|_| no_agent())?,
            creator: agent.creator,
            agent_wallet: wallet,
            haftungsperson: agent.liable,
            registered_at: agent.registered_at.seconds(),
        })?;
        Ok(agent.scope_hash)
    }
}

impl<'a> VerifiedCandidate<'a> {
    /// Continues with the presented acceptance or, if that fails its first checks, with listed ones.
    fn try_presented(self, presented: Result<Acceptance, Problem>) -> DecisionStep<'a> {
        match presented.and_then(|acceptance| Ok((self.check(&acceptance)?, acceptance))) {
            Ok((scope_hash, acceptance)) => {
                AcceptanceStep { judging: self, acceptance, scope_hash, problem: None }.next()
            }
            Err(problem) => self.try_listed(Some(problem)),
        }
    }

    /// Continues with the next acceptance of a domain's file that is of this registration.
    fn try_listed(mut self, mut problem: Option<Problem>) -> DecisionStep<'a> {
        while let (Some(listed), 1..) = (self.listed.pop(), self.tries) {
            match self.check(&listed) {
                Ok(scope_hash) => {
                    self.tries -= 1;
                    return AcceptanceStep { judging: self, acceptance: listed, scope_hash, problem }.next();
                }
                Err(wrong) => problem = problem.or(Some(wrong)),
            }
        }
        self.conclude(problem)
    }

    /// Checks an acceptance of the agent, except its signature. Returns the hash of the agent's scope.
    fn check(&self, acceptance: &Acceptance) -> Result<B256, Problem> {
        let (policy, now) = (self.candidates.policy, self.candidates.now);
        self.verdict.check_acceptance(acceptance, self.attempt.account.address, policy, now)
    }

    /// Judges the agent, by its events where they decide. `problem` is that of its acceptance.
    fn conclude(self, problem: Option<Problem>) -> DecisionStep<'a> {
        match self.candidates.policy.attested_query(&self.verdict, self.candidates.now) {
            Some(query) => DecisionStep::Attested(AttestedStep { judging: self, query, problem }),
            None => self.judge(problem),
        }
    }

    fn judge(self, problem: Option<Problem>) -> DecisionStep<'a> {
        let Self { candidates, attempt, state, verdict, .. } = self;
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
    /// Returns the query for the liable wallet: whether it has code, and whether that accepts the signature.
    pub fn query(&self) -> SignerQuery {
        SignerQuery::of(&self.acceptance, self.scope_hash, self.judging.verdict.as_of.block_number)
    }

    /// Continues with the liable wallet's code: `None` where the chain did not answer or was not asked.
    pub fn answer(mut self, code: Option<SignerCode>) -> DecisionStep<'a> {
        let query = self.query();
        self.judging.candidates.signers.push((query, code));
        self.check(code)
    }

    /// Asks the host, unless it has answered for a candidate before.
    fn next(self) -> DecisionStep<'a> {
        let query = self.query();
        let known = self.judging.candidates.signers.iter().find(|(known, _)| *known == query);
        match known.map(|(_, code)| *code) {
            Some(code) => self.check(code),
            None => DecisionStep::Acceptance(self),
        }
    }

    fn check(self, code: Option<SignerCode>) -> DecisionStep<'a> {
        let Self { mut judging, acceptance, scope_hash, problem } = self;
        let Some(code) = code else { return judging.judge(None).unless_not_proved() };
        match code.check(&acceptance, scope_hash) {
            Ok(()) => {
                judging.verdict = Arc::new(judging.verdict.accepted(acceptance));
                judging.judge(None)
            }
            Err(wrong) => judging.try_listed(problem.or(Some(wrong))),
        }
    }

    /// Continues where a domain of the liable wallet has withdrawn the acceptance.
    pub fn withdrawn(self) -> DecisionStep<'a> {
        let problem = self.problem.or(Some(Problem::Member("withdrawn".into())));
        self.judging.try_listed(problem)
    }
}

impl<'a> AttestedStep<'a> {
    /// Returns the query for the attestations.
    pub const fn query(&self) -> &AttestedQuery {
        &self.query
    }

    /// Continues with the time of the last event by the liable wallet; `None` where there is none, or its
    /// time cannot be known.
    pub fn answer(self, at: Option<Timestamp>) -> DecisionStep<'a> {
        let Self { mut judging, problem, .. } = self;
        if let Some(at) = at {
            judging.verdict = Arc::new(judging.verdict.attested(at, judging.candidates.now));
        }
        judging.judge(problem)
    }

    /// Continues where the chain did not answer or was not asked.
    pub fn unanswered(self) -> DecisionStep<'a> {
        self.answer(None).unless_not_proved()
    }
}

impl<'a> NonceStep<'a> {
    /// Returns the candidate.
    pub const fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Returns the state of its account.
    pub const fn state(&self) -> AccountState {
        self.state
    }

    /// Returns the verdict on its wallet.
    pub fn verdict(&self) -> &Arc<Verdict> {
        &self.verdict
    }

    /// Continues with the result of spending its nonce.
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
