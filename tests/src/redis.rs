//! A Redis server of Debian's package on a free port of its own, without files.

use anyhow::{Result, ensure};
use rustix::process::Signal;
use tokio::process::Command;

use crate::process::{PATIENCE, Process, Spawn, eventually, free_port, output};
use crate::servers::{listening, until_listening};

#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
}

impl Redis {
    /// Starts a server with these further options, such as `["--maxmemory", "1mb"]`.
    pub async fn start(options: &[&str]) -> Result<Self> {
        let (port, spawn) = (free_port()?, Spawn::new("redis", "redis-server"));
        let directory = spawn.scratch().to_owned();
        let own = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port"];
        let spawn = spawn.args(own).arg(port.to_string()).arg("--dir").arg(directory).args(options);
        Ok(Self { process: listening(spawn, port).await?, port })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts a server that was killed again, with the same port and options.
    pub async fn go_on(&mut self) -> Result<()> {
        self.process.restart()?;
        until_listening(&mut self.process, self.port).await
    }

    /// Limits the server's memory to this many bytes; `"0"` lifts the limit.
    pub async fn limit_memory(&self, bytes: &str) -> Result<()> {
        self.command(&["config", "set", "maxmemory", bytes]).await
    }

    /// Makes the server a replica of another one, and returns once it has that one's content in place of its
    /// own; `None` makes it a primary again.
    pub async fn follow(&self, primary: Option<&Self>) -> Result<()> {
        let Some(primary) = primary else { return self.command(&["replicaof", "no", "one"]).await };
        self.command(&["replicaof", "127.0.0.1", &primary.port.to_string()]).await?;
        let is_in_step = async || {
            let said = self.ask(&["info", "replication"]).await.ok()?;
            said.contains("master_link_status:up").then_some(())
        };
        eventually("in step with its primary", PATIENCE, is_in_step).await
    }

    async fn command(&self, words: &[&str]) -> Result<()> {
        let said = self.ask(words).await?;
        ensure!(said.starts_with("OK"), "{said}");
        Ok(())
    }

    async fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("redis-cli");
        let said = output(command.args(["-p", &self.port.to_string()]).args(words)).await?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Stops the server's process with its connections open, or lets it continue.
    pub fn stand_still(&mut self, still: bool) -> Result<()> {
        self.process.signal(if still { Signal::STOP } else { Signal::CONT })
    }
}
