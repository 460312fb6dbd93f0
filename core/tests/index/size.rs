//! What the index takes does not grow with the registry.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::Address;
use registry_core::{
    api::route::Route,
    chain::Limits,
    chain::QueryError,
    eth::{abi::RevenueReport, timestamp::Timestamp},
    index::{Basis, Excerpt, Index, IndexError, LIST_IN_MEMORY_MAX},
    registry::kya::WalletInput,
};

use crate::{
    CHAIN, Indexed, REGISTRY,
    common::{NOW, Node, PlainRegistry, ids_in, record, report},
    history::{Chance, History},
    liable::{STATUSES, ask},
    promises::show,
};

/// Steps of SQLite's machine, by statement.
type Steps = BTreeMap<String, u64>;

/// People who are liable for agents, where there are as many.
const PEOPLE: u64 = 997;
/// Bytes of a packed record in an excerpt.
const PACKED_BYTES: usize = 98;
/// Attestations are up to so many seconds old: nine days, two of them beyond the grace period.
const OLDEST: u64 = 777_600;

/// An index of so many agents of all statuses and ages, with a report for each fiftieth.
fn large(agents: u64) -> (Indexed, History) {
    let mut registry = PlainRegistry { grace_seconds: Some(604_800), ..PlainRegistry::default() };
    for id in 1..=agents {
        // The agents that change have no children at any size: another status is one of all descendants'
        // verdicts, too.
        let parent = id / 16;
        let mut agent = record(id, if (301..=700).contains(&parent) { parent / 16 } else { parent });
        agent.haftungsperson = Address::left_padding_from(&(id % PEOPLE).to_be_bytes());
        agent.lastAttestation = NOW - 200_000 - id * 7_919 % OLDEST;
        agent.status = [0, 0, 0, 0, 0, 0, 0, 1, 2, 3][usize::try_from(id % 10).unwrap()];
        if id % 50 == 0 {
            registry.reports.push(report(id, id));
        }
        registry.agents.push(agent);
    }
    let mut history = History::new(0, &mut Chance(1));
    history.push(2, NOW - 100_000, registry, Vec::new());
    let mut index = Indexed::new(Node::new(PlainRegistry::default()), 100_000, 200);
    index.config.limits = Limits::default();
    show(&mut index, &history);
    index.work().unwrap();
    (index, history)
}

/// A block with so many changes: the one half of the agents are attested, the other half suspended or
/// reactivated.
fn change(history: &mut History, first: u64, count: u64) {
    let number = history.newest();
    let parent = &history.blocks[&number];
    let (mut registry, seconds) = ((*parent.registry).clone(), parent.seconds + 3_600);
    for id in first..first + count {
        let agent = &mut registry.agents[usize::try_from(id - 1).unwrap()];
        match id % 2 {
            0 => agent.lastAttestation = seconds,
            _ => agent.status = u8::from(agent.status == 0),
        }
    }
    history.push(number + 1, seconds, registry, (first..first + count).collect());
}

