//! Child processes that never outlive the process that started them.
//!
//! Every child leads its own process group, since `wrangler dev` starts Node, which starts `workerd`. The
//! group ends when the [`Process`] is dropped, and also when this process dies: a watchdog inside the group
//! reads from a pipe that only this process holds open. A child's output goes to a log file, and errors quote
//! its end. Its scratch directory is deleted with it.

use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use std::os::unix::process::CommandExt as _;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, kill_process_group, prlimit, setrlimit,
};
use tempfile::TempDir;

use crate::repo;

/// Time-out of a condition. It ends a hang and measures nothing: a busy machine has the time that it needs.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Time that a child has to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(25);
/// Number of a log's last lines in an error message.
const TAIL_LINES: usize = 40;

/// Shell script that becomes the child by `exec`, with a watchdog left behind in its group: the pipe on stdin
/// ends when the starting process ends, in whatever way.
const WATCHED: &str = r#"
exec 3<&0 0</dev/null
(
  trap '' TERM INT HUP
  exec 1>/dev/null 2>&1
  read -r _ <&3
  kill -s TERM -- "-$$"
  sleep 3
  rm -rf -- "$1"
  kill -s KILL -- "-$$"
) &
exec 3<&-
shift
exec "$@"
"#;

#[derive(Debug)]
pub struct Spawn {
    name: String,
    command: Command,
    scratch: TempDir,
    output: Output,
}

#[derive(Debug)]
enum Output {
    /// A file in the child's scratch directory.
    Scratch,
    File(PathBuf),
    /// This process's own output.
    Inherited,
}

impl Spawn {
    /// Prepares a child. Messages call it `name`; `program` is a path or is looked up on the PATH.
    pub fn new(name: &str, program: impl AsRef<Path>) -> Self {
        let scratch = tempfile::Builder::new().prefix("e2e-").tempdir().expect("a temporary directory");
        let mut command = repo::command("/bin/sh");
        command.args(["-c", WATCHED, name]).arg(scratch.path()).arg(program.as_ref());
        // Errors quote a child's last lines: a backtrace would push its message out of them.
        command.env("RUST_LIB_BACKTRACE", "0");
        Self { name: name.into(), command, scratch, output: Output::Scratch }
    }

    /// Returns the directory for the child's files, which is deleted with the [`Process`].
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub fn args<S: AsRef<std::ffi::OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    pub fn env(mut self, key: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    pub fn env_remove(mut self, key: &str) -> Self {
        self.command.env_remove(key);
        self
    }

    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets the file for the child's output, by default one in its scratch directory; `None` changes nothing.
    pub fn log(mut self, path: Option<&Path>) -> Self {
        self.output = path.map_or(self.output, |path| Output::File(path.to_owned()));
        self
    }

    pub fn show_output(mut self) -> Self {
        self.output = Output::Inherited;
        self
    }

    pub fn start(mut self) -> Result<Process> {
        let log_path = match self.output {
            Output::Scratch => Some(self.scratch.path().join("log")),
            Output::File(path) => Some(path),
            Output::Inherited => None,
        };
        let (child, lifeline) = spawn(&self.name, &mut self.command, log_path.as_deref())?;
        let Self { name, command, scratch, .. } = self;
        Ok(Process { name, command, child, lifeline: Some(lifeline), log_path, scratch })
    }
}

/// Starts the child in a process group of its own, with a new log.
fn spawn(name: &str, command: &mut Command, log: Option<&Path>) -> Result<(Child, ChildStdin)> {
    if let Some(path) = log {
        let log = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        command.stdout(log.try_clone()?).stderr(log);
    }
    let child = command.stdin(Stdio::piped()).process_group(0).spawn();
    let mut child = child.with_context(|| format!("cannot start {name}"))?;
    let lifeline = child.stdin.take().context("a child's standard input is a pipe")?;
    Ok((child, lifeline))
}

/// A running child with all processes that it started. Dropping it ends them.
pub struct Process {
    name: String,
    command: Command,
    child: Child,
    /// Pipe that the watchdog waits on, never written to; `None` once the group's id may be reused.
    lifeline: Option<ChildStdin>,
    log_path: Option<PathBuf>,
    scratch: TempDir,
}

impl Process {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the file of the child's output, where it is kept.
    pub(crate) fn log_path(&self) -> Option<&Path> {
        self.log_path.as_deref()
    }

