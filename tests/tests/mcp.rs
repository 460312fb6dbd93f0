//! The read API as an MCP server, at `/mcp` of the real Worker.
//!
//! 1. The official SDK's client calls each tool, of the revision without a handshake and of an earlier one,
//!    and gets what the API answers.
//! 2. An error of the API is the tool's, for a model to read; one of the protocol has its code and status.
//! 3. A call counts like the request that it stands for.

use e2e::client::Client;
use e2e::seed::{chain_of_one, kya, wallet};
use e2e::signers;
use e2e::stage::Stage;
use reqwest::Method;
use serde_json::{Value, json};

const REVISION: &str = "2026-07-28";
const TOOLS: [&str; 6] = ["verdict", "agent", "lineage", "search", "person", "changes"];

/// A request of this revision.
fn message(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// The client, with the headers of a message.
fn speaking(client: &Client, method: &str, name: &str) -> Client {
    client.with("mcp-protocol-version", REVISION).with("mcp-method", method).with("mcp-name", name)
}

async fn post(client: &Client, message: &Value) -> (u16, Value) {
    let answer = client.post("/mcp", "application/json", message.to_string()).await;
    (answer.status, answer.json())
}

/// Calls a tool; status and result.
async fn call(client: &Client, tool: &str, arguments: Value) -> (u16, Value) {
    let client = speaking(client, "tools/call", tool);
    let (status, body) =
        post(&client, &message("tools/call", json!({ "name": tool, "arguments": arguments }))).await;
    (status, body["result"].clone())
}

#[tokio::test]
async fn the_official_client_calls_each_tool_and_gets_what_the_api_answers() {
    let stage = Stage::indexed(chain_of_one().await.unwrap(), |options| options).await.unwrap();
    let verdict = stage.client.get(&kya("good")).await.ok();
    let (holder, person) = (verdict["wallet"].as_str().unwrap(), &verdict["agent"]["haftungsperson"]);
    let person = person.as_str().unwrap();
    let calls = [
        ("verdict", json!({ "wallet": holder }), kya("good")),
        ("agent", json!({ "id": 1 }), "/api/v1/agent/1".to_owned()),
        ("lineage", json!({ "id": "1" }), "/api/v1/agent/1/lineage".to_owned()),
        (
            "search",
            json!({ "status": "Active", "limit": 5 }),
            "/api/v1/agents?status=Active&limit=5".to_owned(),
        ),
        ("person", json!({ "wallet": person }), format!("/api/v1/liable/{person}")),
        ("changes", json!({ "limit": 3 }), "/api/v1/changes?limit=3".to_owned()),
    ];
    let url = format!("{}/mcp", stage.client.base());
    let asked: Vec<Value> = calls.iter().map(|(tool, arguments, _)| json!([tool, arguments])).collect();
    for revision in [REVISION, "legacy"] {
        let asked = Value::from(asked.clone()).to_string();
        let printed = signers::node("mcp-client.mjs", &[&url, revision, &asked]).await.unwrap();
        assert_eq!(printed["server"]["name"], "agent-registry", "{revision}");
        assert_eq!(printed["tools"], json!(TOOLS), "{revision}");
        for ((tool, _, path), result) in calls.iter().zip(printed["results"].as_array().unwrap()) {
            let api = stage.client.get(path).await.ok();
            assert_eq!(result["isError"], false, "{revision} {tool}: {result}");
            assert_eq!(result["structuredContent"], api, "{revision} {tool}");
            let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(text, api, "{revision} {tool}");
        }
    }
}

#[tokio::test]
async fn errors_of_the_api_are_the_tools_and_those_of_the_protocol_have_their_status() {
    let stage = Stage::over(chain_of_one().await.unwrap(), |options| options).await.unwrap();
    let client = &stage.client;
    for (tool, arguments, expected) in [
        ("verdict", json!({ "wallet": "0x12" }), "Invalid wallet"),
        ("agent", json!({ "id": 99 }), "AGENT_NOT_FOUND"),
        ("search", json!({ "q": "maps" }), "INDEX_REQUIRED"),
    ] {
        let (status, result) = call(client, tool, arguments).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(status == 200 && result["isError"] == true && text.contains(expected), "{tool}: {result}");
    }

    let list = message("tools/list", json!({}));
    let (status, body) = post(&speaking(client, "tools/call", ""), &list).await;
    assert_eq!((status, &body["error"]["code"]), (400, &json!(-32_020)));
    let (status, body) =
        post(&speaking(client, "prompts/list", ""), &message("prompts/list", json!({}))).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!(-32_601)));
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answer = client.post("/mcp", "application/json", notification.to_string()).await;
    assert_eq!((answer.status, answer.text.as_str()), (202, ""));

    for method in [Method::GET, Method::DELETE] {
        let answer = client.send(method, "/mcp").await;
        assert_eq!(answer.header("allow"), "POST, OPTIONS");
        assert!(answer.error(405).contains("JSON-RPC"), "{}", answer.text);
    }
    assert_eq!(client.send(Method::OPTIONS, "/mcp").await.header("allow"), "POST, OPTIONS");
    client.post("/mcp", "text/plain", list.to_string()).await.error(415);
    client.post("/mcp", "application/json", " ".repeat(16 * 1024 + 1)).await.error(413);
}

#[tokio::test]
async fn a_call_counts_like_the_request_that_it_stands_for() {
    let settings = |options: e2e::worker::WorkerOptions| options.var("RATE_LIMIT_PER_MINUTE", 6);
    let stage = Stage::over(chain_of_one().await.unwrap(), settings).await.unwrap();
    let client = stage.client.at([198, 51, 100, 7]);
    // The list of tools costs nothing, a lineage five requests, a verdict one.
    for _ in 0..10 {
        let (status, _) = post(&speaking(&client, "tools/list", ""), &message("tools/list", json!({}))).await;
        assert_eq!(status, 200);
    }
    assert_eq!(call(&client, "lineage", json!({ "id": 1 })).await.0, 200);
    let verdict = json!({ "wallet": wallet("good").address().to_string() });
    assert_eq!(call(&client, "verdict", verdict.clone()).await.0, 200);
    assert_eq!(call(&client, "verdict", verdict).await.0, 429);
    client.get(&kya("good")).await.error(429);
}
