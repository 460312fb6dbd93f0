//! The promises of the index, one by one.

use registry_core::index::{Basis, Counters, IndexError};

use crate::{TestIndex, common::prelude::*, history::ChainHistory, indexed::ConnectionFailures};

/// Counts the rows inserted, changed and deleted so far.
fn rows_written(index: &TestIndex) -> i64 {
    index.database.number("SELECT total_changes()")
}

#[test]
fn a_refresh_after_a_hundred_attestations_takes_three_round_trips_seven_calls_and_four_rows_each() {
    let mut index = TestIndex::filled(600, 200);
    index.work().unwrap();
    let with_attestation = "SELECT count(*) FROM pragma_index_list('agents') AS list, pragma_index_info(list.name) AS part \
                            WHERE part.name = 'attested'";
    let indexes = index.database.number(with_attestation);
    // At first the root that was seen before is not known, and verdicts change.
    for (trips, most, most_rows) in [(4, 9, 600), (3, 7, 425), (3, 7, 425)] {
        index.attest(1, 100);
        let written = rows_written(&index);
        index.refresh();
        // An entry of an SQL index is billed as a row is.
        let rows = rows_written(&index) - written + indexes * 100;
        assert!(rows <= most_rows, "{rows} rows");
        let calls: Vec<_> = index.node.log.iter().flatten().collect();
        let filters = calls.iter().filter(|(method, _)| method == "eth_getLogs").count();
        let is_cheap = index.node.round_trips() <= trips && calls.len() <= most && filters == 1;
        assert!(is_cheap, "{:?}", index.node.log);
        index.is_right();
    }
    assert_eq!((index.state().basis(), index.state().counters), (Basis::StorageRoot, Counters::default()));
}

#[test]
fn a_refresh_with_nothing_changed_takes_one_round_trip_and_two_calls_and_stores_nothing() {
    for agents in [0, 10, 1_000] {
        let mut index = TestIndex::filled(agents, 200);
        index.work().unwrap();
        for _ in 0..5 {
            let written = rows_written(&index);
            index.idle_for(45);
            let methods: Vec<&str> =
                index.node.log.iter().flatten().map(|(method, _)| method.as_str()).collect();
            assert_eq!(methods, ["eth_getBlockByNumber", "eth_getProof"]);
            assert_eq!(rows_written(&index), written, "{agents} agents");
            assert_eq!(index.state().as_of().unwrap().number, index.history.number());
        }
        index.is_right();
    }
}

#[test]
fn whether_its_node_gives_proofs_is_known_after_one_round() {
    for (proofs, gives) in [(Proofs::All, true), (Proofs::Unsupported, false)] {
        let mut index = TestIndex::new(ChainHistory::new(3, &mut Random(7)), 10, 0);
        index.node.quirks.proofs = proofs;
        index.catch_up().unwrap();
        index.idle_for(15);
        assert_eq!(index.endpoints.features().next().unwrap().proofs, Some(gives));
    }
}

#[test]
fn after_a_change_that_its_event_tells_nothing_is_waited_for() {
    let mut index = TestIndex::filled(10, 0);
    index.attest(1, 2);
    index.refresh();
    assert_eq!(index.state().as_of().unwrap().number, index.history.number());
    assert_eq!((index.state().awaits_changes(), index.state().retry_at()), (false, None));
}

#[test]
fn a_contradicted_record_is_read_again_and_a_second_one_that_day_ends_all_answers_until_all_are_compared() {
    for (slice, lies) in [(10_000, 1), (20, 1), (10_000, 2), (20, 2)] {
        let mut history = ChainHistory::new(60, &mut Random(7));
        let truth = history.newest().clone();
        // The node that is asked first lies about some agents.
        let mut lie = (*truth.registry).clone();
        lie.agents[29..29 + lies].iter_mut().for_each(|agent| agent.lastAttestation += 1_000);
        history.edit(|mined| mined.registry = lie.into());
        let mut index = TestIndex::filled_with(history, 0);
        index.history.edit(|mined| *mined = truth);
        index.config.slice = slice;
        index.refresh();
        for _ in 0..90 {
            index.idle_for(0);
            let state = index.state();
            if !state.is_complete() {
                assert_eq!((state.contradicted(), state.as_of()), (Some(31), None), "slices of {slice}");
            }
        }
        index.is_right();
        let state = index.state();
        let comparisons = lies as u64 - 1;
        assert_eq!((state.counters.comparisons, state.is_complete()), (comparisons, true), "{lies}");
    }
}

#[test]
fn where_some_machines_lag_the_index_is_of_a_block_that_all_have_and_of_the_newest_once_they_have_that() {
    let mut index = TestIndex::filled(40, 0);
    // So many replies to a reading that it never is of the newest block, and no events to go by.
    index.config.limits.agents_per_call = 2;
    let quirks = &mut index.node.quirks;
    (quirks.undeployed, quirks.batch_limit) = (Undeployed::Refused, Some(1));
    index.node.machines = vec![0, 0, 0, 1, 1];
    for _ in 0..3 {
        let older = index.newest().clone();
        index.attest(3, 2);
        index.show();
        // A reading that begins at a machine that lags finds what is there already, or nothing at all.
        let is_there = (0..50).any(|_| {
            let _ = index.work();
            let state = index.state();
            state.is_complete() && state.as_of().is_some_and(|block| block.hash == older.hash)
        });
        assert!(is_there, "{:?}", index.state());
        index.is_like(&older.registry, older.seconds + 1_000).unwrap();
    }
    index.node.machines.clear();
    index.work().unwrap();
    index.is_right();
}

