//! Verdicts from the snapshot: cold lookups without the chain, their memory, and the cost of a day.

use std::collections::BTreeSet;

use alloy::primitives::{Address, keccak256};
use anyhow::bail;
use e2e::client::HttpAnswer;
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::eventually;
use e2e::server::BackendCounts;
use e2e::synthetic::wallet;

use crate::lab::*;

const ENDPOINT: Duration = Duration::from_millis(80); // of the RPC endpoint, beside its work
const OBJECT_MILLIS: u64 = 150; // to the index's object and back
const COLD: u64 = 10_000; // wallets that are looked up once
const UNREGISTERED: u64 = 500; // of them
const WARM: usize = 5_000; // lookups in each of so many rounds
const ROUNDS: usize = 5;
const WARM_WALLETS: usize = 10_000; // so many that few repeat under a manifest: each comes from its shard
const CACHED_WALLETS: usize = 1_000; // few enough that memory caches all their verdicts
const RANDOM: u64 = 100_000; // lookups while memory is measured
const TTL_SECONDS: u64 = 15; // of verdicts while renewals are counted: a manifest is kept for a third of it
const MANIFESTS_A_DAY: u64 = 4_320; // that a data centre gets: one for each 20 seconds

pub(crate) const COLUMNS: [&str; 3] = [
    "RPC posts | shards touched | fetched | p50 ms | p99 ms | by chain: p50 ms | p99 ms",
    "warm shard: CPU ms | cached verdict: CPU ms | times | memory MiB | with garbage",
    "shards | requests to the object | rows read | rows written | cache operations",
];

pub(crate) async fn measure(lab: &Lab) -> Result<[String; 3]> {
    let options = lab.with_snapshot().await?;
    let by_snapshot = options.clone().var("KYA_TTL_SECONDS", TTL_SECONDS);
    // The proxy is before the Worker's endpoint; the index has an endpoint of its own.
    let distant = json!({ "millis": OBJECT_MILLIS, "settings": { "RPC_URL": lab.chain.node.url() } });
    let apart = json!({ "measured": true, "distant": distant });
    let target = lab.serve(ServerKind::Indexed, &by_snapshot, apart).await?;
    target.client.until_snapshot(FILL).await.with_context(|| target.server.log())?;
    let options = options.var("KYA_TTL_SECONDS", 3_600).unset("INDEX");
    let by_chain = lab.serve(ServerKind::Worker, &options, json!({ "measured": true })).await?;
    lab.proxy.inject(FaultRule::any(NodeFault::Delay(ENDPOINT)));
    let (cold, warm) = (cold(&target, &by_chain).await?, warm(&target, &by_chain).await?);
    drop(by_chain);
    for numbers in Vec::from_iter(0..RANDOM).chunks(10_000) {
        let wallets: Vec<_> = numbers.iter().map(|number| random_wallet(lab, "random", *number)).collect();
        look_up(&target, &wallets, "snapshot").await?;
    }
    let [memory, garbage] = target.server.memory().await?.map(mib);
    let warm = row(&[&warm, &memory, &garbage]);
    let day = day(&target).await?;
    lab.proxy.heal();
    Ok([cold, warm, day])
}

async fn cold(target: &Target<'_>, by_chain: &Target<'_>) -> Result<String> {
    // Each wallet is looked up once: the first lookup of a shard pays for it.
    let wallets: BTreeSet<Address> = (0..COLD)
        .map(|number| match number % (COLD / UNREGISTERED) {
            0 => Address::from_word(keccak256(number.to_be_bytes())),
            _ => random_wallet(target.lab, "cold", number),
        })
        .collect();
    let mut wallets = Vec::from_iter(wallets);
    wallets.sort_by_key(|wallet| keccak256([&b"order"[..], wallet.as_slice()].concat()));
    let manifest = target.manifest().await?;
    let files = wallets.iter().flat_map(|wallet| manifest.entries_of(*wallet));
    let touched = files.map(|entry| entry.name()).collect::<BTreeSet<_>>().len();

    let before = target.server.asked().await?;
    let (found, cost) = target.cost(look_up(target, &wallets, "snapshot")).await?;
    let fetched = target.server.asked().await?.shards - before.shards;
    let expected = look_up(by_chain, &wallets, "chain").await?;
    for ((found, _), (expected, _)) in found.iter().zip(&expected) {
        let (found, expected) = (found.ok(), expected.ok());
        for field in ["wallet", "isRegistered", "isCompliant", "agent", "decision", "compliantUntil"] {
            ensure!(found[field] == expected[field], "by chain {expected}, by snapshot {found}");
        }
    }
    let times = [(&found, 50), (&found, 99), (&expected, 50), (&expected, 99)];
    let times =
        times.map(|(answers, percent)| millis(percentile(percent, answers.iter().map(|(_, time)| *time))));
    Ok(row(&[&cost.posts.len(), &touched, &fetched, &times.join(" | ")]))
}

