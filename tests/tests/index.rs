//! The index behind the real Worker: a Durable Object with SQLite in workerd, over a real chain.
//!
//! 1. Every answer about the whole registry, and every lineage, is what the registry holds at the newest block, and says its block.
//! 2. Reorganisations of 1, 3 and 20 blocks change the answers back, also while the Worker is down.
//! 3. Nodes that cap `eth_getLogs`, have none, or lie about them: the answers are right all the same, and `/readyz` tells what they
//!    rest on.
//! 4. workerd killed in the middle of the fill, and of a refresh: the next one goes on.
//! 5. Where the chain does not answer there is an error, not an old truth.

use std::time::Duration;

use alloy::primitives::U256;
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::documents::Documents;
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::seed;
use e2e::stage::{Stage, run};
use e2e::story::DAY;
use e2e::worker::{Worker, WorkerOptions};
use registry_core::abi::IAgentRegistry;
use serde_json::{Value, json};
use tempfile::TempDir;

const AGENTS: u64 = 30;

/// With an index, and answers that are not kept: each is as of the newest block.
fn indexed(options: WorkerOptions) -> WorkerOptions {
    let options = options.var("INDEX", "durable-object");
    ["AGENT_TTL_SECONDS", "LINEAGE_TTL_SECONDS"]
        .into_iter()
        .fold(options, |options, name| options.var(name, 0))
}

/// A chain with agents on it, which is a day behind the clock.
async fn chain() -> Chain {
    let options = AnvilOptions { genesis_time: Some(wall_clock() - DAY), ..AnvilOptions::default() };
    let chain = Chain::start(options).await.unwrap();
    seed::many(&chain, AGENTS).await.unwrap();
    chain
}

async fn check(stage: &Stage, path: &str, document: impl Fn(u64) -> Value) {
    let block: Value = stage.chain.node.request("eth_blockNumber", json!([])).await.unwrap();
    let block = u64::from_str_radix(&block.as_str().unwrap()[2..], 16).unwrap();
    let before = wall_clock();
    let answer = stage.client.get(path).await;
    let expected: Vec<Value> = (before..=wall_clock()).map(document).collect();
    let body = answer.ok();
    assert!(expected.contains(&body), "{path}\n   answered {body}\n   expected {}", expected[0]);
    assert_eq!(answer.number("x-as-of-block"), block, "{path}");
}

/// Holds every answer of the index against the registry, read past the Worker.
async fn check_all(stage: &Stage) {
    let documents: Documents = stage.documents().await.unwrap();
    check(stage, "/api/v1/stats/detailed", |now| documents.detailed_stats(now)).await;
    check(stage, "/api/v1/agents?status=Active&limit=7&page=2", |_| documents.agents(2, 7, Some("Active")))
        .await;
    check(stage, "/api/v1/agents?status=Suspended", |_| documents.agents(1, 20, Some("Suspended"))).await;
    check(stage, "/api/v1/agents/compliance", |now| documents.compliance_list(now)).await;
    check(stage, "/api/v1/revenue/aggregate", |_| documents.revenue_aggregate()).await;
    for id in [1, 3, AGENTS] {
        check(stage, &format!("/api/v1/agent/{id}/lineage"), |_| documents.lineage(id)).await;
    }
}

/// What the index says of itself.
async fn progress(stage: &Stage) -> Value {
    stage.client.get("/readyz").await.ok()["index"].clone()
}

/// One block in which an agent changes.
async fn change(chain: &Chain, round: u64) {
    let id = U256::from(1 + round % AGENTS);
    let agent =
        chain.read(chain.contracts.registry, IAgentRegistry::getAgentCall { agentId: id }).await.unwrap();
    if agent.status == 0 {
        let reason = "end to end".to_owned();
        chain.send(chain.owner(), IAgentRegistry::suspendAgentCall { agentId: id, reason }).await.unwrap();
    } else {
        chain.send(chain.owner(), IAgentRegistry::reactivateAgentCall { agentId: id }).await.unwrap();
    }
}

/// Undoes so many blocks; empty ones come in their place.
async fn reorganise(chain: &Chain, depth: u64) {
    let _: Value = chain.node.request("anvil_reorg", json!([depth, []])).await.unwrap();
}

#[test]
fn answers_are_the_registrys_whatever_is_reorganised() {
    run(async {
        let stage = Stage::over(chain().await, indexed).await.unwrap();
        check_all(&stage).await;
        let mut round = 0;
        for depth in [1, 3, 20] {
            for _ in 0..depth + 2 {
                change(&stage.chain, round).await;
                round += 1;
                if round.is_multiple_of(4) {
                    check_all(&stage).await;
                }
            }
            seed::many(&stage.chain, 1).await.unwrap();
            check_all(&stage).await;
            reorganise(&stage.chain, depth).await;
            check_all(&stage).await;
        }
        let index = progress(&stage).await;
        assert_eq!((&index["percent"], &index["basis"]), (&json!(100), &json!("events")), "{index}");
        assert_eq!(index["unannouncedChanges"], 0, "{index}");
    });
}

