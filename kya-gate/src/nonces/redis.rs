//! Spent nonces in a Redis server that several gates share.
//!
//! `SET <prefix><key> "" NX PX <milliseconds>` decides: of all copies of a request at all gates, the server
//! answers one. A server that is away or slow leaves the outcome open, so that the request is refused and
//! the command is never repeated.
//!
//! A server that restarts may have lost nonces, whatever its persistence: a snapshot is minutes old, an
//! append-only file a second. A server that took over from another one may lack the last of them. Signatures
//! that were made before either are therefore refused, as a gate does after its own restart:
//!
//! ```text
//!                      connected                       PING unanswered
//!   away (all refused) ----------> up since `began` -------------------> away
//!
//!   began = start of the server (first connection) | now (another server than before) | unchanged (the same)
//! ```

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use alloy_primitives::hex;
use anyhow::{Context as _, bail};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult,
    aio::MultiplexedConnection, cmd,
};
use registry_core::gate::{Attempt, SKEW};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{Spending, key};
use crate::{metrics::Metrics, settings::RedisSettings};

/// How long the server may take for a nonce.
const TIMEOUT: Duration = Duration::from_millis(250);
/// How long a connection may take, with TLS and the first questions.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the connection is tried while no request does.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);
/// What the error of a full server begins with.
const OUT_OF_MEMORY: &str = "OOM";

/// Nonces in Redis.
#[derive(Debug)]
pub struct SharedNonces {
    prefix: String,
    server: watch::Receiver<Option<Server>>,
    doubted: Arc<Notify>,
    metrics: Metrics,
    keeper: JoinHandle<()>,
}

/// A connection to a running server.
#[derive(Debug, Clone)]
struct Server {
    connection: MultiplexedConnection,
    /// Names the server's process.
    run_id: String,
    /// Signatures from before this unix second may have been admitted without this server's knowledge.
    began: i64,
}

impl SharedNonces {
    /// Connects, and stays connected until it is dropped.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn connect(settings: &RedisSettings, metrics: Metrics) -> anyhow::Result<Self> {
        let client = client(settings)?;
        let first = connect(&client, None).await?;
        let doubted = Arc::new(Notify::new());
        let (sender, server) = watch::channel(Some(first));
        let keeper = tokio::spawn(keep(client, sender, Arc::clone(&doubted)));
        Ok(Self { prefix: settings.prefix.clone(), server, doubted, metrics, keeper })
    }

    /// Spends the nonce of an attempt at the unix second `now`.
    pub async fn spend(&self, attempt: &Attempt, now: u64) -> Spending {
        let Some(server) = self.server() else { return Spending::Unavailable };
        if attempt.created < server.began {
            return Spending::Reused;
        }
        // Gates with clocks that differ by less than the skew agree on its end.
        let seconds = attempt.valid_until.saturating_sub(now).saturating_add(1 + SKEW);
        let mut set = cmd("SET");
        set.arg(self.key(attempt)).arg("").arg("NX").arg("PX").arg(seconds.saturating_mul(1_000));
        match self.ask::<Option<String>>(server, &set).await {
            Ok(Some(_)) => Spending::Spent,
            Ok(None) => Spending::Reused,
            Err(error) if error.code() == Some(OUT_OF_MEMORY) => Spending::Full,
            Err(_) => Spending::Unavailable,
        }
    }

    /// Whether the nonce of an attempt was spent; `None` where the server does not answer.
    pub async fn is_spent(&self, attempt: &Attempt) -> Option<bool> {
        let server = self.server()?;
        if attempt.created < server.began {
            return Some(true);
        }
        self.ask(server, cmd("EXISTS").arg(self.key(attempt))).await.ok()
    }

    /// Whether the server answers.
    ///
    /// # Errors
    /// That it does not.
    pub fn probe(&self) -> Result<(), String> {
        self.server().map(drop).ok_or_else(|| "nonces: Redis does not answer".to_owned())
    }

    fn server(&self) -> Option<Server> {
        self.server.borrow().clone()
    }

    fn key(&self, attempt: &Attempt) -> String {
        format!("{}{}", self.prefix, hex::encode(key(attempt.account, &attempt.nonce)))
    }

    async fn ask<T: FromRedisValue>(&self, mut server: Server, command: &Cmd) -> RedisResult<T> {
        let answer = bounded(TIMEOUT, command.query_async(&mut server.connection)).await;
        let result = if answer.is_ok() { "ok" } else { "failed" };
        self.metrics.round_trips.with_label_values(&["redis", result]).inc();
        answer.inspect_err(|error| {
            tracing::warn!(%error, "Redis did not take a nonce");
            self.doubted.notify_one();
        })
    }
}

