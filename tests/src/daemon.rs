//! The real relayer daemon as a child process: started, killed, and started again on its journal.
//!
//! For tests the binary is built by cargo with the feature `fault-injection`, which gives it named crash
//! points and a clock that a file can move. What tests say to it over HTTP is in [`crate::relay`].

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy::hex;
use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::chain::Chain;
use crate::deploy::Deployment;
use crate::process::{Process, Spawn};
use crate::program;

/// How long the daemon may take to check its surroundings and listen.
const START: Duration = Duration::from_secs(30);

/// Time for a daemon to reach its crash point.
const DEATH: Duration = Duration::from_secs(40);

/// Settings that must not leak from the tests' environment into the daemon.
const KEYS: [&str; 9] = [
    "RELAYER_KEY",
    "RELAYER_KEY_FILE",
    "RELAYER_KEYSTORE",
    "RELAYER_KEYSTORE_PASSWORD_FILE",
    "RELAYER_KEYS_DIR",
    "RELAYER_KEY_KMS",
    "RELAYER_KEY_KMS_ADDRESS",
    "RELAYER_KEY_REMOTE",
    "RELAYER_KEY_REMOTE_ADDRESS",
];

/// How to start the daemon. A clone starts a successor on the same journal.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    vars: Vec<(&'static str, String)>,
    relayer: Address,
    data: Arc<TempDir>,
    build: Build,
    log: Option<PathBuf>,
    descriptors: Option<u32>,
}

/// Which daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Build {
    /// As operators run it.
    Plain,
    /// With crash points and a clock that can be moved.
    FaultInjection,
}

impl DaemonOptions {
    /// A daemon for these contracts that pays with `key`: without limits, on a free port, its journal empty.
    pub fn new(rpc_url: &str, contracts: Deployment, key: &PrivateKeySigner) -> Self {
        let options = Self {
            vars: Vec::new(),
            relayer: key.address(),
            data: Arc::new(TempDir::new().expect("a temporary directory")),
            build: Build::FaultInjection,
            log: None,
            descriptors: None,
        };
        options
            .var("RELAYER_PORT", 0)
            .var("RPC_URL", rpc_url)
            .var("RELAYER_KEY", hex::encode_prefixed(key.to_bytes()))
            .var("FORWARDER_ADDRESS", contracts.forwarder)
            .var("REGISTRY_ADDRESS", contracts.registry)
            .var("RATE_LIMIT_PER_IP", 0)
            .var("RATE_LIMIT_PER_SIGNER", 0)
            .var("BUDGET_SHARE_PER_SIGNER", 100)
            .var("BUDGET_SHARE_PER_IP", 100)
            .var("BUDGET_SHARE_PER_NETWORK", 100)
            .var("RATE_LIMIT_READS", 0)
            .var("RATE_LIMIT_POLLS", 0)
            // All clients have the same address here.
            .var("MAX_CONNECTIONS", 4_096)
            .var("MAX_CONNECTIONS_PER_IP", 4_096)
            .var("LOG_LEVEL", "debug")
    }

    /// Pays with another key from now on.
    pub fn key(mut self, key: &PrivateKeySigner) -> Self {
        self.relayer = key.address();
        self.var("RELAYER_KEY", hex::encode_prefixed(key.to_bytes()))
    }

    /// Pays from this account; other variables name its key.
    pub fn account(mut self, account: Address) -> Self {
        self.relayer = account;
        self.without("RELAYER_KEY")
    }

    /// Pays with all of these keys from now on, each in a file of one directory.
    pub fn keys(mut self, keys: &[PrivateKeySigner]) -> Self {
        let dir = self.data.path().join("keys");
        // A key may have been taken out since.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("a directory of keys");
        for (index, key) in keys.iter().enumerate() {
            let path = dir.join(format!("key-{index}"));
            fs::write(&path, hex::encode_prefixed(key.to_bytes())).expect("a key's file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a private file");
        }
        self.relayer = keys.first().expect("a key").address();
        self.without("RELAYER_KEY").var("RELAYER_KEYS_DIR", dir.display())
    }

    /// Sets one variable, in place of an earlier value.
    pub fn var(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self = self.without(name);
        self.vars.push((name, value.to_string()));
        self
    }

    /// Leaves a variable to the daemon's default.
    pub fn without(mut self, name: &'static str) -> Self {
        self.vars.retain(|(known, _)| *known != name);
        self
    }

    /// The daemon as operators run it, without the means to make it fail.
    pub fn plain(mut self) -> Self {
        self.build = Build::Plain;
        self
    }

    /// Keeps what it prints in this file.
    pub fn log_to(mut self, log: Option<PathBuf>) -> Self {
        self.log = log;
        self
    }

    /// Lets the daemon open this many files at once.
    pub fn descriptors(mut self, count: u32) -> Self {
        self.descriptors = Some(count);
        self
    }

    /// Aborts the daemon when it reaches a named point, `name` or `name:n` for the n-th time.
    pub fn crash_at(self, point: &str) -> Self {
        self.var("CRASH_AT", point)
    }

    /// The same daemon with an empty journal.
    pub fn with_empty_journal(mut self) -> Self {
        self.data = Arc::new(TempDir::new().expect("a temporary directory"));
        self
    }

    /// Where the journal is.
    pub fn data_dir(&self) -> &Path {
        self.data.path()
    }

    /// The account that pays.
    pub fn relayer(&self) -> Address {
        self.relayer
    }

