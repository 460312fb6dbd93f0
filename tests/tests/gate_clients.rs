//! Requests that the field's own libraries sign, over HTTP through nginx and the gate.
//!
//! 1. npm `@slicekit/erc8128` and crate `erc8128` (the earlier draft), npm `http-message-signatures` with
//!    viem, PyPI `http-message-signatures` with eth-account, and eth-account alone (the draft of August 2026)
//!    are admitted.
//! 2. A request that npm `web-bot-auth` signed as well is admitted by its ERC-8128 signature, and never by
//!    the other one alone.
//! 3. What the gate asks of each route is at `/.well-known/erc8128`.
//! 4. Services by Hono, Express and Fastify admit what the npm package signs, once and unchanged, and refuse
//!    all else; so they do while the gate is away.

use std::time::Duration;

use alloy::hex;
use anyhow::Result;
use e2e::anvil::{AnvilOptions, CHAIN_ID};
use e2e::chain::Chain;
use e2e::gate::{Gate, Service};
use e2e::http;
use e2e::process::free_port;
use e2e::reverse_proxies::Kind;
use e2e::seed::{chain_of_one, wallet};
use e2e::signers;
use erc8128::SignOptions;
use erc8128::client::signed_fetch;
use erc8128::eoa::EoaSigner;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);

/// What became of one request.
#[derive(Debug, Deserialize)]
struct ClientOutcome {
    client: String,
    method: String,
    status: u16,
    body: String,
}

/// The earlier draft, by its crate: a GET with a query and a POST with content.
async fn erc8128_crate(origin: &str, key: &[u8]) -> Result<Vec<ClientOutcome>> {
    let (signer, client) = (EoaSigner::from_slice(key, CHAIN_ID)?, http::client(PATIENCE));
    let content = br#"{"amount":"100"}"#;
    let mut outcomes = Vec::new();
    for (method, target, content) in
        [(Method::GET, "/items?view=full", None), (Method::POST, "/orders", Some(content.as_slice()))]
    {
        let headers = content.map(|_| ("content-type", "application/json"));
        let (url, options) = (format!("{origin}{target}"), SignOptions::default());
        let headers = headers.as_slice();
        let answer = signed_fetch(&client, method.clone(), &url, headers, content, &signer, &options).await?;
        outcomes.push(ClientOutcome {
            client: "crate erc8128".to_owned(),
            method: method.to_string(),
            status: answer.status().as_u16(),
            body: answer.text().await?,
        });
    }
    Ok(outcomes)
}

#[tokio::test]
async fn what_the_fields_libraries_sign_is_admitted() -> Result<()> {
    let (chain, agent) = (chain_of_one().await?, wallet("good"));
    let port = free_port()?;
    let origin = format!("http://127.0.0.1:{port}");
    let registry = chain.contracts.registry.to_string();
    let gate = Gate::start(&Kind::Nginx.gate(&origin, CHAIN_ID, chain.node.url(), &registry)?).await?;
    let service = Service::start().await?;
    let (_nginx, url) = Kind::Nginx.start_on(port, gate.url(), service.url()).await?;
    assert_eq!(url, origin);

    let key = hex::encode_prefixed(agent.to_bytes());
    let arguments = [origin.as_str(), &CHAIN_ID.to_string(), &key];
    let mut outcomes = erc8128_crate(&origin, agent.to_bytes().as_slice()).await?;
    for printed in [
        signers::node("signed-requests.mjs", &arguments).await?,
        signers::python("signed_requests.py", &arguments).await?,
    ] {
        outcomes.extend(serde_json::from_value::<Vec<ClientOutcome>>(printed)?);
    }
    for outcome in &outcomes {
        let ClientOutcome { client, method, status, body } = outcome;
        println!("{client:<34} {method:<5} {status}");
        let expected = if client == "web-bot-auth alone" { 401 } else { 200 };
        assert_eq!(*status, expected, "{client}, {method}: {body}\n{}", gate.log());
        let words = if expected == 200 { "served" } else { "no_acceptable_signature" };
        assert!(body.contains(words), "{client}, {method}: {body}");
    }
    assert_eq!(outcomes.len(), 13);
    let reached = service.take();
    assert_eq!(reached.len(), 11, "a refused request reaches no service");
    let admitted = [agent.address().to_checksum(None)];
    assert!(reached.iter().all(|request| request.header("kya-wallet") == admitted));
    Ok(())
}

