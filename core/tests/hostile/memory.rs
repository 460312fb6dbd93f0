//! Memory cost of honest answers: from the largest registry, and from a full cache.

use registry_core::chain::MAX_AGENTS;
use registry_core::host::shared_reads::{Cache, CacheLookup, ReadOutcome};

use crate::{ALLOCATED, common::prelude::*, peak, shapes::MB, turn};

/// Returns the answer from a node, its round trips, and the most bytes held, replies included.
fn ask(node: &mut Node, path: &str) -> (Result<String, Error>, usize, usize) {
    node.log.clear();
    let question = question(&format!("/api/v1/{path}"));
    let mut run = Run::new(question, CANONICAL_ADDRESS, Limits::default());
    let (before, mut held) = (ALLOCATED.current_usage(), 0);
    let mut reply = Vec::new();
    let answer = loop {
        // The node's own memory for a reply does not count.
        ALLOCATED.reset_peak_usage();
        let fed = if reply.is_empty() { Ok(()) } else { run.feed(Reply { status: 200, body: &reply }) };
        let step = fed.and_then(|()| run.step());
        held = held.max(ALLOCATED.peak_usage() - before);
        match step {
            Ok(Step::Send(batch)) => reply = node.post(&batch).1,
            Ok(Step::Done(document)) => break Ok(document.body),
            Err(error) => break Err(error),
        }
    };
    (answer, node.round_trips(), held)
}

#[test]
fn the_largest_registry_is_answered_for_within_64_mib() {
    let _turn = turn();
    let mut node = Node::new(PlainRegistry::with_agents(MAX_AGENTS));
    node.quirks.gas_for_calls = Some(2_200);
    for path in ["agents/compliance", "revenue/aggregate", "stats/detailed"] {
        let (answer, _, held) = ask(&mut node, path);
        answer.unwrap();
        assert!(held <= 64 << 20, "{path}: {held} bytes held");
    }
    node.registry.agents.push(record(MAX_AGENTS + 1, 0));
    let (answer, trips, _) = ask(&mut node, "agents/compliance");
    assert_eq!((answer.unwrap_err().code(), trips), (Code::TooLarge, 1));
}

#[test]
fn a_cache_of_long_searches_takes_no_more_memory_than_its_capacity() {
    let _turn = turn();
    // A search has at most 200 characters, of up to four bytes each.
    let word = "%F0%A0%80%80".repeat(190);
    let route = |number: u32| Route::parse(&format!("/api/v1/agents?q={number}+{word}")).unwrap();
    let capacity = MB;
    let (cache, held) = peak(|| {
        let mut cache: Cache<Route, Result<u64, Error>> = Cache::new(capacity);
        for number in 0..8_000 {
            let (key, arrival) = (route(number), cache.arrive());
            let CacheLookup::Read(lease) = cache.look_up(&key, arrival, 0, 5_000) else { panic!("{number}") };
            cache.finish(&key, &lease, Err(Error::IndexRequired), ReadOutcome::Failure { millis: 5_000 }, 0);
        }
        cache
    });
    assert!(cache.bytes() <= capacity && held <= capacity * 5 / 4, "{} counted, {held} held", cache.bytes());
}
