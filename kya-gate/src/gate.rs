//! The decision on one request: the core's steps, with accounts, nonces, tokens and records.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use alloy_primitives::{Address, B256};
use registry_core::{
    eth::timestamp::Timestamp,
    gate::{
        AccountState, AdmissionRecord, Allowance, DecisionStep, GateAnswer, Grounds, NonceStep, Outcome,
        RefusalCode, Request, RoutePolicy, Spending, Subject, Unavailable, VerifiedBy,
    },
};
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::{
    domains::Domains,
    kya::{AccountReader, ReadCause},
    metrics::Metrics,
    nonces::NonceStore,
    records::Records,
    refusals::Refusals,
    signer::Signer,
};

/// The longest time for a decision: proxies and the npm package wait for six seconds.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Decides on requests.
#[derive(Debug)]
pub struct Gate {
    /// Accounts and verdicts.
    pub accounts: Arc<AccountReader>,
    /// The files of domains.
    pub domains: Arc<Domains>,
    /// Spent nonces.
    pub nonces: NonceStore,
    /// Recent refusals, for explanations.
    pub refusals: Refusals,
    /// Signs verdicts, if wanted.
    pub signer: Option<Arc<Signer>>,
    /// Records admissions, if wanted; there is then a signer.
    pub records: Option<Records>,
    /// The hashes of the policies by their names, for records.
    pub policy_hashes: BTreeMap<String, B256>,
    /// Metrics.
    pub metrics: Metrics,
    /// True if log lines name wallets.
    pub log_wallets: bool,
}

/// The purpose of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Admission of the request.
    Admission,
    /// The body of a refusal, which nginx asks for on its own: nothing is admitted, and no nonce spent.
    Explanation,
}

impl Gate {
    /// Decides on a request under a policy, and returns the outcome with its answer. A policy that only
    /// observes answers every outcome with 200.
    pub async fn decided(
        &self,
        policy: &RoutePolicy,
        request: &Request<'_>,
        purpose: Purpose,
        now: Timestamp,
    ) -> (Outcome, GateAnswer) {
        let (started, is_explanation) = (Instant::now(), purpose == Purpose::Explanation);
        let refused = if is_explanation { self.refusals.find(&policy.name, request) } else { None };
        let late = Outcome::Refused(RefusalCode::SignatureVerificationUnavailable);
        let outcome = match refused {
            Some(outcome) => outcome,
            None => timeout(DEADLINE, self.decide(policy, request, purpose, now)).await.unwrap_or(late),
        };
        if is_explanation {
            let answer = outcome.answer(request, &policy.rules, &policy.links);
            return (outcome, answer);
        }
        self.metrics.seconds.with_label_values(&[&policy.name]).observe(started.elapsed().as_secs_f64());
        self.refusals.remember(&policy.name, request, &outcome);
        let answer = self.concluded(policy, Some(request), &outcome);
        (outcome, answer)
    }

    /// Counts and logs an outcome, and returns the answer. `request` is `None` where it could not be read.
    pub fn concluded(
        &self,
        policy: &RoutePolicy,
        request: Option<&Request<'_>>,
        outcome: &Outcome,
    ) -> GateAnswer {
        self.metrics.requests.with_label_values(&[&policy.name, outcome.code()]).inc();
        if let Some(agent) = outcome.subject().and_then(|subject| subject.verdict.agent.as_ref()) {
            self.metrics.liable.with_label_values(&[&policy.name, outcome.code(), agent.basis.name()]).inc();
        }
        self.log(policy, outcome);
        match request {
            _ if policy.observe => outcome.observed(),
            Some(request) => outcome.answer(request, &policy.rules, &policy.links),
            None => outcome.answer_unread(&policy.links),
        }
    }

    /// Checks that chain and read API answer, and that nonces and records can be written; returns words for
    /// people. Errors: the part without which no request is admitted.
    pub async fn probe(&self, now: Timestamp) -> Result<String, String> {
        let words = self.accounts.probe(now).await?;
        self.nonces.probe(now)?;
        if let Some(records) = &self.records {
            records.probe().await?;
        }
        Ok(words)
    }

