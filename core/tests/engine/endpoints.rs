//! Failover between several RPC endpoints, with the faults of [`Fault`] and a clock that only the test moves.

use proptest::prelude::*;
use registry_core::chain::{Freshness, NodeFeatures};

use crate::common::host::{
    Host, at_block, blocks, chain_of, failing, good, node_with, of_block, on_chain, with_faults,
};
use crate::common::{prelude::*, random::cases};

const ONE_ROUND: &str = "/api/v1/agents?limit=100";
const TWO_ROUNDS: &str = "/api/v1/agents/compliance";

/// Returns faults that end one endpoint's answer, and the message of each.
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
    // One endless answer is enough to recognise such an endpoint.
    for (fault, message) in faults().into_iter().chain([(Fault::Endless, "")]) {
        for target in [ONE_ROUND, TWO_ROUNDS, "/api/v1/stats", "/api/v1/agent/3"] {
            let mut host = Host::new([failing(fault.clone()), good(), good()]);
            host.ask(target).unwrap();
            let attempt = if message.contains("within") { host.limits.timeout_ms } else { 0 };
            assert!(host.took < attempt + 100, "{fault:?}, {target}: {} ms", host.took);
            assert!(host.posts()[0] == 1 || !matches!(fault, Fault::Endless), "{target}");
            host.ask(target).unwrap();
            assert_eq!((host.posts()[0], host.known.preferred()), (0, 1), "{fault:?}, {target}");
        }
    }
}

#[test]
fn the_first_endpoint_is_tried_again_by_one_run_a_minute_and_is_preferred_again_where_it_answers() {
    let mut host = Host::new([failing(Fault::Status(503)), good(), good()]);
    host.ask(ONE_ROUND).unwrap();
    assert_eq!(host.known.preferred(), 1);
    for (now, is_well, preferred) in
        [(59_999, true, 1), (60_000, false, 1), (119_999, true, 1), (120_000, true, 0)]
    {
        host.nodes[0] = if is_well { good() } else { failing(Fault::Status(503)) };
        host.now = now;
        host.posts();
        host.ask(ONE_ROUND).unwrap();
        let asked = host.posts()[0];
        assert_eq!((host.known.preferred(), asked), (preferred, u32::from(now % 60_000 == 0)), "{now}");
    }
}

#[test]
fn what_a_node_lacked_is_asked_of_it_again_by_one_run_a_minute() {
    let of_hash: fn(NodeFeatures) -> Option<bool> = |node| node.block_hash;
    for (lacks, feature) in [
        (Quirks { hash_refusal: Some((-32000, "upstream connect error")), ..Quirks::default() }, of_hash),
        (Quirks { batch_limit: Some(1), ..Quirks::default() }, |node| node.batch),
        (Quirks { undeployed: Undeployed::Reverted, ..Quirks::default() }, |_| None),
    ] {
        let mut host = Host::new([good()]);
        for (now, is_refused, works) in
            [(0, true, false), (59_999, false, false), (60_000, false, true), (60_001, false, true)]
        {
            let quirks = if is_refused { lacks.clone() } else { Quirks::default() };
            host.nodes[0].quirks = Quirks { signs_records: true, ..quirks };
            host.now = now;
            host.posts();
            assert_eq!(blocks(&host.ask(TWO_ROUNDS).unwrap()), of_block(CHAIN_ID, 100));
            let found = feature(host.known.features().next().unwrap());
            assert!(found.is_none_or(|found| found == works), "{now}: {found:?}, {lacks:?}");
            assert!(!works || host.posts()[0] == 2, "{now}, {lacks:?}");
        }
    }
}

#[test]
fn an_endpoint_that_wins_a_race_answers_this_run_alone() {
    // In the second case the first endpoint is tried again, as once a minute, and does not answer in time.
    for preferred in [0, 2] {
        let mut host = Host::new([good(), good(), good()]);
        (0..preferred).for_each(|at| host.nodes[at] = failing(Fault::Status(503)));
        host.ask(ONE_ROUND).unwrap();
        host.now = 60_000;
        let mut run = run(ONE_ROUND, host.limits, &host.known.for_run(host.now));
        let batch = next_batch(&mut run);
        assert_eq!(batch.endpoint, 0);
        run.answered_by(1);
        let (reply, _) = good().reply(&batch);
        run.feed(Reply { status: 200, body: &reply.unwrap().1 }).unwrap();
        host.known.merge(&run.update());
        assert_eq!(host.known.preferred(), preferred);
    }
}

