//! Programs that follow the registry through the Worker: the gate by `/changes`, and a local copy by the
//! snapshot.
//!
//! 1. A gate refuses an agent as soon as `/changes` announces its suspension.
//! 2. A `LocalKya` gives the API's verdicts without the API, and a suspension after its next update.
//!    Downloads are compressed. For how long it gives verdicts is in `kya-local/tests`.
//! 3. A spot check finds a contradiction of the chain, with the evidence.

use alloy::primitives::{Address, B256};
use e2e::anvil::CHAIN_ID;
use e2e::client::without;
use e2e::gate::{Gate, ORIGIN};
use e2e::http;
use e2e::process::wait_until;
use e2e::reverse_proxies::ReverseProxyKind;
use e2e::seed;
use e2e::signed_requests::{Draft, RawAnswer};
use e2e::worker::Worker;
use kya_local::{Decision, Error, LocalKya, Options, SpotCheck, SpotChecks};
use registry_core::evidence::{self, Expected};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use tempfile::TempDir;

use crate::{PATIENCE, StageGuard, has_snapshot, is_listed, reactivate, register, suspend, wallet};

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_refuses_an_agent_as_soon_as_changes_announces_its_suspension() {
    // The index reads the chain each second while a stream is open.
    let stage = StageGuard::with(|options| options.ttl(1)).await;
    let id = register(&stage.chain, "guarded", "guarded", 0).await;
    // From here on `/changes` announces neither this registration nor anything before it.
    is_listed(&stage, id).await;
    let registry = stage.chain.contracts.registry.to_string();
    let text = ReverseProxyKind::Envoy.gate(ORIGIN, CHAIN_ID, stage.chain.node.url(), &registry).unwrap();
    let source = format!("[kya]\napi = \"{}\"\ncache-seconds = 600", stage.worker.url());
    let configured = text.replace("[kya]", &source);
    assert_ne!(configured, text);
    let gate = Gate::start(&configured).await.unwrap();
    let ask = async || -> RawAnswer {
        let request = Draft::get(ORIGIN, "/").sign(&seed::wallet("guarded"), CHAIN_ID);
        request.asked_by_envoy().send(gate.url()).await.unwrap()
    };
    let metric = async |name: &str| gate.metric(name).await.unwrap_or_default();
    wait_until("followed", PATIENCE, async || metric("kya_gate_following_changes").await == 1.0).await;
    wait_until("admitted", PATIENCE, async || ask().await.status == 200).await;
    let changes = "kya_gate_changes_total{kind=\"change\"}";
    let before = metric(changes).await;
    suspend(&stage.chain, id).await;
    wait_until("announced", PATIENCE, async || metric(changes).await > before).await;
    // The first request after the announcement is refused already.
    let answer = ask().await;
    assert!(answer.status == 403 && answer.body.contains("SUSPENDED"), "{answer:?}");
    reactivate(&stage.chain, id).await;
    wait_until("admitted again", PATIENCE, async || ask().await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_registry_has_the_apis_verdicts_and_finds_what_the_chain_says_otherwise() {
    let stage = StageGuard::with(|options| options.ttl(8)).await;
    has_snapshot(&stage.client).await;
    let (name, registry) = ("held locally", stage.chain.contracts.registry);
    let id = register(&stage.chain, name, "held", 0).await;
    let held = seed::wallet(name).address();
    // This instance can be killed.
    let mut worker: Worker = stage.another(|options| options).await.unwrap();
    has_snapshot(&worker.client()).await;
    let url = worker.url().to_owned();
    let manifest =
        http::client(PATIENCE).get(format!("{url}/api/v1/snapshot")).header(ACCEPT_ENCODING, "gzip");
    assert_eq!(manifest.send().await.unwrap().headers()[CONTENT_ENCODING], "gzip");

    let directory = TempDir::new().unwrap();
    let mut options = Options::new(&url, CHAIN_ID, registry, directory.path().join("registry.kya"));
    let rpc = stage.chain.node.url().to_owned();
    options.spot_checks = Some(SpotChecks { rpc, every: PATIENCE, layout: None });
    let local = LocalKya::open(options).unwrap();
    let is_held = |decision| local.kya(held).is_ok_and(|verdict| verdict.decision == decision);
    let update = async || match local.update().await {
        // On a busy machine the object was late: the next update succeeds.
        Err(Error::Refused { status: 503, .. }) => {}
        updated => {
            updated.unwrap();
        }
    };
    wait_until("the agent", PATIENCE, async || {
        update().await;
        is_held(Decision::Provision)
    })
    .await;
    for wallet in (1..=30).map(wallet).chain([held, Address::repeat_byte(1)]) {
        let verdict = serde_json::to_value(local.kya(wallet).unwrap()).unwrap();
        let verdict = without(verdict, &["asOf", "checkedAt"]);
        // Where the object is late, the API's verdict is the chain's, which may lack the past.
        wait_until("the API's verdict", PATIENCE, async || {
            let expected = worker.client().get(&format!("/api/v1/kya/{wallet}")).await.ok();
            without(expected, &["asOf", "checkedAt"]) == verdict
        })
        .await;
    }
    suspend(&stage.chain, id).await;
    wait_until("the suspension", PATIENCE, async || {
        update().await;
        is_held(Decision::RequestRenewal)
    })
    .await;

    for wallet in [held, wallet(7), Address::repeat_byte(1)] {
        let check = local.spot_check(wallet).await.unwrap();
        assert!(matches!(check, SpotCheck::Agrees(checked) if checked == wallet), "{check:?}");
    }

    // The API is away, and the chain is reorganised: the held verdict differs from the chain's.
    worker.process().kill();
    let block = local.kya(held).unwrap().as_of.block_number;
    assert_eq!(block, stage.chain.node.height().await.unwrap());
    stage.chain.node.reorganise(1).await.unwrap();
    let found = match local.spot_check(held).await.unwrap() {
        SpotCheck::Contradicts(found) => found,
        check => panic!("{check:?}"),
    };
    assert_eq!((found.held.decision, found.proved.decision), (Decision::RequestRenewal, Decision::Provision));
    let block_hash: B256 =
        stage.chain.node.block(block).await.unwrap()["hash"].as_str().unwrap().parse().unwrap();
    let expected = Expected { block_hash: Some(block_hash), wallet: Some(held), ..Expected::default() };
    assert_eq!(evidence::verify(&found.evidence, &expected).unwrap().verdict, found.proved);
}
