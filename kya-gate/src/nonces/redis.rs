//! Spent nonces in a Redis server that several gates share.
//!
//! `SET <prefix><key> "" NX PX <milliseconds>` decides: of all copies of a request at all gates, one gets the
//! server's OK. A server that is away or slow leaves the outcome open: the request is refused, and the
//! command is never repeated.
//!
//! A server that restarts may have lost nonces, whatever its persistence: a snapshot is minutes old, an
//! append-only file a second. A server that took over from another one may lack the last of them, and one
//! that was a replica meanwhile has its primary's content in place of its own. Signatures that were made
//! before any of these are therefore refused, as a gate does after its own restart:
//!
//! ```text
//!                      a write taken                   a write refused, or no answer
//!   away (all refused) --------------> up since `began` ------------------------------> away
//!
//!   began = start of the server (first connection) | now (another history) | unchanged (the same history)
//! ```
//!
//! The probe is a write, as spending is: a server that has become a replica (`READONLY`), is loading, or has
//! lost the right to write still answers reads. A new connection then finds the server to which the name
//! leads now. A full server is kept: it only is not ready.

use std::{mem, sync::Arc, time::Duration};

use alloy_primitives::hex;
use anyhow::{Context as _, bail};
use host_kit::native::now;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult,
    aio::MultiplexedConnection, cmd,
};
use registry_core::gate::{Attempt, Spending};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{metrics::Metrics, settings::RedisSettings};

/// The longest time that the server may take for a nonce.
const TIMEOUT: Duration = Duration::from_millis(250);
/// The longest time for a connection, with TLS and the first commands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval of probing writes while no request fails.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);
/// The error code of a full server.
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
    /// `None` where the server does not say.
    history: Option<WriteHistory>,
    /// Signatures from before this unix second may have been admitted without this server's knowledge.
    began: i64,
    /// The server has no room: the last write was refused for that reason.
    is_full: bool,
}

/// The ids of what a server has written: of its process, and of its replication, which changes whenever a
/// replica becomes a primary. Under the same two ids, no write is lost.
type WriteHistory = [String; 2];

impl SharedNonces {
    /// Connects, and stays connected until it is dropped. Errors: if the server does not answer.
    pub async fn connect(settings: &RedisSettings, metrics: Metrics) -> anyhow::Result<Self> {
        let client = client(settings)?;
        let probe = format!("{}probe", settings.prefix);
        let first = connect(&client, &probe, None).await?;
        let doubted = Arc::new(Notify::new());
        let (sender, server) = watch::channel(Some(first));
        let keeper = tokio::spawn(keep(client, probe, sender, Arc::clone(&doubted)));
        Ok(Self { prefix: settings.prefix.clone(), server, doubted, metrics, keeper })
    }

    /// Spends the nonce of an attempt at the unix second `now`.
    pub async fn spend(&self, attempt: &Attempt, now: u64) -> Spending {
        let Some(server) = self.server() else { return Spending::Unavailable };
        if attempt.created < server.began {
            return Spending::SignedBeforeStart;
        }
        // Gates with clocks that differ by less than the skew agree on the nonce's end.
        let seconds = attempt.nonce_seconds(now);
        let mut set = cmd("SET");
        set.arg(self.key(attempt)).arg("").arg("NX").arg("PX").arg(seconds.saturating_mul(1_000));
        match self.ask::<Option<String>>(server, &set).await {
            Ok(Some(_)) => Spending::Spent,
            Ok(None) => Spending::Reused,
            Err(error) if is_full(&error) => Spending::Full,
            Err(_) => Spending::Unavailable,
        }
    }

    /// Returns the result that spending the nonce of an attempt would have, as far as known.
    pub async fn look_up(&self, attempt: &Attempt) -> Spending {
        let Some(server) = self.server() else { return Spending::Unavailable };
        if attempt.created < server.began {
            return Spending::SignedBeforeStart;
        }
        match self.ask(server, cmd("EXISTS").arg(self.key(attempt))).await {
            Ok(true) => Spending::Reused,
            Ok(false) => Spending::Spent,
            Err(_) => Spending::Unavailable,
        }
    }

    /// Checks that the server takes nonces. Errors: the reason, in words.
    pub fn probe(&self) -> Result<(), String> {
        match self.server() {
            Some(server) if server.is_full => Err("nonces: Redis is full".to_owned()),
            Some(_) => Ok(()),
            None => Err("nonces: Redis takes no writes".to_owned()),
        }
    }

    fn server(&self) -> Option<Server> {
        self.server.borrow().clone()
    }

