//! Limits of a node: bytes, time, gas, calls in a batch. Work beyond them is sent in smaller pieces, or
//! named.

use alloy_sol_types::SolCall;
use registry_core::eth::abi::IAgentRegistry::attestationGracePeriodCall;

use crate::common::{host::Host, host::finish, prelude::*, requests, response, scan_query};
use crate::{LIST, node};

#[test]
fn time_outs_of_large_batches_and_gas_that_runs_out_count_against_no_endpoint() {
    let mut large = node(3_000);
    large.quirks.gas_for_calls = Some(60);
    let (mut sizes, mut time_outs) = (Vec::new(), 0);
    let mut known = Endpoints::new(2, Some(CHAIN_ID));
    let mut run = Run::new(scan_query(), CANONICAL_ADDRESS, Limits::default()).over(known.clone());
    let scan = finish(&mut run, |batch| {
        assert_eq!(batch.endpoint, 0, "no other endpoint was asked");
        let requests = batch.body.matches("\"method\"").count();
        sizes.push(requests);
        if requests > 30 {
            time_outs += 1;
            return Err(Failure::TimedOut);
        }
        Ok(large.post(batch))
    });
    known.merge(&run.update());
    assert_eq!((scan.unwrap().size_bytes() / 80 / 3_000, known.preferred()), (1, 0));
    assert!(time_outs > 0 && sizes.len() > 3, "it is halved: {sizes:?}");
    for batch_limit in [None, Some(1)] {
        let mut node = node(3);
        node.quirks.batch_limit = batch_limit;
        node.quirks.heavy = vec![attestationGracePeriodCall {}.abi_encode()];
        let mut host = Host::new([node, crate::node(3)]);
        let error = host.ask("/api/v1/agent/1").unwrap_err();
        assert_eq!(error, QueryError::TooHeavy { function: "attestationGracePeriod()" }.into());
        assert_eq!((host.posts()[1], host.known.preferred()), (0, 0));
    }
}

#[test]
fn a_call_that_is_not_answered_because_the_node_is_busy_is_not_taken_for_too_heavy() {
    let mut node = node(3);
    node.quirks.heavy = vec![attestationGracePeriodCall {}.abi_encode()];
    let answer = finish(&mut run("/api/v1/agent/1"), |batch| {
        let (status, body) = node.post(batch);
        let asked = requests(&batch.body);
        let is_direct = |request: &&Value| request["params"][0]["to"] == json!(REGISTRY);
        let Some(direct) = asked.iter().find(is_direct) else { return Ok((status, body)) };
        // Its gas suffices by then.
        node.quirks.heavy.clear();
        let mut answers: Vec<Value> = serde_json::from_slice(&body).unwrap();
        let busy =
            Err(json!({"code": -32005, "message": "daily request count exceeded, request rate limited"}));
        let answer = answers.iter_mut().find(|answer| answer["id"] == direct["id"]).unwrap();
        *answer = response(&direct["id"], busy);
        Ok((status, Value::from(answers).to_string().into_bytes()))
    });
    assert!(node.quirks.heavy.is_empty(), "the call was made alone");
    assert!(answer.is_ok(), "{answer:?}");
}

#[test]
fn a_dear_batch_has_more_time_than_a_small_one() {
    let mut node = node(3_000);
    node.quirks.gas_for_calls = Some(300);
    let mut timeouts = Vec::new();
    let answer = finish(&mut run(LIST), |batch| {
        timeouts.push(batch.timeout_ms);
        Ok(node.post(batch))
    });
    answer.unwrap();
    assert_eq!(timeouts[0], 4_200);
    assert!(timeouts[1] > 6_000, "{timeouts:?}");
}

#[test]
fn too_many_round_trips_are_worth_another_try_and_too_many_calls_are_not() {
    let none = Limits::default();
    for (limits, code, retry_after) in [
        (Limits { rounds: 1, ..none }, Code::RpcUnavailable, Some(10)),
        (Limits { calls: 1, ..none }, Code::TooLarge, None),
    ] {
        let error = node(30).ask_within(LIST, limits).unwrap_err();
        assert_eq!((error.code(), error.retry_after()), (code, retry_after));
    }
}