/// Returns a pseudorandom wallet of an agent, the same in every run.
fn random_wallet(lab: &Lab, subject: &str, number: u64) -> Address {
    let hash = keccak256([subject.as_bytes(), &number.to_be_bytes()].concat());
    wallet(1 + u64::from_be_bytes(std::array::from_fn(|place| hash[place])) % lab.agents)
}

/// Measures the CPU of a lookup with its shard in memory, and of a cached verdict.
async fn warm(target: &Target<'_>, by_chain: &Target<'_>) -> Result<String> {
    // Wallets with neighbouring places: few shards hold them all.
    let manifest = target.manifest().await?;
    let last = manifest.shards().iter().take(200).next_back().context("a shard")?.range;
    let is_near =
        |wallet: &Address| manifest.shard_of(*wallet).is_some_and(|entry| entry.range.start <= last.start);
    let wallets: Vec<Address> =
        (1..=target.lab.agents).map(wallet).filter(is_near).take(WARM_WALLETS).collect();
    let mut targets = [
        (target, "snapshot", wallets.iter().take(WARM_WALLETS).cycle(), Duration::ZERO),
        (by_chain, "chain", wallets.iter().take(CACHED_WALLETS).cycle(), Duration::ZERO),
    ];
    for round in 0..=ROUNDS {
        for (target, source, wallets, sum) in &mut targets {
            let count = if round == 0 { WARM_WALLETS } else { WARM };
            let asked: Vec<Address> = wallets.by_ref().take(count).copied().collect();
            let (_, cost) = target.cost(look_up(target, &asked, source)).await?;
            *sum += if round == 0 { Duration::ZERO } else { cost.cpu };
        }
    }
    let [derived, cached] = targets.map(|(.., sum)| sum.as_secs_f64() * 1e3 / (WARM * ROUNDS) as f64);
    Ok(format!("{derived:.3} | {cached:.3} | {:.2}", derived / cached))
}

async fn day(target: &Target<'_>) -> Result<String> {
    let (mut found, mut quiet) = (Vec::new(), Vec::new());
    for sample in 0..SAMPLES {
        quiet.push(renewal(target, sample, 0).await?);
        found.push(renewal(target, sample, 1).await?);
    }
    let (found, quiet) = (medians(&found), medians(&quiet));
    let [requests, read, written, operations] = [0, 1, 2, 3]
        .map(|place| quiet[place] * (MANIFESTS_A_DAY - CHANGES_A_DAY) + found[place] * CHANGES_A_DAY);
    Ok(row(&[&target.manifest().await?.shards().len(), &requests, &read, &written, &operations]))
}

/// Counts the requests to the object, rows read and written, and cache operations of a renewal of the
/// manifest: until the verdict of the sample's changed agent is there, or once without a change.
async fn renewal(target: &Target<'_>, sample: u64, changes: u64) -> Result<[u64; 4]> {
    let lab = target.lab;
    let path = format!("/api/v1/kya/{}", wallet(1 + sample * (lab.agents / SAMPLES)));
    // The instance has the shard and its segments, and a manifest of a moment ago.
    let before = renewed(target, &path).await?;
    let rows = target.rows().await?;
    lab.change(sample, changes).await?;
    let height = lab.chain.node.height().await?;
    for _ in 0..2 {
        let asked = renewed(target, &path).await?;
        let as_of = target.client.get(&path).await.ok()["asOf"]["blockNumber"].as_u64();
        if changes == 0 || as_of >= Some(height) {
            let [read, written] = target.rows_after(rows).await?;
            let requests = asked.manifests - before.manifests + asked.shards - before.shards;
            return Ok([requests, read, written, asked.cache_operations - before.cache_operations]);
        }
    }
    bail!("a change was found by neither of two manifests")
}

/// Requests a path until the manifest has been renewed, and once more by the new one.
async fn renewed(target: &Target<'_>, path: &str) -> Result<BackendCounts> {
    let before = target.server.asked().await?.manifests;
    let is_renewed = async || {
        target.client.get(path).await;
        target.server.asked().await.ok().filter(|asked| asked.manifests > before).map(drop)
    };
    eventually("a new manifest", FILL, is_renewed).await?;
    target.client.get(path).await;
    target.server.asked().await
}

/// Looks up each wallet, on as many connections as load has; returns the answers and their times.
async fn look_up(
    target: &Target<'_>,
    wallets: &[Address],
    source: &str,
) -> Result<Vec<(HttpAnswer, Duration)>> {
    let source = format!("source;desc=\"{source}\"");
    let verdict = async |wallet: &Address| {
        let answer = target.client.get(&format!("/api/v1/kya/{wallet}")).await;
        ensure!(answer.status == 200, "{wallet}: {} {}", answer.status, answer.text);
        ensure!(answer.header("server-timing") == source, "{wallet}: {:?}", answer.headers);
        Ok(answer)
    };
    timed(CONNECTIONS, wallets, verdict).await
}