impl Drop for SharedNonces {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Connects again whenever the server stops answering.
async fn keep(client: Client, sender: watch::Sender<Option<Server>>, doubted: Arc<Notify>) {
    loop {
        let Some(server) = sender.borrow().clone() else { return };
        let error = until_broken(server.connection, &doubted).await;
        tracing::warn!(%error, "Redis does not answer: no request is admitted");
        sender.send_replace(None);
        let next = loop {
            match connect(&client, Some((&server.run_id, server.began))).await {
                Ok(next) => break next,
                Err(error) => tracing::debug!(%error, "Redis is still away"),
            }
            sleep(RETRY).await;
        };
        tracing::info!(same = next.run_id == server.run_id, "Redis answers again");
        sender.send_replace(Some(next));
    }
}

/// Returns why the connection is of no more use. One failed command is no reason: the server may be full.
async fn until_broken(mut connection: MultiplexedConnection, doubted: &Notify) -> RedisError {
    loop {
        // The time without a doubt passes, or there is one.
        let _ = timeout(PING_EVERY, doubted.notified()).await;
        let ping = bounded(TIMEOUT, cmd("PING").query_async::<String>(&mut connection)).await;
        if let Err(error) = ping {
            return error;
        }
    }
}

fn client(settings: &RedisSettings) -> anyhow::Result<Client> {
    // The URL may hold a password, and the error the URL.
    Client::open(settings.url.as_str()).map_err(|_| anyhow::anyhow!("redis.url: is not a URL of Redis"))
}

/// Connects. `before` is the last server's process and its `began`.
async fn connect(client: &Client, before: Option<(&str, i64)>) -> anyhow::Result<Server> {
    let (connection, info) = open(client).await?;
    let run_id = info.text("run_id")?.to_owned();
    let uptime: i64 = info.text("uptime_in_seconds")?.parse().context("Redis: uptime_in_seconds")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    // The second after: the server may have begun late in one, and signatures have no fractions.
    let began = match before {
        Some((same, began)) if same == run_id => began,
        Some(_) => now + 1,
        None => now - uptime + 1,
    };
    Ok(Server { connection, run_id, began })
}

async fn open(client: &Client) -> anyhow::Result<(MultiplexedConnection, Info)> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(TIMEOUT));
    let address = client.get_connection_info().addr();
    let opened = async {
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let info = cmd("INFO").query_async(&mut connection).await?;
        Ok((connection, Info(info)))
    };
    bounded(CONNECT_TIMEOUT, opened).await.with_context(|| format!("Redis at {address}"))
}

async fn bounded<T>(limit: Duration, answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = |_| RedisError::from((ErrorKind::Io, "no answer in time"));
    timeout(limit, answer).await.map_err(late).flatten()
}

/// What a server says about itself.
struct Info(String);

impl Info {
    fn text(&self, name: &str) -> anyhow::Result<&str> {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim).with_context(|| format!("Redis: INFO does not say {name}"))
    }
}

/// Whether a server can hold nonces, in words for people.
///
/// # Errors
/// Why it cannot: it does not answer, refuses a write, or forgets keys before their end.
pub async fn inspect(settings: &RedisSettings) -> anyhow::Result<String> {
    let client = client(settings)?;
    let (mut connection, info) = open(&client).await?;
    let policy = info.text("maxmemory_policy")?;
    if info.text("maxmemory")? != "0" && policy != "noeviction" {
        bail!(
            "Redis forgets keys when it is full: its maxmemory-policy is {policy}, and has to be noeviction"
        );
    }
    let mut write = cmd("SET");
    write.arg(format!("{}check", settings.prefix)).arg("").arg("NX").arg("PX").arg(1_000);
    bounded(TIMEOUT, write.query_async::<Option<String>>(&mut connection)).await.context("Redis: a write")?;
    Ok(format!("in Redis at {}, under {}", client.get_connection_info().addr(), settings.prefix))
}
