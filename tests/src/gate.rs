//! The real gate as a child process, and a service behind it that remembers what reached it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, request::Parts};
use axum::routing::any;
use rustix::process::Signal;
use tokio::task::JoinSet;

use crate::guarded::{listen, serve};
use crate::process::{Process, Spawn};
use crate::{http, program};

/// The origin of the services that the tests' gates guard.
pub const ORIGIN: &str = "http://api.example";

/// How long the gate may take to check its surroundings and listen.
const START: Duration = Duration::from_secs(30);

/// A running gate; it ends when this is dropped.
#[derive(Debug)]
pub struct Gate {
    process: Process,
    url: String,
}

impl Gate {
    /// Starts `kya-gate serve` with this configuration, on any free port, and waits until it listens.
    pub async fn start(configuration: &str) -> Result<Self> {
        Self::start_program(binary()?, configuration).await
    }

    /// Starts another build of it.
    pub async fn start_program(program: PathBuf, configuration: &str) -> Result<Self> {
        Self::announced(spawn(program, "serve", configuration)?).await
    }

    /// Starts it where the machine trusts only the authorities of this PEM file.
    pub async fn start_trusting(authorities: &Path, configuration: &str) -> Result<Self> {
        let spawn = spawn(binary()?, "serve", configuration)?;
        Self::announced(spawn.env("SSL_CERT_FILE", authorities)).await
    }

    async fn announced(spawn: Spawn) -> Result<Self> {
        let mut process = spawn.start()?;
        let url = process.announced("kya-gate listening on ", START).await?;
        Ok(Self { process, url })
    }

    /// Runs `kya-gate check`: whether all was good, and what it printed.
    pub async fn check(configuration: &str) -> Result<(bool, String)> {
        let mut process = spawn(binary()?, "check", configuration)?.start()?;
        let status = process.exited(START).await?;
        Ok((status.success(), process.log()))
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All it has printed.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The value of a metric's line, which begins with these words.
    pub async fn metric(&self, words: &str) -> Option<f64> {
        let answer = http::client(START).get(format!("{}/metrics", self.url)).send().await.ok()?;
        let text = answer.text().await.ok()?;
        text.lines().find_map(|line| line.strip_prefix(words)?.trim().parse().ok())
    }

    /// Sends SIGTERM and waits for the end.
    pub async fn terminate(mut self) -> Result<ExitStatus> {
        self.process.signal(Signal::TERM)?;
        self.process.exited(START).await
    }
}

fn spawn(program: PathBuf, command: &str, configuration: &str) -> Result<Spawn> {
    let spawn = Spawn::new("kya-gate", program);
    let file = spawn.scratch().join("gate.toml");
    fs::write(&file, configuration)?;
    Ok(spawn.env("LOG_LEVEL", "debug").env_remove("KYA_GATE_RPC_URL").arg(command).arg(file))
}

fn binary() -> Result<PathBuf> {
    program::compiled(["--bin", "kya-gate"])
}

/// Starts the gate's axum example, a service with the gate in its own process, on any free port; returns its
/// address.
pub async fn start_example(configuration: &str) -> Result<(Process, String)> {
    let program = program::compiled(["--example", "axum"])?;
    let spawn = Spawn::new("axum", program).env_remove("KYA_GATE_RPC_URL");
    let file = spawn.scratch().join("gate.toml");
    fs::write(&file, configuration)?;
    let mut process = spawn.arg(file).arg("127.0.0.1:0").start()?;
    let url = process.announced("listening on ", START).await?;
    Ok((process, url))
}

/// A service that answers every request with 200, and remembers them.
#[derive(Debug)]
pub struct Service {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    _server: JoinSet<()>,
}

/// A request as it reached the service.
#[derive(Debug, Clone)]
pub struct Received {
    /// The method.
    pub method: String,
    /// The path and query.
    pub target: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Bytes,
}

impl Received {
    /// The values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).collect()
    }
}

impl Service {
    /// Listens on a free port.
    pub async fn start() -> Result<Self> {
        Self::start_with(Router::new()).await
    }

    /// Listens on a free port in a gate's place: it refuses every request, and has an answer for `/refusal`.
    pub async fn start_as_gate() -> Result<Self> {
        let refuse = async |state: State<_>, parts: Parts, body: Bytes| {
            remember(state, parts, body).await;
            StatusCode::UNAUTHORIZED
        };
        Self::start_with(Router::new().route("/gate/{*rest}", any(refuse))).await
    }

    async fn start_with(app: Router<Arc<Mutex<Vec<Received>>>>) -> Result<Self> {
        let received = Arc::default();
        let app = app.fallback(remember).layer(DefaultBodyLimit::disable());
        let app = app.with_state(Arc::clone(&received));
        let (listener, url) = listen(0).await?;
        Ok(Self { url, received, _server: serve(listener, app) })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The requests since the last call.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn remember(
    received: State<Arc<Mutex<Vec<Received>>>>,
    Parts { method, uri, headers, .. }: Parts,
    body: Bytes,
) -> &'static str {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect();
    let request = Received { method: method.to_string(), target: uri.to_string(), headers, body };
    received.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    "served"
}
