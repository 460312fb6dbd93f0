//! Evidence of verdicts: made by the real Worker of what a real node proves, verified without either.
//!
//! 1. Every kind of verdict is proved, in two round trips, at a block with the node's own hash; the verdict
//!    is the one without evidence.
//! 2. A node without proofs, a lagging one and one that lies give an error or a retry: never a wrong proof.
//! 3. Other code than this project's needs its operator's layout, and a wrong one proves nothing.

use alloy::primitives::{Address, B256, Bytes};
use alloy::providers::Provider as _;
use alloy::rpc::types::BlockNumberOrTag;
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::client::assert_has;
use e2e::fault::{Fault, Rule};
use e2e::http;
use e2e::proxy::Proxy;
use e2e::seed::{self, kya, wallet};
use e2e::stage::Stage;
use registry_core::api::error::Error;
use registry_core::api::question::{Question, WithEvidence};
use registry_core::api::route::Route;
use registry_core::chain::QueryError;
use registry_core::chain::{Endpoints, Limits, Reply, Run, Step};
use registry_core::eth::multicall::CANONICAL_ADDRESS;
use registry_core::eth::timestamp::Timestamp;
use registry_core::evidence::{self, Expected, Layout};
use registry_core::registry::error_code::Code;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_verdict_is_proved_in_two_round_trips() {
    let (stage, _) = Stage::showcase(|options| options.var("KYA_TTL_SECONDS", 0)).await.unwrap();
    for (agent, decision) in [
        ("kyoto", "provision"),
        ("ledger", "provision"),       // its scope takes 20 slots
        ("silent", "request_renewal"), // its scope is empty
        ("forgetful", "request_renewal"),
        ("paused", "request_renewal"),
        ("paused-child", "provision"), // no proof is about its ancestor
        ("impostor", "deny"),
        ("gone", "deny"),
        ("nobody", "deny"),
    ] {
        let path = kya(agent);
        let verdict = stage.client.get(&path).await.ok();
        stage.proxy.reset();
        let answer = stage.client.get(&format!("{path}?evidence=1")).await;
        assert_eq!(answer.status, 200, "{agent}: {}", answer.text);
        let posts = stage.proxy.reset();
        let methods: Vec<Vec<String>> = posts.into_iter().map(|post| post.methods).collect();
        assert_eq!(methods.len(), 2, "{agent}: {methods:?}");
        let proof = ["eth_getBlockByHash", "eth_getProof", "eth_getCode", "eth_chainId"];
        assert_eq!(methods[1], proof, "{agent}");

        let document = answer.ok();
        let number = document["verdict"]["asOf"]["blockNumber"].as_u64().unwrap();
        let block = stage.chain.node.block(number).await.unwrap();
        let expected = Expected {
            block_hash: Some(block["hash"].as_str().unwrap().parse().unwrap()),
            chain_id: Some(31_337),
            registry: Some(stage.chain.contracts.registry),
            wallet: Some(wallet(agent).address()),
            layout: None,
        };
        let verified =
            evidence::verify(&answer.text, &expected).unwrap_or_else(|error| panic!("{agent}: {error}"));
        let proved = &document["verdict"];
        assert_eq!(serde_json::to_value(&verified.verdict).unwrap(), *proved, "{agent}");
        // It claims nothing that it does not prove.
        let unproved =
            json!({ "decision": decision, "formerAgents": "unknown", "unknownBecause": "NOT_PROVED" });
        assert_has(proved, unproved, agent);
        assert_eq!(proved["ancestorsNotActive"] == "unknown", proved["isRegistered"] == true, "{agent}");
        // At the block's time instead of the clock's, it is the same verdict.
        for field in ["wallet", "isRegistered", "isCompliant", "agent", "decision", "compliantUntil"] {
            assert_eq!(proved[field], verdict[field], "{agent}: {field}");
        }
    }
}

