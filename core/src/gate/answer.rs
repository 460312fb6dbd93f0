//! The gate's answer: status, challenge, the headers for the upstream, and a problem document (RFC 9457).
//!
//! Every answer has every header of [`OUTPUT_HEADERS`], an empty one where there is nothing to say: nginx and
//! Envoy then send the service an empty one in place of the client's own. Caddy 2.10.0 to 2.11.1 takes an
//! empty header for a missing one and lets the client's through: its block removes those first.

use alloy_primitives::Address;
use serde::Serialize;

use super::{
    candidate::SignatureRules, dialect::Dialect, output_headers::OUTPUT_HEADERS, policy::AgentDenial,
    refusal::RefusalCode, request::Request, request_fault::RequestFault, verdict::Verdict,
};
use crate::{
    eth::{json, timestamp::Timestamp},
    liability,
    registry::{
        kya::{Decision, Reason},
        well_known,
    },
};

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Served.
    Admitted(Subject),
    /// The signature was not checked: proxy, gate and service may read the request in different ways.
    Faulty(RequestFault),
    /// No signature was accepted.
    Refused(RefusalCode),
    /// A signature was accepted, but its agent is not served.
    Denied(Subject, AgentDenial),
    /// The gate cannot decide.
    Unavailable(Unavailable),
}

/// The wallet that signed, and its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The wallet.
    pub wallet: Address,
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict as a signed token; `None` where the host signs none.
    pub token: Option<String>,
    /// Problem of the acceptance that the request presents, where the agent is not served.
    pub acceptance_problem: Option<liability::Problem>,
}

/// The reason for which the gate cannot decide on a request, although its signature may be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Unavailable {
    /// There is no verdict.
    KyaUnavailable,
    /// The contents of other requests take all the memory for contents.
    ContentMemoryFull,
    /// No further nonce can be remembered.
    NonceStoreFull,
    /// The store did not answer whether the nonce was spent.
    NonceStoreUnavailable,
    /// The admission cannot be recorded.
    RecordUnavailable,
    /// The proxy does not tell the gate about the request that it received.
    GateMisconfigured,
}

impl Unavailable {
    /// All reasons.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

/// URLs for agents that are not served, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Page for registration.
    pub register: Option<String>,
    /// Page for the renewal of an attestation.
    pub renew: Option<String>,
}

/// An HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateAnswer {
    /// The status: 200, 400, 401, 403, 413, 431 or 503.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// The problem document; empty for a request that is served.
    pub body: String,
}

/// A problem document: RFC 9457, with extensions.
#[derive(Serialize)]
struct ProblemDocument<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    title: &'static str,
    status: u16,
    detail: &'a str,
    /// The stable code.
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasons: Option<&'a [Reason]>,
    /// Basis that ties the liable wallet to the agent, where that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    basis: Option<&'static str>,
    /// Problem of the request's acceptance: a member, `header`, `signature` or `time`.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    register: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew: Option<&'a str>,
    /// Path of the document that describes the registry and its services.
    discovery: &'static str,
}