    fn log(&self, policy: &RoutePolicy, outcome: &Outcome) {
        let (code, status, observed) = (outcome.code(), outcome.status(), policy.observe);
        let wallet = outcome.subject().filter(|_| self.log_wallets).map(|subject| subject.wallet.to_string());
        let (policy, wallet) = (policy.name.as_str(), wallet.as_deref());
        match outcome {
            Outcome::Admitted(_) if !observed => {
                tracing::debug!(policy, outcome = code, status, wallet, "decided")
            }
            _ => tracing::info!(policy, outcome = code, status, observed, wallet, "decided"),
        }
    }

    async fn decide(
        &self,
        policy: &RoutePolicy,
        request: &Request<'_>,
        purpose: Purpose,
        now: Timestamp,
    ) -> Outcome {
        let mut allowance = Allowance::of_a_request();
        // Only a request with a verified signature gets to its agent's liable wallet.
        let cause = ReadCause::Request { is_of_key: true };
        let (mut fresh_for, mut has_renewed) = (Duration::ZERO, false);
        let mut step = policy.decide(request, now);
        loop {
            step = match step {
                DecisionStep::Account(account) => {
                    let known = self.accounts.of(account.attempt(), &mut allowance, now).await;
                    fresh_for = known.fresh_for;
                    let (verdict, listed) = self.domains.told(&policy.agents, known.verdict, now);
                    account.answer_with(known.state, verdict, listed)
                }
                DecisionStep::Acceptance(acceptance) => {
                    let query = acceptance.query();
                    match self.domains.has_withdrawn(&query) {
                        true => acceptance.withdrawn(),
                        false => acceptance.answer(self.accounts.signer(query, cause, now).await),
                    }
                }
                DecisionStep::Attested(attested) => {
                    match self.accounts.attested(attested.query(), cause, now).await {
                        Ok(at) => attested.answer(at),
                        Err(_) => attested.unanswered(),
                    }
                }
                DecisionStep::Nonce(nonce) if purpose == Purpose::Explanation => {
                    match self.nonces.look_up(nonce.attempt()).await {
                        // It would be admitted now: the cause of its refusal has passed.
                        Spending::Spent => return Outcome::Unavailable(Unavailable::KyaUnavailable),
                        refused => nonce.answer(refused),
                    }
                }
                DecisionStep::Nonce(nonce) => {
                    let wallet = nonce.attempt().account.address;
                    let block = nonce.verdict().as_of.block_number;
                    match self.evidence(wallet, Some(block), now).await {
                        Ok(evidence) => self.admit(policy, nonce, evidence, fresh_for, now).await,
                        Err(unavailable) if has_renewed => return Outcome::Unavailable(unavailable),
                        Err(_) => {
                            // No endpoint proves that block any more: a newer verdict decides.
                            if let Err(unavailable) = self.evidence(wallet, None, now).await {
                                return Outcome::Unavailable(unavailable);
                            }
                            (has_renewed, allowance) = (true, Allowance::of_a_request());
                            policy.decide(request, now)
                        }
                    }
                }
                DecisionStep::Done(Outcome::Denied(subject, denial)) => {
                    let signed = self.signed(policy, subject, fresh_for, None, now);
                    return signed
                        .map_or_else(Outcome::Unavailable, |subject| Outcome::Denied(subject, denial));
                }
                DecisionStep::Done(outcome) => return outcome,
            };
        }
    }

    /// Returns the proof of a verdict by [`AccountReader::evidence`], where records have evidence.
    async fn evidence(
        &self,
        wallet: Address,
        block: Option<u64>,
        now: Timestamp,
    ) -> Result<Option<Arc<RawValue>>, Unavailable> {
        if !self.records.as_ref().is_some_and(|records| records.evidence) {
            return Ok(None);
        }
        let evidence = self.accounts.evidence(wallet, block, now).await;
        evidence.map(Some).ok_or(Unavailable::RecordUnavailable)
    }

