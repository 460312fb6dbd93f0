//! Verdicts from the snapshot: cold lookups without the chain, the memory they take, and what a day costs.

use std::collections::BTreeSet;
use std::iter;
use std::time::{Duration, Instant};

use alloy::primitives::{Address, keccak256};
use anyhow::{Context as _, Result, ensure};
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::client::{Answer, Client};
use e2e::fault::{Fault, Rule};
use e2e::http;
use e2e::load::CONNECTIONS;
use e2e::process::eventually;
use e2e::proxy::Proxy;
use e2e::server::{Asked, Bundles, Distance, Kind, Server};
use e2e::synthetic::{Synthetic, id_of, parent, status, wallet};
use e2e::worker::WorkerOptions;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use registry_core::evidence::Layout;
use registry_core::snapshot::Manifest;
use serde_json::{Value, json};

use crate::step;
use crate::table::{Table, median, mib, millis, p99};

/// Agents of the registries.
pub(crate) const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];

/// What the RPC endpoint takes to answer a Worker, beside its work.
const ENDPOINT: Duration = Duration::from_millis(80);

/// Milliseconds to the index's object and back.
const OBJECT_MILLIS: u64 = 150;

/// Wallets that are asked for once, and how many of them have no agent.
const COLD: u64 = 10_000;
const UNREGISTERED: u64 = 500;

/// Warm lookups in each of so many rounds, of wallets that are hardly asked for twice under one manifest, so that
/// each verdict is derived from its shard, and of wallets that a cache in memory has room for.
const WARM: usize = 5_000;
const ROUNDS: usize = 5;
const WARM_WALLETS: usize = 10_000;
const CACHED_WALLETS: usize = 1_000;

/// Random lookups while memory is measured.
const RANDOM: u64 = 100_000;

/// The TTL of verdicts while renewals are counted: a manifest is kept for a third of it.
const TTL_SECONDS: u64 = 15;

/// Renewals that are measured.
const SAMPLES: u64 = 9;

/// Manifests of a day that a data centre gets: one for each 20 seconds.
const MANIFESTS_A_DAY: u64 = 4_320;

/// Changes of a day.
const CHANGES_A_DAY: u64 = 1_000;

/// How long the index may take to be filled, and a change to be seen.
const FILL: Duration = Duration::from_secs(1_800);

/// The section of `BENCHMARKS.md`.
pub(crate) async fn section(sizes: &[u64]) -> Result<String> {
    let bundles = step("bundles of the Workers", Bundles::make(&[Kind::Worker, Kind::Indexed], None)).await?;
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await?;
    let mut tables = [
        Table::new(&[
            "agents",
            "RPC posts",
            "shards touched",
            "fetched",
            "p50 ms",
            "p99 ms",
            "by chain: p50 ms",
            "p99 ms",
        ]),
        Table::new(&[
            "agents",
            "warm shard: CPU ms",
            "cached verdict: CPU ms",
            "times",
            "memory MiB",
            "with garbage",
        ]),
        Table::new(&[
            "agents",
            "shards",
            "requests to the object",
            "rows read",
            "rows written",
            "cache operations",
        ]),
    ];
    for agents in sizes {
        let costs = step(&format!("{agents} agents"), measure(&bundles, &chain, *agents)).await?;
        for (table, cells) in tables.iter_mut().zip(costs) {
            table.row(&[vec![agents.to_string()], cells].concat());
        }
    }
    let [cold, warm, day] = tables.map(Table::finish);
    Ok(format!(
        "## Snapshot\n\n\
         Verdicts with an index that is {OBJECT_MILLIS} ms away, and an RPC endpoint that takes {} ms. A synthetic registry, \
         as for the index; both Workers in one workerd.\n\n\
         ### Cold lookups\n\n\
         {COLD} random wallets, {UNREGISTERED} of them without an agent, on {CONNECTIONS} connections, each asked for once by an instance that has no \
         shard. By chain: the same with `KYA_SOURCE=chain`. All verdicts were equal.\n\n{cold}\n\
         ### Warm lookups, and memory\n\n\
         CPU of a request for a verdict that is derived from a shard in the instance's memory ({WARM_WALLETS} wallets), and for one that \
         an instance without an index has in memory ({CACHED_WALLETS} wallets), in {ROUNDS} rounds of {WARM} requests each, in turn. Memory is what the instance holds after {RANDOM} lookups of random \
         wallets: its wasm memory, JavaScript's heap and buffers, after and before a garbage collection. Goals: at most 1.2 times the CPU, 64 MiB.\n\n{warm}\n\
         ### A day\n\n\
         Of one data centre with lookups at all times, on a day with {CHANGES_A_DAY} changes in different shards: {MANIFESTS_A_DAY} manifests, and each shard that \
         changed. Medians of {SAMPLES} renewals that find a change, and that find none, times their number; rows are those of the object's SQLite, \
         the index's own refresh included.\n\n{day}",
        ENDPOINT.as_millis(),
    ))
}