#[test]
fn what_is_too_large_everywhere_is_asked_for_in_pieces_without_failover() {
    let mut host = Host::new([good(), good(), good()]);
    let expected = host.ask(ONE_ROUND).unwrap();
    host.limits = Limits { max_reply_bytes: 8_000, rounds: 1_000, ..host.limits };
    assert_eq!(host.ask(ONE_ROUND).unwrap(), expected);
    assert_eq!(host.known.preferred(), 0);
    host.limits.max_reply_bytes = 500;
    let error = host.ask("/api/v1/agent/3").unwrap_err();
    assert_eq!((error.code(), host.known.preferred()), (Code::TooLarge, 0));
}

#[test]
fn an_answer_is_of_the_block_that_its_endpoint_is_read_at() {
    let (ok, gone) = (Fault::Slow(10), Fault::Unreachable);
    let no_hashes = node_with(|node| node.quirks.no_eip1898 = true);
    let midway = with_faults([ok.clone(), Fault::Status(503)]);
    let mut one_by_one = with_faults([vec![ok.clone()], vec![gone.clone(); 9]].concat());
    one_by_one.quirks.short_batches = Some(1);
    for (what, target, first, second, number, posts) in [
        // One answer in one object for a batch is taken for what it is.
        ("one object", TWO_ROUNDS, failing(Fault::OneObject), good(), 100, None),
        ("midway", TWO_ROUNDS, midway, at_block(104), 100, Some([2, 1])),
        ("behind", TWO_ROUNDS, with_faults([ok.clone(), gone.clone(), gone.clone()]), at_block(60), 60, None),
        // Of many chunks the first endpoint answers one, or the header, and is gone.
        ("one chunk", ONE_ROUND, one_by_one, at_block(101), 100, None),
        // The refusal, and its two rounds from the beginning.
        ("by number", TWO_ROUNDS, with_faults([ok, gone]), no_hashes, 100, Some([2, 3])),
    ] {
        let mut host = Host::new([first, second]);
        if what == "one chunk" {
            host.limits.calls_per_chunk = 5;
        }
        assert_eq!(blocks(&host.ask(target).unwrap()), of_block(CHAIN_ID, number), "{what}");
        let asked = host.posts();
        assert!(posts.is_none_or(|posts| asked == posts), "{what}: {asked:?}");
    }
}

#[test]
fn pauses_begin_when_every_endpoint_has_had_its_chance() {
    let mut host = Host::new([(); 3].map(|()| failing(Fault::Status(503))));
    host.ask(ONE_ROUND).unwrap_err();
    assert_eq!((host.posts(), host.took), (vec![2, 2, 1], 5 * 10 + 100 + 400));
    // A single endpoint is asked again a little later, and not forever.
    for (busy, millis, outcome) in
        [(1, 20 + 100, None), (2, 30 + 100 + 400, None), (3, 530, Some(Error::from(RunError::Http(429))))]
    {
        let mut host = Host::new([with_faults(vec![Fault::Status(429); busy])]);
        assert_eq!(host.ask("/api/v1/stats").err(), outcome);
        assert_eq!((host.took, host.posts()), (millis, vec![3_u32.min(busy as u32 + 1)]));
    }
    // A failure that passes while the others are down is survived.
    let mut host = Host::new([with_faults([Fault::Status(429)]), failing(Fault::Unreachable)]);
    host.ask(ONE_ROUND).unwrap();
    assert_eq!(host.known.preferred(), 0);
}

