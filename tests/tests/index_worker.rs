//! The index behind the real Worker: a Durable Object with SQLite in workerd, over a real chain.
//!
//! 1. Every answer about the whole registry, and every lineage, is of the newest block, and names it.
//! 2. Reorgs of 1, 3 and 20 blocks change the answers back.
//! 3. Where nodes cap `eth_getLogs`, lack it, or prune logs, answers are right, and `/readyz` has the basis.
//! 4. Where the chain does not answer there is an error, not a stale answer.
//! 5. workerd is killed in the middle of the fill and of a refresh; the next one goes on, after a reorg too.
//! 6. An index that is asked keeps itself up.
//! 7. Lists equal plain filters of the records, page by page, also with words searched in workerd's SQLite.
//! 8. Questions that need an index fail with the progress while it is being filled.

use std::time::Duration;

use alloy::primitives::{Address, U256};
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::client::{Answer, assert_has};
use e2e::documents::{Documents, time};
use e2e::fault::{Fault, Rule};
use e2e::process::{eventually, wait_until};
use e2e::seed;
use e2e::stage::Stage;
use e2e::story::DAY;
use registry_core::eth::abi::IAgentRegistry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const AGENTS: u64 = 30;
/// A person liable for several agents.
const PERSON: Address = Address::repeat_byte(0x99);
const OF_PERSON: u64 = 5;
const WAIT: Duration = Duration::from_secs(60);

/// A chain with agents on it, which is a day behind the clock.
async fn chain() -> Chain {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - DAY)).await.unwrap();
    seed::many(&chain, AGENTS).await.unwrap();
    for id in AGENTS + 1..=AGENTS + OF_PERSON {
        let call = seed::registration_call(id, wallet(id), "Number of one person", 1);
        let call = IAgentRegistry::registerAgentCall { haftungsperson: PERSON, ..call };
        chain.send(chain.owner(), call).await.unwrap();
    }
    // Enough that no reorganisation undoes the agents.
    chain.node.mine(30).await.unwrap();
    chain
}

async fn check(stage: &Stage, path: &str, document: impl Fn(u64) -> Value) {
    let (block, before) = (stage.chain.node.height().await.unwrap(), wall_clock());
    let answer = stage.client.get(path).await;
    let expected: Vec<Value> = (before..=wall_clock()).map(document).collect();
    let mut body = answer.ok();
    if let Some(as_of) = body.as_object_mut().and_then(|body| body.remove("asOf")) {
        let seconds = stage.chain.node.time().await.unwrap();
        assert_eq!(as_of, json!({"blockNumber": block, "blockTimestamp": time(seconds)}), "{path}");
    }
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
    let (mut path, mut shown) = ("/api/v1/agents/compliance?limit=15".to_owned(), 0);
    while shown < documents.agents.len() {
        check(stage, &path, |now| documents.compliance_page(shown, 15, now)).await;
        let next = documents.compliance_page(shown, 15, 0)["next"].as_str().map(str::to_owned);
        path = format!("/api/v1/agents/compliance?limit=15&cursor={}", next.unwrap_or_default());
        shown += 15;
    }
    check(stage, "/api/v1/revenue/aggregate", |_| documents.revenue_aggregate()).await;
    for id in [1, 3, AGENTS] {
        check(stage, &format!("/api/v1/agent/{id}/lineage"), |_| documents.lineage(id)).await;
    }
    check_lists(stage, &documents).await;
    let person = PERSON.to_string();
    let path = format!("/api/v1/liable/{person}?limit=2");
    check(stage, &path, |now| documents.liable(&person, 0, 2, now)).await;
    let second = documents.liable(&person, 0, 2, 0)["next"].as_str().unwrap().to_owned();
    let after = second.parse().unwrap();
    check(stage, &format!("{path}&cursor={second}"), |now| documents.liable(&person, after, 2, now)).await;
    let person = wallet(1).to_string();
    check(stage, &format!("/api/v1/liable/{person}"), |now| documents.liable(&person, 0, 20, now)).await;
}

