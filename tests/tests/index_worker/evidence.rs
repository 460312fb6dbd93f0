//! Evidence of verdicts, made by the real Worker of what a real node proves, and verified without either.

use alloy::primitives::U256;
use e2e::anvil::CHAIN_ID;
use e2e::client::assert_has;
use e2e::process::wait_until;
use e2e::proxy::Proxy;
use e2e::seed::{kya, wallet};
use registry_core::eth::abi::IAgentRegistry::revokeAgentCall;
use registry_core::evidence::{self, Expected};
use serde_json::json;

use crate::{Turn, WAIT, register, suspend};

/// Every kind of verdict is proved in two round trips, at a block with the node's own hash, and is the verdict
/// without evidence.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_verdict_is_proved_in_two_round_trips() {
    let stage = Turn::with(|options| options.ttl(0)).await;
    let (chain, registry) = (&stage.chain, stage.chain.contracts.registry);
    let mut parent = 0;
    for (name, scope) in [
        ("proved: suspended", "a parent"),
        ("proved: a child", "A scope of 20 slots. ".repeat(30).as_str()),
        ("proved: silent", ""),
        ("proved: revoked", "for a while"),
    ] {
        let id = register(chain, name, scope, parent).await;
        parent = id;
    }
    suspend(chain, parent - 3).await;
    let call = revokeAgentCall { agentId: U256::from(parent), reason: "for a test".into() };
    chain.send(chain.owner(), call).await.unwrap();

    // The index's Worker asks the chain past this proxy.
    let rpc = Proxy::start(chain.node.url()).await.unwrap();
    let worker = stage.another(|options| options.var("RPC_URL", rpc.url())).await.unwrap().unwrap();
    let client = worker.client();
    wait_until("ready", WAIT, async || client.get("/readyz").await.status == 200).await;
    for (name, decision) in [
        ("proved: suspended", "request_renewal"),
        ("proved: a child", "provision"), // no proof is about its ancestor
        ("proved: silent", "provision"),
        ("proved: revoked", "deny"),
        ("proved: never registered", "deny"),
    ] {
        let verdict = client.get(&kya(name)).await.ok();
        rpc.reset();
        let answer = client.get(&format!("{}?evidence=1", kya(name))).await;
        let document = answer.ok();
        let methods: Vec<Vec<String>> = rpc.reset().into_iter().map(|post| post.methods).collect();
        let proof = ["eth_getBlockByHash", "eth_getProof", "eth_getCode", "eth_chainId"];
        assert_eq!((methods.len(), &methods[1][..]), (2, &proof.map(str::to_owned)[..]), "{name}");
        let number = document["verdict"]["asOf"]["blockNumber"].as_u64().unwrap();
        let block = chain.node.block(number).await.unwrap();
        let expected = Expected {
            block_hash: Some(block["hash"].as_str().unwrap().parse().unwrap()),
            chain_id: Some(CHAIN_ID),
            registry: Some(registry),
            wallet: Some(wallet(name).address()),
            layout: None,
        };
        let verified =
            evidence::verify(&answer.text, &expected).unwrap_or_else(|error| panic!("{name}: {error}"));
        let proved = &document["verdict"];
        assert_eq!(serde_json::to_value(&verified.verdict).unwrap(), *proved, "{name}");
        let unproved =
            json!({ "decision": decision, "formerAgents": "unknown", "unknownBecause": "NOT_PROVED" });
        assert_has(proved, unproved, name);
        for field in ["wallet", "isRegistered", "isCompliant", "agent", "decision", "compliantUntil"] {
            assert_eq!(proved[field], verdict[field], "{name}: {field}");
        }
    }
}
