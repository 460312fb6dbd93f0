//! No input panics: good JSON-RPC replies, ABI returns in them and relay bodies, changed at random.
//!
//! `MUTATIONS` says how many of each (3,000 if it does not), `MUTATION_SEED` where the random numbers begin:
//! `MUTATIONS=3400000 cargo test --release -p registry-core --test mutations` are ten million.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

mod common;

use common::{
    NOW, Node, PlainRegistry, question,
    split_mix::{Random, setting},
};
use registry_core::{
    chain::{Limits, Reply, Run, Step},
    eth::multicall::CANONICAL_ADDRESS,
    forward::{Rules, SignedRequest, domain},
};
use serde_json::Value;

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

fn count() -> u64 {
    setting("MUTATIONS", 3_000)
}

fn seeded(offset: u64) -> Random {
    Random(setting("MUTATION_SEED", 0).wrapping_mul(1_000).wrapping_add(offset))
}

/// 16 million.
const WORD: [u8; 64] = *b"0000000000000000000000000000000000000000000000000000000000ffffff";

/// Changes a text in one to four places: a byte, a digit of a number, a piece cut out, doubled or moved, an
/// end.
fn mutate(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..=random.below(4) {
        if text.is_empty() {
            break;
        }
        let (at, other) = (random.below(text.len()), random.below(text.len()));
        let longest = if random.below(4) == 0 { 400 } else { 70 };
        let length = random.below(longest);
        let piece = |from: usize, text: &[u8]| text[from..(from + length).min(text.len())].to_vec();
        match random.below(8) {
            0 => text[at] = random.next() as u8,
            1 => text[at] = b"0123456789abcdef"[random.below(16)],
            2 => text[at] = b"{}[]\",:x"[random.below(8)],
            3 => drop(text.drain(at..(at + length).min(text.len()))),
            4 => {
                let piece = piece(other, &text);
                text.splice(at..at, piece);
            }
            5 => {
                let piece = piece(other, &text);
                let end = (at + piece.len()).min(text.len());
                text.splice(at..end, piece);
            }
            // A whole word of the ABI: the lengths and offsets that a decoder believes or not.
            6 => {
                let word = [[b'f'; 64], [b'0'; 64], WORD][random.below(3)];
                let end = (at + word.len()).min(text.len());
                text[at..end].copy_from_slice(&word[..end - at]);
            }
            _ => text.truncate(at),
        }
    }
    text
}

#[test]
fn no_mutated_reply_makes_the_core_panic() {
    let mut node = Node::new(PlainRegistry::with_agents(5));
    node.registry.reports = (1..=4).map(|id| common::report(1 + id % 2, id)).collect();
    // Each question's replies, in the order in which they are asked for.
    let replies = TARGETS.map(|target| {
        let mut replies = Vec::new();
        let run = Run::new(question(target), CANONICAL_ADDRESS, Limits::default());
        let answer = registry_core::chain::drive(run, |batch| {
            let reply = node.post(batch);
            replies.push(reply.1.clone());
            reply
        });
        assert!(answer.is_ok(), "{target}");
        replies
    });
    let mut random = seeded(1);
    let (mut answered, mut refused) = (0_u64, 0_u64);
    for _ in 0..count() {
        let which = random.below(TARGETS.len());
        let mutated = random.below(replies[which].len());
        let mut run = Run::new(question(TARGETS[which]), CANONICAL_ADDRESS, Limits::default());
        let mut good = replies[which].iter().enumerate();
        let is_answered = loop {
            match run.step() {
                Ok(Step::Done(_)) => break true,
                Err(_) => break false,
                Ok(Step::Send(_)) => {}
            }
            let Some((index, reply)) = good.next() else { break false };
            let body = if index == mutated { mutate(reply, &mut random) } else { reply.clone() };
            if run.feed(Reply { status: 200, body: &body }).is_err() {
                break false;
            }
        };
        if is_answered { answered += 1 } else { refused += 1 }
    }
    assert!(answered > 0 && refused > 0, "{answered} answered, {refused} refused");
    println!("{answered} mutated replies answered, {refused} refused");
}

#[test]
fn no_mutated_return_value_makes_the_core_panic() {
    use alloy_primitives::hex;
    use alloy_sol_types::SolCall;
    use registry_core::eth::abi::{
        self,
        IAgentRegistry::{getAgentCall, getChildrenCall, getRevenueHistoryCall},
        IMulticall3::aggregate3Call,
    };
    let vectors: Value = serde_json::from_str(include_str!("vectors/agent_records.json")).unwrap();
    let mut returns: Vec<String> = vectors
        .as_array()
        .unwrap()
        .iter()
        .map(|vector| vector["returnData"].as_str().unwrap()[2..].into())
        .collect();
    let reports: Vec<_> = (1..=3).map(|id| common::report(1, id)).collect();
    returns.push(hex::encode(getRevenueHistoryCall::abi_encode_returns(&reports)));
    let mut random = seeded(2);
    for _ in 0..count() {
        let digits = &returns[random.below(returns.len())];
        let mut text = mutate(digits.as_bytes(), &mut random);
        text.retain(u8::is_ascii_hexdigit);
        text.truncate(text.len() / 2 * 2);
        let data = hex::decode(&text).unwrap();
        let _ = abi::decode_returns::<getAgentCall>(&data);
        let _ = abi::decode_returns::<getChildrenCall>(&data);
        let _ = abi::decode_returns::<getRevenueHistoryCall>(&data);
        let _ = abi::decode_returns::<aggregate3Call>(&data);
    }
}

#[test]
fn no_mutated_relay_body_makes_the_core_panic() {
    let vectors: Value = serde_json::from_str(include_str!("vectors/forward_requests.json")).unwrap();
    let mut bodies = Vec::new();
    collect_bodies(&vectors, &mut bodies);
    assert!(!bodies.is_empty());
    let mut random = seeded(3);
    for _ in 0..count() {
        let body = mutate(&bodies[random.below(bodies.len())], &mut random);
        if let Ok(signed) = SignedRequest::from_json(&body) {
            let rules = Rules { registry: signed.request.to, max_gas: 1_000_000 };
            let _ = rules.check(&signed, &domain(31_337, signed.request.from), NOW);
        }
    }
}

/// Every object with a request and a signature, and a body made of it.
fn collect_bodies(value: &Value, bodies: &mut Vec<Vec<u8>>) {
    if let (Some(request), Some(signature)) = (value.get("request"), value.get("signature")) {
        let body = serde_json::json!({"request": request, "signature": signature});
        bodies.push(body.to_string().into_bytes());
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_bodies(item, bodies)),
        Value::Object(fields) => fields.values().for_each(|item| collect_bodies(item, bodies)),
        _ => {}
    }
}