/// Holds filtered, searched and sorted lists against plain filters of the registry's records, page by page.
async fn check_lists(stage: &Stage, documents: &Documents) {
    let agents = documents.summaries(wall_clock());
    let creator = agents[0]["creator"].as_str().unwrap();
    let is = |agent: &Value, field: &str, wanted: Value| agent[field] == wanted;
    let has = |agent: &Value, word: &str| agent["operationalScope"].as_str().unwrap().contains(word);
    type Keep<'a> = Box<dyn Fn(&Value) -> bool + 'a>;
    let cases: [(String, Keep<'_>, Option<&str>, bool); 7] = [
        (
            format!("haftungsperson={PERSON}&sort=-registration"),
            Box::new(|agent| is(agent, "haftungsperson", json!(PERSON.to_checksum(None)))),
            None,
            true,
        ),
        (
            "generation=2&compliant=true&sort=attestation".to_owned(),
            Box::new(|agent| is(agent, "generation", json!(2)) && is(agent, "isCompliant", json!(true))),
            Some("lastAttestation"),
            false,
        ),
        (
            format!("parent=1&creator={creator}"),
            Box::new(|agent| is(agent, "parentAgentId", json!(1)) && is(agent, "creator", json!(creator))),
            None,
            false,
        ),
        ("compliant=false".to_owned(), Box::new(|agent| is(agent, "isCompliant", json!(false))), None, false),
        ("q=One+numb".to_owned(), Box::new(|agent| has(agent, "Number of one")), None, false),
        (
            "q=number&status=Suspended&sort=-attestation".to_owned(),
            Box::new(|agent| is(agent, "status", json!("Suspended"))),
            Some("lastAttestation"),
            true,
        ),
        ("q=%22nobody%22+OR+*".to_owned(), Box::new(|_| false), None, false),
    ];
    for (query, keep, key, is_descending) in cases {
        let mut kept: Vec<&Value> = agents.iter().filter(|agent| keep(agent)).collect();
        kept.sort_by_key(|agent| {
            (key.map(|key| agent[key].as_str().unwrap().to_owned()), agent["agentId"].as_u64())
        });
        if is_descending {
            kept.reverse();
        }
        let limit = 2 + kept.len() / 2;
        let path = format!("/api/v1/agents?limit={limit}&{query}");
        let mut page = stage.client.get(&path).await.ok();
        assert_eq!((&page["total"], &page["page"]), (&json!(kept.len()), &json!(1)), "{path}: {page}");
        let mut pages = kept.chunks(limit).chain(kept.is_empty().then_some(&[][..]));
        let mut shown = pages.next().unwrap();
        loop {
            assert_eq!(page["data"], json!(shown), "{path}");
            let Some(next) = page["next"].as_str() else { break };
            shown = pages.next().unwrap_or_else(|| panic!("{path} goes on beyond the end"));
            page = stage.client.get(&format!("{path}&cursor={next}")).await.ok();
        }
        assert_eq!(pages.next(), None, "{path}: a page is missing");
    }
}

/// Whether an answer says to come again, for this reason.
fn is_not_there_yet(answer: &Answer, reason: &str) {
    let error = answer.failed(503, "INDEXING");
    assert!(error.starts_with(reason), "{error}");
    assert_eq!(answer.header("retry-after"), "10");
}

/// What the index says of itself.
async fn progress(stage: &Stage) -> Value {
    stage.client.get("/readyz").await.ok()["index"].clone()
}

/// A verdict for which the index has answered as soon as the chain.
async fn verdict_with_past(stage: &Stage, path: &str) -> Value {
    eventually("the past", WAIT, async || {
        let verdict = stage.client.get(path).await.ok();
        (verdict["unknownBecause"] != "INDEX_UNAVAILABLE").then_some(verdict)
    })
    .await
    .unwrap()
}

/// One block in which an agent changes.
async fn change(chain: &Chain, round: u64) {
    let id = U256::from(1 + round * 8 % (AGENTS + OF_PERSON));
    let call = IAgentRegistry::getAgentCall { agentId: id };
    let agent = chain.read(chain.contracts.registry, call).await.unwrap();
    if agent.status == 0 {
        chain.send(chain.owner(), seed::suspension(id.to(), "end to end")).await.unwrap();
    } else {
        chain.send(chain.owner(), IAgentRegistry::reactivateAgentCall { agentId: id }).await.unwrap();
    }
}

/// Asks for detailed statistics, and waits until that has reached the chain.
async fn ask(stage: &Stage) -> JoinHandle<Answer> {
    let posts = stage.proxy.posts();
    let client = stage.client.clone();
    let question = tokio::spawn(async move { client.get("/api/v1/stats/detailed").await });
    wait_until("the chain is asked", WAIT, async || stage.proxy.posts() > posts).await;
    question
}

fn wallet(id: u64) -> Address {
    seed::wallet(&format!("many {id}")).address()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_registrys_whatever_the_chain_and_the_node_do() {
    let stage = Stage::indexed(chain().await, |options| options.ttl(0)).await.unwrap();
    // The chain is reorganised while the index is filled.
    stage.proxy.inject(Rule::on("eth_call", Fault::Delay(Duration::from_secs(1))).once());
    let question = ask(&stage).await;
    change(&stage.chain, 0).await;
    stage.chain.node.reorganise(3).await.unwrap();
    question.await.unwrap().ok();
    check_all(&stage).await;

    let mut round = 0;
    for depth in [1, 3, 20] {
        for _ in 0..depth + 2 {
            change(&stage.chain, round).await;
            round += 1;
            if round.is_multiple_of(6) {
                check_all(&stage).await;
            }
        }
        seed::many(&stage.chain, 1).await.unwrap();
        check_all(&stage).await;
        stage.chain.node.reorganise(depth).await.unwrap();
        check_all(&stage).await;
    }
    let index = progress(&stage).await;
    assert_eq!((&index["percent"], &index["basis"]), (&json!(100), &json!("storageRoot")), "{index}");
    assert_eq!((&index["unannouncedChanges"], &index["refreshesWithoutEvents"]), (&json!(0), &json!(0)));

    // The node's fault, the blocks mined meanwhile, and whether the refresh still goes by events.
    let missing = Fault::error(-32601, "the method eth_getLogs does not exist");
    for (fault, blocks, by_events) in [
        // Events of the last two minutes are asked for again: some hundred blocks here.
        (Fault::LogsOfBlocks(40), 20, true),
        (Fault::LogsOfBlocks(1_000), 1_200, true),
        (Fault::LogsOfBlocks(10), 1_200, false),
        (Fault::LogResults(40), 4, true),
        (Fault::Result(json!([])), 4, false),
        (missing, 4, false),
    ] {
        // One change that is known by its event, so that the next ones show whether events are missing.
        change(&stage.chain, 3).await;
        check_all(&stage).await;
        let without = progress(&stage).await["refreshesWithoutEvents"].as_u64().unwrap();
        stage.proxy.inject(Rule::on("eth_getLogs", fault.clone()));
        for round in 5..8 {
            change(&stage.chain, round).await;
        }
        stage.chain.node.mine(blocks).await.unwrap();
        check_all(&stage).await;
        stage.proxy.heal();
        let index = progress(&stage).await;
        let fell_back = index["refreshesWithoutEvents"].as_u64().unwrap() > without;
        assert_eq!((fell_back, &index["basis"]), (!by_events, &json!("storageRoot")), "{fault:?}: {index}");
        assert_eq!(index["unannouncedChanges"], 0, "{fault:?}: {index}");
    }

    // A wallet that is revoked and registered again: each verdict shows its past.
    let revoked = IAgentRegistry::revokeAgentCall { agentId: U256::from(2), reason: "end to end".into() };
    stage.chain.send(stage.chain.owner(), revoked).await.unwrap();
    let path = format!("/api/v1/kya/{}", wallet(2));
    let former = verdict_with_past(&stage, &path).await;
    assert_eq!((&former["registration"], &former["decision"]), (&json!("former"), &json!("deny")));
    let again = seed::registration_call(AGENTS + 9, wallet(2), "again", 0);
    stage.chain.send(stage.chain.owner(), again).await.unwrap();
    for query in ["", "?history=1"] {
        let current = verdict_with_past(&stage, &format!("{path}{query}")).await;
        let verdict = json!({ "registration": "current", "reasons": ["FORMER_AGENT_REVOKED"] });
        assert_has(&current, verdict, query);
        assert_eq!(current.get("unknownBecause"), None, "{current}");
        assert_eq!(current["formerAgents"][0]["agentId"], 2);
    }
    check_all(&stage).await;

    stage.proxy.inject(Rule::any(Fault::Refuse));
    for path in ["stats/detailed", "agents/compliance", "agent/1/lineage"] {
        let answer = stage.client.get(&format!("/api/v1/{path}")).await;
        answer.failed(500, "RPC_UNAVAILABLE");
    }
    stage.proxy.heal();
    check_all(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_killed_goes_on_in_the_middle_of_a_fill_and_of_a_refresh() {
    let mut stage = Stage::indexed(chain().await, |options| options.ttl(0)).await.unwrap();
    for (round, depth) in [(0, 3), (1, 1), (2, 20)] {
        // The first time in the fill, then in refreshes; each time the chain goes on meanwhile.
        stage.proxy.inject(Rule::on("eth_call", Fault::Hang));
        let question = ask(&stage).await;
        let path = format!("/api/v1/liable/{PERSON}");
        if round == 0 {
            let filling = "The index of the registry is being filled: 0 %";
            is_not_there_yet(&stage.client.get(&path).await, filling);
        }
        stage.kill_index();
        stage.proxy.heal();
        let _ = question.await;
        is_not_there_yet(&stage.client.get(&path).await, "The index of the registry does not answer.");
        change(&stage.chain, round).await;
        stage.chain.node.reorganise(depth).await.unwrap();
        change(&stage.chain, round + 4).await;
        stage.restart_index().await.unwrap();
        stage.index_found().await.unwrap();
        check_all(&stage).await;
        for round in 8..30 {
            change(&stage.chain, round).await;
        }
        check_all(&stage).await;
    }
    let index = progress(&stage).await;
    assert_eq!(
        (&index["unannouncedChanges"], &index["basis"]),
        (&json!(0), &json!("storageRoot")),
        "{index}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_asked_is_kept_up_by_its_alarm() {
    let stage = Stage::indexed(chain().await, |options| options.ttl(8)).await.unwrap();
    let path = "/api/v1/stats/detailed";
    assert_eq!(stage.client.get(path).await.ok()["statusDistribution"]["Suspended"], 3);
    change(&stage.chain, 0).await;
    stage.proxy.reset();
    // No request comes meanwhile.
    wait_until("refreshed", WAIT, async || stage.proxy.posts() > 0).await;
    wait_until("shown", WAIT, async || {
        let suspended = stage.client.get(path).await.ok()["statusDistribution"]["Suspended"].clone();
        suspended == 4
    })
    .await;
}