/// What a refresh takes that finds a hundred changes after a minute, and an answer about all agents after it.
fn steps(agents: u64) -> [(&'static str, Steps); 2] {
    let (mut index, mut history) = large(agents);
    // The first refresh after a fill has no changes to compare with.
    for first in [301, 601] {
        change(&mut history, first, 100);
        show(&mut index, &history);
        index.now += 60;
        index.database.steps.take();
        index.work().unwrap();
    }
    let (refresh, state) = (index.database.steps.take(), index.state());
    assert_eq!((state.basis, state.without_events), (Basis::StorageRoot, 0));
    let endpoint = Route::parse("/api/v1/stats/detailed").unwrap();
    let answers = Index::new(&index.database, &state, REGISTRY, CHAIN);
    answers.document(&endpoint, Timestamp::from_seconds(index.now)).unwrap();
    [("a refresh", refresh), ("/stats/detailed", index.database.steps.take())]
}

#[test]
fn a_refresh_and_the_counts_after_it_take_as_much_work_at_any_size() {
    for ((what, few), (_, many)) in steps(1_000).into_iter().zip(steps(20_000)) {
        let sum = |steps: &Steps| steps.values().sum::<u64>();
        assert!(sum(&many) < sum(&few) * 3 / 2, "{what}: {few:#?}\nand of 20,000 agents: {many:#?}");
    }
}

#[test]
fn pages_anywhere_in_a_list_of_a_status_are_what_a_plain_filter_finds() {
    let (mut index, mut history) = large(5_000);
    change(&mut history, 900, 300);
    show(&mut index, &history);
    index.work().unwrap();
    let agents = &history.blocks[&history.newest()].registry.agents;
    for (status, name) in STATUSES.into_iter().enumerate() {
        let of_status = agents.iter().filter(|agent| usize::from(agent.status) == status);
        let expected: Vec<u64> = of_status.map(|agent| agent.agentId.to()).collect();
        for (page, ids) in expected.chunks(100).chain([&[][..]]).enumerate() {
            let target = format!("/api/v1/agents?status={name}&limit=100&page={}", page + 1);
            let (list, _) = ask(&index, &target, NOW);
            assert_eq!(ids_in(&list["data"]), ids, "{target}");
        }
    }
}

/// What two pieces of the whole list take, of as many agents each, after a refresh that found a hundred
/// changes in between.
fn steps_of_pieces(agents: u64) -> Steps {
    let (mut index, mut history) = large(agents);
    let at = Timestamp::from_seconds(index.now);
    let open = |index: &Indexed| {
        Index::new(&index.database, &index.state(), REGISTRY, CHAIN).open_list(at, index.now * 1_000, 300)
    };
    let first = open(&index).unwrap();
    change(&mut history, 301, 100);
    show(&mut index, &history);
    index.work().unwrap();
    index.database.steps.take();
    open(&index).unwrap();
    let state = index.state();
    let answers = Index::new(&index.database, &state, REGISTRY, CHAIN);
    answers.next_chunk(first.next.unwrap(), index.now * 1_000, 300).unwrap();
    index.database.steps.take()
}

#[test]
fn a_piece_of_the_whole_list_takes_as_much_work_at_any_size() {
    let (few, many) = (steps_of_pieces(1_000), steps_of_pieces(20_000));
    let sum = |steps: &Steps| steps.values().sum::<u64>();
    assert!(sum(&many) < sum(&few) * 3 / 2, "{few:#?}\nand of 20,000 agents: {many:#?}");
}

#[test]
fn a_whole_list_that_would_end_the_host_is_refused_and_its_pages_are_not() {
    let (index, history) = large(30);
    let ask = |target: &str, total: u64| {
        // All that the answer looks at beside its rows.
        let mut state = index.state();
        state.total = total;
        let now = Timestamp::from_seconds(history.blocks[&history.newest()].seconds);
        let endpoint = Route::parse(target).unwrap();
        Index::new(&index.database, &state, REGISTRY, CHAIN).document(&endpoint, now)
    };
    assert!(ask("/api/v1/agents/compliance", LIST_IN_MEMORY_MAX).is_ok());
    let refused = ask("/api/v1/agents/compliance", LIST_IN_MEMORY_MAX + 1).unwrap_err();
    assert!(matches!(refused, IndexError::Query(QueryError::TooManyAgents(_))), "{refused}");
    assert!(ask("/api/v1/agents/compliance?limit=100", LIST_IN_MEMORY_MAX + 1).is_ok());
}

/// An index of a hundred wallets, each with 24 ended agents and a live one, all at the end of a lineage of
/// fifteen levels or more.
fn crowded() -> Indexed {
    let mut registry = PlainRegistry { grace_seconds: Some(604_800), ..PlainRegistry::default() };
    for id in 1..=2_500 {
        let mut agent = record(id, id.saturating_sub(101));
        agent.agentWallet = wallet(id % 100);
        agent.status = if id <= 2_400 { 3 } else { 0 };
        registry.agents.push(agent);
    }
    index_of(&registry)
}

fn wallet(number: u64) -> Address {
    Address::left_padding_from(&(number + 1_000_000).to_be_bytes())
}

/// What an excerpt on these wallets takes: statements, and steps of SQLite's machine.
fn cost(index: &Indexed, wallets: Vec<Address>) -> (u64, u64, Excerpt) {
    index.database.executed.take();
    index.database.steps.take();
    let excerpt = Excerpt::of(&index.database, &index.state(), &wallets).unwrap();
    (index.database.executed.take(), index.database.steps.take().values().sum(), excerpt)
}

#[test]
fn an_excerpt_on_a_hundred_wallets_takes_few_statements_and_an_identical_wallet_none() {
    let index = crowded();
    let list = |wallets: Vec<Address>| {
        let asked = wallets.into_iter().map(WalletInput::Wallet).collect();
        Route::kya_list(asked, None).unwrap().wallets()
    };
    let one = cost(&index, list(vec![wallet(7)]));
    let identical = cost(&index, list(vec![wallet(7); 100]));
    assert_eq!(identical, one);
    let wallets: Vec<Address> = (0..100).map(wallet).collect();
    let (statements, steps, excerpt) = cost(&index, list(wallets.clone()));
    assert!(statements <= 20, "{statements} statements");
    assert!(steps < one.1 * 110, "{steps} steps, and {} for one wallet", one.1);
    // Each wallet's part is what an excerpt on it alone says: 22 agents, and their ancestors.
    let rows = |excerpt: &Excerpt| {
        let digits = excerpt.encode();
        let rows = digits.as_bytes()[2 * 9..].chunks(2 * (8 + 8 + PACKED_BYTES));
        rows.map(<[u8]>::to_vec).collect::<BTreeSet<_>>()
    };
    let each = wallets.iter().flat_map(|wallet| rows(&cost(&index, vec![*wallet]).2));
    assert_eq!(rows(&excerpt), each.collect());
    assert!(rows(&one.2).len() >= 22 + 14, "{}", rows(&one.2).len());
}

#[test]
fn a_lineage_takes_a_handful_of_statements_a_level() {
    let index = crowded();
    index.database.executed.take();
    let state = index.state();
    let route = Route::parse("/api/v1/agent/1/lineage").unwrap();
    let of = Index::new(&index.database, &state, REGISTRY, CHAIN);
    of.document(&route, Timestamp::from_seconds(index.now)).unwrap();
    assert!(index.database.executed.get() <= 3 * 15 + 5, "{} statements", index.database.executed.get());
}

/// An index of this registry, as of the newest block of its node.
fn index_of(registry: &PlainRegistry) -> Indexed {
    let mut history = History::new(0, &mut Chance(1));
    history.push(2, NOW - 100_000, registry.clone(), Vec::new());
    let mut index = Indexed::new(Node::new(PlainRegistry::default()), 100_000, 200);
    index.config.limits = Limits::default();
    show(&mut index, &history);
    index.work().unwrap();
    index
}

#[test]
fn a_lineage_of_more_agents_than_a_tree_shows_is_the_same_from_the_index_and_from_the_chain() {
    let mut registry = PlainRegistry { grace_seconds: Some(604_800), ..PlainRegistry::default() };
    registry.agents.extend((1..=3_000).map(|id| record(id, if id == 1 { 0 } else { (id - 2) / 40 + 1 })));
    let mut index = index_of(&registry);
    let target = "/api/v1/agent/1/lineage";
    let (from_index, _) = ask(&index, target, NOW);
    assert_eq!(from_index, index.node.ask(target).unwrap());
    let nodes = from_index.to_string().matches("\"agentId\"").count();
    assert_eq!(nodes, 2_000);
}

#[test]
fn sums_of_more_currencies_than_are_stated_are_the_same_from_the_index_and_from_a_scan() {
    let mut registry = PlainRegistry::with_agents(30);
    for number in 0..2_500 {
        let currency = format!("c{}", number * 7_919 % 2_500);
        let category = format!("k{}", number % 101);
        let report = report(1 + number % 30, number % 400);
        registry.reports.push(RevenueReport { currency, category, ..report });
    }
    let mut index = index_of(&registry);
    for target in ["/api/v1/revenue/aggregate", "/api/v1/stats/detailed"] {
        let (from_index, _) = ask(&index, target, NOW);
        assert_eq!(from_index, index.node.ask(target).unwrap(), "{target}");
    }
    let (sums, _) = ask(&index, "/api/v1/revenue/aggregate", NOW);
    assert_eq!(sums["byCurrency"].as_object().unwrap().len(), 100);
    assert!(sums["otherCurrencies"].is_u64() && sums["otherCategories"].is_u64(), "{sums}");
}
