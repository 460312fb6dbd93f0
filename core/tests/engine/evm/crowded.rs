//! Histories and lists of children beyond the gas of a call, which must not affect other agents.

use alloy_primitives::hex;

use super::{EVERY_WAY, ask, chain::EvmChain, model, model::Op, report as report_op};
use crate::common::prelude::*;

/// Registers this many agents, each with a wallet of its own.
fn register(chain: &mut EvmChain, wallets: std::ops::Range<usize>, parent: u64) {
    let op = |index| Op::register(1, model::wallet(1_000 + index), parent, "s");
    wallets.for_each(|index| chain.apply(&op(index)).unwrap());
}

fn report(chain: &mut EvmChain, id: u64, times: usize) {
    let op = report_op(1, U256::from(id), 2, "EUR", "consulting");
    (0..times).for_each(|_| chain.apply(&op).unwrap());
}

fn whole_registry(chain: &mut EvmChain) -> [Value; 4] {
    ["stats/detailed", "revenue/aggregate", "agents/compliance", "agents?status=Active"]
        .map(|path| ask(chain, &format!("/api/v1/{path}")).unwrap())
}

#[test]
fn a_history_within_the_nodes_gas_counts_and_one_beyond_it_is_named_while_the_rest_is_answered() {
    let (mut chain, mut made) = (EvmChain::deploy(), 0);
    register(&mut chain, 0..5, 0);
    report(&mut chain, 3, 1);
    // Reports of agent 2, and whether a node with this gas cap can read them.
    for (gas_cap, reports, is_readable) in [
        (10_000_000, 500, true),
        (50_000_000, 2_400, true),
        (10_000_000, 4_800, false),
        (50_000_000, 4_800, false),
    ] {
        report(&mut chain, 2, reports - made);
        made = reports;
        for undeployed in EVERY_WAY {
            (chain.gas_cap, chain.undeployed) = (gas_cap, undeployed);
            let [stats, revenue, compliance, active] = whole_registry(&mut chain);
            let counted = if is_readable { reports + 1 } else { 1 };
            let unreadable = if is_readable { Value::Null } else { json!([2]) };
            assert_eq!(revenue["totalReports"], counted, "{gas_cap}, {undeployed:?}: {stats}");
            assert_eq!((&stats["unreadable"], &revenue["unreadable"]), (&unreadable, &unreadable));
            assert_eq!(stats["totalRevenue"], json!({"EUR": 2 * counted}));
            assert_eq!(stats["statusDistribution"]["Active"], 5);
            for list in [compliance, active] {
                assert_eq!(list["total"], 5);
                assert!(list.get("unreadable").is_none(), "its record is readable");
            }
        }
    }
}

#[test]
fn a_parent_of_too_many_children_is_shown_with_some_of_them_and_a_note() {
    const CHILDREN: usize = 4_600;
    let mut chain = EvmChain::deploy();
    chain.gas_cap = 10_000_000;
    register(&mut chain, 0..1, 0);
    register(&mut chain, 1..2, 1);
    register(&mut chain, 2..CHILDREN + 2, 2);
    for undeployed in EVERY_WAY {
        chain.undeployed = undeployed;
        let agent = ask(&mut chain, "/api/v1/agent/2").unwrap();
        let shown = agent["children"].as_array().unwrap();
        assert!(shown.len() >= 50, "{undeployed:?}: {}", shown.len());
        assert_eq!(shown[0], 3);
        assert_eq!(agent["truncated"], true);
        assert_eq!(agent["note"], format!("Showing {} of {CHILDREN} children", shown.len()));
        assert_eq!(agent["compliance"]["childCount"], CHILDREN);

        let tree = ask(&mut chain, "/api/v1/agent/1/lineage").unwrap();
        assert!(tree.get("note").is_none());
        let parent = &tree["children"][0];
        assert_eq!(parent["agentId"], 2);
        assert_eq!(parent["children"].as_array().unwrap().len(), 50);
        assert_eq!(parent["note"], format!("Showing 50 of {CHILDREN} children"));
    }
    let list = ask(&mut chain, "/api/v1/agents/compliance").unwrap();
    assert_eq!(list["total"], CHILDREN + 2);
    assert_eq!(list["data"][1]["compliance"]["childCount"], CHILDREN);
}

#[test]
fn the_whole_registry_takes_two_round_trips_and_150_bytes_an_agent() {
    let mut chain = EvmChain::deploy();
    register(&mut chain, 0..1_400, 0);
    (1..=1_400).for_each(|id| report(&mut chain, id, 1));
    for gas_cap in [10_000_000, 50_000_000] {
        chain.gas_cap = gas_cap;
        for path in ["stats/detailed", "revenue/aggregate", "agents/compliance", "agents?status=Active"] {
            (chain.round_trips, chain.reply_bytes) = (0, 0);
            ask(&mut chain, &format!("/api/v1/{path}")).unwrap();
            assert_eq!(chain.round_trips, 2, "{gas_cap}: {path}");
            assert!(chain.reply_bytes <= 150 * 1_400, "{gas_cap}: {path}: {} bytes", chain.reply_bytes);
        }
    }
}

#[test]
fn gas_that_ran_out_is_not_taken_for_a_revert_without_a_reason() {
    let mut chain = EvmChain::deploy();
    register(&mut chain, 0..1, 0);
    chain.gas_cap = 10_000_000;
    // PUSH0 PUSH0 REVERT, and JUMPDEST PUSH0 JUMP.
    let (registry, reverting, spinning) = (chain.registry, hex!("5f5ffd"), hex!("5b5f56"));
    chain.registry = chain.put_code(reverting.to_vec());
    let error = ask(&mut chain, "/api/v1/stats").unwrap_err();
    let Error::Query(QueryError::Reverted { revert, .. }) = &error else { panic!("{error:?}") };
    assert_eq!(revert.message, None);
    chain.registry = chain.put_code(spinning.to_vec());
    let error = ask(&mut chain, "/api/v1/stats").unwrap_err();
    assert_eq!(error, Error::Query(QueryError::TooHeavy { function: "nextAgentId()" }));
    chain.registry = registry;
    assert_eq!(ask(&mut chain, "/api/v1/stats").unwrap()["totalAgents"], 1);
}