/// A registry, the Worker far from its index, and the RPC endpoints of both.
struct Scene<'a> {
    chain: &'a Chain,
    registry: Synthetic,
    agents: u64,
    /// Before the Worker's endpoint; the index has another.
    proxy: Proxy,
    server: Server,
    client: Client,
}

async fn measure(bundles: &Bundles, chain: &Chain, agents: u64) -> Result<[Vec<String>; 3]> {
    let registry = Synthetic::deploy(chain, agents).await?;
    let code: alloy::primitives::Bytes =
        chain.node.request("eth_getCode", json!([registry.address, "latest"])).await?;
    let layout = Layout { code_hash: Some(keccak256(&code)), ..Layout::AGENT_REGISTRY };
    let layout = serde_json::to_string(&layout)?;
    let proxy = Proxy::start(chain.node.url()).await?;
    let options = WorkerOptions::new(proxy.url(), registry.address)
        .var("CHAIN_ID", 31_337)
        // What is computed has no slots that could be proved.
        .var("EVIDENCE_LAYOUT", layout)
        .var("INDEX_SPOT_CHECKS", 0)
        .var("RPC_DEADLINE_SECONDS", 60)
        .var("RPC_TIMEOUT_SECONDS", 30);
    let by_snapshot = options.clone().var("INDEX", "durable-object").var("KYA_TTL_SECONDS", TTL_SECONDS);
    let distance = Distance { millis: OBJECT_MILLIS, rpc_url: chain.node.url() };
    let server = Server::start_apart(bundles, &by_snapshot, distance).await?;
    let client = server.client();
    let scene = Scene { chain, registry, agents, proxy, server, client };
    step("filled", scene.filled()).await?;
    let chains = Server::start_measured(bundles, &options.var("KYA_TTL_SECONDS", 3_600)).await?;
    scene.proxy.inject(Rule::any(Fault::Delay(ENDPOINT)));
    let cold = step("cold lookups", scene.cold(&chains)).await?;
    eprintln!("  {}", cold.join(" | "));
    let warm = step("warm lookups", scene.warm(&chains)).await?;
    eprintln!("  {}", warm.join(" | "));
    drop(chains);
    let memory = step("memory", scene.memory()).await?;
    eprintln!("  {}", memory.join(" | "));
    let day = step("a day", scene.day()).await?;
    Ok([cold, [warm, memory].concat(), day])
}

