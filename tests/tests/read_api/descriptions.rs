//! The services behave as their descriptions say.
//!
//! 1. The read API and the relayer, tested with requests generated from their descriptions: every check,
//!    every phase, no finding.
//! 2. The links of the catalog and the introduction are not broken.
//! 3. Other projects' clients of MCP, of three generations and two languages, call each tool and get the
//!    API's answer. An error of the API is the tool's; one of the protocol, or of the transport, has its code
//!    and status.
//! 4. A call, also in a batch, counts like the request that it stands for.
//! 5. A status that depends on the node or on `Accept` is described.
//! 6. Generated clients call every operation of the read API and read its answers; the linter finds nothing.

use std::time::Duration;

use e2e::anvil::{AnvilOptions, CHAIN_ID, dev_key};
use e2e::chain::Chain;
use e2e::client::{Client, without};
use e2e::daemon::RelayerDaemon;
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::eventually;
use e2e::proxy::Proxy;
use e2e::relay::RequestFactory;
use e2e::seed::{Showcase, kya, showcase_chain, wallet};
use e2e::stage::WorkerStage;
use e2e::verdict_tokens::{key_set, new_key};
use e2e::worker::{Worker, WorkerOptions};
use e2e::{python, repo, signers};
use registry_core::snapshot::Manifest;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::{JSON, ReadApiFixture, cost, counted, scene};

/// Adds the settings that the description covers: signed verdicts, and streams that end soon.
pub(super) async fn described(options: WorkerOptions) -> WorkerOptions {
    let keys = key_set(&[&new_key().await.unwrap()]);
    let signing = counted(options).var("VERDICT_KEYS", keys).var("VERDICT_ISSUER", "https://kya.example");
    signing.var("KYA_TTL_SECONDS", 2).var("CHANGES_STREAM_SECONDS", 5)
}

/// Returns the showcase with an index and these settings.
async fn indexed() -> &'static (WorkerStage, Showcase) {
    static STAGE: OnceCell<(WorkerStage, Showcase)> = OnceCell::const_new();
    let start = async || {
        let settings = described(WorkerOptions::default()).await;
        let (chain, showcase) = showcase_chain().await.unwrap();
        let all = |options: WorkerOptions| {
            // The index has a third of the deadline, which has to suffice on a busy machine.
            let options = options.var("RPC_DEADLINE_SECONDS", 60);
            settings.vars.iter().fold(options, |options, (name, value)| options.var(name, value))
        };
        (WorkerStage::indexed(chain, all).await.unwrap(), showcase)
    };
    STAGE.get_or_init(start).await
}

/// Tests every operation of the description at `url` with all checks of schemathesis. `known` has values by
/// format that requests need and no description can give.
async fn try_out(service: &str, url: &str, known: Value) {
    let settings = repo::root().join("tests/openapi");
    let scratch = TempDir::new().unwrap();
    let mut command = Command::new(python::programs("openapi").await.unwrap().join("schemathesis"));
    command.arg("--config-file").arg(settings.join("schemathesis.toml")).current_dir(scratch.path());
    command.args(["--no-color", "run", &format!("{url}/openapi.json")]);
    command.env("SCHEMATHESIS_HOOKS", settings.join("hooks.py")).env("SCHEMATHESIS_KNOWN", known.to_string());
    command.envs(repo::NO_PROXY);
    let run = command.kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    let cases = said.lines().find(|line| line.contains(" generated, ")).expect("a number of cases").trim();
    println!("{service}: {cases}");
    assert!(cases.split(' ').next().unwrap().parse::<u32>().unwrap() > 400, "{said}");
    for phase in ["Examples", "Coverage", "Fuzzing", "Stateful"] {
        assert!(said.contains(&format!("✅ {phase}")), "{phase} was left out: {said}");
    }
}

