//! The index: what it costs to fill, to keep up and to ask, at several sizes of a registry.

use std::time::{Duration, Instant};

use alloy::primitives::Address;
use anyhow::{Context as _, Result, ensure};
use e2e::client::{Answer, Client};
use e2e::fault::{Fault, Rule};
use e2e::http;
use e2e::process::eventually;
use e2e::proxy::{Post, Proxy, sequential};
use e2e::server::{Kind, Server};
use e2e::synthetic::{creator, person};
use registry_core::chain::MAX_AGENTS;

use crate::document::{Table, median, medians, mib, millis};
use crate::synthetic::{CHANGES_A_DAY, FILL, Registry, Rows, SAMPLES, tables};

/// What the RPC endpoint takes to answer, beside its work.
const CALL: Duration = Duration::from_millis(20);
/// Changes before each refresh.
const CHANGES: u64 = 100;
/// Refreshes of a day where lists are requested all the time: one for each TTL of five minutes.
const LISTS_A_DAY: u64 = 288;
/// Refreshes of a day where a client follows the changes: one every ten seconds, of which most find none.
const LOOKS_A_DAY: u64 = 8_640;
/// Answered by the index, after a refresh where its answers are not kept.
const DETAILED: &str = "/api/v1/stats/detailed";

pub(crate) async fn section(sizes: &[u64]) -> Result<Vec<Table>> {
    let columns = [
        "seconds | RPC bytes an agent | `eth_call`s | rows written | CPU s | memory MiB",
        "sequential round trips | RPC calls | KiB | CPU ms | p50 ms | round trips, nothing changed | RPC calls | KiB",
        "lists: RPC calls | rows read | rows written | CPU s | changes followed: RPC calls | rows read | rows written | CPU s",
        "list page ms | filtered and sorted ms | searched ms | searched of a creator ms | `/liable/:wallet` ms | lineage ms | `/stats/detailed` with a refresh ms",
        "seconds | first byte ms | MiB | CPU s | memory MiB",
    ];
    tables(sizes, columns, measure).await
}

async fn measure(registry: &Registry<'_>) -> Result<[Vec<String>; 5]> {
    // Answers that are not kept: each is as of the newest block.
    let workers = Workers::start(registry, 0).await?;
    let fill = workers.fill(CALL).await?;
    let (refresh, day) = workers.refreshes().await?;
    let detailed = workers.answers(|_| DETAILED.to_owned()).await?;
    drop(workers);

    let workers = Workers::start(registry, 3_600).await?;
    workers.fill(Duration::ZERO).await?;
    let (agents, lists) = (registry.agents, "/api/v1/agents?limit=100");
    let word = |sample: u64| -> String { "translation".chars().take(2 + sample as usize).collect() };
    let creator = |sample: u64| creator(1 + sample);
    let answers = vec![
        workers.answers(|it| format!("{lists}&status=Active&page={}", 1 + it * agents / 1_000)).await?,
        workers
            .answers(|it| format!("{lists}&creator={}&compliant=true&sort=-attestation", creator(it)))
            .await?,
        workers.answers(|it| format!("{lists}&q={}&compliant=true", word(it))).await?,
        workers.answers(|it| format!("{lists}&creator={}&q={}", creator(it), word(it))).await?,
        workers.answers(|it| format!("/api/v1/liable/{}?limit=100", person(7 * it))).await?,
        workers.answers(|it| format!("/api/v1/agent/{}/lineage", agents / 2 + it)).await?,
        detailed,
    ];
    Ok([fill, refresh, day, answers, workers.list().await?])
}

/// The Worker and the one that keeps its index.
struct Workers<'a> {
    registry: &'a Registry<'a>,
    proxy: Proxy,
    server: Server,
    client: Client,
}

/// Medians of what a refresh costs, but for the mean of its CPU.
struct Refresh {
    time: Duration,
    cpu: Duration,
    round_trips: u64,
    kib: u64,
    /// RPC calls, rows read, rows written.
    billed: [u64; 3],
}

impl<'a> Workers<'a> {
    async fn start(registry: &'a Registry<'a>, ttl_seconds: u32) -> Result<Self> {
        let proxy = Proxy::start(registry.chain.node.url()).await?;
        let options = registry
            .options(proxy.url())
            .var("INDEX", "durable-object")
            .var("INDEX_SELF_CONTAINED_CODE", registry.code_hash)
            .var("RATE_LIMIT_PER_MINUTE", 1_000_000)
            .var("AGENT_TTL_SECONDS", ttl_seconds)
            .var("LINEAGE_TTL_SECONDS", ttl_seconds);
        let server = Server::start(Kind::Indexed, registry.bundles, &options).await?;
        let client = server.client();
        Ok(Self { registry, proxy, server, client })
    }

