//! The real relayer daemon as a child process: started, killed, and started again on its journal.
//!
//! The binary is built by cargo with debug assertions, which give it named crash points (`CRASH_AT=name`, or
//! `name:n` for the n-th time) and a clock that a file can move. [`crate::relay`] speaks to it over HTTP.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs};

use alloy::hex;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::chain::Chain;
use crate::deploy::Deployment;
use crate::process::{PATIENCE, Process, Spawn};
use crate::program;

/// Settings of a daemon to start. A clone starts a successor on the same journal.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    vars: Vec<(&'static str, String)>,
    data: Arc<TempDir>,
    log: Option<PathBuf>,
    descriptors: Option<u32>,
}

impl DaemonOptions {
    /// Configures a daemon for these contracts that pays with `key`: no limits, a free port, a new journal.
    pub fn new(rpc_url: &str, contracts: Deployment, key: &PrivateKeySigner) -> Self {
        let data = Arc::new(TempDir::new().expect("a temporary directory"));
        let mut options = Self { vars: Vec::new(), data, log: None, descriptors: None }
            .var("RELAYER_KEY", hex::encode_prefixed(key.to_bytes()))
            .var("RELAYER_PORT", 0)
            .var("RPC_URL", rpc_url)
            .var("FORWARDER_ADDRESS", contracts.forwarder)
            .var("REGISTRY_ADDRESS", contracts.registry)
            .var("LOG_LEVEL", "debug");
        for limit in ["RATE_LIMIT_PER_IP", "RATE_LIMIT_PER_SIGNER", "RATE_LIMIT_READS", "RATE_LIMIT_POLLS"] {
            options = options.var(limit, 0);
        }
        // All clients of the tests have the same address.
        for share in ["BUDGET_SHARE_PER_SIGNER", "BUDGET_SHARE_PER_IP", "BUDGET_SHARE_PER_NETWORK"] {
            options = options.var(share, 100);
        }
        options.var("MAX_CONNECTIONS", 4_096).var("MAX_CONNECTIONS_PER_IP", 4_096)
    }

    /// Replaces the key by these keys, each in a file of one directory.
    pub fn keys(self, keys: &[PrivateKeySigner]) -> Self {
        let dir = self.data_dir().join("keys");
        // An earlier set may have had more keys.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("a directory of keys");
        for (index, key) in keys.iter().enumerate() {
            write_private(&dir.join(format!("key-{index}")), &hex::encode_prefixed(key.to_bytes()));
        }
        self.without("RELAYER_KEY").var("RELAYER_KEYS_DIR", dir.display())
    }

    pub fn var(mut self, name: &'static str, value: impl Display) -> Self {
        self = self.without(name);
        self.vars.push((name, value.to_string()));
        self
    }

    pub fn without(mut self, name: &'static str) -> Self {
        self.vars.retain(|(known, _)| *known != name);
        self
    }

    pub fn log_to(self, log: Option<PathBuf>) -> Self {
        Self { log, ..self }
    }

    /// Limits the number of files that the daemon can open at once.
    pub fn descriptors(self, count: u32) -> Self {
        Self { descriptors: Some(count), ..self }
    }

    pub fn with_empty_journal(self) -> Self {
        Self { data: Arc::new(TempDir::new().expect("a temporary directory")), ..self }
    }

    pub fn data_dir(&self) -> &Path {
        self.data.path()
    }

    /// Sets the offset of the daemon's clock from the machine's, in seconds; a running daemon follows it.
    pub fn move_clock(&self, seconds: i64) {
        replace(&self.data_dir().join("clock-offset"), &seconds.to_string());
    }

