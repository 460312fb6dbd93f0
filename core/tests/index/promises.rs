//! What the index promises, one by one.

use registry_core::api::question::Question;
use registry_core::api::route::Route;
use registry_core::chain::{Endpoints, Failure, Limits, Reply, Run, Step, drive};
use registry_core::eth::abi::AgentRecord;
use registry_core::eth::multicall::CANONICAL_ADDRESS;
use registry_core::index::{Basis, Excerpt, IndexError, Phase, SqlValue, State, Store as _, Work, prepare};
use serde_json::{Value, json};

use crate::{
    CHAIN, Indexed,
    common::{Mined, Node, PlainRegistry, Proofs, Undeployed, question, record},
    history::{Chance, History},
};

/// An index of a registry with so many agents, filled.
pub(crate) fn filled(agents: u64, sweep: u64) -> (Indexed, History, Chance) {
    let mut chance = Chance(7);
    let history = History::new(agents, &mut chance);
    (filled_with(&history, sweep), history, chance)
}

/// An index of the newest block.
pub(crate) fn filled_with(history: &History, sweep: u64) -> Indexed {
    let mut index = Indexed::new(Node::new(PlainRegistry::default()), 10_000, sweep);
    index.config.limits = Limits::default();
    show(&mut index, history);
    index.work().unwrap();
    assert_eq!(index.state().phase, Phase::Complete);
    index
}

/// The node sees the chain as it is now.
pub(crate) fn show(index: &mut Indexed, history: &History) {
    (index.node.block, index.node.chain) = (history.newest(), history.blocks.clone());
}

/// Attests so many agents, from `first` on, in a block of its own.
pub(crate) fn attest(history: &mut History, first: u64, count: u64, chance: &mut Chance, announced: bool) {
    history.mine(0, chance);
    let newest = history.newest();
    let mined = history.blocks.get_mut(&newest).unwrap();
    let mut registry = (*mined.registry).clone();
    for id in first..first + count {
        registry.agents[id as usize - 1].lastAttestation = mined.seconds;
    }
    let events = if announced { (first..first + count).collect() } else { Vec::new() };
    *mined = Mined { registry: registry.into(), events, ..mined.clone() };
    history.ever.insert(mined.hash, mined.registry.clone());
}

/// Mines a block without any change.
pub(crate) fn idle(history: &mut History) {
    let number = history.newest();
    let Mined { seconds, registry, .. } = history.blocks[&number].clone();
    history.push(number + 1, seconds + 20, (*registry).clone(), Vec::new());
}

/// Rows inserted, changed and deleted so far.
fn rows_written(index: &Indexed) -> Vec<Vec<SqlValue>> {
    index.database.execute("SELECT total_changes()", &[]).unwrap()
}

pub(crate) fn is_right(index: &Indexed, history: &History) {
    let newest = &history.blocks[&history.newest()];
    index.is_like(&newest.registry, newest.seconds + 1_000).unwrap();
}

#[test]
fn a_refresh_after_a_hundred_changes_takes_four_round_trips_nine_calls_and_their_events_once() {
    let (mut index, mut history, mut chance) = filled(600, 200);
    index.work().unwrap();
    for first in [1, 101, 301] {
        attest(&mut history, first, 100, &mut chance, true);
        show(&mut index, &history);
        index.node.log.clear();
        index.work().unwrap();
        assert!(index.node.round_trips() <= 4, "{:?}", index.node.log);
        let calls: usize = index.node.log.iter().map(Vec::len).sum();
        assert!(calls <= 9, "{calls}: {:?}", index.node.log);
        let filters = index.node.log.iter().flatten().filter(|(method, _)| method == "eth_getLogs");
        assert_eq!(filters.count(), 1, "{:?}", index.node.log);
        is_right(&index, &history);
    }
    assert_eq!((index.state().basis, index.state().unannounced), (Basis::StorageRoot, 0));
}

#[test]
fn a_refresh_with_nothing_changed_takes_one_round_trip_and_two_calls_and_stores_nothing() {
    for agents in [0, 10, 1_000] {
        let (mut index, mut history, _) = filled(agents, 200);
        index.work().unwrap();
        for _ in 0..5 {
            idle(&mut history);
            show(&mut index, &history);
            index.node.log.clear();
            index.now += 45;
            let written = rows_written(&index);
            index.work().unwrap();
            let methods: Vec<&str> =
                index.node.log.iter().flatten().map(|(method, _)| method.as_str()).collect();
            assert_eq!(methods, ["eth_getBlockByNumber", "eth_getProof"]);
            assert_eq!(rows_written(&index), written, "{agents} agents");
            is_right(&index, &history);
            assert_eq!(index.state().as_of().unwrap().number, history.newest());
        }
    }
}

