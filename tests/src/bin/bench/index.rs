//! The index: what it costs to fill, to keep up and to ask, at several sizes of a registry.

use std::time::{Duration, Instant};

use alloy::primitives::{Address, Bytes, keccak256};
use anyhow::{Context as _, Result, ensure};
use e2e::anvil::{AnvilOptions, CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::client::{Answer, Client};
use e2e::fault::{Fault, Rule};
use e2e::http;
use e2e::process::eventually;
use e2e::proxy::{Post, Proxy, sequential};
use e2e::server::{Bundles, Kind, Server};
use e2e::synthetic::{Synthetic, creator, person};
use e2e::worker::WorkerOptions;
use registry_core::chain::MAX_AGENTS;
use registry_core::index::LIST_IN_MEMORY_MAX;
use serde_json::json;

use crate::step;
use crate::table::{Table, median, mib, millis};

/// Agents of the registries.
pub(crate) const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];

/// What the RPC endpoint takes to answer, beside its work.
const CALL: Duration = Duration::from_millis(20);

/// Changes before each refresh.
const CHANGES: u64 = 100;

/// Changes of a day.
const CHANGES_A_DAY: u64 = 1_000;

/// Refreshes of a day where lists are requested all the time: one for each TTL of five minutes.
const LISTS_A_DAY: u64 = 288;

/// Refreshes of a day where a client follows the changes: one every ten seconds, of which most find none.
const LOOKS_A_DAY: u64 = 8_640;

/// Refreshes, or answers of one kind, that are measured.
const SAMPLES: u64 = 9;

/// How long a fill may take.
const FILL: Duration = Duration::from_secs(1_800);

/// One registry, and the Worker that indexes it.
struct Scene<'a> {
    chain: &'a Chain,
    proxy: &'a Proxy,
    registry: Synthetic,
    agents: u64,
    server: Server,
    client: Client,
}

/// A row of each table: a fill, a refresh, a day, the answers, the whole list.
type Costs = [Vec<String>; 5];

/// The section of `BENCHMARKS.md`.
pub(crate) async fn section(sizes: &[u64]) -> Result<String> {
    let bundles = step("bundles of the Workers", Bundles::make(&[Kind::Worker, Kind::Indexed], None)).await?;
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await?;
    let proxy = Proxy::start(chain.node.url()).await?;
    let mut tables = [
        Table::new(&[
            "agents",
            "seconds",
            "RPC bytes an agent",
            "`eth_call`s",
            "rows written",
            "CPU s",
            "memory MiB",
        ]),
        Table::new(&[
            "agents",
            "sequential round trips",
            "RPC calls",
            "KiB",
            "CPU ms",
            "p50 ms",
            "round trips, nothing changed",
            "RPC calls",
            "KiB",
        ]),
        Table::new(&[
            "agents",
            "lists: RPC calls",
            "rows read",
            "rows written",
            "CPU s",
            "changes followed: RPC calls",
            "rows read",
            "rows written",
            "CPU s",
        ]),
        Table::new(&[
            "agents",
            "list page ms",
            "filtered and sorted ms",
            "searched ms",
            "searched of a creator ms",
            "`/liable/:wallet` ms",
            "lineage ms",
            "`/stats/detailed` with a refresh ms",
        ]),
        Table::new(&["agents", "seconds", "first byte ms", "MiB", "CPU s", "memory MiB"]),
    ];
    for agents in sizes {
        let costs = step(&format!("{agents} agents"), measure(&bundles, &chain, &proxy, *agents)).await?;
        for (table, cells) in tables.iter_mut().zip(costs) {
            table.row(&[vec![agents.to_string()], cells].concat());
        }
    }
    let [fills, refreshes, days, answers, lists] = tables.map(Table::finish);
    Ok(format!(
        "## Index\n\n\
         A synthetic registry (`contracts/test/SyntheticRegistry.sol`) on a local chain, the Worker and the one that keeps its index in one workerd.\n\n\
         ### First fill\n\n\
         RPC answers take {} ms and the node's time. Bytes are of RPC answers; memory is what workerd's peak lies above its size when both Workers had answered once, without pages of its program. Goals: \
         300 bytes an agent, 32 MiB.\n\n{}\n\
         ### A refresh after {CHANGES} changes\n\n\
         Medians of {SAMPLES}, with the same delay. Goals: 4 round trips, 10 calls, 60 kB, 50 ms CPU; where nothing has changed 1 and 2.\n\n{}\n\
         ### A day\n\n\
         What refreshes cost on a day with {CHANGES_A_DAY} changes: {LISTS_A_DAY} of them where lists are asked for all the time, {LOOKS_A_DAY} where a client \
         follows `/changes`. RPC calls are counted as providers bill them, each of a batch; rows are those of the object's SQLite, as `/readyz` counts them; CPU \
         is both Workers'. Medians of {SAMPLES} refreshes that find as many changes as these do, each with the request that asks for it, times their number; CPU is their mean.\n\n{}\n\
         ### Answers\n\n\
         Medians of {SAMPLES}, each asked for the first time; RPC answers without delay. All but `/stats/detailed`, which \
         comes after a refresh that finds nothing new, are made from an index that is fresh. A list page is \
         `?status=Active`, all over the list; filtered, the compliant agents of a creator, the last attested first; \
         searched, the compliant agents with a word whose first 2 to 10 letters are given, which a third of all have or more; of a creator, those with it \
         that one creator has. A creator has 1486 of a million agents, nearly as many as a page is made from at most. Pages have 100 agents. \
         Goals: 10, 15 and 25 ms.\n\n{}\n\
         ### The whole list\n\n\
         `/agents/compliance` once, read as fast as it comes: made in memory up to {LIST_IN_MEMORY_MAX} agents, streamed above. Memory is both \
         Workers' peak above their size before.\n\n{}",
        CALL.as_millis(),
        fills,
        refreshes,
        days,
        answers,
        lists
    ))
}

