//! What is too much for a node: bytes, time, gas, calls in a batch. It is asked for in smaller pieces, or
//! named.

use alloy_primitives::U256;
use alloy_sol_types::SolCall;
use registry_core::{
    api::error::Error,
    chain::{Endpoints, Failure, Limits, QueryError, Run},
    eth::abi::IAgentRegistry::{attestationGracePeriodCall, getAgentCall},
    eth::multicall::CANONICAL_ADDRESS,
    registry::error_code::Code,
};
use serde_json::json;

use crate::common::{self, host::finish, question, scan_query};
use crate::{ONE_ROUND, TWO_ROUNDS, node};

#[test]
fn a_reply_that_is_too_large_is_asked_for_in_halves() {
    let expected = node(300).ask("/api/v1/agents/compliance").unwrap();
    let limits = Limits { max_reply_bytes: 8_000, rounds: 1_000, ..Limits::default() };
    for target in ["/api/v1/agents/compliance", "/api/v1/agents?limit=100"] {
        let answer = node(300).ask_within(target, limits).unwrap();
        if target.ends_with("compliance") {
            assert_eq!(answer, expected);
        }
    }
    let limits = Limits { max_reply_bytes: 500, rounds: 1_000, ..Limits::default() };
    let error = node(1).ask_within("/api/v1/agent/1", limits).unwrap_err();
    assert!(matches!(error, Error::Query(QueryError::TooHeavy { .. })), "{error:?}");
}

#[test]
fn a_time_out_of_a_large_batch_halves_it_and_counts_against_no_endpoint() {
    let mut node = node(3_000);
    node.quirks.gas_for_calls = Some(60);
    let mut run = Run::new(scan_query(), CANONICAL_ADDRESS, Limits::default())
        .over(Endpoints::new(2, Some(common::CHAIN_ID)));
    let (mut sizes, mut time_outs) = (Vec::new(), 0);
    let scan = finish(&mut run, |batch| {
        assert_eq!(batch.endpoint, 0, "no other endpoint was asked");
        let requests = batch.body.matches("\"method\"").count();
        sizes.push(requests);
        if requests > 30 {
            time_outs += 1;
            return Err(Failure::TimedOut);
        }
        Ok(node.post(batch))
    });
    assert_eq!(scan.unwrap().size_bytes() / 80 / 3_000, 1);
    assert!(time_outs > 0 && sizes.len() > 3, "{sizes:?}");
    let mut known = Endpoints::new(2, Some(common::CHAIN_ID));
    known.merge(&run.update());
    assert_eq!(known.preferred(), 0);
}

#[test]
fn a_dear_batch_has_more_time_than_a_small_one() {
    let mut node = node(3_000);
    node.quirks.gas_for_calls = Some(300);
    let mut run = Run::new(question("/api/v1/agents/compliance"), CANONICAL_ADDRESS, Limits::default());
    let mut timeouts = Vec::new();
    let answer = finish(&mut run, |batch| {
        timeouts.push(batch.timeout_ms);
        Ok(node.post(batch))
    });
    answer.unwrap();
    assert_eq!(timeouts[0], 4_200);
    assert!(timeouts[1] > 6_000, "{timeouts:?}");
}

#[test]
fn too_many_round_trips_are_worth_another_try_and_too_many_calls_are_not() {
    let limits = Limits { rounds: 1, ..Limits::default() };
    let error = node(30).ask_within("/api/v1/agents/compliance", limits).unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Code::RpcUnavailable, Some(10)));
    let limits = Limits { calls: 1, ..Limits::default() };
    let error = node(30).ask_within("/api/v1/agents/compliance", limits).unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Code::TooLarge, None));
}

#[test]
fn a_chunk_that_runs_out_of_gas_is_split_until_it_fits() {
    let expected = node(300).ask("/api/v1/agents/compliance").unwrap();
    let mut node = node(300);
    node.quirks.gas_for_calls = Some(9);
    assert_eq!(node.ask("/api/v1/agents/compliance").unwrap(), expected);
}

#[test]
fn a_call_too_heavy_even_alone_is_an_answer_of_its_own_kind() {
    let mut node = node(3);
    node.quirks.gas_for_calls = Some(0);
    let error = node.ask("/api/v1/stats").unwrap_err();
    assert_eq!(error, Error::Query(QueryError::TooHeavy { function: "nextAgentId()" }));
}

#[test]
fn a_grace_period_beyond_the_nodes_gas_is_not_taken_for_seven_days() {
    let mut node = node(3);
    node.quirks.heavy = vec![attestationGracePeriodCall {}.abi_encode()];
    for target in ["/api/v1/agent/1", ONE_ROUND[5], "/api/v1/stats/detailed"] {
        let error = node.ask(target).unwrap_err();
        let expected = Error::Query(QueryError::TooHeavy { function: "attestationGracePeriod()" });
        assert_eq!(error, expected, "{target}");
    }
}

#[test]
fn a_record_beyond_the_nodes_gas_is_named_and_not_left_out_silently() {
    let mut node = node(3);
    node.quirks.heavy = vec![getAgentCall { agentId: U256::from(3) }.abi_encode()];
    let tree = node.ask("/api/v1/agent/1/lineage").unwrap();
    assert_eq!((&tree["unreadable"], tree["children"].as_array().unwrap().len()), (&json!([3]), 1), "{tree}");
    let page = node.ask("/api/v1/agents").unwrap();
    assert_eq!((&page["unreadable"], page["data"].as_array().unwrap().len()), (&json!([3]), 2), "{page}");
    assert_eq!(page["total"], 3);
    let error = node.ask("/api/v1/agent/3").unwrap_err();
    assert_eq!(error, Error::Query(QueryError::TooHeavy { function: "getAgent(uint256)" }));
}

#[test]
fn gas_that_runs_out_does_not_count_against_the_endpoint() {
    for batch_limit in [None, Some(1)] {
        let mut node = node(3);
        node.quirks.batch_limit = batch_limit;
        node.quirks.heavy = vec![attestationGracePeriodCall {}.abi_encode()];
        let mut known = Endpoints::new(2, Some(common::CHAIN_ID));
        let mut run =
            Run::new(question("/api/v1/agent/1"), CANONICAL_ADDRESS, Limits::default()).over(known.clone());
        let answer = finish(&mut run, |batch| {
            assert_eq!(batch.endpoint, 0, "no other endpoint was asked");
            Ok(node.post(batch))
        });
        let error = Error::Query(QueryError::TooHeavy { function: "attestationGracePeriod()" });
        assert_eq!(answer, Err(error));
        known.merge(&run.update());
        assert_eq!(known.preferred(), 0);
    }
}

#[test]
fn short_and_refused_batches_are_asked_again_for_what_is_missing() {
    let limits = Limits { rounds: 2_000, ..Limits::default() };
    for target in TWO_ROUNDS {
        let expected = node(500).ask(target).unwrap();
        let mut short = node(500);
        short.quirks.short_batches = Some(2);
        assert_eq!(short.ask_within(target, limits).unwrap(), expected, "{target}");
        for refuses_by_id in [false, true] {
            let mut single = node(500);
            single.quirks.batch_limit = Some(1);
            single.quirks.refuses_by_id = refuses_by_id;
            assert_eq!(single.ask_within(target, limits).unwrap(), expected, "{target}");
        }
    }
}
