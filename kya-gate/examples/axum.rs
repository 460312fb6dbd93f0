//! A service that is for agents only, with the gate in its own process.
//!
//! `cargo run -p kya-gate --example axum -- gate.toml 127.0.0.1:8080`, where the file has `origin`,
//! `[chain]`, `[kya]` and `[policy.api]`, and neither `listen` nor `[proxy]`.

use anyhow::{Context as _, Result};
use axum::{
    Extension, Router,
    http::HeaderMap,
    routing::{get, post},
};
use kya_gate::{
    layer::{EmbeddedGate, Subject},
    settings::Settings,
};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().context("usage: axum GATE.TOML ADDRESS")?;
    let address = arguments.next().context("usage: axum GATE.TOML ADDRESS")?;
    let gate = EmbeddedGate::start(Settings::read_embedded(file.as_ref())?).await?;

    let guarded =
        Router::new().route("/items", get(items)).route("/orders", post(order)).layer(gate.layer("api")?);
    // Routes that are added behind the layer are open to all.
    let app = guarded.route("/livez", get(|| async { "ok" }));

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// Finds the wallet that signed, with its verdict, in the extensions; the gate's headers are there too. A
/// policy that only observes also passes on requests that no agent signed.
async fn items(agent: Option<Extension<Subject>>, headers: HeaderMap) -> String {
    let Some(Extension(agent)) = agent else { return "public items".to_owned() };
    let liable = headers.get("kya-liable").and_then(|value| value.to_str().ok()).unwrap_or_default();
    format!("items for {}, for which {liable} is liable", agent.wallet)
}

/// Gets the content that the agent signed: the gate has compared it with its digest.
async fn order(agent: Option<Extension<Subject>>, content: String) -> String {
    let agent = agent.map_or_else(|| "an unknown client".to_owned(), |agent| agent.wallet.to_string());
    format!("{agent} orders {content}")
}