#[test]
fn a_registry_that_changes_beside_its_agents_is_compared_ever_less_often() {
    let (mut index, mut history, mut chance) = filled(30, 0);
    index.work().unwrap();
    let mut comparisons = Vec::new();
    for round in 0..1_000_u64 {
        mine(&mut history, &mut chance, |registry| registry.grace_seconds = Some(700_000 + round));
        show(&mut index, &history);
        index.now += 45;
        index.work().unwrap();
        comparisons.push(index.state().comparisons);
    }
    assert!((3..15).contains(comparisons.last().unwrap()), "{:?}", comparisons.last());
    assert!(index.state().as_of().unwrap().number + 1 >= history.newest());
}

#[test]
fn a_contradicted_record_ends_all_answers_until_everything_is_read() {
    for slice in [10_000, 20] {
        let mut chance = Chance(7);
        let mut history = History::new(60, &mut chance);
        let newest = history.newest();
        let truth = history.blocks[&newest].clone();
        // The node that is asked first lies about one agent.
        let mut lie = (*truth.registry).clone();
        lie.agents[30].lastAttestation += 1_000;
        history.blocks.insert(newest, Mined { registry: lie.into(), ..truth.clone() });
        let mut index = filled_with(&history, 0);
        history.blocks.insert(newest, truth);
        index.config.slice = slice;
        show(&mut index, &history);
        index.work().unwrap();
        for _ in 0..90 {
            idle(&mut history);
            show(&mut index, &history);
            index.work().unwrap();
            let state = index.state();
            if state.phase != Phase::Complete {
                assert_eq!((state.contradicted, state.as_of()), (Some(31), None), "slices of {slice}");
            }
        }
        is_right(&index, &history);
        let state = index.state();
        assert_eq!((state.contradicted, state.comparisons, state.phase), (None, 1, Phase::Complete));
    }
}

#[test]
fn a_first_fill_takes_three_hundred_bytes_an_agent() {
    let (index, ..) = filled(3_000, 0);
    let bytes = index.reply_bytes / 3_000;
    assert!(bytes <= 300, "{bytes}");
}

#[test]
fn without_proofs_a_change_without_an_event_is_found_by_the_sweep_counted_and_told() {
    let (mut index, mut history, mut chance) = filled(50, 10);
    index.node.quirks.proofs = Proofs::Unsupported;
    for first in [33, 12] {
        attest(&mut history, first, 2, &mut chance, false);
        for _ in 0..6 {
            idle(&mut history);
            show(&mut index, &history);
            index.now += 300;
            index.work().unwrap();
        }
        is_right(&index, &history);
    }
    let state = index.state();
    assert_eq!((state.basis, state.phase), (Basis::Events, Phase::Complete));
    assert!(state.comparisons == 2 && state.unannounced > 0, "{state:?}");
}

#[test]
fn an_endpoint_that_times_out_is_left_for_the_next_one_each_time() {
    let (mut index, mut history, mut chance) = filled(5, 0);
    attest(&mut history, 3, 1, &mut chance, true);
    show(&mut index, &history);
    let now = index.now * 1_000;
    let mut work =
        Work::begin(&index.database, None, index.config.clone(), Endpoints::new(2, None), now).unwrap();
    let mut asked = Vec::new();
    while let Step::Send(batch) = work.step(&index.database).unwrap() {
        if !asked.is_empty() || batch.body.contains("eth_getLogs") {
            asked.push(batch.endpoint);
            match work.fail(Failure::TimedOut) {
                Ok(()) => continue,
                Err(_) => break,
            }
        }
        let (status, body) = index.node.post(&batch);
        work.feed(Reply { status, body: &body }).unwrap();
    }
    assert_eq!(asked, [0, 1, 0, 1, 0, 1, 0]);
}

#[test]
fn where_some_machines_lag_the_index_is_of_a_block_that_all_have_and_of_the_newest_once_they_have_that() {
    let (mut index, mut history, mut chance) = filled(40, 0);
    // So many replies to a reading that it never is of the newest block, and no events to go by.
    index.config.limits.agents_per_call = 2;
    let quirks = &mut index.node.quirks;
    (quirks.undeployed, quirks.batch_limit) = (Undeployed::Refused, Some(1));
    index.node.machines = vec![0, 0, 0, 1, 1];
    for _ in 0..3 {
        attest(&mut history, 3, 2, &mut chance, true);
        show(&mut index, &history);
        let older = history.blocks[&(history.newest() - 1)].clone();
        // Who begins at a machine that lags finds what is there already, or nothing at all.
        let is_there = (0..50).any(|_| {
            let _ = index.work();
            let state = index.state();
            state.phase == Phase::Complete && state.as_of().is_some_and(|block| block.hash == older.hash)
        });
        assert!(is_there, "{:?}", index.state());
        index.is_like(&older.registry, older.seconds + 1_000).unwrap();
    }
    index.node.machines.clear();
    index.work().unwrap();
    is_right(&index, &history);
}