    fn key(&self, attempt: &Attempt) -> String {
        format!("{}{}", self.prefix, hex::encode(attempt.nonce_key()))
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

/// Connects again whenever the server stops taking writes. `probe` is the key of probing writes.
async fn keep(client: Client, probe: String, sender: watch::Sender<Option<Server>>, doubted: Arc<Notify>) {
    loop {
        let Some(server) = sender.borrow().clone() else { return };
        let error = until_broken(server.connection.clone(), &probe, &sender, &doubted).await;
        tracing::warn!(%error, "Redis takes no writes: no request is admitted");
        sender.send_replace(None);
        let next = loop {
            match connect(&client, &probe, Some(&server)).await {
                Ok(next) => break next,
                Err(error) => tracing::debug!(%error, "Redis is still away"),
            }
            sleep(RETRY).await;
        };
        tracing::info!(same = next.began == server.began, "Redis takes writes again");
        sender.send_replace(Some(next));
    }
}

/// Probes until the connection is of no more use, and returns the error.
async fn until_broken(
    mut connection: MultiplexedConnection,
    probe: &str,
    sender: &watch::Sender<Option<Server>>,
    doubted: &Notify,
) -> RedisError {
    loop {
        // Ends after the interval, or at a failed request.
        let _ = timeout(PROBE_EVERY, doubted.notified()).await;
        let now_full = match is_full_at_write(&mut connection, probe).await {
            Ok(is_full) => is_full,
            Err(error) => return error,
        };
        sender.send_if_modified(|server| {
            server.as_mut().is_some_and(|server| mem::replace(&mut server.is_full, now_full) != now_full)
        });
    }
}

/// Tries a write. Returns whether the server is full: it takes nonces again once it has room.
async fn is_full_at_write(connection: &mut MultiplexedConnection, key: &str) -> RedisResult<bool> {
    let mut set = cmd("SET");
    set.arg(key).arg("").arg("PX").arg(1_000);
    match bounded(TIMEOUT, set.query_async::<()>(connection)).await {
        Err(error) if !is_full(&error) => Err(error),
        written => Ok(written.is_err()),
    }
}

fn is_full(error: &RedisError) -> bool {
    error.code() == Some(OUT_OF_MEMORY)
}

fn client(settings: &RedisSettings) -> anyhow::Result<Client> {
    // The error may quote the URL, and the URL may hold a password.
    Client::open(settings.url.as_str()).map_err(|_| anyhow::anyhow!("redis.url: is not a URL of Redis"))
}

/// Connects to a server that takes writes. `before` is the last connection.
async fn connect(client: &Client, probe: &str, before: Option<&Server>) -> anyhow::Result<Server> {
    let (mut connection, info) = open(client).await?;
    let is_full = is_full_at_write(&mut connection, probe).await.context("Redis: a write")?;
    let named = |name| said(&info, name).map(str::to_owned).ok();
    let history = named("run_id").zip(named("master_replid")).map(WriteHistory::from);
    let uptime: i64 = said(&info, "uptime_in_seconds")?.parse().context("Redis: uptime_in_seconds")?;
    let now = now().seconds().cast_signed();
    // One second later: the server may have begun late in a second, and signatures have no fractions.
    let began = match before {
        Some(before) if history.is_some() && history == before.history => before.began,
        Some(_) => now + 1,
        None => now - uptime + 1,
    };
    Ok(Server { connection, history, began, is_full })
}

async fn open(client: &Client) -> anyhow::Result<(MultiplexedConnection, String)> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(TIMEOUT));
    let address = client.get_connection_info().addr();
    let opened = async {
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let info = cmd("INFO").query_async(&mut connection).await?;
        Ok((connection, info))
    };
    bounded(CONNECT_TIMEOUT, opened).await.with_context(|| format!("Redis at {address}"))
}

async fn bounded<T>(limit: Duration, answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = |_| RedisError::from((ErrorKind::Io, "no answer in time"));
    timeout(limit, answer).await.map_err(late).flatten()
}

/// Returns a value of the server's INFO by its name.
fn said<'a>(info: &'a str, name: &str) -> anyhow::Result<&'a str> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim).with_context(|| format!("Redis: INFO does not say {name}"))
}

