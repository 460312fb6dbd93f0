//! The decision on one request: signature, verdict, policy, and last of all the nonce.

use std::{sync::Arc, time::Instant};

use registry_core::{
    eth::timestamp::Timestamp,
    gate::{
        AccountState, AdmissionRecord, Attempt, Attempts, GateAnswer, Grounds, Outcome, RefusalCode, Request,
        RoutePolicy, Subject, Unavailable, VerifiedBy,
    },
};

use crate::{
    kya::{AccountReader, Allowance},
    metrics::Metrics,
    nonces::{NonceStore, Spending},
    records::Records,
    refusals::Refusals,
    signer::Signer,
};

/// Decides about requests.
#[derive(Debug)]
pub struct Gate {
    /// What is known of accounts.
    pub accounts: Arc<AccountReader>,
    /// Spent nonces.
    pub nonces: NonceStore,
    /// What was refused a moment ago.
    pub refusals: Refusals,
    /// Signs verdicts, if wanted.
    pub signer: Option<Arc<Signer>>,
    /// Records admissions, if wanted; there is a signer then.
    pub records: Option<Records>,
    /// Metrics.
    pub metrics: Metrics,
    /// Whether log lines name wallets.
    pub log_wallets: bool,
}

/// What a request is decided for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be served.
    Admission,
    /// For the body of a refusal, which nginx asks for on its own: nothing is admitted, and no nonce spent.
    Explanation,
}

impl Gate {
    /// What becomes of a request under a policy, and the answer to it. A policy that only observes answers
    /// every outcome with 200.
    pub async fn decided(
        &self,
        policy: &RoutePolicy,
        request: &Request<'_>,
        purpose: Purpose,
        now: Timestamp,
    ) -> (Outcome, GateAnswer) {
        let started = Instant::now();
        if purpose == Purpose::Explanation {
            let outcome = match self.refusals.find(&policy.name, request) {
                Some(outcome) => outcome,
                None => self.decide(policy, request, purpose, now).await,
            };
            let answer = outcome.answer(request, &policy.rules, &policy.links);
            return (outcome, answer);
        }
        let outcome = self.decide(policy, request, purpose, now).await;
        self.metrics.seconds.with_label_values(&[&policy.name]).observe(started.elapsed().as_secs_f64());
        self.refusals.remember(&policy.name, request, &outcome);
        let answer = self.concluded(policy, Some(request), &outcome);
        (outcome, answer)
    }

    /// The answer to a request with this outcome, which is counted and logged; `None` for a request that could
    /// not be read.
    pub fn concluded(
        &self,
        policy: &RoutePolicy,
        request: Option<&Request<'_>>,
        outcome: &Outcome,
    ) -> GateAnswer {
        self.metrics.requests.with_label_values(&[&policy.name, outcome.code()]).inc();
        self.log(policy, outcome);
        match request {
            _ if policy.observe => outcome.observed(),
            Some(request) => outcome.answer(request, &policy.rules, &policy.links),
            None => outcome.answer_unread(&policy.links),
        }
    }

