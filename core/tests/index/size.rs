//! The work of the index does not grow with the registry.

use std::collections::BTreeSet;

use registry_core::index::{Basis, Excerpt, IndexError, LIST_IN_MEMORY_MAX, SqlValue, Store as _};
use registry_core::{eth::abi::RevenueReport, registry::kya::WalletInput};

use crate::{TestIndex, common::prelude::*, history::ChainHistory, snapshot};

/// Number of liable people in large registries.
const PEOPLE: u64 = 997;
/// Bytes of a packed record in an excerpt.
const PACKED_BYTES: usize = 98 + 25;
/// Maximum age of attestations in seconds: nine days, two of them beyond the grace period.
const OLDEST: u64 = 777_600;

/// Creates an index of agents of all statuses and ages, with a report for each fiftieth.
fn large(agents: u64) -> TestIndex {
    // The agents that change have no children at any size: a status also changes all descendants' verdicts.
    large_with(agents, |id| if (301..=700).contains(&(id / 16)) { id / 256 } else { id / 16 })
}

/// Creates such an index with these parents.
fn large_with(agents: u64, parent: impl Fn(u64) -> u64) -> TestIndex {
    let mut registry = PlainRegistry::with_agents(0);
    for id in 1..=agents {
        let mut agent = record(id, parent(id));
        agent.haftungsperson = Address::left_padding_from(&(id % PEOPLE).to_be_bytes());
        agent.lastAttestation = NOW - 200_000 - id * 7_919 % OLDEST;
        agent.status = [0, 0, 0, 0, 0, 0, 0, 1, 2, 3][id as usize % 10];
        if id % 50 == 0 {
            registry.reports.push(report(id, id));
        }
        registry.agents.push(agent);
    }
    TestIndex::of(registry)
}

/// Refreshes after `count` changes: one half of the agents are attested, the other half suspended or
/// reactivated.
fn change(index: &mut TestIndex, first: u64, count: u64) {
    let ids: Vec<u64> = (first..first + count).collect();
    index.mine_with_events(&ids, |registry, seconds| {
        for id in &ids {
            let agent = &mut registry.agents[*id as usize - 1];
            match id % 2 {
                0 => agent.lastAttestation = seconds,
                _ => agent.status = u8::from(agent.status == 0),
            }
        }
    });
    index.refresh();
}

