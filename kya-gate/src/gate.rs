//! The decision on one request: signature, verdict, policy, and last of all the nonce.

use std::{sync::Arc, time::Instant};

use registry_core::{
    eth::timestamp::Timestamp,
    gate::{Attempt, Attempts, GateAnswer, Outcome, RefusalCode, Request, Subject, Unavailable},
};

use crate::{
    kya::AccountReader,
    metrics::Metrics,
    nonces::{NonceStore, Spending},
    settings::RoutePolicy,
    signer::Signer,
};

/// Decides about requests.
#[derive(Debug)]
pub struct Gate {
    /// What is known of accounts.
    pub accounts: Arc<AccountReader>,
    /// Spent nonces.
    pub nonces: NonceStore,
    /// Signs verdicts, if wanted.
    pub signer: Option<Arc<Signer>>,
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
    /// The answer to a request under the policy of this name.
    pub async fn answer(
        &self,
        (name, policy): (&str, &RoutePolicy),
        request: &Request<'_>,
        purpose: Purpose,
        now: Timestamp,
    ) -> GateAnswer {
        self.decided((name, policy), request, purpose, now).await.1
    }

    /// What became of a request under the policy of this name, and the answer to it. A policy that only
    /// observes answers every outcome with 200.
    pub async fn decided(
        &self,
        (name, policy): (&str, &RoutePolicy),
        request: &Request<'_>,
        purpose: Purpose,
        now: Timestamp,
    ) -> (Outcome, GateAnswer) {
        let started = Instant::now();
        let outcome = self.decide(policy, request, purpose, now).await;
        if purpose == Purpose::Explanation {
            let answer = outcome.answer(request, &policy.rules, &policy.links);
            return (outcome, answer);
        }
        let code = outcome.code();
        self.metrics.requests.with_label_values(&[name, code]).inc();
        self.metrics.seconds.with_label_values(&[name]).observe(started.elapsed().as_secs_f64());
        self.log(name, policy, &outcome);
        let answer = match policy.observe {
            true => outcome.observed(),
            false => outcome.answer(request, &policy.rules, &policy.links),
        };
        (outcome, answer)
    }

    /// Whether chain, read API and the store of nonces answer, in words for people.
    ///
    /// # Errors
    /// The part that does not answer.
    pub async fn probe(&self, now: Timestamp) -> Result<String, String> {
        let words = self.accounts.probe(now).await?;
        self.nonces.probe().map(|()| words)
    }

    fn log(&self, policy: &str, route: &RoutePolicy, outcome: &Outcome) {
        let (code, status, observed) = (outcome.code(), outcome.status(), route.observe);
        let wallet = outcome.subject().filter(|_| self.log_wallets).map(|subject| subject.wallet.to_string());
        let wallet = wallet.as_deref();
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
        let mut attempts = match Attempts::of(request, &policy.rules, now.seconds()) {
            Ok(attempts) => attempts,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        while let Some(attempt) = attempts.next() {
            match self.attempt(policy, &attempt, purpose, now).await {
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
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<Outcome, RefusalCode> {
        let known = self.accounts.of(attempt, now).await;
        attempt.judge(known.state.ok_or(RefusalCode::SignatureVerificationUnavailable)?)?;
        let Some(verdict) = known.verdict else {
            return Ok(Outcome::Unavailable(Unavailable::KyaUnavailable));
        };
        let wallet = attempt.account.address;
        let token = match &self.signer {
            None => None,
            // A service that expects tokens is not to be reached without one.
            Some(signer) => match signer.sign(wallet, &verdict, known.fresh_for, &policy.origin, now) {
                None => return Ok(Outcome::Unavailable(Unavailable::KyaUnavailable)),
                token => token,
            },
        };
        let subject = Subject { wallet, verdict: (*verdict).clone(), token };
        if let Err(denial) = policy.agents.judge(&subject.verdict, now) {
            return Ok(Outcome::Denied(subject, denial));
        }
        if purpose == Purpose::Explanation {
            return match self.nonces.is_spent(attempt).await {
                Some(true) => Err(RefusalCode::NonceReused),
                // It would be admitted now: what refused it a moment ago has passed.
                Some(false) => Ok(Outcome::Unavailable(Unavailable::KyaUnavailable)),
                None => Ok(Outcome::Unavailable(Unavailable::NonceStoreUnavailable)),
            };
        }
        match self.nonces.spend(attempt, now.seconds()).await {
            Spending::Spent => Ok(Outcome::Admitted(subject)),
            Spending::Reused => Err(RefusalCode::NonceReused),
            Spending::Full => Ok(Outcome::Unavailable(Unavailable::NonceStoreFull)),
            Spending::Unavailable => Ok(Outcome::Unavailable(Unavailable::NonceStoreUnavailable)),
        }
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
