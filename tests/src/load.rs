//! Load on a server: as many requests as it answers, from `wrk`, and the processor time each of them took.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::repo;
use crate::usage::Usage;

/// Connections that ask at once.
pub const CONNECTIONS: usize = 16;

/// What a server did under load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests answered in a second.
    pub per_second: f64,
    /// Half of the answers came within this time.
    pub p50: Duration,
    /// 99 of 100 did.
    pub p99: Duration,
    /// Processor time of the server for one request.
    pub cpu: Duration,
}

/// What `report.lua` prints.
#[derive(Debug, Deserialize)]
struct Report {
    requests: u32,
    micros: u64,
    p50: u64,
    p99: u64,
    errors: u64,
}

impl Load {
    /// Asks `url` over and over on [`CONNECTIONS`] connections for so many seconds; every answer has to be a good one.
    ///
    /// # Errors
    /// When `wrk` is not installed, or an answer was an error.
    pub async fn on(url: &str, server: &Usage, seconds: u32) -> Result<Self> {
        let before = server.cpu()?;
        let output = Command::new("wrk")
            .args(["--threads", "1", "--connections", &CONNECTIONS.to_string()])
            .args(["--duration", &format!("{seconds}s"), "--timeout", "30s"])
            .arg("--script")
            .arg(repo::root().join("tests/peers/report.lua"))
            .arg(url)
            .kill_on_drop(true)
            .output()
            .await
            .context("wrk is not installed (Debian: apt-get install wrk)")?;
        let taken = server.cpu()?.saturating_sub(before);
        let text = String::from_utf8_lossy(&output.stdout);
        let report: Report = text
            .lines()
            .last()
            .and_then(|line| serde_json::from_str(line).ok())
            .with_context(|| format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
        ensure!(report.requests > 0 && report.errors == 0, "{url}: {text}");
        Ok(Self {
            per_second: f64::from(report.requests) / Duration::from_micros(report.micros).as_secs_f64(),
            p50: Duration::from_micros(report.p50),
            p99: Duration::from_micros(report.p99),
            cpu: taken / report.requests,
        })
    }
}