#[test]
fn a_refusal_that_lasts_rules_an_endpoint_out() {
    let mut host = Host::new([failing(Fault::Status(401)), with_faults(vec![Fault::Status(503); 3])]);
    let error = host.ask(ONE_ROUND).unwrap_err();
    assert_eq!(host.posts(), [1, 3]);
    let expected = "No RPC endpoint answered (2 of 2 tried). Number 1: RPC endpoint answered HTTP 401";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn when_no_endpoint_answers_the_error_counts_and_names_one() {
    for (fault, message) in faults() {
        let mut host = Host::new([(); 2].map(|()| failing(fault.clone())));
        let error = host.ask(ONE_ROUND).unwrap_err().to_string();
        assert!(error.starts_with("No RPC endpoint answered (2 of 2 tried). Number "), "{fault:?}: {error}");
        let mut alone = Host::new([failing(fault.clone())]);
        let error_alone = alone.ask(ONE_ROUND).unwrap_err().to_string();
        assert!(!error_alone.contains("tried"), "{fault:?}: {error_alone}");
        for (host, error) in [(host, error), (alone, error_alone)] {
            assert!(error.contains(message), "{fault:?}: {error}");
            assert!(host.took <= host.limits.deadline_ms, "{fault:?}: {} ms", host.took);
        }
    }
}

#[test]
fn the_deadline_is_over_all_attempts_and_cuts_the_last() {
    let mut host = Host::new([(); 8].map(|()| failing(Fault::Hangs)));
    let error = host.ask(ONE_ROUND).unwrap_err();
    assert_eq!((host.took, host.posts().iter().sum()), (15_000, 4), "three of four seconds and one of three");
    let expected =
        "No RPC endpoint answered (4 of 8 tried). Number 4: RPC endpoint did not answer within 3 s";
    assert_eq!(error.to_string(), expected);
    let mut slow = Host::new([failing(Fault::Slow(3_900))]);
    slow.nodes[0].registry.agents = (1..=9).map(|id| record(id, id - 1)).collect();
    let error = slow.ask("/api/v1/agent/1/lineage").unwrap_err();
    assert_eq!(error, RunError::TimedOut { seconds: 4 }.into(), "the fourth level had what was left of 15 s");
    assert_eq!(slow.took, 15_000);
}

#[test]
fn an_endpoint_of_another_chain_than_the_settings_is_refused() {
    let mut host = Host::new([on_chain(1), on_chain(CHAIN_ID), on_chain(5)]);
    for target in [ONE_ROUND, TWO_ROUNDS] {
        assert_eq!(blocks(&host.ask(target).unwrap()), of_block(CHAIN_ID, 100));
    }
    let error = Host::new([on_chain(1)]).ask(ONE_ROUND).unwrap_err();
    assert_eq!(error, RunError::WrongChain { found: 1, expected: CHAIN_ID }.into());
    assert_eq!(error.to_string(), "RPC endpoint is on chain 1, not 84532");
    // One request a batch: the header comes without a call that tells the chain, and is not believed.
    let mut wrong = on_chain(5);
    wrong.quirks.batch_limit = Some(1);
    assert_eq!(blocks(&Host::new([wrong, good()]).ask(TWO_ROUNDS).unwrap()), of_block(CHAIN_ID, 100));
}

#[test]
fn where_chain_or_age_matter_a_multicall3_that_does_not_tell_is_refused() {
    for (chain, freshness, missing) in [
        (None, None, None),
        (Some(CHAIN_ID), None, Some("getChainId()")),
        (None, Some(fresh(60)), Some("getCurrentBlockTimestamp()")),
    ] {
        let mut host = Host::new([node_with(|node| node.quirks.no_tag = true)]);
        host.known = Endpoints::new(1, chain);
        host.limits.freshness = freshness;
        let error = host.ask(ONE_ROUND).err().map(|error| error.to_string());
        assert_eq!(error, missing.map(|call| format!("Multicall3 gave no answer to {call}")));
    }
}

fn fresh(max_age_seconds: u64) -> Freshness {
    Freshness { now: Timestamp::from_seconds(NOW), max_age_seconds }
}

#[test]
fn a_head_older_than_allowed_is_a_failure_like_any_other() {
    for target in [ONE_ROUND, TWO_ROUNDS] {
        let mut host = Host::new([node_with(|node| node.head_age = 61), good()]);
        let ask = |host: &mut Host, freshness| {
            host.limits.freshness = freshness;
            host.ask(target).map(|_| host.known.preferred())
        };
        assert_eq!(ask(&mut host, None), Ok(0), "off unless it is set");
        assert_eq!(ask(&mut host, Some(fresh(60))), Ok(1));
        host.nodes[1].head_age = 3_600;
        let error = ask(&mut host, Some(fresh(60))).unwrap_err().to_string();
        assert!(error.starts_with("No RPC endpoint answered (2 of 2 tried)"), "{error}");
        let last = "RPC endpoint's newest block is 61 s old";
        assert!(error.ends_with(last), "the last that was tried: {error}");
        assert_eq!(ask(&mut host, Some(fresh(61))), Ok(0));
    }
}

#[test]
fn what_a_run_learns_does_not_undo_the_switch_of_another_and_its_own_is_made_once() {
    let mut known = Endpoints::new(3, Some(CHAIN_ID));
    let [mut early, mut late] = [(); 2].map(|()| run(TWO_ROUNDS, Limits::default(), &known));
    for run in [&mut early, &mut late] {
        assert_eq!(next_batch(run).endpoint, 0);
    }
    let fail = |run: &mut Run<Question>, known: &mut Endpoints| {
        run.fail(Failure::Unreachable).unwrap();
        known.merge(&run.update());
        known.preferred()
    };
    assert_eq!(fail(&mut early, &mut known), 1);
    answer(&mut late);
    for run in [&mut late, &mut early] {
        known.merge(&run.update());
        assert_eq!(known.preferred(), 1, "the first has answered a run that had begun before");
    }
    // The second endpoint fails as well, and the third: the switch is undone.
    let mut last = run(TWO_ROUNDS, Limits::default(), &known);
    for preferred in [2, 0] {
        next_batch(&mut last);
        assert_eq!(fail(&mut last, &mut known), preferred);
    }
    answer(&mut early);
    known.merge(&early.update());
    assert_eq!(known.preferred(), 0, "the first run tells of its switch once");
}

fn run(target: &str, limits: Limits, known: &Endpoints) -> Run<Question> {
    Run::new(question(target), CANONICAL_ADDRESS, limits).over(known.clone())
}

fn next_batch(run: &mut Run<Question>) -> Batch {
    match run.step() {
        Ok(Step::Send(batch)) => batch,
        other => panic!("{other:?}"),
    }
}

/// Feeds the reply of a good node.
fn answer(run: &mut Run<Question>) {
    let (status, body) = crate::node(3).post(&next_batch(run));
    run.feed(Reply { status, body: &body }).unwrap();
}

fn fault() -> impl Strategy<Value = Fault> {
    let errors = [(-32000, "header not found"), (-32600, "batch too large"), (-32000, "out of gas")];
    let errors = errors.map(|(code, words)| Fault::Error(code, words));
    let all = faults().into_iter().map(|(fault, _)| fault).chain(errors).chain([Fault::OneObject]);
    let all: Vec<Fault> = all.collect();
    prop_oneof![3 => (1u32..6_000).prop_map(Fault::Slow), 1 => prop::sample::select(all)]
}

prop_compose! {
    fn endpoint()(
        chain_id in prop_oneof![4 => Just(CHAIN_ID), 1 => Just(5)],
        behind in 0u64..9,
        head_age in prop_oneof![3 => Just(0u64), 1 => Just(100)],
        (batch_limit, refuses_by_id) in (prop::option::of(1usize..4), any::<bool>()),
        (no_eip1898, mines_within_batches) in (any::<bool>(), any::<bool>()),
        unknown_blocks in 0u32..3,
        faults in prop::collection::vec(fault(), 0..9),
    ) -> Node {
        let node = Node { faults: faults.into(), head_age, ..on_chain(chain_id) };
        let quirks = Quirks {
            batch_limit, refuses_by_id, no_eip1898, unknown_blocks, mines_within_batches, ..node.quirks
        };
        Node { block: node.block - behind, quirks, ..node }
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn whatever_endpoints_do_a_run_ends_in_time_with_one_block_of_one_chain(
        nodes in prop::collection::vec(endpoint(), 1..5),
        max_age in prop::option::of(Just(50)),
        calls_per_chunk in 3usize..15,
    ) {
        let mut host = Host::new(nodes);
        host.limits = Limits { walk_ms: 0, freshness: max_age.map(fresh), calls_per_chunk, ..Limits::default() };
        for target in [TWO_ROUNDS, ONE_ROUND, TWO_ROUNDS] {
            let outcome = host.ask(target);
            prop_assert!(host.took <= host.limits.deadline_ms, "{} ms", host.took);
            prop_assert!(host.posts().iter().sum::<u32>() <= host.limits.rounds);
            let Ok(answer) = outcome else { continue };
            let blocks = blocks(&answer);
            prop_assert_eq!(blocks.len(), 1, "{:?}", blocks);
            prop_assert_eq!(chain_of(&blocks), CHAIN_ID);
            let mut of = host.nodes.iter().filter(|node| node.chain_id == CHAIN_ID);
            prop_assert!(of.any(|node| max_age.is_none_or(|age| node.head_age <= age)));
        }
    }
}
