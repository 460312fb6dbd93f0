//! Answers from the cache, under load.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::http;
use e2e::load::{CONNECTIONS, Load};
use e2e::seed;
use e2e::server::{Kind, Server};

use super::{FEW, Setup};
use crate::table::{Table, millis, p99};

/// Seconds on each path before anything is counted: hot code is compiled better.
const WARM_UP: u32 = 2;

/// Requests one after the other.
const ONE_BY_ONE: usize = 1_000;

/// Requests of each client where clients are counted: most of its limit.
const REQUESTS_PER_CLIENT: u32 = 40;

/// The documented rate limit.
const DOCUMENTED_LIMIT: u32 = 60;

/// What costs nothing but the runtime's part.
const LIVEZ: &str = "/livez";

/// Seconds that count.
const SECONDS: u32 = 5;

pub(super) async fn measure(setup: &Setup) -> Result<String> {
    let kya = seed::kya("many 7");
    let of_one = [kya.as_str(), "/api/v1/agent/7"];
    let of_many = [
        "/api/v1/agent/7/lineage",
        "/api/v1/stats",
        "/api/v1/stats/detailed",
        "/api/v1/agents",
        "/api/v1/agents?status=Active",
        "/api/v1/agents/compliance",
        "/api/v1/revenue/aggregate",
    ];

    let mut table =
        Table::new(&["", "requests/s", "of `/livez`", "p50 ms", "p99 ms", "p99 ms, one by one", "CPU ms"]);
    for kind in Kind::ALL {
        setup.chain.node.freshen().await?;
        let server = setup.start(kind).await?;
        let asked = of_one.into_iter().chain(of_many.into_iter().filter(|_| kind == Kind::Worker));
        let paths: Vec<&str> = [LIVEZ].into_iter().chain(asked).collect();
        for path in &paths {
            until_cached(&server, path).await?;
            load(&server, path, WARM_UP).await?;
        }
        let mut live = None;
        for path in paths {
            until_cached(&server, path).await?;
            let load = load(&server, path, SECONDS).await?;
            let live = live.get_or_insert(load.per_second);
            let shown = if path == kya { "/api/v1/kya/:wallet" } else { path };
            table.row(&[
                format!("{}: `{shown}`", kind.name()),
                format!("{:.0}", load.per_second),
                format!("{:.2}", load.per_second / *live),
                millis(load.p50),
                millis(load.p99),
                millis(one_by_one(&server, path).await?),
                format!("{:.3}", load.cpu.as_secs_f64() * 1e3),
            ]);
        }
    }
    let counting = counting(setup, &kya).await?;
    Ok(format!(
        "### Warm answers\n\n\
         From the cache, on {CONNECTIONS} connections (`wrk`), {FEW} agents. CPU is that of workerd, or of Node for Express, for one \
         request. Goals for each: 0.7 of `/livez`'s requests a second, p99 below 10 ms, 0.15 ms CPU, and ahead of both \
         peers. `wrk` counts what clients would have asked for while a server stood still, and V8 stands still for some 0.1 s after \
         some thousand requests, to free the runtime's objects of each: hence the p99 of every Worker under load, an empty one's \
         too. The last p99 is that of {ONE_BY_ONE} requests of one client, one after the other.\n\n{}\n{counting}",
        table.finish()
    ))
}

/// What counting clients costs: a cached verdict, with each limiter and without one.
async fn counting(setup: &Setup, kya: &str) -> Result<String> {
    let mut table = Table::new(&["limiter", "CPU ms"]);
    for (mode, limit) in [("kv", 0), ("kv", DOCUMENTED_LIMIT), ("durable-object", DOCUMENTED_LIMIT)] {
        setup.chain.node.freshen().await?;
        let options =
            setup.options(setup.registry).var("RATE_LIMITER", mode).var("RATE_LIMIT_PER_MINUTE", limit);
        let server = Server::start(Kind::Worker, &setup.bundles, &options).await?;
        server.until_cached(kya).await?;
        let url = format!("{}{kya}", server.url());
        let load =
            async |seconds| Load::of_clients(&url, &server.usage, seconds, Some(REQUESTS_PER_CLIENT)).await;
        load(WARM_UP).await?;
        let cpu = load(SECONDS).await?.cpu;
        table.row(&[format!("`{mode}`, limit {limit}"), format!("{:.3}", cpu.as_secs_f64() * 1e3)]);
    }
    Ok(format!(
        "A cached `/kya/:wallet` with the documented limit, each client sending {REQUESTS_PER_CLIENT} requests, one client after \
         the other. Goal for `kv`: 0.20 ms CPU.\n\n{}",
        table.finish()
    ))
}

async fn load(server: &Server, path: &str, seconds: u32) -> Result<Load> {
    Load::on(&format!("{}{path}", server.url()), &server.usage, seconds).await
}

/// The p99 of sequential requests of one client.
async fn one_by_one(server: &Server, path: &str) -> Result<Duration> {
    let client = http::builder().pool_max_idle_per_host(1).build()?;
    let url = format!("{}{path}", server.url());
    let mut times = Vec::with_capacity(ONE_BY_ONE);
    for _ in 0..ONE_BY_ONE {
        let began = Instant::now();
        client.get(&url).send().await?.error_for_status()?.bytes().await?;
        times.push(began.elapsed());
    }
    p99(&times).context("samples")
}

async fn until_cached(server: &Server, path: &str) -> Result<()> {
    if path == LIVEZ { Ok(()) } else { server.until_cached(path).await }
}