    fn spawn(&self, command: &str) -> Result<Spawn> {
        let limited = self.descriptors.map(|count| format!(r#"ulimit -n {count} && exec "$0" "$@""#));
        self.spawn_by(limited.as_deref(), command)
    }

    /// Prepares a command of the daemon, started by a shell script as `"$0" "$@"` where there is one.
    fn spawn_by(&self, script: Option<&str>, command: &str) -> Result<Spawn> {
        let binary = binary()?;
        let spawn = match script {
            None => Spawn::new("relayer-daemon", binary),
            Some(script) => Spawn::new("relayer-daemon", "sh").args(["-c", script]).arg(binary),
        };
        let spawn = spawn
            .arg(command)
            .dir(self.data_dir())
            .env("RELAYER_DATA_DIR", self.data_dir())
            .env("CLOCK_OFFSET_FILE", self.data_dir().join("clock-offset"))
            .log(self.log.as_deref());
        Ok(self.vars.iter().fold(spawn, |spawn, (name, value)| spawn.env(name, value)))
    }

    /// Runs a command of `relayer-daemon` to its end; returns whether it succeeded and all that it printed.
    async fn run(&self, command: &str, flags: &[&str]) -> Result<(bool, String)> {
        let mut process = self.spawn(command)?.args(flags).start()?;
        let status = process.exited(PATIENCE).await?;
        Ok((status.success(), process.log()))
    }

    /// Runs `relayer-daemon check`; returns whether it succeeded and all that it printed.
    pub async fn check(&self) -> Result<(bool, String)> {
        self.run("check", &[]).await
    }

    /// Runs `relayer-daemon ctl` with these arguments; returns its exit status and all that it printed.
    pub async fn ctl(&self, arguments: &[&str]) -> Result<(i32, String)> {
        let mut process = self.spawn("ctl")?.args(arguments).start()?;
        let status = process.exited(PATIENCE).await?;
        Ok((status.code().unwrap_or(-1), process.log()))
    }

    /// Runs `ctl` with an unread pipe as standard output; returns its exit status and standard error.
    pub async fn ctl_unread(&self, arguments: &[&str]) -> Result<(i32, String)> {
        const UNREAD: &str = r#"
rm -f unread && mkfifo unread && exec 3<>unread 4>unread 3<&- && exec "$0" "$@" >&4 4>&-"#;
        let mut process = self.spawn_by(Some(UNREAD), "ctl")?.args(arguments).start()?;
        let status = process.exited(PATIENCE).await?;
        Ok((status.code().unwrap_or(-1), process.log()))
    }

    /// Runs `relayer-daemon migrate` to this database; returns whether it succeeded and all that it printed.
    pub async fn migrate(&self, url: &str) -> Result<(bool, String)> {
        self.run("migrate", &["--to", url]).await
    }

    pub fn drain(&self) -> Result<Process> {
        self.spawn("drain")?.start()
    }

    /// Runs `relayer-daemon replay` with these flags, and returns all that it printed.
    pub async fn replay(&self, flags: &[&str]) -> Result<String> {
        let (is_good, printed) = self.run("replay", flags).await?;
        ensure!(is_good, "not replayed:\n{printed}");
        Ok(printed)
    }

    /// Runs `relayer-daemon api-key`, and returns the key and its hash.
    pub async fn api_key(&self) -> Result<(String, String)> {
        let (is_good, printed) = self.run("api-key", &[]).await?;
        ensure!(is_good, "no key:\n{printed}");
        let line =
            |name: &str| printed.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        line("key:").zip(line("hash:")).with_context(|| format!("no key and hash:\n{printed}"))
    }
}

/// Replaces a file atomically, so that a reader never sees half of it.
pub fn replace(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, path)).expect("a file");
}

pub fn write_private(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("a private file");
}

impl Chain {
    /// Configures a daemon for this chain that reads its node directly and pays with `key`.
    pub fn daemon(&self, key: &PrivateKeySigner) -> DaemonOptions {
        DaemonOptions::new(self.node.url(), self.contracts, key)
    }
}

/// A running daemon. Dropping it kills it as a power cut would, which it has to survive at any moment.
#[derive(Debug)]
pub struct RelayerDaemon {
    process: Process,
    url: String,
    /// The journal's directory, which outlives the process.
    _data: Arc<TempDir>,
}

impl RelayerDaemon {
    pub async fn start(options: &DaemonOptions) -> Result<Self> {
        let mut process = options.spawn("serve")?.start()?;
        let url = process.announced("relayer-daemon listening on ", PATIENCE).await?;
        Ok(Self { process, url, _data: Arc::clone(&options.data) })
    }

    /// Runs `relayer-daemon serve`, checks that it refuses to start, and returns all that it printed.
    pub async fn refuse(options: &DaemonOptions) -> Result<String> {
        let (started, printed) = options.run("serve", &[]).await?;
        ensure!(!started && !printed.contains("listening"), "it did not refuse:\n{printed}");
        Ok(printed)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    pub async fn logged(&mut self, words: &[&str]) -> Result<String> {
        let found = async |log: &str| {
            log.lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
        };
        self.process.until(&format!("saying {words:?}"), PATIENCE, found).await
    }

    pub fn kill(mut self) -> String {
        self.process.kill();
        self.process.log()
    }

    /// Waits until the daemon has died by itself at the named crash point.
    pub async fn crashed(mut self, point: &str) -> Result<()> {
        let status = self.process.exited(PATIENCE).await?;
        let has_crashed = status.code().is_none() && self.log().contains(&format!("crash point {point}"));
        ensure!(has_crashed, "it ended ({status}), but not at {point}:\n{}", self.process.log_tail());
        Ok(())
    }

    pub async fn terminate(&mut self) -> Result<(ExitStatus, Duration)> {
        let since = Instant::now();
        self.process.signal(Signal::TERM)?;
        Ok((self.process.exited(PATIENCE).await?, since.elapsed()))
    }
}

impl Drop for RelayerDaemon {
    fn drop(&mut self) {
        self.process.kill();
    }
}

/// Returns the path of the daemon: that in `RELAYER_DAEMON`, for measurements of another build or version, or
/// else this tree's.
fn binary() -> Result<PathBuf> {
    match env::var_os("RELAYER_DAEMON") {
        Some(path) => Ok(path.into()),
        None => program::compiled(["--bin", "relayer-daemon"]),
    }
}