async fn measure(bundles: &Bundles, chain: &Chain, proxy: &Proxy, agents: u64) -> Result<Costs> {
    let registry = Synthetic::deploy(chain, agents).await?;
    let code: Bytes = chain.node.request("eth_getCode", json!([registry.address, "latest"])).await?;
    let start = async |keep_seconds: u32| -> Result<Scene<'_>> {
        let options = WorkerOptions::new(proxy.url(), registry.address)
            .var("CHAIN_ID", CHAIN_ID)
            .var("INDEX", "durable-object")
            .var("INDEX_SELF_CONTAINED_CODE", keccak256(&code))
            // A node carries out hundreds of calls for a slice one by one.
            .var("RPC_DEADLINE_SECONDS", 60)
            .var("RPC_TIMEOUT_SECONDS", 30)
            .var("RATE_LIMIT_PER_MINUTE", 1_000_000)
            .var("AGENT_TTL_SECONDS", keep_seconds)
            .var("LINEAGE_TTL_SECONDS", keep_seconds);
        let server = Server::start(Kind::Indexed, bundles, &options).await?;
        let client = server.client();
        Ok(Scene { chain, proxy, registry, agents, server, client })
    };

    // Answers that are not kept: each is as of the newest block.
    let scene = start(0).await?;
    let fill = scene.fill(CALL).await?;
    let refresh = scene.refresh().await?;
    let day = scene.day().await?;
    let detailed = scene.answers(|_| "/api/v1/stats/detailed".to_owned()).await?;
    drop(scene);

    let scene = start(3_600).await?;
    scene.fill(Duration::ZERO).await?;
    let lists = "/api/v1/agents?limit=100";
    let beginning = |sample: u64| -> String { "translation".chars().take(2 + sample as usize).collect() };
    let answers = vec![
        scene.answers(|sample| format!("{lists}&status=Active&page={}", 1 + sample * agents / 1_000)).await?,
        scene
            .answers(|sample| {
                format!("{lists}&creator={}&compliant=true&sort=-attestation", creator(1 + sample))
            })
            .await?,
        scene.answers(|sample| format!("{lists}&q={}&compliant=true", beginning(sample))).await?,
        scene
            .answers(|sample| format!("{lists}&creator={}&q={}", creator(1 + sample), beginning(sample)))
            .await?,
        scene.answers(|sample| format!("/api/v1/liable/{}?limit=100", person(7 * sample))).await?,
        scene.answers(|sample| format!("/api/v1/agent/{}/lineage", agents / 2 + sample)).await?,
        detailed,
    ];
    let list = scene.list().await?;
    Ok([fill, refresh, day, answers, list])
}