    /// Returns all that the child has printed so far; `""` where its output is not kept.
    pub fn log(&self) -> String {
        let bytes = self.log_path.as_ref().and_then(|path| fs::read(path).ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn log_tail(&self) -> String {
        let log = self.log();
        let skipped = log.lines().count().saturating_sub(TAIL_LINES);
        log.lines().skip(skipped).map(|line| format!("  | {line}\n")).collect()
    }

    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends a signal to the child alone, as an operator would.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.exit_status()?.is_some() {
            bail!("{} has already ended", self.name);
        }
        kill_process(self.pid(), signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Limits the size of the child's files (`RLIMIT_FSIZE`), as a full disk does; `None` lifts the limit.
    pub fn limit_files(&self, bytes: Option<u64>) -> Result<()> {
        let maximum = getrlimit(Resource::Fsize).maximum;
        prlimit(Some(self.pid()), Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum })
            .with_context(|| format!("cannot limit the files of {}", self.name))?;
        Ok(())
    }

    /// Kills the child and its group at once, as a power cut would, and waits for the child's end.
    pub fn kill(&mut self) {
        // While the lifeline is held the watchdog lives, so the group's id is not reused.
        if self.lifeline.is_some() {
            // An error means that the group has ended already.
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
            self.lifeline = None;
        }
    }

    /// Kills the child and its group, and starts the same command again, with a new log.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let (child, lifeline) = spawn(&self.name, &mut self.command, self.log_path.as_deref())?;
        (self.child, self.lifeline) = (child, Some(lifeline));
        Ok(())
    }

    pub async fn exited(&mut self, within: Duration) -> Result<ExitStatus> {
        let exited = eventually("ended", within, async || self.exit_status().transpose()).await.flatten();
        exited.map_err(|error| self.with_last_lines(error))
    }

    /// Waits until `probe`, called with the log so far, returns `Some`; fails at once when the child ends.
    pub async fn until<T>(
        &mut self,
        what: &str,
        within: Duration,
        mut probe: impl AsyncFnMut(&str) -> Option<T>,
    ) -> Result<T> {
        let found = eventually(what, within, async || match probe(&self.log()).await {
            Some(found) => Some(Ok(found)),
            None => Some(self.exit_status().transpose()?.and_then(|status| bail!("{status} before {what}"))),
        });
        found.await.flatten().map_err(|error| self.with_last_lines(error))
    }

    /// Waits until the child has printed these words; returns the rest of that line, such as its address.
    pub async fn announced(&mut self, words: &str, within: Duration) -> Result<String> {
        let rest = async |log: &str| Some(log.split_once(words)?.1.split_once('\n')?.0.trim().to_owned());
        self.until(&format!("saying {words:?}"), within, rest).await
    }

    fn with_last_lines(&self, error: anyhow::Error) -> anyhow::Error {
        anyhow!("{}: {error:#}; its last lines:\n{}", self.name, self.log_tail())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.lifeline.is_some() {
            let _ = kill_process_group(self.pid(), Signal::TERM);
            let deadline = Instant::now() + GRACE;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
            self.kill();
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.id())
    }
}

/// Runs a command to its end and returns its standard output; an error quotes all that it printed.
pub async fn output(command: &mut tokio::process::Command) -> Result<Vec<u8>> {
    let program = command.as_std().get_program().display().to_string();
    let output = command.kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    ensure!(output.status.success(), "{program}: {stdout}{stderr}");
    Ok(output.stdout)
}

pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = probe().await {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("not {what} after {within:?}");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until a condition holds; panics after `within`.
pub async fn wait_until(what: &str, within: Duration, mut condition: impl AsyncFnMut() -> bool) {
    eventually(what, within, async || condition().await.then_some(())).await.unwrap();
}

/// Lets this process, and those that it starts from now on, open as many files as the system allows: the
/// usual 1,024 are too few for a thousand connections.
pub fn open_many_files() -> Result<()> {
    let files = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?)
}

/// Returns a random free TCP port, below those that the kernel gives to connections: none takes it meanwhile.
/// Prefer port 0 where the child can report its port.
pub fn free_port() -> Result<u16> {
    let ports = 20_000..30_000_u16;
    let first = RandomState::new().build_hasher().finish() % ports.len() as u64;
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.clone().cycle().skip(first as usize).take(ports.len()).find(is_free).context("no port is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_that_dies_early_is_reported_with_its_last_words() {
        let script = "echo no such luck; exit 3";
        let mut process = Spawn::new("short", "sh").arg("-c").arg(script).start().unwrap();
        let error = process.until("ready", PATIENCE, async |_| None::<()>).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("no such luck"), "{error}");
    }
}