/// Measures the steps of a refresh that finds a hundred changes after a minute, of an answer about all agents
/// after it, and of two chunks of the whole list of 300 agents each.
fn steps(agents: u64) -> [(&'static str, u64); 3] {
    let mut index = large(agents);
    // The first refresh after a fill has no changes to compare with.
    change(&mut index, 301, 100);
    let first = index.open_list(index.now, 300).unwrap();
    index.now += 59;
    index.database.steps.take();
    change(&mut index, 601, 100);
    let (refresh, state) = (index.database.steps.take(), index.state());
    assert_eq!((state.basis(), state.counters.without_events), (Basis::StorageRoot, 0));
    index.document("/api/v1/stats/detailed", index.now).unwrap();
    let stats = index.database.steps.take();
    index.open_list(index.now, 300).unwrap();
    index.next_chunk(first.next.unwrap(), 300).unwrap();
    [("a refresh", refresh), ("/stats/detailed", stats), ("two chunks", index.database.steps.take())]
}

#[test]
fn a_refresh_the_counts_after_it_and_a_chunk_of_a_list_take_as_much_work_at_any_size() {
    for ((what, few), (_, many)) in steps(1_000).into_iter().zip(steps(20_000)) {
        assert!(many < few * 3 / 2, "{what}: {few} steps of SQLite's machine, {many} of 20,000 agents");
    }
}

#[test]
fn a_suspension_takes_as_much_work_however_many_descendants_it_is_told_of() {
    let deep: fn(u64) -> u64 = |id| id / 16;
    let wide: fn(u64) -> u64 = |id| u64::from(id > 1);
    for parent in [deep, wide] {
        let [few, many] = [12_000, 36_000].map(|agents| suspension(large_with(agents, parent)));
        assert!(many < few * 5 / 4, "{few} steps of SQLite's machine, {many} of 36,000 agents");
    }
}

/// Measures the steps of suspending the first agent, an ancestor of all others.
fn suspension(mut index: TestIndex) -> u64 {
    index.work().unwrap();
    let before = snapshot::manifest(&index).unwrap();
    index.mine(|registry, _| registry.agents[0].status = 1);
    index.show();
    index.database.steps.take();
    index.work().unwrap();
    let steps = index.database.steps.take();
    let wallet = index.agents()[19].agentWallet;
    let [before, after] = [before, snapshot::manifest(&index).unwrap()].map(|manifest| {
        let files =
            manifest.entries_of(wallet).into_iter().filter_map(|entry| snapshot::given(&index, entry));
        let files: Vec<_> = files.collect();
        format!("{:?}", manifest.find(&files.iter().collect::<Vec<_>>(), wallet))
    });
    assert!(!before.contains("(1, Suspended)") && after.contains("(1, Suspended)"), "{before} {after}");
    steps
}

#[test]
fn attestations_that_lapse_together_and_ties_of_wallets_are_told_and_forgotten_in_as_many_pieces_as_that_takes()
 {
    let mut index = attested_together();
    // By the liable wallets, too.
    let seen = "UPDATE agents SET events = unhex(printf('%s%034x', hex(attested), 0))";
    index.database.execute(seen, &[]).unwrap();
    index.now = NOW + 90 * 86_400 + 100;
    for (lapsed, told, has_more) in
        [(24_000, 30_000, true), (30_000, 54_000, true), (30_000, 60_000, false), (30_000, 60_000, false)]
    {
        index.idle_until(index.now);
        let noted = "SELECT count(*) FILTER (WHERE was & 1 > is_now & 1), count(*) FROM changes";
        let noted = index.database.execute(noted, &[]).unwrap();
        let numbers = [lapsed, told].map(SqlValue::Integer);
        assert_eq!((noted[0].as_slice(), index.state().has_more_lapses()), (&numbers[..], has_more));
    }
    index.now += 40 * 86_400;
    for kept in [40_000, 20_000, 0, 0] {
        index.idle_until(index.now);
        assert_eq!(index.database.number("SELECT count(*) FROM changes"), kept);
    }
}

/// Creates an index of 30,000 agents, 6,000 of which were attested in each of five seconds.
fn attested_together() -> TestIndex {
    let mut registry = PlainRegistry::with_agents(0);
    registry.agents.extend(
        (0..30_000)
            .map(|number| AgentRecord { lastAttestation: NOW + number / 6_000, ..record(number + 1, 0) }),
    );
    let mut index = TestIndex::of(registry);
    index.refresh();
    index
}

#[test]
fn attestations_that_a_longer_grace_period_makes_current_again_are_told_in_as_many_pieces_as_that_takes() {
    let mut index = attested_together();
    index.now = NOW + 8 * 86_400;
    (0..2).for_each(|_| index.idle_until(index.now));
    assert!(!index.state().has_more_lapses());
    index.mine_with_events(&[0], |registry, _| registry.grace_seconds = Some(30 * 86_400));
    index.refresh_after(60);
    for (told, has_more) in [(24_000, true), (30_000, false), (30_000, false)] {
        let noted = index.database.number("SELECT count(*) FROM changes WHERE was & 1 < is_now & 1");
        assert_eq!((noted, index.state().has_more_lapses()), (told, has_more));
        index.idle_for(1);
    }
    assert_eq!(index.database.number("SELECT count(DISTINCT agent) FROM changes WHERE is_now & 1"), 30_000);
}

#[test]
fn agents_that_a_shorter_registry_of_another_chain_does_not_have_are_deleted_in_as_many_pieces_as_that_takes()
{
    let registry = |agents: u64| {
        let agents = (1..=agents).map(|id| record(id, 0)).collect();
        PlainRegistry { agents, ..PlainRegistry::with_agents(0) }
    };
    let mut index = TestIndex::of(registry(25_010));
    index.refresh();
    // As a development chain that begins anew.
    index.history = ChainHistory::of(1, registry(10));
    (0..3).for_each(|_| index.history.mine(0, &mut index.random));
    for (left, is_complete) in [(5_010, false), (10, true)] {
        index.refresh();
        let agents = index.database.number("SELECT count(*) FROM agents");
        assert_eq!((agents, index.state().is_complete()), (left, is_complete));
    }
    assert_eq!(index.database.number("SELECT count(*) FROM changes WHERE is_now IS NULL"), 25_000);
    index.is_right();
}

#[test]
fn pages_anywhere_in_a_list_of_a_status_are_what_a_plain_filter_finds() {
    let mut index = large(5_000);
    change(&mut index, 900, 300);
    let agents = index.agents();
    for (status, name) in STATUSES.into_iter().enumerate() {
        let of_status = agents.iter().filter(|agent| usize::from(agent.status) == status);
        let expected: Vec<u64> = of_status.map(|agent| agent.agentId.to()).collect();
        for (page, ids) in expected.chunks(100).chain([&[][..]]).enumerate() {
            let target = format!("/api/v1/agents?status={name}&limit=100&page={}", page + 1);
            let (list, _) = index.ask(&target, NOW);
            assert_eq!(ids_in(&list["data"]), ids, "{target}");
        }
    }
}

#[test]
fn a_whole_list_that_would_end_the_host_is_refused_and_its_pages_are_not() {
    let mut index = large(30);
    let mut ask = |target: &str, total: u64| {
        // The answer looks at nothing else beside its rows.
        index.kept.as_mut().unwrap().total = total;
        index.document(target, NOW)
    };
    assert!(ask("/api/v1/agents/compliance", LIST_IN_MEMORY_MAX).is_ok());
    let refused = ask("/api/v1/agents/compliance", LIST_IN_MEMORY_MAX + 1).unwrap_err();
    assert!(matches!(refused, IndexError::Query(QueryError::TooManyAgents(_))), "{refused}");
    assert!(ask("/api/v1/agents/compliance?limit=100", LIST_IN_MEMORY_MAX + 1).is_ok());
}

/// Creates an index of a hundred wallets, each with 24 ended agents and a live one, all at the end of a
/// lineage of fifteen levels or more.
fn crowded() -> TestIndex {
    let mut registry = PlainRegistry::with_agents(0);
    for id in 1..=2_500 {
        let status = if id <= 2_400 { 3 } else { 0 };
        let agent = record(id, id.saturating_sub(101));
        registry.agents.push(AgentRecord { agentWallet: wallet(id % 100), status, ..agent });
    }
    TestIndex::of(registry)
}

fn wallet(number: u64) -> Address {
    Address::left_padding_from(&(number + 1_000_000).to_be_bytes())
}

/// Measures an excerpt on these wallets: statements, and steps of SQLite's machine.
fn cost(index: &TestIndex, wallets: Vec<Address>) -> ([u64; 2], Excerpt) {
    index.database.cost(|| index.excerpt(&wallets))
}

#[test]
fn an_excerpt_on_a_hundred_wallets_takes_few_statements_and_an_identical_wallet_none() {
    let index = crowded();
    let list = |wallets: Vec<Address>| {
        let asked = wallets.into_iter().map(WalletInput::Wallet).collect();
        Route::kya_list(asked, None).unwrap().wallets()
    };
    let one = cost(&index, list(vec![wallet(7)]));
    assert_eq!(cost(&index, list(vec![wallet(7); 100])), one);
    let wallets: Vec<Address> = (0..100).map(wallet).collect();
    let ([statements, steps], excerpt) = cost(&index, list(wallets.clone()));
    assert!(statements <= 20, "{statements} statements");
    assert!(steps < one.0[1] * 110, "{steps} steps, and {} for one wallet", one.0[1]);
    // Each wallet's part equals an excerpt on it alone: 22 agents, and their ancestors.
    let rows = |excerpt: &Excerpt| {
        let digits = excerpt.encode();
        let rows = digits.as_bytes()[2 * 17..].chunks(2 * (8 + 8 + PACKED_BYTES));
        rows.map(<[u8]>::to_vec).collect::<BTreeSet<_>>()
    };
    let each = wallets.iter().flat_map(|wallet| rows(&index.excerpt(&[*wallet])));
    assert_eq!(rows(&excerpt), each.collect());
    assert!(rows(&one.1).len() >= 22 + 14, "{}", rows(&one.1).len());
    // A lineage takes a handful of statements a level.
    let ([statements, _], _) = index.database.cost(|| index.document("/api/v1/agent/1/lineage", index.now));
    assert!(statements <= 3 * 15 + 5, "{statements} statements");
}

#[test]
fn what_is_cut_or_summed_up_is_the_same_from_the_index_and_from_the_chain() {
    // A lineage of more agents than a tree shows.
    let mut registry = PlainRegistry::with_agents(0);
    registry.agents.extend((1..=3_000).map(|id| record(id, if id == 1 { 0 } else { (id - 2) / 40 + 1 })));
    let mut lineage = TestIndex::of(registry);
    // More currencies than are stated.
    let mut registry = PlainRegistry::with_agents(30);
    for number in 0..2_500 {
        let currency = format!("c{}", number * 7_919 % 2_500);
        let category = format!("k{}", number % 101);
        let report = report(1 + number % 30, number % 400);
        registry.reports.push(RevenueReport { currency, category, ..report });
    }
    let mut sums = TestIndex::of(registry);
    let sums_of = &["/api/v1/revenue/aggregate", "/api/v1/stats/detailed"];
    for (index, targets) in [(&mut lineage, &["/api/v1/agent/1/lineage"][..]), (&mut sums, sums_of)] {
        for target in targets {
            assert_eq!(index.ask(target, NOW).0, index.node.ask(target).unwrap(), "{target}");
        }
    }
    let (tree, _) = lineage.ask("/api/v1/agent/1/lineage", NOW);
    assert_eq!(tree.to_string().matches("\"agentId\"").count(), 2_000);
    let (sums, _) = sums.ask("/api/v1/revenue/aggregate", NOW);
    assert_eq!(sums["byCurrency"].as_object().unwrap().len(), 100);
    assert!(sums["otherCurrencies"].is_u64() && sums["otherCategories"].is_u64(), "{sums}");
}
