//! No input panics: good JSON-RPC replies with ABI returns in them, and relay bodies, mutated at random.
//!
//! `MUTATIONS` is the number of each (3,000 by default), `MUTATION_SEED` the seed of the random numbers:
//! `MUTATIONS=5000000 cargo test --release -p registry-core --test hostile mutations` tries ten million.

use registry_core::forward::{Rules, SignedRequest, domain};
use registry_core::liability::{Acceptance, Moment, PinnedRecord};

use crate::{common::all_targets, common::prelude::*, common::random::Mutator, turn};

#[test]
fn no_mutated_reply_makes_the_core_panic() {
    let _turn = turn();
    let mut node = Node::new(PlainRegistry::with_agents(5));
    node.registry.reports = (1..=4).map(|id| report(1 + id % 2, id)).collect();
    // Each question's replies, in the order in which they are asked for.
    let targets: Vec<&str> = all_targets().collect();
    let replies = targets.iter().map(|target| {
        let mut replies = Vec::new();
        let answer = drive(run(target), |batch| {
            let reply = node.post(batch);
            replies.push(reply.1.clone());
            reply
        });
        assert!(answer.is_ok(), "{target}");
        replies
    });
    let replies: Vec<Vec<Vec<u8>>> = replies.collect();
    let (mut random, mut counts) = (Random::seeded(1), [0_u64; 2]);
    for _ in 0..setting("MUTATIONS", 3_000) {
        let which = random.place(targets.len());
        let mut replies = replies[which].clone();
        let mutated = random.place(replies.len());
        replies[mutated] = Mutator::JSON_RPC.mutate(&replies[mutated], &mut random);
        let mut replies = replies.into_iter();
        let answer = drive(run(targets[which]), |_| (200, replies.next().unwrap_or_default()));
        counts[usize::from(answer.is_ok())] += 1;
    }
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
}

#[test]
fn no_mutated_relay_body_makes_the_core_panic() {
    let _turn = turn();
    let requests: Vec<Value> =
        serde_json::from_str(include_str!("../vectors/forward_requests.json")).unwrap();
    let body = |vector: &Value| json!({"request": vector["request"], "signature": vector["signature"]});
    let bodies: Vec<Vec<u8>> = requests.iter().map(|vector| body(vector).to_string().into_bytes()).collect();
    let mut random = Random::seeded(3);
    for _ in 0..setting("MUTATIONS", 3_000) {
        let body = random.pick(&bodies);
        if let Ok(signed) = SignedRequest::from_json(&Mutator::JSON_RPC.mutate(&body, &mut random)) {
            let rules = Rules { registry: signed.request.to, max_gas: 1_000_000 };
            let _ = rules.check(&signed, &domain(31_337, signed.request.from), NOW);
        }
    }
}

#[test]
fn no_mutated_acceptance_is_accepted() {
    let _turn = turn();
    let vectors: Value = serde_json::from_str(include_str!("../../../docs/liability/vectors.json")).unwrap();
    let scope = vectors["acceptances"][0]["operationalScope"].as_str().unwrap();
    let signed = Acceptance::from_json(&vectors["acceptances"][0]["document"].to_string()).unwrap();
    let record = PinnedRecord {
        agent_id: signed.agent_id.0,
        creator: signed.creator,
        agent_wallet: signed.agent_wallet,
        haftungsperson: signed.haftungsperson,
        registered_at: signed.registered_at,
    };
    let moment = Moment { now: signed.not_before, block_time: signed.not_before };
    let accepts = |acceptance: &Acceptance| {
        let place = (signed.chain_id, signed.registry);
        acceptance.check_place_and_time(place, moment).is_ok()
            && acceptance.check_record(&record).is_ok()
            && acceptance.check_signature(scope).is_ok()
    };
    assert!(accepts(&signed));
    let text = signed.to_json();
    let (mut random, mut read) = (Random::seeded(4), 0_u64);
    for _ in 0..setting("MUTATIONS", 3_000) {
        // In every other document a hex digit is replaced, so that most of them still parse.
        let mutated = match random.once_in(2) {
            true => Mutator::JSON_RPC.mutate(text.as_bytes(), &mut random),
            false => {
                let mut bytes = text.clone().into_bytes();
                let digits: Vec<usize> =
                    (0..bytes.len()).filter(|at| bytes[*at].is_ascii_hexdigit()).collect();
                let at = random.pick(&digits);
                bytes[at] = random.pick(b"0123456789abcdefABCDEF");
                bytes
            }
        };
        let Ok(mutated) = String::from_utf8(mutated) else { continue };
        if let Ok(other) = Acceptance::from_json(&mutated) {
            read += 1;
            assert!(other == signed || !accepts(&other), "{mutated}");
        }
    }
    assert!(read > 0, "none of the mutated acceptances was read");
}
