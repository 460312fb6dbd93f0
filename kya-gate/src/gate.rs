//! The decision on one request: signature, verdict, policy, and last of all the nonce.

use std::{sync::Arc, time::Instant};

use registry_core::{
    eth::timestamp::Timestamp,
    gate::{
        AccountState, AdmissionRecord, Attempt, Attempts, GateAnswer, Grounds, Outcome, RefusalCode, Request,
        Subject, Unavailable, VerifiedBy,
    },
};

use crate::{
    kya::AccountReader,
    metrics::Metrics,
    nonces::{NonceStore, Spending},
    records::Records,
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
        let outcome = self.decide((name, policy), request, purpose, now).await;
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
        (name, policy): (&str, &RoutePolicy),
        request: &Request<'_>,
        purpose: Purpose,
        now: Timestamp,
    ) -> Outcome {
        let mut attempts = match Attempts::of(request, &policy.rules, now.seconds()) {
            Ok(attempts) => attempts,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        while let Some(attempt) = attempts.next() {
            match self.attempt((name, policy), &attempt, purpose, now).await {
                Ok(outcome) => return outcome,
                Err(refusal) => attempts.refuse(refusal),
            }
        }
        Outcome::Refused(attempts.conclude())
    }

    /// The outcome of a candidate; its refusal leaves the request to the next one.
    async fn attempt(
        &self,
        (name, policy): (&str, &RoutePolicy),
        attempt: &Attempt,
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<Outcome, RefusalCode> {
        let known = self.accounts.of(attempt, now).await;
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
            return match self.nonces.is_spent(attempt).await {
                Some(true) => Err(RefusalCode::NonceReused),
                // It would be admitted now: what refused it a moment ago has passed.
                Some(false) => Ok(Outcome::Unavailable(Unavailable::KyaUnavailable)),
                None => Ok(Outcome::Unavailable(Unavailable::NonceStoreUnavailable)),
            };
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
            policy: name,
            account: match state {
                AccountState::NoCode => VerifiedBy::Key,
                AccountState::Code { .. } => VerifiedBy::Code,
            },
            signature: &attempt.signature,
            base: &attempt.base,
            evidence: evidence.as_deref(),
        };
        match self.nonces.spend(attempt, now.seconds()).await {
            Spending::Spent => {}
            Spending::Reused => return Err(RefusalCode::NonceReused),
            Spending::Full => return Ok(Outcome::Unavailable(Unavailable::NonceStoreFull)),
            Spending::Unavailable => return Ok(Outcome::Unavailable(Unavailable::NonceStoreUnavailable)),
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