#[test]
fn logs_that_are_capped_missing_or_untrue_leave_the_answers_right() {
    run(async {
        let stage = Stage::over(chain().await, indexed).await.unwrap();
        check_all(&stage).await;
        let capped =
            Fault::error(-32005, "query exceeds max block range 10. Try with this block range [0x1, 0x20].");
        let faults = [
            ("capped", Rule::on("eth_getLogs", capped).times(2)),
            (
                "unsupported",
                Rule::on("eth_getLogs", Fault::error(-32601, "the method eth_getLogs does not exist")),
            ),
            ("pruned", Rule::on("eth_getLogs", Fault::Result(json!([])))),
        ];
        for (name, rule) in faults {
            // One change that is known by its event, so that a node without it can be told.
            change(&stage.chain, 3).await;
            check_all(&stage).await;
            stage.proxy.inject(rule);
            for round in 5..8 {
                change(&stage.chain, round).await;
            }
            check_all(&stage).await;
            stage.proxy.heal();
            change(&stage.chain, 9).await;
            check_all(&stage).await;
            let index = progress(&stage).await;
            assert_eq!(
                (&index["basis"], &index["unannouncedChanges"]),
                (&json!("events"), &json!(0)),
                "{name}: {index}"
            );
        }
        let index = progress(&stage).await;
        assert!(index["refreshesWithoutEvents"].as_u64().unwrap() >= 2, "{index}");
    });
}

#[test]
fn a_chain_that_does_not_answer_is_an_error_and_not_an_old_truth() {
    run(async {
        let stage = Stage::over(chain().await, indexed).await.unwrap();
        check_all(&stage).await;
        stage.proxy.inject(Rule::any(Fault::status(503)));
        for path in ["stats/detailed", "agents/compliance", "agent/1/lineage"] {
            assert_eq!(stage.client.get(&format!("/api/v1/{path}")).await.status, 500, "{path}");
        }
        stage.proxy.heal();
        check_all(&stage).await;
    });
}

#[test]
fn what_is_killed_goes_on_in_the_middle_of_a_fill_and_of_a_refresh() {
    run(async {
        let state = TempDir::new().unwrap();
        let kept = |options: WorkerOptions| WorkerOptions {
            state: Some(state.path().to_owned()),
            ..indexed(options)
        };
        let mut stage = Stage::over(chain().await, kept).await.unwrap();
        for round in 0..2 {
            // The first time in the fill, the second in a refresh; each time the chain goes on while nobody runs.
            stage.proxy.inject(Rule::on("eth_call", Fault::Hang));
            let asked = stage.proxy.posts();
            let client = stage.client.clone();
            let question = tokio::spawn(async move { client.get("/api/v1/stats/detailed").await });
            eventually("the chain is asked", Duration::from_secs(30), async || {
                (stage.proxy.posts() > asked).then_some(())
            })
            .await
            .unwrap();
            stage.worker.process().kill();
            let _ = question.await;
            stage.proxy.heal();
            change(&stage.chain, round).await;
            reorganise(&stage.chain, 3).await;
            change(&stage.chain, round + 4).await;
            let options = WorkerOptions::new(stage.proxy.url(), stage.chain.contracts.registry);
            stage.worker = Worker::start(kept(options)).await.unwrap();
            stage.client = stage.worker.client();
            check_all(&stage).await;
            change(&stage.chain, round + 8).await;
            check_all(&stage).await;
        }
        assert_eq!(progress(&stage).await["unannouncedChanges"], 0);
    });
}

#[test]
fn an_index_that_is_asked_is_kept_up_by_its_alarm_and_then_left_alone() {
    run(async {
        let options =
            |options: WorkerOptions| options.var("INDEX", "durable-object").var("AGENT_TTL_SECONDS", 8);
        let stage = Stage::over(chain().await, options).await.unwrap();
        let path = "/api/v1/stats/detailed";
        assert_eq!(stage.client.get(path).await.ok()["statusDistribution"]["Suspended"], 3);
        change(&stage.chain, 0).await;
        stage.proxy.reset();
        // Nobody asks meanwhile.
        eventually("refreshed", Duration::from_secs(60), async || (stage.proxy.posts() > 0).then_some(()))
            .await
            .unwrap();
        eventually("told", Duration::from_secs(60), async || {
            let suspended = stage.client.get(path).await.ok()["statusDistribution"]["Suspended"].clone();
            (suspended == 4).then_some(())
        })
        .await
        .unwrap();
    });
}