/// Tests the description of a read API of the showcase with an index.
pub(super) async fn try_out_read_api(url: &str, client: &Client) {
    let manifest = eventually("the snapshot", Duration::from_secs(120), async || {
        let answer = e2e::http::client(Duration::from_secs(60)).get(format!("{url}/api/v1/snapshot")).send();
        Manifest::parse(&answer.await.ok()?.bytes().await.ok()?).ok()
    });
    let shard = manifest.await.unwrap().shards()[0];
    let addresses = ["kyoto", "gone", "forgetful"].map(|agent| wallet(agent).address().to_string());
    let cursor = client.get("/api/v1/changes?since=now").await.ok()["next"].take();
    let known = json!({
        "ethereum-address": addresses, "change-cursor": [cursor],
        "shard": [shard.range_text(), shard.version_text()], "signed": [],
    });
    try_out("read API", url, known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_read_api_does_what_its_description_says() {
    let (stage, _) = indexed().await;
    try_out_read_api(stage.worker.url(), &stage.client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_relayer_does_what_its_description_says() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    let daemon = RelayerDaemon::start(&chain.daemon(&dev_key(9))).await.unwrap();
    let desk = RequestFactory::of(&chain);
    let answer = daemon.client().relay(&desk.registration(&wallet("first"), 0)).await;
    let signed = (1..=5).map(|number| desk.registration(&wallet(&format!("agent {number}")), 0).body());
    let known = json!({
        "ethereum-address": [wallet("first").address().to_string()], "relay-id": [answer.ok()["id"]],
        "signed": signed.collect::<Vec<_>>(), "change-cursor": [], "shard": null,
    });
    try_out("relayer", daemon.url(), known).await;
    assert_eq!(chain.executions().await.unwrap().len(), 6, "every signed request was carried out");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_catalog_and_the_introduction_link_to_is_there_to_be_read() {
    let (stage, _) = indexed().await;
    let get = async |url: &str| {
        let path = url.strip_prefix(stage.worker.url()).unwrap_or_else(|| panic!("{url} is elsewhere"));
        let answer = stage.client.get(path).await;
        assert_eq!(answer.status, 200, "{url}: {}", answer.text);
        answer
    };
    let catalog = stage.client.get("/.well-known/api-catalog").await;
    assert!(catalog.header("link").contains("rel=\"api-catalog\""), "{}", catalog.header("link"));
    for relation in ["service-desc", "service-doc", "status"] {
        let link = &catalog.ok()["linkset"][0][relation][0];
        let target = get(link["href"].as_str().unwrap()).await;
        assert!(target.header("content-type").starts_with(link["type"].as_str().unwrap()), "{link}");
    }
    let registry = stage.client.get("/.well-known/agent-registry").await.ok();
    let expected = stage.chain.contracts.registry.to_checksum(None);
    assert_eq!((registry["chainId"].as_u64(), &registry["registry"]), (Some(CHAIN_ID), &json!(expected)));
    assert_eq!(registry["readApis"], json!(["https://kya.example"]), "its verdicts' issuer: {registry}");
    let catalog = stage.client.get("/.well-known/ai-catalog.json").await.ok();
    assert_eq!(catalog["entries"][0]["identifier"], "urn:air:127.0.0.1:mcp:agent-registry");
    let card = get(catalog["entries"][0]["url"].as_str().unwrap()).await.ok();
    assert_eq!(card["remotes"][0]["url"], format!("{}/mcp", stage.worker.url()), "{card}");
    let discovered = message(&stage.client, "server/discover", json!({})).await.ok();
    let server = &discovered["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(card["version"], server["version"], "{discovered}");
    assert_eq!(card["remotes"][0]["supportedProtocolVersions"], discovered["result"]["supportedVersions"]);
    let introduction = stage.client.get("/llms.txt").await.text;
    let urls: Vec<&str> = introduction.split_whitespace().filter(|word| word.starts_with("http")).collect();
    assert!(urls.len() > 10, "{introduction}");
    for url in urls {
        get(url).await;
    }
}

/// Revision of MCP without a handshake.
const REVISION: &str = "2026-07-28";

/// Removes the fields of a document that change with the clock.
fn timeless(document: Value) -> Value {
    without(document, &["asOf", "checkedAt", "secondsSinceAttestation"])
}

/// Repeats `ask` while the answer says that the index did not answer in time, as under load.
async fn of_index(ask: impl AsyncFn() -> Value) -> Value {
    let answered =
        async || Some(ask().await).filter(|answer| !answer.to_string().contains("INDEX_UNAVAILABLE"));
    eventually("an answer of the index", Duration::from_secs(60), answered).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_of_mcp_calls_each_tool_and_gets_what_the_api_answers() {
    let (stage, showcase) = indexed().await;
    let (id, holder) = (showcase.id("kyoto"), wallet("kyoto").address().to_string());
    let agent = stage.client.get(&showcase.path("kyoto")).await.ok();
    let person = agent["agent"]["haftungsperson"].as_str().unwrap();
    let calls = [
        ("verdict", json!({ "wallet": holder }), kya("kyoto")),
        ("agent", json!({ "id": id }), showcase.path("kyoto")),
        ("lineage", json!({ "id": id.to_string() }), showcase.lineage("kyoto")),
        ("search", json!({ "status": "Active" }), "/api/v1/agents?status=Active".to_owned()),
        ("person", json!({ "wallet": person }), format!("/api/v1/liable/{person}")),
        ("changes", json!({ "limit": 3 }), "/api/v1/changes?limit=3".to_owned()),
    ];
    let url = format!("{}/mcp", stage.worker.url());
    let asked: Vec<Value> = calls.iter().map(|(tool, arguments, _)| json!([tool, arguments])).collect();
    for (script, revision) in [
        ("mcp.mjs", REVISION),
        ("mcp.mjs", "legacy"),
        ("mcp.mjs", "@modelcontextprotocol/sdk"),
        ("mcp.mjs", "mcp-sdk-2024"),
        ("mcp.mjs", "inspector"),
        ("mcp_clients.py", "mcp"),
        ("mcp_clients.py", "fastmcp"),
    ] {
        let arguments = [&url, revision, &json!(asked).to_string()];
        let printed = of_index(async || signers::client(script, &arguments).await.unwrap()).await;
        assert_eq!(printed["server"]["name"], "agent-registry", "{revision}");
        assert_eq!(printed["tools"], json!(calls.each_ref().map(|(tool, ..)| tool)), "{revision}");
        for ((tool, _, path), result) in calls.iter().zip(printed["results"].as_array().unwrap()) {
            let api = timeless(of_index(async || stage.client.get(path).await.ok()).await);
            assert_eq!(result["isError"], false, "{revision} {tool}: {result}");
            assert_eq!(timeless(result["structuredContent"].clone()), api, "{revision} {tool}");
            let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(timeless(text), api, "{revision} {tool}");
        }
    }
}

/// Sends a message of MCP with its headers.
async fn message(client: &Client, method: &str, mut params: Value) -> e2e::client::HttpAnswer {
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let client = client.with("mcp-protocol-version", REVISION).with("mcp-method", method);
    client.with("mcp-name", &name).post("/mcp", JSON, message.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_api_are_the_tools_and_a_call_counts_like_its_request() {
    let client = &indexed().await.0.client;
    for (tool, arguments, expected, charged) in [
        ("verdict", json!({ "wallet": "0x12" }), "Invalid wallet", None),
        ("agent", json!({ "id": 4000 }), "AGENT_NOT_FOUND", Some(1)),
        ("lineage", json!({ "id": 1 }), "children", Some(5)),
    ] {
        let arguments = json!({ "name": tool, "arguments": arguments });
        let answer = message(client, "tools/call", arguments.clone()).await;
        let result = &answer.ok()["result"];
        assert!(result["content"][0]["text"].as_str().unwrap().contains(expected), "{tool}: {result}");
        assert_eq!(result["isError"], tool != "lineage", "{tool}: {result}");
        match charged {
            None => assert_eq!(answer.header("x-ratelimit-remaining"), "", "{tool}"),
            Some(charged) => {
                let call = async |client| message(&client, "tools/call", arguments).await;
                assert_eq!(cost(client, call).await, charged, "{tool}");
            }
        }
    }
    let get = client.send(Method::GET, "/mcp").await;
    let message = get.json()["error"]["message"].to_string();
    assert!(get.status == 405 && message.contains("JSON-RPC"), "{get:?}");
    assert_eq!(get.header("allow"), "POST, OPTIONS");
    // Transport errors have the API's status and an error of JSON-RPC.
    let large = " ".repeat(16 * 1024 + 1);
    for (media_type, body, status) in [("text/plain", "{}", 415), (JSON, &large, 413)] {
        let refused = client.post("/mcp", media_type, body.to_owned()).await;
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["code"]), (status, &json!(-32_000)), "{}", refused.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_answered_in_one_list_and_each_call_counts() {
    let client = &indexed().await.0.client;
    let call = |id, name: &str, arguments: Value| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "arguments": arguments } });
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        call(2, "agent", json!({ "id": 1 })),
        call(3, "verdict", json!({ "wallet": "0x12" })),
        call(4, "lineage", json!({ "id": 1 })),
    ]);
    let send = async |client: Client| client.post("/mcp", JSON, batch.to_string()).await;
    let answer = send(client.with("mcp-protocol-version", "2025-03-26")).await;
    let told = answer.ok().as_array().unwrap().clone();
    let results: Vec<_> =
        told.iter().map(|reply| (reply["id"].as_u64().unwrap(), &reply["result"]["isError"])).collect();
    let expected = [(1, &Value::Null), (2, &json!(false)), (3, &json!(true)), (4, &json!(false))];
    assert_eq!(results, expected, "{told:?}");
    assert_eq!(cost(client, send).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_depends_on_the_node_or_on_accept_is_described() {
    let (_turn, ReadApiFixture { stage, .. }) = scene().await;
    let proxy = Proxy::start(stage.chain.node.url()).await.unwrap();
    let missing = NodeFault::error(-32601, "the method eth_getProof does not exist");
    proxy.inject(FaultRule::on("eth_getProof", missing));
    // The Worker has no keys, so that it gives no token.
    let options = counted(WorkerOptions::new(proxy.url(), stage.chain.contracts.registry));
    let worker = Worker::start(options).await.unwrap();
    let (client, holder) = (worker.client(), wallet("kyoto").address());
    let description = client.get("/openapi.json").await.ok();
    let (evidence, token) = (format!("/api/v1/evidence/{holder}"), client.with("accept", "application/jwt"));
    let list = json!({ "wallets": [holder] }).to_string();
    for (method, path, status, answer) in [
        ("get", "/api/v1/evidence/{wallet}", 501, client.get(&evidence).await),
        ("get", "/api/v1/kya/{wallet}", 501, client.get(&format!("{}?evidence=1", kya("kyoto"))).await),
        ("get", "/api/v1/evidence/{wallet}", 406, token.get(&evidence).await),
        ("get", "/api/v1/kya/{wallet}", 406, token.get(&kya("kyoto")).await),
        ("post", "/api/v1/kya", 406, token.post("/api/v1/kya", JSON, list).await),
    ] {
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        let described = &description["paths"][path][method]["responses"][status.to_string()];
        assert!(described.is_object(), "{method} {path} has no {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_clients_call_every_operation_and_read_its_answers() {
    let (stage, showcase) = indexed().await;
    let description = repo::root().join("edge-api/src/pages/openapi.json");
    let cursor = stage.client.get("/api/v1/changes?since=now").await.ok()["next"].take();
    let setting = json!({
        "url": stage.worker.url(), "description": description, "wallet": wallet("kyoto").address().to_string(),
        "id": showcase.id("kyoto"), "terminated": showcase.id("gone"), "cursor": cursor,
    });
    for script in ["generated.mjs", "generated.py"] {
        let called = signers::client(script, &[&setting.to_string()]).await.unwrap();
        println!("{script}: {called}");
        assert_eq!((&called["problems"], &called["decision"]), (&json!([]), &json!("provision")), "{called}");
        assert_eq!(called["status"], "Terminated", "{called}");
    }
}