    /// Spends the nonce of a candidate and, if it is admitted, makes the token and the record where wanted.
    async fn admit<'a>(
        &self,
        policy: &RoutePolicy,
        nonce: NonceStep<'a>,
        evidence: Option<Arc<RawValue>>,
        fresh_for: Duration,
        now: Timestamp,
    ) -> DecisionStep<'a> {
        let (attempt, state, verdict) = (nonce.attempt().clone(), nonce.state(), Arc::clone(nonce.verdict()));
        let unavailable = |unavailable| DecisionStep::Done(Outcome::Unavailable(unavailable));
        let hash = self.policy_hashes.get(&policy.name).copied().unwrap_or_default();
        let agent = verdict.agent.as_ref();
        let grounds = Grounds {
            policy: &policy.name,
            registry: Some((self.accounts.registry(), hash)),
            basis: agent.map(|agent| agent.basis),
            acceptance: agent.and_then(|agent| Some((agent.acceptance.as_deref()?, agent.scope_hash))),
            account: match state {
                AccountState::NoCode => VerifiedBy::Key,
                AccountState::Code { .. } => VerifiedBy::Code,
            },
            signature: &attempt.signature,
            base: &attempt.base,
            evidence: evidence.as_deref(),
        };
        let subject = match nonce.answer(self.nonces.spend(&attempt, now.seconds()).await) {
            DecisionStep::Done(Outcome::Admitted(subject)) => subject,
            other => return other,
        };
        // A token is bound to an admission only once that is certain: else it could vouch for a refusal.
        let admission = self.records.as_ref().map(|_| grounds.id());
        let subject = match self.signed(policy, subject, fresh_for, admission, now) {
            Ok(subject) => subject,
            Err(error) => return unavailable(error),
        };
        if let (Some(records), Some(token)) = (&self.records, &subject.token)
            && let Err(error) = records.append(&AdmissionRecord::new(now, &grounds, token)).await
        {
            tracing::error!(%error, "not admitted: the record cannot be written");
            return unavailable(Unavailable::RecordUnavailable);
        }
        DecisionStep::Done(Outcome::Admitted(subject))
    }

    /// Adds the verdict to a subject as a token, where the gate signs. A service that expects tokens must not
    /// be reached without one.
    fn signed(
        &self,
        policy: &RoutePolicy,
        subject: Subject,
        fresh_for: Duration,
        admission: Option<B256>,
        now: Timestamp,
    ) -> Result<Subject, Unavailable> {
        let Some(signer) = &self.signer else { return Ok(subject) };
        let Subject { wallet, verdict, .. } = &subject;
        let token = signer.sign(*wallet, verdict, fresh_for, &policy.origin, admission, now);
        let token = token.ok_or(Unavailable::KyaUnavailable)?;
        Ok(Subject { token: Some(token), ..subject })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use registry_core::gate::{
        Attempt, Attempts, Content, Dialect, Origin, Posture, SignatureRules, WithoutNonce,
    };

    /// Returns an attempt with this nonce, signed 90 seconds before it ends.
    pub(crate) fn attempt(nonce: &str, valid_until: u64) -> Attempt {
        let rules = SignatureRules {
            chain: 1,
            dialects: Dialect::ALL.to_vec(),
            components: Vec::new(),
            longest_validity: 60,
            posture: Posture::Universal,
            without_nonce: WithoutNonce::Unknown,
            principals: Vec::new(),
        };
        let (created, expires) = (valid_until - 90, valid_until - 30);
        let input = format!(
            r#"a=("@scheme" "@authority" "@method" "@path" "@query");created={created};expires={expires};nonce="{nonce}";keyid="eip155:1:0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";tag="erc8128""#
        );
        let fields: [(&str, &[u8]); 2] = [("signature-input", input.as_bytes()), ("signature", b"a=:AAAA:")];
        let origin = Origin::parse("https://api.example").unwrap();
        let request = Request {
            method: "GET",
            origin: &origin,
            target: "/",
            fields: &fields,
            content: Content::Whole(b""),
        };
        Attempts::of(&request, &rules, created).unwrap().next().unwrap()
    }
}