#[test]
fn an_index_that_is_being_filled_says_how_far_it_is() {
    let mut chance = Chance(3);
    let history = History::new(40, &mut chance);
    let mut index = Indexed::new(Node::new(PlainRegistry::default()), 10, 0);
    show(&mut index, &history);
    for percent in [0, 25, 50, 75] {
        let state = index.state();
        let endpoint = registry_core::api::route::Route::parse("/api/v1/revenue/aggregate").unwrap();
        let of = registry_core::index::Index::new(&index.database, &state, crate::REGISTRY, CHAIN);
        let document = of.document(&endpoint, registry_core::eth::timestamp::Timestamp::from_seconds(0));
        assert_eq!(document, Err(IndexError::Incomplete { percent }));
        index.work().unwrap();
    }
    assert_eq!(index.state().phase, Phase::Complete);
    is_right(&index, &history);
}

/// The verdict on an agent's wallet, with what the index knows of it, and how many round trips it took.
pub(crate) fn verdict(index: &mut Indexed, of: &AgentRecord) -> (Value, usize) {
    let endpoint = Route::parse(&format!("/api/v1/kya/{}", of.agentWallet)).unwrap();
    let excerpt = Excerpt::of(&index.database, &index.state(), &endpoint.wallets()).unwrap();
    assert_eq!(Excerpt::decode(&excerpt.encode()).as_ref(), Some(&excerpt));
    index.node.log.clear();
    let question = Question { excerpt: Some(excerpt.into()), ..question(&endpoint.canonical()) };
    let node = &mut index.node;
    let run = Run::new(question, CANONICAL_ADDRESS, Limits::default());
    let answer = drive(run, |batch| node.post(batch)).unwrap();
    (serde_json::from_str(&answer.body).unwrap(), index.node.round_trips())
}

/// A block in which the registry is changed like this, with an event of each agent that changes.
pub(crate) fn mine(history: &mut History, chance: &mut Chance, change: impl FnOnce(&mut PlainRegistry)) {
    history.mine(0, chance);
    let newest = history.newest();
    let mined = history.blocks.get_mut(&newest).unwrap();
    let mut registry = (*mined.registry).clone();
    let before = registry.agents.clone();
    change(&mut registry);
    let agents = (1..).zip(&registry.agents);
    let changed = agents.filter(|(id, agent)| before.get(*id as usize - 1) != Some(*agent));
    mined.events.extend(changed.map(|(id, _)| id));
    *mined = Mined { registry: registry.into(), ..mined.clone() };
    history.ever.insert(mined.hash, mined.registry.clone());
}

#[test]
fn a_wallet_revoked_and_registered_again_shows_its_past_with_the_index_in_one_round_trip() {
    let (mut index, mut history, mut chance) = filled(40, 0);
    let first = history.blocks[&history.newest()].registry.agents[6].clone();
    let clean = verdict(&mut index, &first);
    assert_eq!((&clean.0["registration"], &clean.0["formerAgents"]), (&json!("current"), &json!([])));

    // Neither the end of the one nor the other's registration is in the index yet.
    mine(&mut history, &mut chance, |registry| registry.agents[6].status = 2);
    show(&mut index, &history);
    let (revoked, _) = verdict(&mut index, &first);
    assert_eq!((&revoked["registration"], &revoked["decision"]), (&json!("former"), &json!("deny")));
    mine(&mut history, &mut chance, |registry| {
        registry.agents.push(AgentRecord { agentWallet: first.agentWallet, ..record(41, 0) });
    });
    show(&mut index, &history);
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

#[test]
fn a_store_that_other_code_made_is_filled_anew() {
    let (index, ..) = filled(5, 0);
    let count = |index: &Indexed| index.database.execute("SELECT count(*) FROM agents", &[]).unwrap();
    prepare(&index.database).unwrap();
    assert_eq!(count(&index), [[SqlValue::Integer(5)]], "the same code");
    index.database.execute("UPDATE meta SET value = '0' WHERE key = 'version'", &[]).unwrap();
    index.database.execute("DROP TABLE counts", &[]).unwrap();
    prepare(&index.database).unwrap();
    let stored = State::load(&index.database).unwrap();
    assert_eq!((count(&index), stored), (vec![vec![SqlValue::Integer(0)]], State::default()));
}
