//! Failover between several RPC endpoints, with the faults of [`common::host::Fault`] and a clock that only
//! the test moves.
//!
//! 1. A run fails over from a failing endpoint to the next one without delay; later runs stay with that one.
//! 2. A failure that lasts rules the endpoint out; one that passes gives it another chance, after a pause.
//! 3. All endpoints have to be on the chain of the settings.
//! 4. A head older than allowed is a failure like any other.
//! 5. When no endpoint answers, the error says how many were tried, and the fault of one of them.
//! 6. Whatever the endpoints do: a run ends within its limits and its deadline, and what it reads is of one
//!    block.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

mod common;

use common::{
    CHAIN_ID, NOW, Node, PlainRegistry,
    host::{Fault, Host, Upstream, blocks, chain_of, finish, of_block},
};
use proptest::prelude::*;
use registry_core::{
    api::question::Question,
    chain::{Batch, Endpoints, Failure, Freshness, Limits, Reply, Run, RunError, Step},
    eth::multicall::CANONICAL_ADDRESS,
    eth::timestamp::Timestamp,
    registry::error_code::Code,
};

const ONE_ROUND: &str = "/api/v1/agents?limit=100";
const TWO_ROUNDS: &str = "/api/v1/agents/compliance";

/// Faults that end one endpoint's answer, and the message of each.
fn faults() -> [(Fault, &'static str); 12] {
    [
        (Fault::Unreachable, "RPC endpoint unreachable"),
        (Fault::Hangs, "RPC endpoint did not answer within "),
        (Fault::Slow(4_000), "RPC endpoint did not answer within "),
        (Fault::Status(429), "RPC endpoint answered HTTP 429"),
        (Fault::Status(503), "RPC endpoint answered HTTP 503"),
        (Fault::Status(403), "RPC endpoint answered HTTP 403"),
        (Fault::Status(308), "RPC endpoint answered HTTP 308"),
        (Fault::Html, "RPC endpoint gave a malformed answer"),
        (Fault::HalfABody, "RPC endpoint gave a malformed answer"),
        (Fault::WrongId, "RPC endpoint gave a malformed answer"),
        (Fault::Error(-32005, "daily request count exceeded"), "daily request count exceeded"),
        (Fault::Error(-32601, "the method does not exist"), "the method does not exist"),
    ]
}

#[test]
fn a_failing_endpoint_is_left_at_once_and_the_next_is_kept() {
    for (fault, message) in faults() {
        for target in [ONE_ROUND, TWO_ROUNDS] {
            let mut host = Host::new([Upstream::failing(fault.clone()), Upstream::good(), Upstream::good()]);
            assert_eq!(host.ask(target).unwrap()["total"], 12, "{fault:?}");
            let attempt = if message.contains("within") { host.limits.timeout_ms } else { 0 };
            assert!(host.took < attempt + 100, "{fault:?}, {target}: {} ms", host.took);
            host.posts();
            host.ask(target).unwrap();
            assert_eq!(host.posts()[0], 0, "{fault:?}, {target}");
            assert_eq!(host.known.preferred(), 1, "{fault:?}, {target}");
        }
    }
}

#[test]
fn an_endpoint_whose_answers_have_no_end_is_left_at_once_and_the_next_is_kept() {
    for target in [ONE_ROUND, TWO_ROUNDS, "/api/v1/stats", "/api/v1/agent/3"] {
        let mut host = Host::new([Upstream::failing(Fault::Endless), Upstream::good()]);
        host.ask(target).unwrap();
        assert_eq!(host.posts()[0], 1, "{target}: one answer is enough to know it by");
        host.ask(target).unwrap();
        assert_eq!((host.posts()[0], host.known.preferred()), (0, 1), "{target}");
    }
}

#[test]
fn what_is_too_large_everywhere_is_asked_for_in_pieces_without_failover() {
    let mut host = Host::new([Upstream::good(), Upstream::good(), Upstream::good()]);
    let expected = host.ask(ONE_ROUND).unwrap();
    host.limits = Limits { max_reply_bytes: 8_000, rounds: 1_000, ..host.limits };
    assert_eq!(host.ask(ONE_ROUND).unwrap()["agents"], expected["agents"]);
    assert_eq!(host.known.preferred(), 0);
    host.limits.max_reply_bytes = 500;
    let mut run = Run::new(common::question("/api/v1/agent/3"), CANONICAL_ADDRESS, host.limits)
        .over(host.known.clone());
    let answer = finish(&mut run, |batch| host.upstreams[batch.endpoint].post(batch).0);
    let error = answer.unwrap_err();
    host.known.merge(&run.update());
    assert_eq!((error.code(), host.known.preferred()), (Code::TooLarge, 0));
}

#[test]
fn an_answer_in_one_object_for_a_batch_is_taken_for_what_it_is() {
    let mut host = Host::new([Upstream::failing(Fault::OneObject), Upstream::good()]);
    let answer = host.ask(TWO_ROUNDS).unwrap();
    assert_eq!(blocks(&answer), of_block(CHAIN_ID, 100));
}

#[test]
fn an_endpoint_that_fails_midway_is_left_with_its_block_kept() {
    let first = Upstream::with_faults([Fault::Slow(10), Fault::Status(503)]);
    let mut host = Host::new([first, Upstream::at_block(104)]);
    let answer = host.ask(TWO_ROUNDS).unwrap();
    assert_eq!(blocks(&answer), of_block(CHAIN_ID, 100), "the block the first endpoint named");
    assert_eq!(host.posts(), [2, 1]);
}

#[test]
fn an_endpoint_that_has_not_seen_the_block_yet_is_read_at_its_own() {
    let first = Upstream::with_faults([Fault::Slow(10), Fault::Unreachable, Fault::Unreachable]);
    let mut host = Host::new([first, Upstream::at_block(60)]);
    let answer = host.ask(TWO_ROUNDS).unwrap();
    assert_eq!(blocks(&answer), of_block(CHAIN_ID, 60));
}

#[test]
fn what_an_endpoint_said_before_it_failed_is_not_mixed_with_what_the_next_says() {
    // Of many chunks the first endpoint answers one, unpinned, and is gone; the second is at another block.
    let mut first = Upstream::with_faults([vec![Fault::Slow(10)], vec![Fault::Unreachable; 9]].concat());
    first.node.quirks.short_batches = Some(1);
    let mut host = Host::new([first, Upstream::at_block(101)]);
    host.limits.calls_per_chunk = 5;
    assert_eq!(blocks(&host.ask(ONE_ROUND).unwrap()), of_block(CHAIN_ID, 101));
}

#[test]
fn a_node_without_block_hashes_is_read_at_its_own_block_by_number() {
    let first = Upstream::with_faults([Fault::Slow(10), Fault::Unreachable]);
    let mut second = Upstream::at_block(100);
    second.node.quirks.no_eip1898 = true;
    let mut host = Host::new([first, second]);
    assert_eq!(blocks(&host.ask(TWO_ROUNDS).unwrap()), of_block(CHAIN_ID, 100));
    assert_eq!(host.posts(), [2, 3], "the refusal, and its two rounds from the beginning");
}

#[test]
fn pauses_begin_when_every_endpoint_has_had_its_chance() {
    let mut host = Host::new([(); 3].map(|()| Upstream::failing(Fault::Status(503))));
    host.ask(ONE_ROUND).unwrap_err();
    assert_eq!(host.posts(), [2, 2, 1]);
    assert_eq!(host.took, 5 * 10 + 100 + 400);
}

#[test]
fn a_failure_that_passes_while_the_others_are_down_is_survived() {
    let first = Upstream::with_faults([Fault::Status(429)]);
    let mut host = Host::new([first, Upstream::failing(Fault::Unreachable)]);
    host.ask(ONE_ROUND).unwrap();
    assert_eq!(host.known.preferred(), 0);
}

#[test]
fn a_refusal_that_lasts_rules_an_endpoint_out() {
    let second = Upstream::with_faults(vec![Fault::Status(503); 3]);
    let mut host = Host::new([Upstream::failing(Fault::Status(401)), second]);
    let error = host.ask(ONE_ROUND).unwrap_err();
    assert_eq!(host.posts(), [1, 3]);
    assert_eq!(
        error.to_string(),
        "No RPC endpoint answered (2 of 2 tried). Number 1: RPC endpoint answered HTTP 401"
    );
}

#[test]
fn when_no_endpoint_answers_the_error_counts_and_names_one() {
    for (fault, message) in faults() {
        let mut host = Host::new([(); 2].map(|()| Upstream::failing(fault.clone())));
        let error = host.ask(ONE_ROUND).unwrap_err().to_string();
        assert!(error.starts_with("No RPC endpoint answered (2 of 2 tried). Number "), "{fault:?}: {error}");
        assert!(error.contains(message), "{fault:?}: {error}");
        assert!(host.took <= host.limits.deadline_ms, "{fault:?}: {} ms", host.took);

        let mut alone = Host::new([Upstream::failing(fault.clone())]);
        let error = alone.ask(ONE_ROUND).unwrap_err().to_string();
        assert!(error.contains(message) && !error.contains("tried"), "{fault:?}: {error}");
        assert!(alone.took <= alone.limits.deadline_ms, "{fault:?}: {} ms", alone.took);
    }
}

#[test]
fn the_deadline_is_over_all_attempts_and_cuts_the_last() {
    let mut host = Host::new([(); 8].map(|()| Upstream::failing(Fault::Hangs)));
    let error = host.ask(ONE_ROUND).unwrap_err();
    assert_eq!((host.took, host.posts().iter().sum()), (15_000, 4), "three of four seconds and one of three");
    assert_eq!(
        error.to_string(),
        "No RPC endpoint answered (4 of 8 tried). Number 4: RPC endpoint did not answer within 3 s"
    );
    let mut slow = Host::new([Upstream::failing(Fault::Slow(3_900))]);
    slow.upstreams[0].node.registry.agents = (1..=9).map(|id| common::record(id, id - 1)).collect();
    let error = slow.ask("/api/v1/agent/1/lineage").unwrap_err();
    assert_eq!(error, RunError::TimedOut { seconds: 4 }, "the fourth level had what was left of 15 s");
    assert_eq!(slow.took, 15_000);
}

#[test]
fn an_endpoint_of_another_chain_than_the_settings_is_refused() {
    let mut host = Host::new([Upstream::on_chain(1), Upstream::on_chain(CHAIN_ID), Upstream::on_chain(5)]);
    for target in [ONE_ROUND, TWO_ROUNDS] {
        assert_eq!(blocks(&host.ask(target).unwrap()), of_block(CHAIN_ID, 100));
    }
    let mut alone = Host::new([Upstream::on_chain(1)]);
    let error = alone.ask(ONE_ROUND).unwrap_err();
    assert_eq!(error, RunError::WrongChain { found: 1, expected: CHAIN_ID });
    assert_eq!(error.to_string(), "RPC endpoint is on chain 1, not 84532");
}

#[test]
fn a_header_alone_is_not_believed_to_be_of_the_right_chain() {
    // One request a batch: the header comes without a call that tells the chain.
    let mut wrong = Upstream::on_chain(5);
    wrong.node.quirks.batch_limit = Some(1);
    let mut host = Host::new([wrong, Upstream::good()]);
    assert_eq!(blocks(&host.ask(TWO_ROUNDS).unwrap()), of_block(CHAIN_ID, 100));
}

#[test]
fn where_chain_or_age_matter_a_multicall3_that_does_not_tell_is_refused() {
    let silent = Upstream::with(|upstream| upstream.node.quirks.no_tag = true);
    let mut host = Host::new([silent.clone()]);
    host.known = Endpoints::new(1, None);
    host.ask(ONE_ROUND).unwrap();
    host.known = Endpoints::new(1, Some(CHAIN_ID));
    let error = host.ask(ONE_ROUND).unwrap_err();
    assert_eq!(error.to_string(), "Multicall3 gave no answer to getChainId()");
    let mut host = Host::new([silent]);
    host.known = Endpoints::new(1, None);
    host.limits.freshness = Some(fresh(60));
    let error = host.ask(ONE_ROUND).unwrap_err();
    assert_eq!(error.to_string(), "Multicall3 gave no answer to getCurrentBlockTimestamp()");
}

fn fresh(max_age_seconds: u64) -> Freshness {
    Freshness { now: Timestamp::from_seconds(NOW), max_age_seconds }
}

#[test]
fn a_head_older_than_allowed_is_a_failure_like_any_other() {
    for target in [ONE_ROUND, TWO_ROUNDS] {
        let stale = Upstream::with(|upstream| upstream.node.head_age = 61);
        let mut host = Host::new([stale.clone(), Upstream::good()]);
        host.ask(target).unwrap();
        assert_eq!(host.known.preferred(), 0, "off unless it is set");
        host.limits.freshness = Some(fresh(60));
        host.ask(target).unwrap();
        assert_eq!(host.known.preferred(), 1);
        host.upstreams[1].node.head_age = 3_600;
        let error = host.ask(target).unwrap_err().to_string();
        assert!(error.starts_with("No RPC endpoint answered (2 of 2 tried)"), "{error}");
        assert!(
            error.ends_with("RPC endpoint's newest block is 61 s old"),
            "the last that was tried: {error}"
        );
        host.limits.freshness = Some(fresh(61));
        host.ask(target).unwrap();
        assert_eq!(host.known.preferred(), 0);
    }
}

#[test]
fn what_a_run_learns_does_not_undo_the_switch_of_another() {
    let mut known = Endpoints::new(3, Some(CHAIN_ID));
    let (mut early, mut late) = (run(ONE_ROUND, &known), run(ONE_ROUND, &known));
    for run in [&mut early, &mut late] {
        assert!(matches!(run.step(), Ok(Step::Send(batch)) if batch.endpoint == 0));
    }
    early.fail(Failure::Unreachable).unwrap();
    known.merge(&early.update());
    assert_eq!(known.preferred(), 1);
    let (status, body) = Node::new(PlainRegistry::with_agents(3)).post(&next_batch(&mut late));
    late.feed(Reply { status, body: &body }).unwrap();
    known.merge(&late.update());
    assert_eq!(known.preferred(), 1, "the first has answered a run that had begun before");
    known.merge(&early.update());
    assert_eq!(known.preferred(), 1, "once more the same");
}

#[test]
fn a_switch_that_was_undone_is_not_made_again_by_the_run_that_made_it() {
    let mut known = Endpoints::new(2, Some(CHAIN_ID));
    let mut early = run(TWO_ROUNDS, &known);
    assert_eq!(next_batch(&mut early).endpoint, 0);
    early.fail(Failure::Unreachable).unwrap();
    known.merge(&early.update());
    let mut late = run(TWO_ROUNDS, &known);
    assert_eq!(next_batch(&mut late).endpoint, 1);
    late.fail(Failure::Unreachable).unwrap();
    known.merge(&late.update());
    assert_eq!(known.preferred(), 0, "the second endpoint failed as well");
    let (status, body) = Node::new(PlainRegistry::with_agents(3)).post(&next_batch(&mut early));
    early.feed(Reply { status, body: &body }).unwrap();
    known.merge(&early.update());
    assert_eq!(known.preferred(), 0, "the first run tells of its switch once");
}

fn run(target: &str, known: &Endpoints) -> Run<Question> {
    Run::new(common::question(target), CANONICAL_ADDRESS, Limits::default()).over(known.clone())
}

fn next_batch(run: &mut Run<Question>) -> Batch {
    match run.step() {
        Ok(Step::Send(batch)) => batch,
        other => panic!("{other:?}"),
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => (1u32..6_000).prop_map(Fault::Slow),
        1 => prop::sample::select(
            faults().into_iter().map(|(fault, _)| fault).chain([
                Fault::OneObject,
                Fault::Error(-32000, "header not found"),
                Fault::Error(-32600, "batch too large"),
                Fault::Error(-32000, "out of gas"),
            ]).collect::<Vec<_>>()
        ),
    ]
}

prop_compose! {
    fn upstream()(
        chain_id in prop_oneof![4 => Just(CHAIN_ID), 1 => Just(5)],
        behind in 0u64..9,
        head_age in prop_oneof![3 => Just(0u64), 1 => Just(100)],
        (batch_limit, refuses_by_id) in (prop::option::of(1usize..4), any::<bool>()),
        (no_eip1898, mines_within_batches) in (any::<bool>(), any::<bool>()),
        unknown_blocks in 0u32..3,
        faults in prop::collection::vec(fault(), 0..9),
    ) -> Upstream {
        let mut upstream = Upstream { faults: faults.into(), ..Upstream::on_chain(chain_id) };
        upstream.node.block -= behind;
        upstream.node.head_age = head_age;
        upstream.node.quirks = common::Quirks {
            batch_limit, refuses_by_id, no_eip1898, unknown_blocks, mines_within_batches, ..upstream.node.quirks
        };
        upstream
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_endpoints_do_a_run_ends_in_time_with_one_block_of_one_chain(
        upstreams in prop::collection::vec(upstream(), 1..5),
        max_age in prop::option::of(Just(50)),
        calls_per_chunk in 3usize..15,
    ) {
        let mut host = Host::new(upstreams);
        host.limits = Limits { walk_ms: 0, freshness: max_age.map(fresh), calls_per_chunk, ..Limits::default() };
        for target in [TWO_ROUNDS, ONE_ROUND, TWO_ROUNDS] {
            let outcome = host.answer(target);
            prop_assert!(host.took <= host.limits.deadline_ms, "{} ms", host.took);
            prop_assert!(host.posts().iter().sum::<u32>() <= host.limits.rounds);
            let Ok(answer) = outcome else { continue };
            let blocks = blocks(&answer);
            prop_assert_eq!(blocks.len(), 1, "{:?}", blocks);
            let chain_id_read = chain_of(&blocks);
            let of: Vec<&Upstream> =
                host.upstreams.iter().filter(|upstream| upstream.node.chain_id == chain_id_read).collect();
            prop_assert!(of.iter().any(|upstream| max_age.is_none_or(|age| upstream.node.head_age <= age)));
            prop_assert_eq!(chain_id_read, CHAIN_ID);
        }
    }
}