impl Outcome {
    /// Returns the HTTP status of its answer.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Admitted(_) => 200,
            Self::Faulty(fault) => fault.status(),
            Self::Refused(refusal) => refusal.status(),
            Self::Denied(..) => 403,
            Self::Unavailable(_) => 503,
        }
    }

    /// Returns the stable code of the outcome.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Admitted(_) => "admitted",
            Self::Faulty(fault) => fault.code(),
            Self::Refused(refusal) => refusal.code(),
            Self::Denied(_, denial) => denial.code(),
            Self::Unavailable(unavailable) => unavailable.into(),
        }
    }

    /// Returns the wallet that signed.
    pub const fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Admitted(subject) | Self::Denied(subject, _) => Some(subject),
            Self::Faulty(_) | Self::Refused(_) | Self::Unavailable(_) => None,
        }
    }

    /// Returns the answer to `request`.
    pub fn answer(&self, request: &Request<'_>, rules: &SignatureRules, links: &Links) -> GateAnswer {
        let mut answer = self.answer_unread(links);
        if let Self::Refused(refusal) = self
            && refusal.status() == 401
        {
            answer.headers.extend(challenge(refusal.challenge(), request, rules));
        }
        answer
    }

    /// Returns the answer without a challenge, for a request that could not be read.
    pub fn answer_unread(&self, links: &Links) -> GateAnswer {
        let mut headers = self.output_headers();
        let body = self.problem(links);
        if !body.is_empty() {
            headers.push(("content-type", "application/problem+json".to_owned()));
        }
        headers.push(("cache-control", "no-store".to_owned()));
        GateAnswer { status: self.status(), headers, body }
    }

    /// Returns the answer where the gate only observes: the request is served, whatever its outcome.
    pub fn observed(&self) -> GateAnswer {
        let mut headers = self.output_headers();
        headers.push(("cache-control", "no-store".to_owned()));
        GateAnswer { status: 200, headers, body: String::new() }
    }

    fn output_headers(&self) -> Vec<(&'static str, String)> {
        let values = self.subject().map(|Subject { wallet, verdict, token, .. }| {
            let agent = verdict.agent.as_ref();
            [
                wallet.to_checksum(None),
                agent.map(|agent| agent.id.clone()).unwrap_or_default(),
                decision(verdict.decision).to_owned(),
                agent.map(|agent| agent.liable.to_checksum(None)).unwrap_or_default(),
                agent.map(|agent| agent.basis.name().to_owned()).unwrap_or_default(),
                verdict.compliant_until.as_ref().map(Timestamp::to_string).unwrap_or_default(),
                token.clone().unwrap_or_default(),
            ]
        });
        OUTPUT_HEADERS.into_iter().zip(values.unwrap_or_default()).collect()
    }

    fn problem(&self, links: &Links) -> String {
        let (title, detail) = match self {
            Self::Admitted(_) => return String::new(),
            Self::Faulty(fault) => ("Request not accepted", fault.advice()),
            Self::Refused(refusal) => ("Request not authenticated", refusal.advice()),
            Self::Denied(_, denial) => ("Agent not served", denial_advice(*denial)),
            Self::Unavailable(_) => ("Temporarily unavailable", "The gate cannot say now: try again."),
        };
        let denied = match self {
            Self::Denied(subject, _) => Some(&subject.verdict),
            _ => None,
        };
        let link = |wanted, link: &'_ Option<String>| {
            link.clone().filter(|_| denied.is_some_and(|verdict| verdict.decision == wanted))
        };
        let (register, renew) =
            (link(Decision::Deny, &links.register), link(Decision::RequestRenewal, &links.renew));
        let (basis, acceptance_problem) = match self {
            Self::Denied(Subject { verdict, acceptance_problem, .. }, AgentDenial::LiableNotProved) => {
                (verdict.agent.as_ref().map(|agent| agent.basis.name()), acceptance_problem.as_ref())
            }
            _ => (None, None),
        };
        let problem = ProblemDocument {
            kind: basis.map(|_| "liable_not_proved"),
            title,
            status: self.status(),
            detail,
            reason: self.code(),
            decision: denied.map(|verdict| verdict.decision),
            reasons: denied.map(|verdict| verdict.reasons.as_slice()),
            basis,
            problem: acceptance_problem.map(ToString::to_string),
            register: register.as_deref(),
            renew: renew.as_deref(),
            discovery: well_known::PATH,
        };
        json::text(&problem, 256)
    }
}

const fn denial_advice(denial: AgentDenial) -> &'static str {
    match denial {
        AgentDenial::KyaNotAllowed => "The registry's verdict on this wallet is not one that is served here.",
        AgentDenial::AttestationTooShort => "The agent's attestation lapses too soon: renew it.",
        AgentDenial::AgentNotAllowed => "This agent is not served here.",
        AgentDenial::LiableNotProved => {
            "The liable wallet is only named by the registration: let it attest for the agent, or accept it."
        }
    }
}

/// Returns a decision as the read API writes it.
const fn decision(decision: Decision) -> &'static str {
    match decision {
        Decision::Provision => "provision",
        Decision::RequestRenewal => "request_renewal",
        Decision::Deny => "deny",
    }
}

/// Returns the headers of a 401: the challenge (section 6) and the components to sign (RFC 9421, section 5).
fn challenge(code: &str, request: &Request<'_>, rules: &SignatureRules) -> [(&'static str, String); 2] {
    let mut challenge = format!("ERC8128 error=\"{code}\"");
    if code == RefusalCode::UnsupportedChain.code() {
        challenge.push_str(&format!(", chains=\"eip155:{}\"", rules.chain));
    }
    if code == RefusalCode::UnsupportedAccount.code() {
        let account: &str = rules.posture.into();
        challenge.push_str(&format!(", account=\"{account}\""));
    }
    let dialect = if rules.dialects.contains(&Dialect::Tagged) { Dialect::Tagged } else { Dialect::Untagged };
    let required = dialect.required(request, &rules.components);
    let components: Vec<String> = required.map(|component| format!("\"{component}\"")).collect();
    let tag = if dialect == Dialect::Tagged { ";tag=\"erc8128\"" } else { "" };
    let accept = format!("request=({});created;expires{tag}", components.join(" "));
    [("www-authenticate", challenge), ("accept-signature", accept)]
}
