//! Requests that the field's own libraries sign, over HTTP through nginx and the gate.
//!
//! 1. npm `@slicekit/erc8128` (the earlier draft), npm `http-message-signatures` with viem and PyPI
//!    `http-message-signatures` with eth-account (the draft of August 2026) are admitted.
//! 2. A request that npm `web-bot-auth` signed as well is admitted by its ERC-8128 signature, and never by the other
//!    one alone.

use alloy::hex;
use anyhow::Result;
use e2e::anvil::AnvilOptions;
use e2e::chain::Chain;
use e2e::gate::{Gate, Service};
use e2e::process::free_port;
use e2e::reverse_proxies::Kind;
use e2e::seed::{registration_call, wallet};
use e2e::signers;
use serde::Deserialize;

/// A local chain's id.
const CHAIN: u64 = 31_337;

/// What became of one request.
#[derive(Debug, Deserialize)]
struct ClientOutcome {
    client: String,
    method: String,
    status: u16,
    body: String,
}

#[tokio::test]
async fn what_the_fields_libraries_sign_is_admitted() -> Result<()> {
    let chain = Chain::start(AnvilOptions::default()).await?;
    let agent = wallet("good");
    chain.send(chain.owner(), registration_call(1, agent.address(), "guarded", 0)).await?;
    let port = free_port()?;
    let origin = format!("http://127.0.0.1:{port}");
    let registry = chain.contracts.registry.to_string();
    let gate = Gate::start(&Kind::Nginx.gate(&origin, CHAIN, chain.node.url(), &registry)?).await?;
    let service = Service::start().await?;
    let (_nginx, url) = Kind::Nginx.start_on(port, gate.url(), service.url()).await?;
    assert_eq!(url, origin);

    let key = hex::encode_prefixed(agent.to_bytes());
    let arguments = [origin.as_str(), &CHAIN.to_string(), &key];
    let mut outcomes: Vec<ClientOutcome> = Vec::new();
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
    assert_eq!(outcomes.len(), 10);
    let reached = service.take();
    assert_eq!(reached.len(), 8, "a refused request reaches no service");
    let admitted = [agent.address().to_checksum(None)];
    assert!(reached.iter().all(|request| request.header("kya-wallet") == admitted));
    Ok(())
}
