//! Cold answers about the whole registry: what they read, and what they take.

use std::time::Instant;

use alloy::primitives::Address;
use anyhow::{Result, ensure};
use e2e::proxy::{Post, sequential};
use e2e::server::{Kind, Server};
use e2e::synthetic::Synthetic;
use registry_core::chain::MAX_AGENTS;

use super::{MANY, Setup};
use crate::table::{Table, median, mib, millis};

/// Answers that count, after the first one of an instance, which has yet to learn the node's limits.
const SAMPLES: u32 = 5;

pub(super) async fn measure(setup: &Setup) -> Result<String> {
    let mut table = Table::new(&[
        "",
        "agents",
        "round trips",
        "RPC posts",
        "bytes an agent",
        "CPU ms",
        "memory MiB",
        "p50 ms",
        "round trips, first",
    ]);
    for path in [
        "/api/v1/stats/detailed",
        "/api/v1/agents?status=Active",
        "/api/v1/agents/compliance",
        "/api/v1/revenue/aggregate",
    ] {
        table.row(&question(setup, setup.registry, MANY, path).await?);
    }
    let largest = Synthetic::deploy(&setup.chain, MAX_AGENTS).await?.address;
    table.row(&question(setup, largest, MAX_AGENTS, "/api/v1/stats/detailed").await?);
    Ok(format!(
        "### Cold answers about the whole registry\n\n\
         Nothing cached, each row on an instance of its own. Round trips are those that wait for one another; bytes \
         are of RPC answers; memory is what workerd's peak lies above its size before the first of {} answers, without pages of its program. Goals at \
         {MANY} agents: 2 round trips, 150 bytes an agent, 300 ms CPU, 64 MiB. {MAX_AGENTS} are the most that a scan covers.\n\n{}",
        SAMPLES + 1,
        table.finish()
    ))
}

async fn question(setup: &Setup, registry: Address, agents: u64, path: &str) -> Result<Vec<String>> {
    setup.chain.node.freshen().await?;
    let options = setup.options(registry).var("AGENT_TTL_SECONDS", 0);
    let server = Server::start(Kind::Worker, &setup.bundles, &options).await?;
    let client = server.client();
    ensure!(client.get("/api/v1/stats").await.status == 200, "{}", server.log());

    let memory = server.usage.memory_from_here()?;
    let first = ask(setup, &client, path).await?;
    let (mut times, mut last) = (Vec::new(), Vec::new());
    let cpu = server.usage.cpu()?;
    for _ in 0..SAMPLES {
        let began = Instant::now();
        last = ask(setup, &client, path).await?;
        times.push(began.elapsed());
    }
    let cpu = (server.usage.cpu()? - cpu) / SAMPLES;
    let bytes: u64 = last.iter().filter_map(|post| post.answer.get()).map(|answer| answer.bytes).sum();
    Ok(vec![
        format!("`{path}`"),
        agents.to_string(),
        sequential(&last).to_string(),
        last.len().to_string(),
        (bytes / agents).to_string(),
        millis(cpu),
        mib(memory.grown()?),
        median(&times).map(millis).unwrap_or_default(),
        sequential(&first).to_string(),
    ])
}

/// The RPC posts of one answer.
async fn ask(setup: &Setup, client: &e2e::client::Client, path: &str) -> Result<Vec<Post>> {
    setup.proxy.reset();
    let answer = client.get(path).await;
    ensure!(answer.status == 200, "{path}: {}", answer.text);
    Ok(setup.proxy.reset())
}
