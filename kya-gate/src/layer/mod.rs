//! The gate inside a service, as a `tower` layer: no reverse proxy, no daemon.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use kya_gate::{layer::EmbeddedGate, settings::Settings};
//!
//! let gate = EmbeddedGate::start(Settings::read_embedded("gate.toml".as_ref())?).await?;
//! let guarded = gate.layer("api")?; // `Router::layer(guarded)` in axum
//! # Ok(())
//! # }
//! ```
//!
//! An admitted request reaches the service with its [`Outcome`] and the [`Subject`] that signed it in its
//! extensions, and with the gate's headers in place of the client's own. Any other request gets the daemon's
//! answer: status, challenge, headers and problem document.
//!
//! The content is read, up to a limit, and compared with its digest before the service sees any of it. It is
//! not read where the request is refused anyway, nor by a policy that only observes where it is long or of
//! unknown length. Apply the layer to the outermost router: nested ones see a shorter path than the one that
//! was signed.

mod service;

use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::watch;
use tower_layer::Layer;

use crate::{
    check::Sources,
    domains,
    gate::Gate,
    http, kya, serve,
    settings::{RoutePolicy, Settings},
    signer,
};
pub use registry_core::gate::{Outcome, Subject};
pub use service::GateService;

/// The longest content that is read, unless [`GateLayer::longest_content`] sets another limit: 1 MiB.
const LONGEST_CONTENT: usize = 1 << 20;

/// A gate in this process. All its layers share the facts about accounts and the spent nonces.
#[derive(Debug, Clone)]
pub struct EmbeddedGate {
    shared: Arc<EmbeddedState>,
}

#[derive(Debug)]
struct EmbeddedState {
    gate: Gate,
    settings: Settings,
    /// Its drop ends the tasks that follow changes of verdicts, domains' files and keys.
    _running: watch::Sender<bool>,
}

impl EmbeddedGate {
    /// Starts a gate. Installs rustls' `ring` provider, unless the process has a default one already.
    ///
    /// # Errors
    /// Fails if no HTTP client can be built, if Redis is configured and does not answer or forgets keys, or
    /// if the keys cannot be read.
    pub async fn start(settings: Settings) -> anyhow::Result<Self> {
        // An error means that there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let sources = Sources::new(&settings)?;
        sources.domains.refresh(http::now()).await;
        let gate = serve::gate(&settings, sources).await?;
        let (running, stopping) = watch::channel(false);
        if settings.kya.follows_changes() {
            tokio::spawn(kya::follow(Arc::clone(&gate.accounts), stopping.clone()));
        }
        tokio::spawn(domains::follow(Arc::clone(&gate.domains), stopping.clone()));
        if let Some(signer) = gate.signer.clone() {
            tokio::spawn(signer::watch(signer, stopping));
        }
        Ok(Self { shared: Arc::new(EmbeddedState { gate, settings, _running: running }) })
    }

    /// Returns the layer for a policy.
    ///
    /// # Errors
    /// Fails if there is no policy of this name.
    pub fn layer(&self, policy: &str) -> anyhow::Result<GateLayer> {
        let found = self.shared.settings.policies.get(policy);
        let route = found.with_context(|| format!("policy.{policy}: is not configured"))?.clone();
        let guard = Guard { shared: Arc::clone(&self.shared), route, longest_content: LONGEST_CONTENT };
        Ok(GateLayer { guard: Arc::new(guard) })
    }

    /// Checks that chain and read API answer, and that nonces and records can be written; describes them.
    ///
    /// # Errors
    /// The part without which no request is admitted.
    pub async fn probe(&self) -> Result<String, String> {
        self.shared.gate.probe(http::now()).await
    }

    /// Returns the document that the service may have at `/.well-known/erc8128`, as JSON.
    pub fn discovery_document(&self) -> String {
        self.shared.settings.discovery_document()
    }

    /// Returns the document for `/.well-known/agent-registry`, as JSON: every refusal names that path.
    pub fn registry_document(&self) -> String {
        self.shared.settings.registry_document()
    }

    /// Returns the gate's metrics, for Prometheus.
    pub fn metrics(&self) -> String {
        self.shared.gate.metrics.text()
    }
}

/// A `tower` layer that guards a service with a policy.
#[derive(Debug, Clone)]
pub struct GateLayer {
    guard: Arc<Guard>,
}

#[derive(Debug, Clone)]
struct Guard {
    shared: Arc<EmbeddedState>,
    route: RoutePolicy,
    longest_content: usize,
}

impl GateLayer {
    /// Sets the most bytes of content that are read. Longer content is refused with 413; a policy that only
    /// observes passes it on unread.
    #[must_use]
    pub fn longest_content(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.guard).longest_content = bytes;
        self
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> GateService<S> {
        GateService::new(Arc::clone(&self.guard), inner)
    }
}