/// Checks that a server can hold nonces, and describes it in words for people. Errors: it does not answer,
/// refuses a write, or forgets keys before their end.
pub async fn inspect(settings: &RedisSettings) -> anyhow::Result<String> {
    let client = client(settings)?;
    let (mut connection, info) = open(&client).await?;
    let policy = said(&info, "maxmemory_policy")?;
    if said(&info, "maxmemory")? != "0" && policy != "noeviction" {
        bail!(
            "Redis forgets keys when it is full: its maxmemory-policy is {policy}, and has to be noeviction"
        );
    }
    let probe = format!("{}probe", settings.prefix);
    is_full_at_write(&mut connection, &probe).await.context("Redis: a write")?;
    Ok(format!("in Redis at {}, under {}", client.get_connection_info().addr(), settings.prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::tests::attempt;
    use host_kit::native::lock;
    use std::sync::{
        Mutex,
        atomic::{AtomicU8, Ordering},
    };
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
        net::{TcpListener, TcpStream},
    };

    /// A server of Redis's protocol that answers each `SET` with this text; `None` sends no answer.
    #[derive(Clone, Default)]
    struct Fake {
        to_writes: Arc<Mutex<Option<&'static str>>>,
        replication_id: Arc<AtomicU8>,
        connections: watch::Sender<usize>,
    }

    impl Fake {
        async fn start() -> (Self, RedisSettings) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("redis://{}", listener.local_addr().unwrap());
            let fake = Self::default();
            fake.answer_writes(Some("+OK"));
            let serving = fake.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    serving.connections.send_modify(|count| *count += 1);
                    tokio::spawn(serving.clone().serve(stream));
                }
            });
            (fake, RedisSettings { url, prefix: "test:".to_owned() })
        }

        fn answer_writes(&self, answer: Option<&'static str>) {
            *lock(&self.to_writes) = answer;
        }

        async fn serve(self, stream: TcpStream) {
            let mut stream = BufReader::new(stream);
            while let Some(command) = command(&mut stream).await {
                let to_writes = *lock(&self.to_writes);
                let answer = match command.as_str() {
                    "SET" => to_writes.map(str::to_owned),
                    "INFO" => {
                        let replication_id = self.replication_id.load(Ordering::SeqCst);
                        let info = format!(
                            "run_id:a\r\nuptime_in_seconds:1000\r\nmaster_replid:{replication_id}\r\n"
                        );
                        Some(format!("${}\r\n{info}", info.len()))
                    }
                    _ => Some("+OK".to_owned()),
                };
                if let Some(answer) = answer {
                    stream.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
                }
            }
        }
    }

    /// Reads the next command, an array of texts, and returns its name.
    async fn command(stream: &mut BufReader<TcpStream>) -> Option<String> {
        let mut texts = Vec::new();
        let mut count = number(stream).await?;
        while count > 0 {
            let mut text = vec![0; number(stream).await? + 2];
            stream.read_exact(&mut text).await.ok()?;
            texts.push(String::from_utf8(text).unwrap().trim_end().to_owned());
            count -= 1;
        }
        texts.into_iter().next()
    }

    async fn number(stream: &mut BufReader<TcpStream>) -> Option<usize> {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        line.get(1..)?.trim_end().parse().ok()
    }

    async fn becomes(nonces: &SharedNonces, is_up: bool) {
        let mut server = nonces.server.clone();
        let changed = timeout(Duration::from_secs(10), server.wait_for(|server| server.is_some() == is_up));
        changed.await.unwrap().unwrap();
        let is_full = server.borrow().as_ref().is_some_and(|server| server.is_full);
        assert_eq!(nonces.probe().is_ok(), is_up && !is_full);
    }

    #[tokio::test]
    async fn a_server_that_takes_no_write_is_left_for_a_new_connection() {
        let now = now().seconds();
        let (fake, settings) = Fake::start().await;
        let nonces = SharedNonces::connect(&settings, Metrics::new().unwrap()).await.unwrap();
        for answer in [
            Some("-READONLY You can't write against a read only replica."),
            Some("-MOVED 3999 127.0.0.1:6381"),
            Some("-LOADING Redis is loading the dataset in memory"),
            Some("-NOPERM this user has no permissions to run the 'set' command"),
            Some("-MISCONF Redis is configured to save RDB snapshots"),
            None,
        ] {
            let connections = *fake.connections.borrow();
            fake.answer_writes(answer);
            let spending = nonces.spend(&attempt("n", now + 90), now).await;
            assert_eq!(spending, Spending::Unavailable, "{answer:?}");
            becomes(&nonces, false).await;
            fake.answer_writes(Some("+OK"));
            becomes(&nonces, true).await;
            assert!(*fake.connections.borrow() > connections, "{answer:?}: the same connection");
            assert_eq!(nonces.spend(&attempt("n", now + 90), now).await, Spending::Spent, "{answer:?}");
        }
        // Found without a request; and a full server is kept.
        fake.answer_writes(Some("-READONLY"));
        becomes(&nonces, false).await;
        fake.answer_writes(Some("-OOM command not allowed when used memory > 'maxmemory'."));
        becomes(&nonces, true).await;
        assert_eq!(nonces.spend(&attempt("n", now + 90), now).await, Spending::Full);
        assert_eq!(nonces.probe(), Err("nonces: Redis is full".to_owned()));
        let connections = *fake.connections.borrow();
        fake.answer_writes(Some("+OK"));
        let mut server = nonces.server.clone();
        server.wait_for(|server| server.as_ref().is_some_and(|server| !server.is_full)).await.unwrap();
        assert_eq!((nonces.probe(), *fake.connections.borrow()), (Ok(()), connections));
        // A server that was a replica meanwhile may have lost its nonces.
        fake.answer_writes(Some("-READONLY"));
        becomes(&nonces, false).await;
        fake.replication_id.store(1, Ordering::SeqCst);
        fake.answer_writes(Some("+OK"));
        becomes(&nonces, true).await;
        assert_eq!(nonces.spend(&attempt("n", now + 90), now).await, Spending::SignedBeforeStart);
    }
}