    /// Moves the daemon's clock to this many seconds from the machine's, from now on and while it runs.
    pub fn move_clock(&self, seconds: i64) {
        // Renamed into place: the daemon never reads half a number.
        let (path, draft) = (self.clock_file(), self.data.path().join("clock-offset.draft"));
        fs::write(&draft, seconds.to_string())
            .and_then(|()| fs::rename(&draft, &path))
            .expect("a clock file");
    }

    fn clock_file(&self) -> PathBuf {
        self.data.path().join("clock-offset")
    }

    fn spawn(&self, command: &str) -> Result<Spawn> {
        let binary = binary(self.build)?;
        let spawn = match self.descriptors {
            None => Spawn::new("relayer-daemon", binary),
            Some(count) => {
                let limited = format!(r#"ulimit -n {count} && exec "$0" "$@""#);
                Spawn::new("relayer-daemon", "sh").args(["-c", &limited]).arg(binary)
            }
        };
        let mut spawn = spawn
            .arg(command)
            .dir(self.data.path())
            .env("RELAYER_DATA_DIR", self.data.path())
            .env("CLOCK_OFFSET_FILE", self.clock_file())
            .log(self.log.as_deref());
        for name in KEYS {
            spawn = spawn.env_remove(name);
        }
        for (name, value) in &self.vars {
            spawn = spawn.env(name, value);
        }
        Ok(spawn)
    }
}

impl Chain {
    /// A daemon for this chain that talks to its node directly and pays with one of its funded accounts.
    pub fn daemon(&self, key: &PrivateKeySigner) -> DaemonOptions {
        DaemonOptions::new(self.node.url(), self.contracts, key)
    }
}

/// A running daemon. Dropping it kills it, as a power cut would: it has to bear that at any moment.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
    url: String,
    /// The journal's directory, which outlives the process.
    _data: Arc<TempDir>,
}

impl Daemon {
    /// Starts `relayer-daemon serve` and waits until it listens.
    pub async fn start(options: &DaemonOptions) -> Result<Self> {
        let mut process = options.spawn("serve")?.start()?;
        let url = process.announced("relayer-daemon listening on ", START).await?;
        Ok(Self { process, url, _data: Arc::clone(&options.data) })
    }

    /// Starts `relayer-daemon serve` where it has to refuse, and returns all that it printed.
    pub async fn refuse(options: &DaemonOptions) -> Result<String> {
        let mut process = options.spawn("serve")?.start()?;
        let status = process.exited(START).await?;
        ensure!(!status.success(), "it ended without an error:\n{}", process.log());
        ensure!(!process.log().contains("listening"), "it listened:\n{}", process.log());
        Ok(process.log())
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process, to see whether it still runs.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// All it has printed.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits until a line of the log contains all of `words`.
    pub async fn logged(&mut self, words: &[&str], within: Duration) -> Result<String> {
        self.process
            .until(&format!("saying {words:?}"), within, async |log| {
                log.lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
            })
            .await
    }

    /// `kill -9`; what it printed.
    pub fn kill(mut self) -> String {
        self.process.kill();
        self.process.log()
    }

    /// Waits until the daemon has died by itself at the named crash point.
    pub async fn crashed(mut self, point: &str) -> Result<()> {
        let status = self.process.exited(DEATH).await?;
        if status.code().is_some() || !self.log().contains(&format!("crash point {point}")) {
            bail!("it ended ({status}), but not at {point}:\n{}", self.process.log_tail());
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for the end: how it ended, and how long that took.
    pub async fn terminate(&mut self) -> Result<(ExitStatus, Duration)> {
        let since = Instant::now();
        self.process.signal(Signal::TERM)?;
        let status = self.process.exited(Duration::from_secs(10)).await?;
        Ok((status, since.elapsed()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.kill();
    }
}

/// Starts `relayer-daemon drain`.
pub fn drain(options: &DaemonOptions) -> Result<Process> {
    options.spawn("drain")?.start()
}

/// Runs `relayer-daemon replay` with these flags: what it printed.
pub async fn replay(options: &DaemonOptions, flags: &[&str]) -> Result<String> {
    let mut process = options.spawn("replay")?.args(flags).start()?;
    let status = process.exited(START).await?;
    ensure!(status.success(), "not replayed:\n{}", process.log());
    Ok(process.log())
}

/// Runs `relayer-daemon api-key`: the key, and its hash.
pub async fn api_key(options: &DaemonOptions) -> Result<(String, String)> {
    let mut process = options.spawn("api-key")?.start()?;
    let status = process.exited(START).await?;
    let (log, line) = (process.log(), |log: &str, name: &str| {
        log.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned())
    });
    ensure!(status.success(), "no key:\n{log}");
    line(&log, "key:").zip(line(&log, "hash:")).with_context(|| format!("no key and hash:\n{log}"))
}

/// Runs `relayer-daemon check`: whether it found everything good, and what it printed.
pub async fn check(options: &DaemonOptions) -> Result<(bool, String)> {
    let mut process = options.spawn("check")?.start()?;
    let status = process.exited(START).await?;
    Ok((status.success(), process.log()))
}

/// The path of the daemon: of that in `RELAYER_DAEMON`, so that another build or version is measured beside
/// this one; where the variable is not set, of this tree's.
fn binary(build: Build) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("RELAYER_DAEMON") {
        return Ok(path.into());
    }
    let (name, features) = match build {
        Build::Plain => ("relayer-daemon", [].as_slice()),
        Build::FaultInjection => {
            ("relayer-daemon-fault-injection", ["--features", "relayer-daemon/fault-injection"].as_slice())
        }
    };
    program::compiled(["--bin", "relayer-daemon"], name, features)
}
