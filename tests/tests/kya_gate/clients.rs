//! Requests signed by the field's own libraries, over HTTP through nginx and the gate.
//!
//! Requests by npm `@slicekit/erc8128` and crate `erc8128` (the earlier draft), npm `http-message-signatures`
//! with viem, PyPI `http-message-signatures` with eth-account, eth-account alone, and this project's Python
//! package (the draft of August 2026) are admitted. A second signature by npm `web-bot-auth` does no harm,
//! and alone it does not suffice. The gate's demands on each route are at `/.well-known/erc8128`. Requests
//! that the JavaScript package signs are in `gate_in_process`.

use alloy::hex;
use anyhow::Result;
use e2e::anvil::CHAIN_ID;
use e2e::gate::{Gate, ORIGIN, RecordingService};
use e2e::process::free_port;
use e2e::reverse_proxies::ReverseProxyKind;
use e2e::{http, signers};
use erc8128::SignOptions;
use erc8128::client::signed_fetch;
use erc8128::eoa::EoaSigner;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{PATIENCE, configuration, good};

/// Outcome of one request.
#[derive(Debug, Deserialize)]
struct ClientOutcome {
    client: String,
    method: String,
    status: u16,
    body: String,
}

/// Sends a GET with a query and a POST with content by the crate of the earlier draft.
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
    let port = free_port()?;
    let origin = format!("http://127.0.0.1:{port}");
    let text = configuration(ReverseProxyKind::Nginx).await.replace(ORIGIN, &origin);
    let gate = Gate::start(&(text + "routes = [\"/orders\", \"/items/*\"]\n")).await?;
    let service = RecordingService::start().await?;
    let front = ReverseProxyKind::Nginx.start_on(port, gate.url(), service.url()).await?;
    assert_eq!(front.url, origin);

    let agent = good();
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
        let (expected, words) = match client.as_str() {
            "web-bot-auth alone" => (401, "no_acceptable_signature"),
            _ => (200, "served"),
        };
        assert_eq!(*status, expected, "{client}, {method}: {body}\n{}", gate.log());
        assert!(body.contains(words), "{client}, {method}: {body}");
    }
    assert_eq!(outcomes.len(), 17);
    let reached = service.take();
    assert_eq!(reached.len(), 15, "a refused request reaches no service");
    let admitted = [agent.address().to_checksum(None)];
    assert!(reached.iter().all(|request| request.values("kya-wallet") == admitted));

    let answer = http::client(PATIENCE).get(format!("{origin}/.well-known/erc8128")).send().await?;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let document: Value = answer.json().await?;
    assert_eq!(document["chains"], json!([format!("eip155:{CHAIN_ID}")]));
    for route in ["/orders", "/items/*"] {
        assert_eq!(document["route_policies"][route]["replay"], "non-replayable", "{document}");
    }
    assert!(service.take().is_empty(), "the gate answers");
    Ok(())
}