    /// From the first request to the first answer of the index; RPC answers are `delayed`.
    async fn fill(&self, delayed: Duration) -> Result<Vec<String>> {
        self.registry.chain.node.freshen().await?;
        if !delayed.is_zero() {
            self.proxy.inject(Rule::any(Fault::Delay(delayed)));
        }
        self.proxy.reset();
        let (cpu, began) = (self.server.usage.cpu()?, Instant::now());
        // The first request starts the fill. Once it is answered, both Workers are there: their own memory is
        // not the index's.
        self.client.get("/readyz").await.ok();
        let memory = self.server.usage.memory_from_here()?;
        // Only the index answers this: all RPC calls meanwhile are the fill's.
        let path = format!("/api/v1/liable/{}", Address::ZERO);
        let answer = eventually("filled", FILL, async || {
            // Lists are asked for meanwhile, of registries too large for a scan: they are refused, and take
            // no RPC call.
            if self.registry.agents > MAX_AGENTS {
                self.client.get("/api/v1/agents?status=Active").await;
            }
            Some(self.client.get(&path).await).filter(is_indexed)
        });
        answer.await.with_context(|| self.server.log())?;
        let posts = self.proxy.reset();
        let methods = posts.iter().flat_map(|post| &post.methods);
        let seconds = began.elapsed().as_secs_f64();
        let [_, written] = Rows::of(&self.client).await?.counts;
        Ok(vec![
            format!("{seconds:.1}"),
            (bytes(&posts) / self.registry.agents).to_string(),
            methods.filter(|method| *method == "eth_call").count().to_string(),
            written.to_string(),
            format!("{:.1}", (self.server.usage.cpu()? - cpu).as_secs_f64()),
            mib(memory.grown()?),
        ])
    }

    /// What one refresh costs, and what those of a day do.
    async fn refreshes(&self) -> Result<(Vec<String>, Vec<String>)> {
        let (many, quiet) = (self.refresh(CHANGES).await?, self.refresh(0).await?);
        let of_list = self.refresh(CHANGES_A_DAY.div_ceil(LISTS_A_DAY)).await?;
        let of_change = self.refresh(1).await?;
        let mut refresh =
            vec![many.round_trips.to_string(), many.billed[0].to_string(), many.kib.to_string()];
        refresh.extend([millis(many.cpu), millis(many.time)]);
        refresh.extend([quiet.round_trips, quiet.billed[0], quiet.kib].map(|figure| figure.to_string()));
        let mut day = Vec::new();
        for refreshes in [
            [(&of_list, LISTS_A_DAY), (&quiet, 0)],
            [(&of_change, CHANGES_A_DAY), (&quiet, LOOKS_A_DAY - CHANGES_A_DAY)],
        ] {
            for place in 0..3 {
                let billed = refreshes.map(|(refresh, count)| refresh.billed[place] * count);
                day.push(billed.iter().sum::<u64>().to_string());
            }
            let cpu = refreshes.map(|(refresh, count)| refresh.cpu.as_secs_f64() * count as f64);
            day.push(format!("{:.0}", cpu.iter().sum::<f64>()));
        }
        Ok((refresh, day))
    }

    async fn refresh(&self, changes: u64) -> Result<Refresh> {
        let (mut samples, mut cpu) = (Vec::new(), Duration::ZERO);
        for sample in 0..SAMPLES {
            self.registry.change(sample, changes).await?;
            self.registry.chain.node.freshen().await?;
            let before = Rows::of(&self.client).await?;
            self.proxy.reset();
            let (used, began) = (self.server.usage.cpu()?, Instant::now());
            self.ask(DETAILED).await?;
            let time = u64::try_from(began.elapsed().as_micros())?;
            cpu += self.server.usage.cpu()? - used;
            let posts = self.proxy.reset();
            let calls: usize = posts.iter().map(|post| post.methods.len()).sum();
            let [read, written] = Rows::of(&self.client).await?.after(&before);
            samples.push([time, sequential(&posts) as u64, bytes(&posts) >> 10, calls as u64, read, written]);
        }
        let [micros, round_trips, kib, billed @ ..] = medians(&samples);
        // The clock of CPU time is too coarse for a median.
        let cpu = cpu / u32::try_from(SAMPLES)?;
        Ok(Refresh { time: Duration::from_micros(micros), cpu, round_trips, kib, billed })
    }

    async fn answers(&self, path: impl Fn(u64) -> String) -> Result<String> {
        self.registry.chain.node.freshen().await?;
        self.proxy.heal();
        let mut times = Vec::new();
        for sample in 0..SAMPLES {
            let began = Instant::now();
            self.ask(&path(sample)).await?;
            times.push(began.elapsed());
        }
        Ok(millis(median(&times)))
    }

    async fn list(&self) -> Result<Vec<String>> {
        let url = format!("{}/api/v1/agents/compliance", self.server.url());
        let (memory, cpu) = (self.server.usage.memory_from_here()?, self.server.usage.cpu()?);
        let began = Instant::now();
        let mut response = http::client(FILL).get(url).send().await?.error_for_status()?;
        let (mut first, mut bytes, mut end) = (None, 0, 0);
        while let Some(chunk) = response.chunk().await? {
            first.get_or_insert_with(|| began.elapsed());
            bytes += chunk.len() as u64;
            end = chunk.last().copied().unwrap_or(end);
        }
        ensure!(end == b'}', "the list has no end after {bytes} bytes");
        Ok(vec![
            format!("{:.1}", began.elapsed().as_secs_f64()),
            millis(first.unwrap_or_default()),
            mib(bytes),
            format!("{:.1}", (self.server.usage.cpu()? - cpu).as_secs_f64()),
            mib(memory.grown()?),
        ])
    }

    async fn ask(&self, path: &str) -> Result<()> {
        let answer = self.client.get(path).await;
        ensure!(is_indexed(&answer), "{path}: {} {}", answer.status, answer.text);
        Ok(())
    }
}

fn is_indexed(answer: &Answer) -> bool {
    answer.status == 200 && !answer.header("x-as-of-block").is_empty()
}

fn bytes(posts: &[Post]) -> u64 {
    posts.iter().filter_map(|post| post.answer.get()).map(|answer| answer.bytes).sum()
}