/// A question for evidence put to a node through core alone, as a host would.
async fn ask(
    rpc: &[&str],
    registry: Address,
    wallet: Address,
    layout: Option<Layout>,
) -> Result<String, Error> {
    let question = Question {
        route: Route::Evidence(wallet),
        registry,
        chain: "http://node".into(),
        now: Timestamp::from_seconds(wall_clock()),
        scan: None,
        excerpt: None,
    };
    let limits = Limits { timeout_ms: 10_000, deadline_ms: 60_000, ..Limits::default() };
    let run = Run::new(WithEvidence { question, layout }, CANONICAL_ADDRESS, limits);
    let mut run = run.over(Endpoints::new(rpc.len(), Some(31_337)));
    let client = http::client(Duration::from_secs(10));
    loop {
        match run.step()? {
            Step::Done(answer) => return Ok(answer.body),
            Step::Send(batch) => {
                let request = client.post(rpc[batch.endpoint]).header("content-type", "application/json");
                let response = request.body(batch.body).send().await.unwrap();
                let status = response.status().as_u16();
                run.feed(Reply { status, body: &response.bytes().await.unwrap() })?;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_gets_wrong_is_an_error_or_asked_again() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    seed::many(&chain, 3).await.unwrap();
    let (registry, agent) = (chain.contracts.registry, wallet("many 2").address());
    // Its genesis is a day older, so that none of its blocks is one of the first's.
    let other = Chain::start(AnvilOptions::since(wall_clock() - 86_400)).await.unwrap();
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    let asked = async || ask(&[proxy.url()], registry, agent, None).await;

    let missing = Fault::error(-32601, "the method eth_getProof does not exist");
    proxy.inject(Rule::on("eth_getProof", missing));
    let error = asked().await.unwrap_err();
    assert!(error.to_string().contains("eth_getProof does not exist"), "{error}");
    // Another endpoint has it.
    ask(&[proxy.url(), chain.node.url()], registry, agent, None).await.unwrap();
    proxy.heal();

    // A lagging node behind a load balancer, an overloaded one, one without hashes, one without batches.
    let no_hashes = "cannot unmarshal object into Go value of type string";
    for fault in [
        Rule::on("eth_getBlockByHash", Fault::Result(Value::Null)).once(),
        Rule::on("eth_getProof", Fault::error(-32005, "rate limit exceeded")).once(),
        Rule::on("eth_getProof", Fault::error(-32000, "header not found")).once(),
        Rule::on("eth_getProof", Fault::error(-32602, no_hashes)).once(),
        Rule::on("eth_getProof", Fault::error(-32600, "batch too large")).once(),
        Rule::on("eth_chainId", Fault::WrongId).once(),
    ] {
        proxy.inject(fault.clone());
        let document = asked().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let verified = evidence::verify(&document, &Expected::default());
        assert!(verified.is_ok(), "{fault:?}: {verified:?}");
        proxy.heal();
    }

    // A proof above the size limit.
    proxy.inject(Rule::on("eth_getProof", Fault::Result(json!("0".repeat(5 << 20)))));
    assert_eq!(asked().await.unwrap_err().code(), Code::TooLarge);
    ask(&[proxy.url(), chain.node.url()], registry, agent, None).await.unwrap();
    proxy.heal();

    // Another chain's proof, another chain's header, another chain's name.
    let account = json!([other.contracts.registry, [B256::ZERO], "latest"]);
    let proof: Value = other.node.request("eth_getProof", account).await.unwrap();
    let block = other.node.block(BlockNumberOrTag::Latest).await.unwrap();
    for (method, result) in
        [("eth_getProof", proof), ("eth_getBlockByHash", block), ("eth_chainId", json!("0x1"))]
    {
        proxy.inject(Rule::on(method, Fault::Result(result)));
        let error = asked().await.unwrap_err();
        println!("{method}: {error}");
        let is_expected = matches!(error, Error::Evidence(_) | Error::Query(QueryError::Run(_)));
        assert!(is_expected, "{method}: {error}");
        proxy.heal();
    }
    asked().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_code_needs_its_operators_layout_and_a_wrong_one_proves_nothing() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    seed::many(&chain, 3).await.unwrap();
    let (registry, agent) = (chain.contracts.registry, wallet("many 2").address());
    let asked = async |layout: Option<Layout>| ask(&[chain.node.url()], registry, agent, layout).await;
    asked(None).await.unwrap();

    // The same contract with a byte behind its end: no layout is known for it.
    let code: Bytes = chain.node.provider.get_code_at(registry).await.unwrap();
    chain.node.set_code(registry, &[&code[..], &[0]].concat().into()).await.unwrap();
    // The next block's state root covers it.
    chain.node.mine(1).await.unwrap();
    let code_hash = alloy::primitives::keccak256([&code[..], &[0]].concat());
    assert_eq!(asked(None).await.unwrap_err(), Error::NoLayout);
    let layout = Layout { code_hash: Some(code_hash), ..Layout::AGENT_REGISTRY };
    let document = asked(Some(layout)).await.unwrap();
    let vouched = Expected { layout: Some(layout), ..Expected::default() };
    assert!(evidence::verify(&document, &vouched).unwrap().verdict.is_compliant);
    assert!(
        evidence::verify(&document, &Expected::default()).is_err(),
        "its layout is not trusted by default"
    );

    // The layout of another contract, by its code and by its slots.
    let other = Layout { code_hash: Some(B256::ZERO), ..layout };
    assert!(matches!(asked(Some(other)).await, Err(Error::WrongLayout(_))));
    let shifted = Layout { wallet_to_agent: layout.agents, agents: layout.wallet_to_agent, ..layout };
    assert!(matches!(asked(Some(shifted)).await, Err(Error::WrongLayout(_))));
    let mut persons = layout;
    std::mem::swap(&mut persons.record.creator, &mut persons.record.haftungsperson);
    assert!(matches!(asked(Some(persons)).await, Err(Error::WrongLayout(_))));
}