#[test]
fn agents_are_read_at_an_older_block_where_the_node_lacks_the_newest_for_two_replies() {
    let mut index = TestIndex::filled(20, 0);
    index.node.quirks.proofs = Proofs::Unsupported;
    index.work().unwrap();
    index.attest(3, 2);
    (0..3).for_each(|_| index.idle());
    index.show();
    // The block and its events are found first.
    index.node.machines = [vec![0; 2], vec![2; 2], vec![0; 20]].concat();
    index.work().unwrap();
    assert_eq!(index.state().as_of().unwrap().number, index.history.number() - 2);
    index.refresh();
    index.is_right();
}

#[test]
fn an_endpoint_that_lags_behind_the_rows_is_left_for_another_at_once() {
    let mut index = TestIndex::filled(20, 0);
    index.second = Some((Quirks::default(), ConnectionFailures { one_in: 1_000_000, random: Random(1) }));
    index.endpoints = Endpoints::new(2, None);
    for _ in 0..5 {
        index.idle();
    }
    index.refresh();
    index.node.quirks.lags = Some((1, 3));
    index.attest(3, 1);
    index.refresh();
    index.is_right();
    assert_eq!(index.endpoints.preferred(), 1);
}

#[test]
fn an_index_that_is_being_filled_says_how_far_it_is() {
    let mut index = TestIndex::new(ChainHistory::new(40, &mut Random(3)), 10, 0);
    for percent in [0, 25, 50, 75] {
        let document = index.document("/api/v1/revenue/aggregate", 0);
        assert_eq!(document, Err(IndexError::Incomplete { percent }));
        assert_eq!(index.state().snapshot_retry_seconds(), 1, "so few agents are read at once");
        index.work().unwrap();
    }
    // The indexes of the database are made one by one.
    assert_eq!((index.state().is_complete(), index.state().percent()), (false, 99));
    index.catch_up().unwrap();
    assert_eq!((index.state().percent(), index.state().snapshot_retry_seconds()), (100, 10));
    index.is_right();
}

#[test]
fn a_clock_that_is_behind_the_chain_makes_no_lapsed_agent_compliant() {
    let mut index = TestIndex::filled(10, 0);
    index.mine(|registry, seconds| {
        registry.agents[4].lastAttestation = seconds - registry.grace_seconds.unwrap() - 60;
        registry.agents[4].status = 0;
    });
    index.refresh();
    let (at, AgentRecord { agentWallet, haftungsperson, .. }) =
        (index.newest().seconds, index.agents()[4].clone());
    let [list, stats] = ["agents/compliance", "stats/detailed"].map(|path| format!("/api/v1/{path}"));
    let person = format!("/api/v1/liable/{haftungsperson}");
    for target in [&list, &stats, &person, "/api/v1/agents?compliant=true"] {
        let [behind, right] = [at - 3_600, at].map(|now| index.document(target, now).unwrap());
        assert_eq!(behind, right, "{target}");
    }
    for target in [&list, &stats, "/api/v1/agent/5", &format!("/api/v1/kya/{agentWallet}")] {
        let [behind, right] = [at - 3_600, at].map(|now| {
            let now = Timestamp::from_seconds(now);
            index.node.run(Question { now, ..question(target) }).unwrap()
        });
        assert_eq!(behind, right, "{target} from the chain");
    }
}

/// Returns the verdict on an agent's wallet with the index's excerpt, and its number of round trips.
pub(crate) fn verdict(index: &mut TestIndex, of: &AgentRecord) -> (Value, usize) {
    let excerpt = index.excerpt(&[of.agentWallet]);
    let answer = index.ask_node(&format!("/api/v1/kya/{}", of.agentWallet), excerpt.into());
    (read(answer), index.node.round_trips())
}

#[test]
fn a_wallet_revoked_and_registered_again_shows_its_past_with_the_index_in_one_round_trip() {
    let mut index = TestIndex::filled(40, 0);
    let first = index.agents()[6].clone();
    let (clean, _) = verdict(&mut index, &first);
    assert_eq!((&clean["registration"], &clean["formerAgents"]), (&json!("current"), &json!([])));

    // Neither the end of the one nor the other's registration is in the index yet.
    index.mine(|registry, _| registry.agents[6].status = 2);
    index.show();
    let (revoked, _) = verdict(&mut index, &first);
    assert_eq!((&revoked["registration"], &revoked["decision"]), (&json!("former"), &json!("deny")));
    let again = AgentRecord { agentWallet: first.agentWallet, ..record(41, 0) };
    index.mine(|registry, _| registry.agents.push(again));
    index.show();
    for is_refreshed in [false, true] {
        if is_refreshed {
            index.work().unwrap();
        }
        let (again, round_trips) = verdict(&mut index, &first);
        assert_eq!((&again["agent"]["agentId"], &again["registration"]), (&json!(41), &json!("current")));
        assert_eq!(again["formerAgents"][0]["agentId"], 7, "refreshed: {is_refreshed}");
        assert_eq!(again["formerAgents"][0]["status"], "Revoked");
        assert_eq!(again["reasons"], json!(["FORMER_AGENT_REVOKED"]));
        assert_eq!((again.get("unknownBecause"), round_trips), (None, 1));
    }
}