    /// Whether chain, read API and the store of nonces answer, in words for people.
    ///
    /// # Errors
    /// The part that does not answer.
    pub async fn probe(&self, now: Timestamp) -> Result<String, String> {
        let words = self.accounts.probe(now).await?;
        self.nonces.probe().map(|()| words)
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
        if let Err(fault) = policy.requests.check(request) {
            return Outcome::Faulty(fault);
        }
        let mut attempts = match Attempts::of(request, &policy.rules, now.seconds()) {
            Ok(attempts) => attempts,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        let mut allowance = Allowance::of_a_request();
        while let Some(attempt) = attempts.next() {
            match self.attempt(policy, &attempt, &mut allowance, purpose, now).await {
                Ok(outcome) => return outcome,
                Err(refusal) => attempts.refuse(refusal),
            }
        }
        Outcome::Refused(attempts.conclude())
    }

    /// The outcome of a candidate; its refusal leaves the request to the next one.
    async fn attempt(
        &self,
        policy: &RoutePolicy,
        attempt: &Attempt,
        allowance: &mut Allowance,
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<Outcome, RefusalCode> {
        attempt.prejudge()?;
        let known = self.accounts.of(attempt, allowance, now).await;
        let state = known.state.ok_or(RefusalCode::SignatureVerificationUnavailable)?;
        attempt.judge(state)?;
        let Some(verdict) = known.verdict else {
            return Ok(Outcome::Unavailable(Unavailable::KyaUnavailable));
        };
        let wallet = attempt.account.address;
        let sign = |admission| match &self.signer {
            None => Ok(None),
            // A service that expects tokens is not to be reached without one.
            Some(signer) => {
                let token = signer.sign(wallet, &verdict, known.fresh_for, &policy.origin, admission, now);
                token.map(Some).ok_or(Unavailable::KyaUnavailable)
            }
        };
        let subject = |token| Subject { wallet, verdict: (*verdict).clone(), token };
        if let Err(denial) = policy.agents.judge(&verdict, now) {
            return Ok(
                sign(None).map_or_else(Outcome::Unavailable, |token| Outcome::Denied(subject(token), denial))
            );
        }
        if purpose == Purpose::Explanation {
            let nonce = self.nonces.look_up(attempt).await;
            // It would be admitted now: what refused it a moment ago has passed.
            return unspent(nonce)?.map_or(Ok(Outcome::Unavailable(Unavailable::KyaUnavailable)), Ok);
        }
        let evidence = match &self.records {
            Some(records) if records.evidence => {
                let evidence = self.accounts.evidence(wallet, verdict.as_of.block_number, now).await;
                let Some(evidence) = evidence else {
                    return Ok(Outcome::Unavailable(Unavailable::RecordUnavailable));
                };
                Some(evidence)
            }
            _ => None,
        };
        let grounds = Grounds {
            policy: &policy.name,
            registry: Some(self.accounts.registry()),
            account: match state {
                AccountState::NoCode => VerifiedBy::Key,
                AccountState::Code { .. } => VerifiedBy::Code,
            },
            signature: &attempt.signature,
            base: &attempt.base,
            evidence: evidence.as_deref(),
        };
        if let Some(unavailable) = unspent(self.nonces.spend(attempt, now.seconds()).await)? {
            return Ok(unavailable);
        }
        // A token is bound to an admission only once that is certain: it would make a record of a refusal.
        let token = match sign(self.records.as_ref().map(|_| grounds.id())) {
            Ok(token) => token,
            Err(unavailable) => return Ok(Outcome::Unavailable(unavailable)),
        };
        if let (Some(records), Some(token)) = (&self.records, &token)
            && let Err(error) = records.append(&AdmissionRecord::new(now, &grounds, token))
        {
            tracing::error!(%error, "not admitted: the record cannot be written");
            return Ok(Outcome::Unavailable(Unavailable::RecordUnavailable));
        }
        Ok(Outcome::Admitted(subject(token)))
    }
}

/// What refuses a request whose nonce is not spent; `None` where it is.
fn unspent(spending: Spending) -> Result<Option<Outcome>, RefusalCode> {
    let unavailable = |unavailable| Ok(Some(Outcome::Unavailable(unavailable)));
    match spending {
        Spending::Spent => Ok(None),
        Spending::Reused => Err(RefusalCode::NonceReused),
        Spending::SignedBeforeStart => Err(RefusalCode::SignedBeforeStart),
        Spending::Full => unavailable(Unavailable::NonceStoreFull),
        Spending::Unavailable => unavailable(Unavailable::NonceStoreUnavailable),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use registry_core::gate::{Content, Dialect, Origin, Posture, SignatureRules, WithoutNonce};

    /// An attempt with this nonce, signed 90 seconds before it ends.
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
