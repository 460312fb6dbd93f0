//! Verdicts from the snapshot: cold lookups without the chain, the memory they take, and what a day costs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use alloy::primitives::{Address, keccak256};
use anyhow::{Context as _, Result, anyhow, ensure};
use e2e::client::{Answer, Client};
use e2e::fault::{Fault, Rule};
use e2e::http;
use e2e::load::CONNECTIONS;
use e2e::process::eventually;
use e2e::proxy::Proxy;
use e2e::server::{Asked, Kind, Server};
use e2e::synthetic::wallet;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use registry_core::evidence::Layout;
use registry_core::snapshot::Manifest;
use serde_json::json;

use crate::document::{Table, medians, mib, millis, percentile};
use crate::step;
use crate::synthetic::{CHANGES_A_DAY, FILL, Registry, Rows, SAMPLES, tables};

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
/// Manifests of a day that a data centre gets: one for each 20 seconds.
const MANIFESTS_A_DAY: u64 = 4_320;

pub(crate) async fn section(sizes: &[u64]) -> Result<Vec<Table>> {
    let columns = [
        "RPC posts | shards touched | fetched | p50 ms | p99 ms | by chain: p50 ms | p99 ms",
        "warm shard: CPU ms | cached verdict: CPU ms | times | memory MiB | with garbage",
        "shards | requests to the object | rows read | rows written | cache operations",
    ];
    tables(sizes, columns, measure).await
}

async fn measure(registry: &Registry<'_>) -> Result<[Vec<String>; 3]> {
    // Before the Worker's endpoint; the index has another.
    let proxy = Proxy::start(registry.chain.node.url()).await?;
    let layout = Layout { code_hash: Some(registry.code_hash), ..Layout::AGENT_REGISTRY };
    let options = registry
        .options(proxy.url())
        // What is computed has no slots that could be proved.
        .var("EVIDENCE_LAYOUT", serde_json::to_string(&layout)?)
        .var("INDEX_SPOT_CHECKS", 0);
    let by_snapshot = options.clone().var("INDEX", "durable-object").var("KYA_TTL_SECONDS", TTL_SECONDS);
    let distant = json!({ "millis": OBJECT_MILLIS, "settings": { "RPC_URL": registry.chain.node.url() } });
    let apart = json!({ "measured": true, "distant": distant });
    let server = Server::start_with(Kind::Indexed, registry.bundles, &by_snapshot, apart).await?;
    let client = server.client();
    let workers = Workers { registry, proxy, server, client };
    step("filled", workers.filled()).await?;
    let (options, measured) = (options.var("KYA_TTL_SECONDS", 3_600), json!({ "measured": true }));
    let by_chain = Server::start_with(Kind::Worker, registry.bundles, &options, measured).await?;
    workers.proxy.inject(Rule::any(Fault::Delay(ENDPOINT)));
    let cold = step("cold lookups", workers.cold(&by_chain)).await?;
    let warm = step("warm lookups", workers.warm(&by_chain)).await?;
    drop(by_chain);
    let memory = step("memory", workers.memory()).await?;
    Ok([cold, [warm, memory].concat(), step("a day", workers.day()).await?])
}

/// The Worker far from its index, and its RPC endpoint.
struct Workers<'a> {
    registry: &'a Registry<'a>,
    proxy: Proxy,
    server: Server,
    client: Client,
}

