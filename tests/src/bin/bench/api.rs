//! The read API beside its peers and the bare RPC call: warm and cold answers, whole registries, size, start.
//!
//! One chain has two registries: a real one of few agents for warm answers, and a large one for cold answers.

use std::io::Write as _;
use std::time::{Duration, Instant};

use alloy::primitives::Address;
use anyhow::{Context as _, Result, ensure};
use e2e::anvil::{AnvilOptions, CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::http;
use e2e::load::Load;
use e2e::proxy::{Post, Proxy, sequential};
use e2e::seed;
use e2e::server::{Bundles, Kind, Server};
use e2e::synthetic::{self, Synthetic};
use e2e::worker::WorkerOptions;
use flate2::{Compression, write::GzEncoder};
use registry_core::chain::MAX_AGENTS;

use crate::document::{Table, median, mib, millis, percentile};
use crate::step;

/// Agents while warm answers are measured, and while cold ones are.
const FEW: u64 = 100;
const MANY: u64 = 10_000;
/// Seconds of load on each path that count, after those in which hot code is compiled.
const SECONDS: u32 = 5;
const WARM_UP_SECONDS: u32 = 2;
/// Requests one after the other.
const ONE_BY_ONE: usize = 1_000;
/// The documented rate limit, and most of it: requests of each client where clients are counted.
const DOCUMENTED_LIMIT: u32 = 60;
const REQUESTS_PER_CLIENT: u32 = 40;
/// Agents asked for cold, and those asked for before.
const COLD: u64 = 200;
const WARM_UP_AGENTS: u64 = 20;
/// Scans that count, after the first one of an instance, which has yet to learn the node's limits.
const SCANS: u32 = 5;
/// Starts that count, after one that fills the disk cache.
const STARTS: usize = 5;
/// What costs nothing but the runtime's part.
const LIVEZ: &str = "/livez";
const DETAILED: &str = "/api/v1/stats/detailed";

pub(crate) async fn section() -> Result<Vec<Table>> {
    let bundles = step("bundles of the Workers", Bundles::make(&Kind::ALL)).await?;
    // Blocks of one second get times a second apart: an hour is room for all of them.
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await?;
    let proxy = Proxy::start(chain.node.url()).await?;
    let mut setup = Setup { registry: chain.contracts.registry, chain, proxy, bundles };
    step("a small registry", seed::many(&setup.chain, FEW)).await?;
    let [warm, limiters] = step("warm answers", setup.warm()).await?;
    setup.registry = Synthetic::deploy(&setup.chain, MANY).await?.address;
    let cold = step("cold answers about one agent", setup.cold()).await?;
    let scans = step("cold answers about the whole registry", setup.scans()).await?;
    let starts = step("size and start", setup.starts()).await?;
    Ok(vec![warm, limiters, cold, scans, starts])
}

/// What all servers read: a registry on a chain, and the proxy before it that counts.
struct Setup {
    chain: Chain,
    registry: Address,
    proxy: Proxy,
    bundles: Bundles,
}

impl Setup {
    /// Settings with a limit that counts every request and refuses none.
    fn options(&self) -> WorkerOptions {
        WorkerOptions::new(self.proxy.url(), self.registry)
            .var("CHAIN_ID", CHAIN_ID)
            .var("RATE_LIMIT_PER_MINUTE", 1_000_000_000)
    }

    async fn start(&self, kind: Kind, options: &WorkerOptions) -> Result<Server> {
        self.chain.node.freshen().await?;
        Server::start(kind, &self.bundles, options).await
    }

    async fn warm(&self) -> Result<[Table; 2]> {
        let kya = seed::kya("many 7");
        let paths = [
            LIVEZ,
            &kya,
            "/api/v1/agent/7",
            "/api/v1/agent/7/lineage",
            "/api/v1/stats",
            DETAILED,
            "/api/v1/agents",
            "/api/v1/agents?status=Active",
            "/api/v1/agents/compliance",
            "/api/v1/revenue/aggregate",
        ];
        let mut table =
            Table::new(" | requests/s | of `/livez` | p50 ms | p99 ms | p99 ms, one by one | CPU ms");
        for kind in Kind::ALL {
            let server = self.start(kind, &self.options()).await?;
            // The peers answer about one agent alone.
            let paths = if kind == Kind::Worker { &paths[..] } else { &paths[..3] };
            for path in paths {
                load(&server, path, WARM_UP_SECONDS, None).await?;
            }
            let mut live = None;
            for path in paths {
                let load = load(&server, path, SECONDS, None).await?;
                let live = *live.get_or_insert(load.per_second);
                let shown = if *path == kya { "/api/v1/kya/:wallet" } else { path };
                table.row([
                    format!("{}: `{shown}`", kind.name()),
                    format!("{:.0}", load.per_second),
                    format!("{:.2}", load.per_second / live),
                    millis(load.p50),
                    millis(load.p99),
                    millis(one_by_one(&server, path).await?),
                    format!("{:.3}", load.cpu.as_secs_f64() * 1e3),
                ]);
            }
        }
        let mut limiters = Table::new("limiter | CPU ms");
        for (mode, limit) in [("kv", 0), ("kv", DOCUMENTED_LIMIT), ("durable-object", DOCUMENTED_LIMIT)] {
            let options = self.options().var("RATE_LIMITER", mode).var("RATE_LIMIT_PER_MINUTE", limit);
            let server = self.start(Kind::Worker, &options).await?;
            load(&server, &kya, WARM_UP_SECONDS, Some(REQUESTS_PER_CLIENT)).await?;
            let cpu = load(&server, &kya, SECONDS, Some(REQUESTS_PER_CLIENT)).await?.cpu;
            limiters.row([format!("`{mode}`, limit {limit}"), format!("{:.3}", cpu.as_secs_f64() * 1e3)]);
        }
        Ok([table, limiters])
    }

    /// First answers about one agent, one after the other, beside the RPC call they are made of.
    async fn cold(&self) -> Result<Table> {
        let mut servers = Vec::new();
        for kind in Kind::ALL {
            servers.push(self.start(kind, &self.options()).await?);
        }
        let mut rows: Vec<Vec<String>> = vec![vec!["the bare RPC call".to_owned()]];
        rows.extend(servers.iter().map(|server| vec![server.kind.name().to_owned()]));
        let kya = |id| format!("/api/v1/kya/{}", synthetic::wallet(id));
        let agent = |id| format!("/api/v1/agent/{id}");
        for times in [self.question(&servers, kya).await?, self.question(&servers, agent).await?] {
            let [bare, servers @ ..] = &times[..] else { unreachable!("the bare call comes first") };
            rows[0].push(millis(*bare));
            for (row, time) in rows[1..].iter_mut().zip(servers) {
                let over = time.as_secs_f64() - bare.as_secs_f64();
                row.push(format!("{} ({:+.2})", millis(*time), over * 1e3));
            }
        }
        let mut table = Table::new("p50 ms | `/kya/:wallet` | `/agent/:id`");
        rows.into_iter().for_each(|row| table.row(row));
        Ok(table)
    }

    /// Medians of the bare RPC call and of each server. They are asked for the same agents in turn: what slows the
    /// machine down for a while slows all of them.
    async fn question(&self, servers: &[Server], path: impl Fn(u64) -> String) -> Result<Vec<Duration>> {
        let client = http::builder().pool_max_idle_per_host(1).timeout(Duration::from_secs(30)).build()?;
        let mut times = vec![Vec::new(); 1 + servers.len()];
        for sample in 0..WARM_UP_AGENTS + COLD {
            let path = path(1 + sample * (MANY / (WARM_UP_AGENTS + COLD)));
            let counts = sample >= WARM_UP_AGENTS;
            let mut took = Vec::new();
            for server in servers {
                self.proxy.reset();
                let began = Instant::now();
                let answer = client.get(format!("{}{path}", server.url())).send().await?;
                answer.error_for_status()?.bytes().await?;
                took.push(began.elapsed());
                let posts = self.proxy.reset();
                ensure!(posts.len() == 1 || !counts, "{}: {path}: {posts:?}", server.kind.name());
                if server.kind == Kind::Worker {
                    let body = &posts.last().context("an RPC call")?.body;
                    let began = Instant::now();
                    let answer = client.post(self.proxy.url()).json(body).send().await?;
                    answer.error_for_status()?.bytes().await?;
                    took.insert(0, began.elapsed());
                }
            }
            if counts {
                times.iter_mut().zip(took).for_each(|(times, time)| times.push(time));
            }
        }
        Ok(times.iter().map(|times| median(times)).collect())
    }

    /// Cold answers about the whole registry: what they read, and what they take.
    async fn scans(&self) -> Result<Table> {
        let mut table = Table::new(
            " | agents | round trips | RPC posts | bytes an agent | CPU ms | memory MiB | p50 ms | round trips, first",
        );
        let largest = Synthetic::deploy(&self.chain, MAX_AGENTS).await?.address;
        for (path, registry, agents) in [
            (DETAILED, self.registry, MANY),
            ("/api/v1/agents?status=Active", self.registry, MANY),
            ("/api/v1/agents/compliance", self.registry, MANY),
            ("/api/v1/revenue/aggregate", self.registry, MANY),
            (DETAILED, largest, MAX_AGENTS),
        ] {
            let options = self.options().var("REGISTRY_ADDRESS", registry).var("AGENT_TTL_SECONDS", 0);
            let server = self.start(Kind::Worker, &options).await?;
            let client = server.client();
            client.get("/api/v1/stats").await.ok();
            let ask = async || -> Vec<Post> {
                self.proxy.reset();
                client.get(path).await.ok();
                self.proxy.reset()
            };
            let memory = server.usage.memory_from_here()?;
            let first = ask().await;
            let (mut times, mut last) = (Vec::new(), Vec::new());
            let cpu = server.usage.cpu()?;
            for _ in 0..SCANS {
                let began = Instant::now();
                last = ask().await;
                times.push(began.elapsed());
            }
            let cpu = (server.usage.cpu()? - cpu) / SCANS;
            let bytes: u64 =
                last.iter().filter_map(|post| post.answer.get()).map(|answer| answer.bytes).sum();
            table.row([
                format!("`{path}`"),
                agents.to_string(),
                sequential(&last).to_string(),
                last.len().to_string(),
                (bytes / agents).to_string(),
                millis(cpu),
                mib(memory.grown()?),
                millis(median(&times)),
                sequential(&first).to_string(),
            ]);
        }
        Ok(table)
    }

    /// What a deployment uploads, and how soon a new instance answers: at all, and then from the chain.
    async fn starts(&self) -> Result<Table> {
        let kya = seed::kya("many 7");
        let mut table = Table::new(" | KiB gzipped | first `/livez` ms | then first `/kya` ms");
        for kind in Kind::ALL {
            let mut times = [Vec::new(), Vec::new()];
            for start in 0..=STARTS {
                let server = self.start(kind, &self.options()).await?;
                let client = server.client();
                for (path, times) in [LIVEZ, &kya].into_iter().zip(&mut times) {
                    let began = Instant::now();
                    client.get(path).await.ok();
                    if start > 0 {
                        times.push(began.elapsed());
                    }
                }
            }
            let size = if kind == Kind::Express { String::new() } else { self.kib_gzipped(kind)? };
            let [live, kya] = times.map(|times| millis(median(&times)));
            table.row([kind.name(), &size, &live, &kya]);
        }
        Ok(table)
    }

    fn kib_gzipped(&self, kind: Kind) -> Result<String> {
        let mut bytes = 0;
        for file in self.bundles.files(kind)? {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&std::fs::read(file)?)?;
            bytes += encoder.finish()?.len();
        }
        Ok(format!("{:.1}", bytes as f64 / 1024.0))
    }
}

/// Load on a cached answer, or on what reads nothing; from clients that each send so many requests.
async fn load(server: &Server, path: &str, seconds: u32, each: Option<u32>) -> Result<Load> {
    if path != LIVEZ {
        server.until_cached(path).await?;
    }
    Load::on(&format!("{}{path}", server.url()), &server.usage, seconds, each).await
}

/// The p99 of sequential requests of one client.
async fn one_by_one(server: &Server, path: &str) -> Result<Duration> {
    let client = http::builder().pool_max_idle_per_host(1).build()?;
    let mut times = Vec::with_capacity(ONE_BY_ONE);
    for _ in 0..ONE_BY_ONE {
        let began = Instant::now();
        let answer = client.get(format!("{}{path}", server.url())).send().await?;
        answer.error_for_status()?.bytes().await?;
        times.push(began.elapsed());
    }
    Ok(percentile(&times, 99))
}