impl Scene<'_> {
    /// Waits until verdicts come from the snapshot.
    async fn filled(&self) -> Result<()> {
        let is_filled = async || {
            let ready = self.client.get("/readyz").await;
            (ready.status == 200 && ready.json()["kyaSource"] == "snapshot").then_some(())
        };
        eventually("the snapshot", FILL, is_filled).await.with_context(|| self.server.log())
    }

    async fn cold(&self, chains: &Server) -> Result<Vec<String>> {
        let asked = (0..COLD).map(|number| match number % (COLD / UNREGISTERED) {
            0 => Address::from_word(keccak256(number.to_be_bytes())),
            _ => wallet(1 + draw("cold", number) % self.agents),
        });
        // Each once: the first one to ask pays for the shard.
        let mut wallets = Vec::from_iter(asked.collect::<BTreeSet<Address>>());
        wallets.sort_by_key(|wallet| keccak256([&b"order"[..], wallet.as_slice()].concat()));
        let manifest = self.manifest().await?;
        let touched: BTreeSet<String> =
            wallets.iter().filter_map(|wallet| Some(manifest.shard_of(*wallet)?.name())).collect();

        let (before, posts) = (self.server.asked().await?, self.proxy.posts());
        let answers = ask(&self.client, &wallets, "snapshot").await?;
        let (after, posts) = (self.server.asked().await?, self.proxy.posts() - posts);
        let by_chain = ask(&chains.client(), &wallets, "chain").await?;
        for (wallet, ((answer, _), (expected, _))) in wallets.iter().zip(answers.iter().zip(&by_chain)) {
            let found = timeless(answer.ok());
            let expected = with_past(*wallet, timeless(expected.ok()));
            ensure!(expected == found, "{wallet}: by chain {expected}, by snapshot {found}");
        }
        let [times, by_chain] = [&answers, &by_chain]
            .map(|answers| answers.iter().map(|(_, time)| *time).collect::<Vec<Duration>>());
        let shown = |time: Option<Duration>| time.map(millis).unwrap_or_default();
        Ok(vec![
            posts.to_string(),
            touched.len().to_string(),
            (after.shards - before.shards).to_string(),
            shown(median(&times)),
            shown(p99(&times)),
            shown(median(&by_chain)),
            shown(p99(&by_chain)),
        ])
    }

    async fn manifest(&self) -> Result<Manifest> {
        let url = format!("{}/api/v1/snapshot", self.server.url());
        let bytes = http::client(FILL).get(url).send().await?.error_for_status()?.bytes().await?;
        Manifest::parse(&bytes).map_err(|error| anyhow::anyhow!("{error:?}"))
    }

    /// The CPU of a lookup with its shard in memory, and of a cached verdict.
    async fn warm(&self, chains: &Server) -> Result<Vec<String>> {
        // Neighbours by their place: few shards hold them all.
        let manifest = self.manifest().await?;
        let shards = manifest.shards().len().min(200);
        let last = manifest.shards().get(shards - 1).context("a shard")?.range;
        let ids = (1..=self.agents).map(wallet);
        let near = ids
            .filter(|wallet| manifest.shard_of(*wallet).is_some_and(|entry| entry.range.start <= last.start));
        let wallets: Vec<Address> = near.take(WARM_WALLETS.max(CACHED_WALLETS)).collect();
        let mut servers = [
            (&self.server, "snapshot", wallets.iter().take(WARM_WALLETS).cycle(), Duration::ZERO),
            (chains, "chain", wallets.iter().take(CACHED_WALLETS).cycle(), Duration::ZERO),
        ];
        for round in 0..=ROUNDS {
            for (server, source, wallets, sum) in &mut servers {
                let count = if round == 0 { WARM_WALLETS } else { WARM };
                let asked: Vec<Address> = wallets.by_ref().take(count).copied().collect();
                let before = server.usage.cpu()?;
                ask(&server.client(), &asked, source).await?;
                if round > 0 {
                    *sum += server.usage.cpu()? - before;
                }
            }
        }
        let each = |sum: Duration| sum.as_secs_f64() * 1e3 / (WARM * ROUNDS) as f64;
        let [derived, cached] = servers.map(|(_, _, _, sum)| each(sum));
        Ok(vec![format!("{derived:.3}"), format!("{cached:.3}"), format!("{:.2}", derived / cached)])
    }

    async fn memory(&self) -> Result<Vec<String>> {
        let wallets: Vec<Address> =
            (0..RANDOM).map(|number| wallet(1 + draw("random", number) % self.agents)).collect();
        for wallets in wallets.chunks(10_000) {
            ask(&self.client, wallets, "snapshot").await?;
        }
        Ok(self.server.memory().await?.map(mib).to_vec())
    }

    async fn day(&self) -> Result<Vec<String>> {
        let mut found = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        let mut quiet = found.clone();
        for sample in 0..SAMPLES {
            for (changes, samples) in [(false, &mut quiet), (true, &mut found)] {
                let figures = self.renewal(changes.then_some(1 + sample * (self.agents / SAMPLES))).await?;
                samples.iter_mut().zip(figures).for_each(|(samples, figure)| samples.push(figure));
            }
        }
        let [requests, read, written, operations] = std::array::from_fn(|place| {
            let median = |samples: &[Vec<u64>; 4]| median(&samples[place]).unwrap_or_default();
            median(&quiet) * (MANIFESTS_A_DAY - CHANGES_A_DAY) + median(&found) * CHANGES_A_DAY
        });
        let shards = self.manifest().await?.shards().len() as u64;
        Ok([shards, requests, read, written, operations].map(|figure| figure.to_string()).to_vec())
    }

    /// One renewal of the manifest: after a change of this agent, until its new verdict is there, or of
    /// nothing. Requests to the object, rows read and written, and operations on the cache.
    async fn renewal(&self, changed: Option<u64>) -> Result<[u64; 4]> {
        let agent = changed.unwrap_or(1);
        // The instance has the shard, and a manifest of a moment ago.
        let mut last = self.renewed(agent).await?;
        let before = self.rows().await?;
        if changed.is_some() {
            self.registry.toggle(self.chain, agent, 1).await?;
        }
        let height = self.chain.node.height().await?;
        let mut manifests = 0;
        let mut sum = Asked::default();
        loop {
            let asked = self.renewed(agent).await?;
            sum = Asked {
                manifests: sum.manifests + asked.manifests - last.manifests,
                shards: sum.shards + asked.shards - last.shards,
                cache_operations: sum.cache_operations + asked.cache_operations - last.cache_operations,
            };
            last = asked;
            manifests += 1;
            let block = self.client.get(&kya(wallet(agent))).await.ok()["asOf"]["blockNumber"].as_u64();
            if changed.is_none() || block >= Some(height) {
                break;
            }
        }
        ensure!(manifests <= 2, "a change was found by manifest {manifests}");
        let [read, written] = self.rows().await?.since(before);
        Ok([sum.manifests + sum.shards, read, written, sum.cache_operations])
    }

    /// Asks for an agent until the manifest has been renewed, and for its shard once more.
    async fn renewed(&self, agent: u64) -> Result<Asked> {
        let before = self.server.asked().await?.manifests;
        let is_renewed = async || {
            self.client.get(&kya(wallet(agent))).await;
            match self.server.asked().await {
                Ok(asked) => (asked.manifests > before).then_some(()),
                Err(_) => None,
            }
        };
        eventually("a new manifest", FILL, is_renewed).await?;
        self.client.get(&kya(wallet(agent))).await;
        self.server.asked().await
    }

    async fn rows(&self) -> Result<Rows> {
        let status = self.client.get("/readyz").await.ok();
        let rows = &status["index"]["rows"];
        let counts = rows["read"].as_u64().zip(rows["written"].as_u64()).zip(rows["since"].as_u64());
        let ((read, written), since) = counts.context("the object counts its rows")?;
        Ok(Rows { since, counts: [read, written] })
    }
}

