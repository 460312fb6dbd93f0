//! No input panics: good JSON-RPC replies, ABI returns in them and relay bodies, changed at random.
//!
//! `MUTATIONS` says how many of each (3,000 if it does not), `MUTATION_SEED` where the random numbers begin:
//! `MUTATIONS=3400000 cargo test --release -p registry-core --test hostile mutations` are ten million.

use alloy_primitives::hex;
use alloy_sol_types::SolCall;
use registry_core::{
    eth::abi::{
        IAgentRegistry::{getAgentCall, getChildrenCall, getRevenueHistoryCall},
        IMulticall3::aggregate3Call,
        decode_returns,
    },
    forward::{Rules, SignedRequest, domain},
};

use crate::{
    common::{prelude::*, random::Mutator, random::Random, random::setting, report, run},
    turn,
};

const TARGETS: [&str; 8] = [
    "/api/v1/stats",
    "/api/v1/agent/1",
    "/api/v1/agent/1/revenue",
    "/api/v1/agent/1/lineage",
    "/api/v1/agents?limit=3",
    "/api/v1/agents/compliance",
    "/api/v1/stats/detailed",
    "/api/v1/kya/0x0000000000000000000000000000000000000001",
];

fn vectors(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

/// Tries mutations of these texts.
fn try_mutations(offset: u64, texts: &[Vec<u8>], mut read: impl FnMut(Vec<u8>)) {
    let _turn = turn();
    let mut random = Random::seeded(offset);
    for _ in 0..setting("MUTATIONS", 3_000) {
        let text = random.pick(texts);
        read(Mutator::JSON_RPC.mutate(&text, &mut random));
    }
}

#[test]
fn no_mutated_reply_makes_the_core_panic() {
    let _turn = turn();
    let mut node = Node::new(PlainRegistry::with_agents(5));
    node.registry.reports = (1..=4).map(|id| report(1 + id % 2, id)).collect();
    // Each question's replies, in the order in which they are asked for.
    let replies = TARGETS.map(|target| {
        let mut replies = Vec::new();
        let answer = drive(run(target), |batch| {
            let reply = node.post(batch);
            replies.push(reply.1.clone());
            reply
        });
        assert!(answer.is_ok(), "{target}");
        replies
    });
    let (mut random, mut counts) = (Random::seeded(1), [0_u64; 2]);
    for _ in 0..setting("MUTATIONS", 3_000) {
        let which = random.place(TARGETS.len());
        let mut replies = replies[which].clone();
        let mutated = random.place(replies.len());
        replies[mutated] = Mutator::JSON_RPC.mutate(&replies[mutated], &mut random);
        let mut replies = replies.into_iter();
        let mut run = run(TARGETS[which]);
        let is_answered = loop {
            match run.step() {
                Ok(Step::Done(_)) => break true,
                Err(_) => break false,
                Ok(Step::Send(_)) => {}
            }
            let Some(body) = replies.next() else { break false };
            if run.feed(Reply { status: 200, body: &body }).is_err() {
                break false;
            }
        };
        counts[usize::from(is_answered)] += 1;
    }
    println!("{} mutated replies answered, {} refused", counts[1], counts[0]);
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
}

#[test]
fn no_mutated_return_value_makes_the_core_panic() {
    let records = vectors(include_str!("../vectors/agent_records.json"));
    let digits = |vector: &Value| vector["returnData"].as_str().unwrap()[2..].into();
    let mut returns: Vec<Vec<u8>> = records.iter().map(digits).collect();
    let reports: Vec<_> = (1..=3).map(|id| report(1, id)).collect();
    returns.push(hex::encode(getRevenueHistoryCall::abi_encode_returns(&reports)).into());
    try_mutations(2, &returns, |mut text| {
        text.retain(u8::is_ascii_hexdigit);
        text.truncate(text.len() / 2 * 2);
        let data = hex::decode(&text).unwrap();
        let _ = decode_returns::<getAgentCall>(&data);
        let _ = decode_returns::<getChildrenCall>(&data);
        let _ = decode_returns::<getRevenueHistoryCall>(&data);
        let _ = decode_returns::<aggregate3Call>(&data);
    });
}

#[test]
fn no_mutated_relay_body_makes_the_core_panic() {
    let requests = vectors(include_str!("../vectors/forward_requests.json"));
    let body = |vector: &Value| json!({"request": vector["request"], "signature": vector["signature"]});
    let bodies: Vec<Vec<u8>> = requests.iter().map(|vector| body(vector).to_string().into_bytes()).collect();
    try_mutations(3, &bodies, |body| {
        if let Ok(signed) = SignedRequest::from_json(&body) {
            let rules = Rules { registry: signed.request.to, max_gas: 1_000_000 };
            let _ = rules.check(&signed, &domain(31_337, signed.request.from), NOW);
        }
    });
}