impl Scene<'_> {
    /// From the first request to the first answer of the index; RPC answers are `delayed`.
    async fn fill(&self, delayed: Duration) -> Result<Vec<String>> {
        self.chain.node.freshen().await?;
        self.proxy.heal();
        if !delayed.is_zero() {
            self.proxy.inject(Rule::any(Fault::Delay(delayed)));
        }
        self.proxy.reset();
        let (cpu, began) = (self.server.usage.cpu()?, Instant::now());
        // The first request starts the fill. Once it is answered, both Workers are there: their own memory is
        // not the index's.
        let first = self.client.get("/readyz").await;
        ensure!(first.status == 200, "/readyz: {} {}", first.status, first.text);
        let memory = self.server.usage.memory_from_here()?;
        // Only the index answers this: all RPC calls meanwhile are the fill's.
        let path = format!("/api/v1/liable/{}", Address::ZERO);
        let answer = eventually("filled", FILL, async || {
            // Lists are asked for meanwhile, of registries too large for a scan: they are refused, and take
            // no RPC call.
            if self.agents > MAX_AGENTS {
                self.client.get("/api/v1/agents?status=Active").await;
            }
            Some(self.client.get(&path).await).filter(is_indexed)
        });
        answer.await.with_context(|| self.server.log())?;
        let posts = self.proxy.reset();
        let bytes = bytes(&posts);
        let methods = posts.iter().flat_map(|post| &post.methods);
        let cpu = self.server.usage.cpu()? - cpu;
        Ok(vec![
            format!("{:.1}", began.elapsed().as_secs_f64()),
            (bytes / self.agents).to_string(),
            methods.filter(|method| *method == "eth_call").count().to_string(),
            self.rows().await?.1.to_string(),
            format!("{:.1}", cpu.as_secs_f64()),
            mib(memory.grown()?),
        ])
    }

    /// Rows that the object has read and written.
    async fn rows(&self) -> Result<(u64, u64)> {
        let status = self.client.get("/readyz").await;
        ensure!(status.status == 200, "/readyz: {} {}", status.status, status.text);
        let rows = &status.ok()["index"]["rows"];
        rows["read"].as_u64().zip(rows["written"].as_u64()).context("the object counts its rows")
    }

    async fn refresh(&self) -> Result<Vec<String>> {
        self.ask("/api/v1/stats/detailed").await?;
        let (mut times, mut trips, mut requests, mut sizes) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut cpu = Duration::ZERO;
        for sample in 0..SAMPLES {
            self.change(sample, CHANGES).await?;
            let (before, began) = (self.server.usage.cpu()?, Instant::now());
            self.ask("/api/v1/stats/detailed").await?;
            times.push(began.elapsed());
            cpu += self.server.usage.cpu()? - before;
            let posts = self.proxy.reset();
            trips.push(sequential(&posts));
            requests.push(calls(&posts));
            sizes.push(usize::try_from(bytes(&posts) >> 10)?);
        }
        let mut idle = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..SAMPLES {
            self.change(0, 0).await?;
            self.ask("/api/v1/stats/detailed").await?;
            let posts = self.proxy.reset();
            let figures = [sequential(&posts), calls(&posts), usize::try_from(bytes(&posts) >> 10)?];
            idle.iter_mut().zip(figures).for_each(|(samples, figure)| samples.push(figure));
        }
        let count = |samples: &[usize]| median(samples).map(|count| count.to_string()).unwrap_or_default();
        Ok(vec![
            count(&trips),
            count(&requests),
            count(&sizes),
            millis(cpu / u32::try_from(SAMPLES)?),
            median(&times).map(millis).unwrap_or_default(),
            count(&idle[0]),
            count(&idle[1]),
            count(&idle[2]),
        ])
    }

    /// What a day's refreshes cost.
    async fn day(&self) -> Result<Vec<String>> {
        let quiet = self.refresh_after(0).await?;
        let list = self.refresh_after(CHANGES_A_DAY.div_ceil(LISTS_A_DAY)).await?;
        let look = self.refresh_after(1).await?;
        let followed = quiet.times(LOOKS_A_DAY - CHANGES_A_DAY).plus(look.times(CHANGES_A_DAY));
        Ok([list.times(LISTS_A_DAY).cells(), followed.cells()].concat())
    }

    /// The medians of what a refresh costs that finds so many changes.
    async fn refresh_after(&self, changes: u64) -> Result<Cost> {
        let mut samples = [Vec::new(), Vec::new(), Vec::new()];
        let mut total_cpu = Duration::ZERO;
        for sample in 0..SAMPLES {
            self.change(sample, changes).await?;
            let (read, written) = self.rows().await?;
            self.proxy.reset();
            let cpu = self.server.usage.cpu()?;
            self.ask("/api/v1/stats/detailed").await?;
            total_cpu += self.server.usage.cpu()? - cpu;
            let calls = calls(&self.proxy.reset()) as u64;
            let after = self.rows().await?;
            let figures = [calls, after.0 - read, after.1 - written];
            samples.iter_mut().zip(figures).for_each(|(samples, figure)| samples.push(figure));
        }
        let [calls, read, written] = samples.map(|samples| median(&samples).unwrap_or_default());
        // The clock of CPU time is too coarse for a median.
        let micros = u64::try_from(total_cpu.as_micros())? / SAMPLES;
        Ok(Cost([calls, read, written, micros]))
    }

    /// Changes so many agents, and lets the proxy count from here.
    async fn change(&self, sample: u64, changes: u64) -> Result<()> {
        if changes > 0 {
            // Spread over the registry, as changes are.
            self.registry.toggle(self.chain, 1 + sample * (self.agents / SAMPLES), changes).await?;
        }
        self.chain.node.freshen().await?;
        self.proxy.reset();
        Ok(())
    }

    /// The median time of several answers.
    async fn answers(&self, path: impl Fn(u64) -> String) -> Result<String> {
        self.chain.node.freshen().await?;
        self.proxy.heal();
        let mut times = Vec::new();
        for sample in 0..SAMPLES {
            let began = Instant::now();
            self.ask(&path(sample)).await?;
            times.push(began.elapsed());
        }
        Ok(median(&times).map(millis).unwrap_or_default())
    }

    /// What the whole list takes.
    async fn list(&self) -> Result<Vec<String>> {
        let url = format!("{}/api/v1/agents/compliance", self.server.url());
        let (memory, cpu, began) =
            (self.server.usage.memory_from_here()?, self.server.usage.cpu()?, Instant::now());
        let mut response = http::client(FILL).get(url).send().await?.error_for_status()?;
        let (mut first, mut bytes, mut end) = (Duration::ZERO, 0, 0);
        while let Some(chunk) = response.chunk().await? {
            if bytes == 0 {
                first = began.elapsed();
            }
            bytes += chunk.len() as u64;
            end = chunk.last().copied().unwrap_or(end);
        }
        ensure!(end == b'}', "the list has no end after {bytes} bytes");
        Ok(vec![
            format!("{:.1}", began.elapsed().as_secs_f64()),
            millis(first),
            mib(bytes),
            format!("{:.1}", (self.server.usage.cpu()? - cpu).as_secs_f64()),
            mib(memory.grown()?),
        ])
    }

    async fn ask(&self, path: &str) -> Result<Answer> {
        let answer = self.client.get(path).await;
        ensure!(is_indexed(&answer), "{path}: {} {}", answer.status, answer.text);
        Ok(answer)
    }
}

/// RPC calls, rows read, rows written, and microseconds of CPU.
#[derive(Clone, Copy)]
struct Cost([u64; 4]);

impl Cost {
    fn times(self, count: u64) -> Self {
        Self(self.0.map(|figure| figure * count))
    }

    fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place] + other.0[place]))
    }

    fn cells(self) -> Vec<String> {
        let [calls, read, written, micros] = self.0;
        let seconds = Duration::from_micros(micros).as_secs_f64();
        vec![calls.to_string(), read.to_string(), written.to_string(), format!("{seconds:.0}")]
    }
}

fn is_indexed(answer: &Answer) -> bool {
    answer.status == 200 && !answer.header("x-as-of-block").is_empty()
}

/// The bytes of the answers.
fn bytes(posts: &[Post]) -> u64 {
    posts.iter().filter_map(|post| post.answer.get()).map(|answer| answer.bytes).sum()
}

/// How many calls these are, each of a batch.
fn calls(posts: &[Post]) -> usize {
    posts.iter().map(|post| post.methods.len()).sum()
}