/// Rows that the object has read and written since a time, unix seconds.
struct Rows {
    since: u64,
    counts: [u64; 2],
}

impl Rows {
    /// Those after an earlier count. An object that was idle may have been started anew, and counts from 0.
    fn since(&self, before: Self) -> [u64; 2] {
        match self.since == before.since {
            true => std::array::from_fn(|place| self.counts[place] - before.counts[place]),
            false => self.counts,
        }
    }
}

/// Asks for the verdict on each wallet, on as many connections as load has; the answers and their times.
async fn ask(client: &Client, wallets: &[Address], source: &str) -> Result<Vec<(Answer, Duration)>> {
    let source = format!("source;desc=\"{source}\"");
    let verdict = |wallet: Address| {
        let source = &source;
        async move {
            let began = Instant::now();
            let answer = client.get(&kya(wallet)).await;
            let time = began.elapsed();
            ensure!(answer.status == 200, "{wallet}: {} {}", answer.status, answer.text);
            ensure!(answer.header("server-timing") == source, "{wallet}: {:?}", answer.headers);
            Ok((answer, time))
        }
    };
    stream::iter(wallets.iter().copied().map(verdict)).buffered(CONNECTIONS).try_collect().await
}

fn kya(wallet: Address) -> String {
    format!("/api/v1/kya/{wallet}")
}

/// A verdict by the chain, with what one call of it does not tell: ancestors, and agents that have ended, with
/// their reasons.
fn with_past(wallet: Address, mut verdict: Value) -> Value {
    let id = id_of(wallet);
    let mut reasons = verdict["reasons"].as_array().cloned().unwrap_or_default();
    if let (Some(id), "unknown") = (id, verdict["ancestorsNotActive"].as_str().unwrap_or_default()) {
        let mut ancestors: Vec<u64> = iter::successors(parent(id), |id| parent(*id)).collect();
        ancestors.retain(|id| status(*id) != "Active");
        let shown = ancestors.iter().map(|id| json!({ "agentId": id, "status": status(*id) }));
        verdict["ancestorsNotActive"] = shown.collect();
        if !ancestors.is_empty() {
            reasons.push("ANCESTOR_NOT_ACTIVE".into());
        }
    }
    if verdict["registration"] == "unknown" {
        verdict["registration"] = if id.is_some() { "former" } else { "never" }.into();
        reasons.extend(id.map(|id| format!("FORMER_AGENT_{}", status(id).to_uppercase()).into()));
    }
    verdict["reasons"] = reasons.into();
    verdict
}

/// A verdict without what changes with the clock and the block, and without what only an index knows.
fn timeless(mut verdict: Value) -> Value {
    if let Some(fields) = verdict.as_object_mut() {
        for field in ["checkedAt", "asOf", "formerAgents", "unknownBecause"] {
            fields.remove(field);
        }
    }
    verdict
}

/// A number that looks random, the same in every run.
fn draw(subject: &str, number: u64) -> u64 {
    let hash = keccak256([subject.as_bytes(), &number.to_be_bytes()].concat());
    u64::from_be_bytes(std::array::from_fn(|place| hash[place]))
}