impl Workers<'_> {
    async fn filled(&self) -> Result<()> {
        self.client.until_snapshot(FILL).await.with_context(|| self.server.log())
    }

    async fn cold(&self, by_chain: &Server) -> Result<Vec<String>> {
        // Each once: the first one to ask pays for the shard.
        let wallets: BTreeSet<Address> = (0..COLD)
            .map(|number| match number % (COLD / UNREGISTERED) {
                0 => Address::from_word(keccak256(number.to_be_bytes())),
                _ => self.random_wallet("cold", number),
            })
            .collect();
        let mut wallets = Vec::from_iter(wallets);
        wallets.sort_by_key(|wallet| keccak256([&b"order"[..], wallet.as_slice()].concat()));
        let manifest = self.manifest().await?;
        let touched: BTreeSet<String> =
            wallets.iter().filter_map(|wallet| Some(manifest.shard_of(*wallet)?.name())).collect();

        let (before, posts) = (self.server.asked().await?, self.proxy.posts());
        let found = ask(&self.client, &wallets, "snapshot").await?;
        let (after, posts) = (self.server.asked().await?, self.proxy.posts() - posts);
        let expected = ask(&by_chain.client(), &wallets, "chain").await?;
        for ((found, _), (expected, _)) in found.iter().zip(&expected) {
            let (found, expected) = (found.ok(), expected.ok());
            for field in ["wallet", "isRegistered", "isCompliant", "agent", "decision", "compliantUntil"] {
                ensure!(found[field] == expected[field], "by chain {expected}, by snapshot {found}");
            }
        }
        let mut row = vec![posts.to_string(), touched.len().to_string()];
        row.push((after.shards - before.shards).to_string());
        for answers in [found, expected] {
            let times: Vec<Duration> = answers.into_iter().map(|(_, time)| time).collect();
            row.extend([50, 99].map(|percent| millis(percentile(&times, percent))));
        }
        Ok(row)
    }

    async fn manifest(&self) -> Result<Manifest> {
        let url = format!("{}/api/v1/snapshot", self.server.url());
        let bytes = http::client(FILL).get(url).send().await?.error_for_status()?.bytes().await?;
        Manifest::parse(&bytes).map_err(|error| anyhow!("{error:?}"))
    }

    /// A wallet of an agent, which looks random and is the same in every run.
    fn random_wallet(&self, subject: &str, number: u64) -> Address {
        let hash = keccak256([subject.as_bytes(), &number.to_be_bytes()].concat());
        let drawn = u64::from_be_bytes(std::array::from_fn(|place| hash[place]));
        wallet(1 + drawn % self.registry.agents)
    }

    /// The CPU of a lookup with its shard in memory, and of a cached verdict.
    async fn warm(&self, by_chain: &Server) -> Result<Vec<String>> {
        // Neighbours by their place: few shards hold them all.
        let manifest = self.manifest().await?;
        let shards = manifest.shards().len().min(200);
        let last = manifest.shards().get(shards - 1).context("a shard")?.range;
        let is_near = |wallet: &Address| {
            manifest.shard_of(*wallet).is_some_and(|entry| entry.range.start <= last.start)
        };
        let wallets: Vec<Address> =
            (1..=self.registry.agents).map(wallet).filter(is_near).take(WARM_WALLETS).collect();
        let mut servers = [
            (&self.server, "snapshot", wallets.iter().take(WARM_WALLETS).cycle(), Duration::ZERO),
            (by_chain, "chain", wallets.iter().take(CACHED_WALLETS).cycle(), Duration::ZERO),
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
        let [derived, cached] =
            servers.map(|(_, _, _, sum)| sum.as_secs_f64() * 1e3 / (WARM * ROUNDS) as f64);
        Ok(vec![format!("{derived:.3}"), format!("{cached:.3}"), format!("{:.2}", derived / cached)])
    }

    async fn memory(&self) -> Result<Vec<String>> {
        let wallets: Vec<Address> = (0..RANDOM).map(|number| self.random_wallet("random", number)).collect();
        for wallets in wallets.chunks(10_000) {
            ask(&self.client, wallets, "snapshot").await?;
        }
        Ok(self.server.memory().await?.map(mib).to_vec())
    }

    async fn day(&self) -> Result<Vec<String>> {
        let (mut found, mut quiet) = (Vec::new(), Vec::new());
        for sample in 0..SAMPLES {
            quiet.push(self.renewal(sample, 0).await?);
            found.push(self.renewal(sample, 1).await?);
        }
        let (found, quiet) = (medians(&found), medians(&quiet));
        let of_day =
            |place: usize| quiet[place] * (MANIFESTS_A_DAY - CHANGES_A_DAY) + found[place] * CHANGES_A_DAY;
        let shards = self.manifest().await?.shards().len() as u64;
        Ok([shards].into_iter().chain((0..4).map(of_day)).map(|figure| figure.to_string()).collect())
    }

    /// One renewal of the manifest: after a change of that sample's agent, until its new verdict is there, or
    /// of nothing. Requests to the object, rows read and written, and operations on the cache.
    async fn renewal(&self, sample: u64, changes: u64) -> Result<[u64; 4]> {
        let path = format!("/api/v1/kya/{}", wallet(1 + sample * (self.registry.agents / SAMPLES)));
        // The instance has the shard, and a manifest of a moment ago.
        let before = self.renewed(&path).await?;
        let rows = Rows::of(&self.client).await?;
        self.registry.change(sample, changes).await?;
        let height = self.registry.chain.node.height().await?;
        for _ in 0..2 {
            let asked = self.renewed(&path).await?;
            if changes == 0
                || self.client.get(&path).await.ok()["asOf"]["blockNumber"].as_u64() >= Some(height)
            {
                let [read, written] = Rows::of(&self.client).await?.after(&rows);
                let requests = asked.manifests - before.manifests + asked.shards - before.shards;
                return Ok([requests, read, written, asked.cache_operations - before.cache_operations]);
            }
        }
        Err(anyhow!("a change was found by neither of two manifests"))
    }

    /// Asks until the manifest has been renewed, and for its shard once more.
    async fn renewed(&self, path: &str) -> Result<Asked> {
        let before = self.server.asked().await?.manifests;
        let is_renewed = async || {
            self.client.get(path).await;
            self.server.asked().await.ok().filter(|asked| asked.manifests > before).map(drop)
        };
        eventually("a new manifest", FILL, is_renewed).await?;
        self.client.get(path).await;
        self.server.asked().await
    }
}

/// Asks for the verdict on each wallet, on as many connections as load has; the answers and their times.
async fn ask(client: &Client, wallets: &[Address], source: &str) -> Result<Vec<(Answer, Duration)>> {
    let source = format!("source;desc=\"{source}\"");
    let verdict = async |wallet: &Address| {
        let began = Instant::now();
        let answer = client.get(&format!("/api/v1/kya/{wallet}")).await;
        let time = began.elapsed();
        ensure!(answer.status == 200, "{wallet}: {} {}", answer.status, answer.text);
        ensure!(answer.header("server-timing") == source, "{wallet}: {:?}", answer.headers);
        Ok((answer, time))
    };
    stream::iter(wallets.iter().map(verdict)).buffered(CONNECTIONS).try_collect().await
}
