//! Load on a server from `wrk`: the requests that it answers, and the processor time of each.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;

use crate::repo;
use crate::usage::Usage;

pub const CONNECTIONS: usize = 16;
/// Attempts before lost requests count as the server's fault.
const ATTEMPTS: usize = 3;

#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
    pub cpu: Duration,
}

impl Load {
    /// Requests `url` on [`CONNECTIONS`] connections for this many seconds; an error or a lost answer fails.
    /// With `each`, the load is of many clients, each with that many requests and an address of its own.
    pub async fn on(url: &str, server: &Usage, seconds: u32, each: Option<u32>) -> Result<Self> {
        // On a machine that pauses for seconds, a server takes its connections for idle and closes them.
        for _ in 0..ATTEMPTS {
            if let Some(load) = Self::attempt(url, server, seconds, each).await? {
                return Ok(load);
            }
        }
        bail!("{url}: requests were lost")
    }

    /// Measures once; `None` where a request was lost.
    async fn attempt(url: &str, server: &Usage, seconds: u32, each: Option<u32>) -> Result<Option<Self>> {
        let before = server.cpu()?;
        let mut wrk = Command::new("wrk");
        wrk.envs(each.map(|requests| ("CLIENT_REQUESTS", requests.to_string())));
        wrk.args(["--threads", "1", "--connections", &CONNECTIONS.to_string(), "--timeout", "30s"]);
        wrk.args(["--duration", &format!("{seconds}s"), "--script"]);
        wrk.arg(repo::root().join("tests/peers/report.lua")).arg(url);
        let output = wrk.kill_on_drop(true).output().await;
        let output = output.context("wrk is not installed (Debian: apt-get install wrk)")?;
        let taken = server.cpu()?.saturating_sub(before);
        let text = String::from_utf8_lossy(&output.stdout);
        // `report.lua` prints counts and times in microseconds; `error_answers` had a status of 400 or more.
        let report = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let report: BTreeMap<String, u32> =
            report.with_context(|| format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
        ensure!(report["requests"] > 0 && report["error_answers"] == 0, "{url}: {text}");
        let time = |name| Duration::from_micros(report[name].into());
        Ok((report["lost"] == 0).then(|| Self {
            per_second: f64::from(report["requests"]) / time("micros").as_secs_f64(),
            p50: time("p50"),
            p99: time("p99"),
            cpu: taken / report["requests"],
        }))
    }
}
