//! Services on axum, among them the guarded one of `cargo xtask dev`: a router behind the gate's layer.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use axum::{
    Extension, Router,
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use kya_gate::layer::{EmbeddedGate, Subject};
use kya_gate::settings::Settings;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::chain::Chain;

#[derive(Debug)]
pub struct GuardedService {
    url: String,
    _server: JoinSet<()>,
}

impl GuardedService {
    /// Starts the service on a local port, 0 for any free one, for the agents of a local chain.
    pub async fn start(port: u16, chain: &Chain) -> Result<Self> {
        Self::configured(port, chain, "").await
    }

    /// Starts the service with a discovery document that names this relayer and read API.
    pub async fn telling(port: u16, chain: &Chain, relayer: &str, api: &str) -> Result<Self> {
        let forwarder = chain.contracts.forwarder;
        let listed = format!(r#"forwarder = "{forwarder}", relayers = ["{relayer}"], read-apis = ["{api}"]"#);
        Self::configured(port, chain, &format!("discovery = {{ {listed} }}")).await
    }

    async fn configured(port: u16, chain: &Chain, more: &str) -> Result<Self> {
        let (listener, url) = listen(port).await?;
        // A local chain makes blocks on demand, and its agents change within seconds.
        let settings = format!(
            r#"
            origin = "{url}"
            chain = {{ id = 31337, rpc = ["{rpc}"], max-head-age-seconds = 0 }}
            kya = {{ registry = "{registry}", cache-seconds = 2 }}
            policy.dev = {{ allow = ["provision"], routes = ["default"] }}
            {more}
            "#,
            rpc = chain.node.url(),
            registry = chain.contracts.registry,
        );
        let gate = EmbeddedGate::start(Settings::parse_embedded(&settings, None)?).await?;
        let guarded = Router::new()
            .route("/items", get(async |agent: Extension<Subject>| served(&agent, "your items")))
            .route("/orders", post(async |agent: Extension<Subject>, order: String| served(&agent, &order)))
            .layer(gate.layer("dev")?);
        let (document, registry) = (gate.discovery_document(), gate.registry_document());
        let json = |document: String| get(async || ([(CONTENT_TYPE, "application/json")], document));
        let app = guarded.route("/.well-known/erc8128", json(document));
        let app = app.route("/.well-known/agent-registry", json(registry));
        // The explorer's pages may send requests.
        let app = app.layer(from_fn(open_to_pages));
        Ok(Self { url, _server: serve(listener, app) })
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Binds a local port, 0 for any free one; returns the listener and its URL.
pub(crate) async fn listen(port: u16) -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener = listener.with_context(|| format!("port {port}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok((listener, url))
}

/// Serves a router until the task is dropped.
pub(crate) fn serve(listener: TcpListener, app: Router) -> JoinSet<()> {
    let mut server = JoinSet::new();
    server.spawn(async { axum::serve(listener, app).await.unwrap_or_default() });
    server
}

fn served(Extension(agent): &Extension<Subject>, what: &str) -> String {
    let liable = agent.verdict.agent.as_ref().map(|agent| agent.liable.to_string()).unwrap_or_default();
    format!("served {}, for which {liable} is liable: {what}\n", agent.wallet)
}

/// Allows requests from pages of any site (CORS), signatures included. A preflight is not signed and bypasses
/// the gate.
async fn open_to_pages(request: Request, next: Next) -> Response {
    let mut answer = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    for name in
        ["access-control-allow-origin", "access-control-allow-headers", "access-control-expose-headers"]
    {
        answer.headers_mut().insert(name, HeaderValue::from_static("*"));
    }
    answer
}
