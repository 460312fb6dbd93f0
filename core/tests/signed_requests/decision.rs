//! The decision as a host drives it, step by step.

use std::sync::Arc;

use alloy_primitives::{Address, B256, Bytes, U256};
use registry_core::{
    chain::SignerCode,
    eth::timestamp::Timestamp,
    gate::{
        AccountState, AccountStep, AgentPolicy, DecisionStep, DomainWord, LiabilityRule, Links, Origin,
        Outcome, Posture, RequestRules, RoutePolicy, SignatureRules, Spending, Verdict, VerdictAgent,
    },
    liability::{Acceptance, Basis, DecimalId, FIELD},
    registry::kya::Decision,
    token::StatedAt,
};

use crate::message::{ADDRESS, EditableRequest, rules};

fn policy(rules: SignatureRules, agents: AgentPolicy) -> RoutePolicy {
    RoutePolicy {
        name: "api".to_owned(),
        origin: Origin::parse("https://api.example").unwrap(),
        requests: RequestRules::default(),
        rules,
        registry: Address::ZERO,
        agents,
        observe: false,
        links: Links::default(),
        routes: Vec::new(),
    }
}

/// Returns the step that asks about the account of a message.
fn account<'a>(policy: &'a RoutePolicy, message: &EditableRequest) -> AccountStep<'a> {
    match message.with(|request| policy.decide(request, Timestamp::from_seconds(message.now))) {
        DecisionStep::Account(account) => account,
        other => panic!("{other:?}"),
    }
}

/// Returns the code of a request's outcome; `nonce` if the nonce is next.
fn code(step: DecisionStep<'_>) -> &'static str {
    match step {
        DecisionStep::Done(outcome) => outcome.code(),
        DecisionStep::Nonce(_) => "nonce",
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_route_for_accounts_without_code_says_so_to_others_whichever_key_signed() {
    let eoa_only = SignatureRules { posture: Posture::EoaOnly, ..rules() };
    let policy = policy(eoa_only, AgentPolicy::default());
    let vector = EditableRequest::vector();
    // Its signature is that of an unknown key.
    let other = EditableRequest { target: "/items".to_owned(), ..vector.clone() };
    for (message, state, expected) in [
        (&vector, Some(AccountState::Code { accepts: true }), "unsupported_account"),
        (&other, Some(AccountState::Code { accepts: true }), "unsupported_account"),
        (&other, Some(AccountState::NoCode), "bad_signature"),
        (&other, None, "signature_verification_unavailable"),
    ] {
        assert_eq!(code(account(&policy, message).answer(state, None)), expected, "{state:?} {message:?}");
    }
}

/// Makes the verdict on an agent without known events, at a block of this time.
fn verdict(block_time: u64) -> Arc<Verdict> {
    let agent = VerdictAgent {
        id: "7".to_owned(),
        creator: Address::ZERO,
        liable: Address::repeat_byte(1),
        basis: Basis::Unknown,
        attested_at: None,
        acceptance: None,
        domains: DomainWord::Silent,
        registered_at: Timestamp::default(),
        scope_hash: B256::ZERO,
    };
    let block_timestamp = Some(Timestamp::from_seconds(block_time));
    Arc::new(Verdict {
        decision: Decision::Provision,
        reasons: Vec::new(),
        agent: Some(agent),
        compliant_until: None,
        as_of: StatedAt { block_timestamp, ..StatedAt::number(1) },
    })
}

#[test]
fn an_agent_is_refused_for_want_of_an_attestation_only_where_it_could_be_asked_for() {
    let liability = Some(LiabilityRule { basis: vec![Basis::Attested], attested_seconds: 60 });
    let agents = AgentPolicy { allow: vec![Decision::Provision], liability, ..AgentPolicy::default() };
    let (policy, message) = (policy(rules(), agents), EditableRequest::vector());
    let block_time = message.now + 5;
    let attested =
        || match account(&policy, &message).answer(Some(AccountState::NoCode), Some(verdict(block_time))) {
            DecisionStep::Attested(attested) => attested,
            other => panic!("{other:?}"),
        };
    let since = Timestamp::from_seconds(block_time - 60);
    assert_eq!(attested().query().since, since);
    for (at, expected) in [
        (Some(since), "nonce"),
        (Some(Timestamp::from_seconds(block_time - 61)), "principal_not_allowed"),
        (None, "principal_not_allowed"),
    ] {
        assert_eq!(code(attested().answer(at)), expected, "{at:?}");
    }
    assert_eq!(code(attested().unanswered()), "kya_unavailable");
    // An event is stated for 90 days, as the read API does.
    for (age, told) in [(90 * 86_400, Basis::Attested), (90 * 86_400 + 1, Basis::Unknown)] {
        let at = Timestamp::from_seconds(block_time - age);
        let DecisionStep::Done(Outcome::Denied(subject, _)) = attested().answer(Some(at)) else {
            panic!("{age}: it is not refused");
        };
        let agent = subject.verdict.agent.as_ref().unwrap();
        let expected = (told == Basis::Attested).then_some(at);
        assert_eq!((agent.basis, agent.attested_at), (told, expected), "{age}");
    }
}

#[test]
fn an_acceptance_is_asked_about_once_for_all_signatures_of_a_request() {
    let basis = vec![Basis::Accepted, Basis::Registered];
    let liability = Some(LiabilityRule { basis, attested_seconds: 60 });
    let agents = AgentPolicy { allow: vec![Decision::Provision], liability, ..AgentPolicy::default() };
    let (policy, vector) = (policy(rules(), agents), EditableRequest::vector());
    let acceptance = Acceptance {
        chain_id: policy.rules.chain,
        registry: policy.registry,
        agent_id: DecimalId(U256::from(7)),
        creator: Address::ZERO,
        agent_wallet: ADDRESS.parse().unwrap(),
        haftungsperson: Address::repeat_byte(1),
        registered_at: 0,
        terms_hash: B256::ZERO,
        not_before: vector.now,
        not_after: vector.now,
        signature: Bytes::new(),
    };
    // Each signature is there three times, under labels of their own.
    let thrice = |value: &str| {
        let (_, signature) = value.split_once('=').unwrap();
        format!("a={signature}, b={signature}, c={signature}")
    };
    let message = vector.set(FIELD, acceptance.to_header());
    let message = message.edit("signature-input", thrice).edit("signature", thrice);
    let mut registered = verdict(message.now);
    Arc::make_mut(&mut registered).agent.as_mut().unwrap().basis = Basis::Registered;
    // Where the chain does not answer, the agent is judged without the acceptance.
    for signer in [Some(SignerCode { has_code: true, accepts: true }), None] {
        let (mut step, mut steps) = (DecisionStep::Account(account(&policy, &message)), Vec::new());
        let outcome = loop {
            step = match step {
                DecisionStep::Account(account) => {
                    steps.push("account");
                    account.answer(Some(AccountState::NoCode), Some(Arc::clone(&registered)))
                }
                DecisionStep::Acceptance(acceptance) => {
                    steps.push("acceptance");
                    acceptance.answer(signer)
                }
                DecisionStep::Nonce(nonce) => {
                    steps.push("nonce");
                    nonce.answer(Spending::Reused)
                }
                step => break code(step),
            };
        };
        assert_eq!(outcome, "nonce_reused", "{signer:?}");
        let expected = ["account", "acceptance", "nonce", "account", "nonce", "account", "nonce"];
        assert_eq!(steps, expected, "{signer:?}");
    }
}