#[tokio::test]
async fn what_each_route_asks_for_can_be_read_before_signing() -> Result<()> {
    let chain = Chain::start(AnvilOptions::default()).await?;
    let registry = chain.contracts.registry.to_string();
    let configuration = Kind::Nginx.gate("http://api.example", CHAIN_ID, chain.node.url(), &registry)?;
    let routes = "routes = [\"/orders\", \"/items/*\"]\ncomponents = [\"x-tenant\"]\n";
    let gate = Gate::start(&(configuration + routes)).await?;
    let service = Service::start().await?;
    let (_nginx, url) = Kind::Nginx.start(gate.url(), service.url()).await?;
    let answer = http::client(PATIENCE).get(format!("{url}/.well-known/erc8128")).send().await?;
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["content-type"].to_str()?),
        (200, "application/json")
    );
    let document: Value = answer.json().await?;
    assert_eq!(document["chains"], json!([format!("eip155:{CHAIN_ID}")]));
    for route in ["/orders", "/items/*"] {
        let policy = &document["route_policies"][route];
        assert_eq!(policy["required_components"], json!(["x-tenant"]), "{document}");
        assert_eq!((&policy["replay"], &policy["max_validity_sec"]), (&json!("non-replayable"), &json!(60)));
    }
    assert!(service.take().is_empty(), "the gate answers");
    Ok(())
}

#[tokio::test]
async fn services_in_javascript_admit_what_the_package_signs_once_and_unchanged() -> Result<()> {
    let (chain, agent) = (chain_of_one().await?, wallet("good"));
    let (origin, registry) = ("http://api.example", chain.contracts.registry.to_string());
    let configuration = Kind::Nginx.gate(origin, CHAIN_ID, chain.node.url(), &registry)?;
    let passed = configuration.replace("content-header = \"X-Original-Content\"", "content-passed = true");
    assert_ne!(passed, configuration);
    let gate = Gate::start(&passed).await?;
    let (key, wallet) = (hex::encode_prefixed(agent.to_bytes()), agent.address().to_string());
    let arguments = [gate.url(), origin, &CHAIN_ID.to_string(), &key];
    let printed = signers::node("gate-frameworks.mjs", &arguments).await?;

    for framework in ["hono", "express", "fastify"] {
        let outcomes = &printed[framework];
        let status = |name: &str| outcomes[name]["status"].as_u64();
        let seen = |name: &str| -> Value {
            serde_json::from_str(outcomes[name]["body"].as_str().unwrap()).unwrap_or_default()
        };
        for (name, content) in [("get", ""), ("post", r#"{"amount":"100"}"#)] {
            assert_eq!(status(name), Some(200), "{framework} {name}: {}", outcomes[name]);
            let seen = seen(name);
            assert_eq!(
                (&seen["wallet"], &seen["body"]),
                (&json!(wallet), &json!(content)),
                "{framework} {name}"
            );
            assert_eq!(seen["agent"]["wallet"], json!(wallet));
            assert_eq!(
                (&seen["agent"]["decision"], &seen["agent"]["agentId"]),
                (&json!("provision"), &json!("1"))
            );
        }
        for (name, reason) in [
            ("replayed", "nonce_reused"),
            ("changed", "bad_content_digest"),
            ("unsigned", "signature_missing"),
            ("traversal", "signature_missing"),
        ] {
            assert_eq!(status(name), Some(401), "{framework} {name}: {}", outcomes[name]);
            assert_eq!(seen(name)["reason"], reason, "{framework} {name}");
            let challenge = outcomes[name]["headers"]["www-authenticate"].as_str().unwrap_or_default();
            assert!(challenge.contains("ERC8128"), "{framework} {name}: {}", outcomes[name]);
        }
        assert_eq!(status("long"), Some(413), "{framework}: {}", outcomes["long"]);
    }
    let refused = json!({ "admitted": false, "status": 503 });
    assert_eq!(printed["away"], json!([refused, refused]));
    Ok(())
}
