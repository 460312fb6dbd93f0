//! The read API beside its peers and the bare RPC call: warm and cold answers, whole registries, size, start.
//!
//! One chain has a real registry of few agents for warm answers, and synthetic ones for cold answers.

use std::{fs, io};

use e2e::proxy::sequential;
use e2e::server::LIVEZ;
use e2e::worker::WorkerOptions;
use e2e::{seed, synthetic};
use flate2::{Compression, read::GzEncoder};
use registry_core::chain::MAX_AGENTS;

use crate::lab::*;

const FEW: u64 = 100; // agents while warm answers are measured
const MANY: u64 = 10_000; // agents while cold answers are measured
const SECONDS: u32 = 5; // of load that counts
const WARM_UP_SECONDS: u32 = 2; // of load in which hot code is compiled
const ONE_BY_ONE: usize = 1_000; // requests one after the other
const LIMITERS: [(&str, u32); 3] = [("kv", 0), ("kv", 60), ("binding", 60)]; // 60 is documented
const EACH: Option<u32> = Some(40); // requests of each client where clients are counted
const COLD: u64 = 200; // agents with a measured cold answer
const WARM_UP_AGENTS: u64 = 20; // agents requested before these
const SCANS: u32 = 5; // after the first one of an instance, which has yet to learn the node's limits
const STARTS: usize = 5; // after one that fills the disk cache
const KYA: &str = "/api/v1/kya/:wallet";
const AGENT: &str = "/api/v1/agent/7";
const LINEAGE: &str = "/api/v1/agent/7/lineage";
const DETAILED: &str = "/api/v1/stats/detailed";
const ACTIVE: &str = "/api/v1/agents?status=Active";
const COMPLIANCE: &str = "/api/v1/agents/compliance";
const REVENUE: &str = "/api/v1/revenue/aggregate";
/// Paths of warm answers; the peers have the first three.
const WARM: [&str; 10] =
    [LIVEZ, KYA, AGENT, LINEAGE, "/api/v1/stats", DETAILED, "/api/v1/agents", ACTIVE, COMPLIANCE, REVENUE];

pub(crate) async fn tables() -> Result<Vec<String>> {
    let mut lab = Lab::start().await?;
    seed::many(&lab.chain, FEW).await?;
    let [warm, limiters] = warm(&lab).await?;
    lab.resize(MANY).await?;
    Ok(vec![warm, limiters, cold(&lab).await?, scans(&mut lab).await?, starts(&lab).await?])
}

/// Returns settings with a rate limit that counts every request and refuses none.
fn counted(lab: &Lab) -> WorkerOptions {
    lab.options().var("RATE_LIMIT_PER_MINUTE", 1_000_000_000)
}

async fn warm(lab: &Lab) -> Result<[String; 2]> {
    let kya = seed::kya("many 7");
    let mut table = head(" | requests/s | of `/livez` | p50 ms | p99 ms | p99 ms, one by one | CPU ms");
    for kind in ServerKind::ALL {
        let server = lab.serve(kind, &counted(lab), json!({})).await?.server;
        let paths = &WARM[..if kind == ServerKind::Worker { WARM.len() } else { 3 }];
        let path_of = |shown| if shown == KYA { kya.as_str() } else { shown };
        for shown in paths {
            server.load(path_of(shown), WARM_UP_SECONDS, None).await?;
        }
        let mut live = None;
        for shown in paths {
            let load = server.load(path_of(shown), SECONDS, None).await?;
            let (client, url) = (kept_alive()?, format!("{}{}", server.url(), path_of(shown)));
            let times = timed(1, 0..ONE_BY_ONE, async |_| fetch(client.get(&url)).await).await?;
            table += &row(&[
                &format!("{}: `{shown}`", kind.name()),
                &format!("{:.0}", load.per_second),
                &format!("{:.2}", load.per_second / *live.get_or_insert(load.per_second)),
                &millis(load.p50),
                &millis(load.p99),
                &millis(percentile(99, times.into_iter().map(|(_, time)| time))),
                &format!("{:.3}", load.cpu.as_secs_f64() * 1e3),
            ]);
        }
    }
    let mut limiters = head("limiter | CPU ms");
    for (mode, limit) in LIMITERS {
        let options = lab.options().var("RATE_LIMITER", mode).var("RATE_LIMIT_PER_MINUTE", limit);
        let server = lab.serve(ServerKind::Worker, &options, json!({})).await?.server;
        server.load(&kya, WARM_UP_SECONDS, EACH).await?;
        let cpu = server.load(&kya, SECONDS, EACH).await?.cpu.as_secs_f64() * 1e3;
        limiters += &row(&[&format!("`{mode}`, limit {limit}"), &format!("{cpu:.3}")]);
    }
    Ok([table, limiters])
}

/// Measures first answers about single agents, one after the other, beside the RPC call that each takes.
async fn cold(lab: &Lab) -> Result<String> {
    let mut targets = Vec::new();
    for kind in ServerKind::ALL {
        targets.push(lab.serve(kind, &counted(lab), json!({})).await?);
    }
    let client = kept_alive()?;
    let paths: [fn(u64) -> String; 2] =
        [|id| format!("/api/v1/kya/{}", synthetic::wallet(id)), |id| format!("/api/v1/agent/{id}")];
    // Times of the bare call, then of each server. They take turns with the same agents, so that a slow phase
    // of the machine slows all of them.
    let mut times = vec![[Vec::new(), Vec::new()]; 1 + targets.len()];
    for (column, path_of) in paths.iter().enumerate() {
        for sample in 0..WARM_UP_AGENTS + COLD {
            let path = path_of(1 + sample * (MANY / (WARM_UP_AGENTS + COLD)));
            for (place, target) in targets.iter().enumerate() {
                let (_, cost) =
                    target.cost(fetch(client.get(format!("{}{path}", target.server.url())))).await?;
                ensure!(cost.posts.len() == 1 || sample < WARM_UP_AGENTS, "{path}: {:?}", cost.posts);
                times[1 + place][column].push(cost.time);
                if target.server.kind == ServerKind::Worker {
                    let body = &cost.posts.last().context("an RPC call")?.body;
                    let bare = target.cost(fetch(client.post(lab.proxy.url()).json(body))).await?.1;
                    times[0][column].push(bare.time);
                }
            }
        }
    }
    let median = |times: &Vec<Duration>| percentile(50, times.iter().skip(WARM_UP_AGENTS as usize).copied());
    let bare = times[0].each_ref().map(median);
    let cells = times.iter().enumerate().map(|(place, times)| {
        [0, 1].map(|column| {
            let (time, bare) = (median(&times[column]), bare[column]);
            let added = format!(" ({:+.2})", (time.as_secs_f64() - bare.as_secs_f64()) * 1e3);
            millis(time) + if place > 0 { &added } else { "" }
        })
    });
    let mut table = head("p50 ms | `/kya/:wallet` | `/agent/:id`");
    for (name, [kya, agent]) in
        ["the bare RPC call"].into_iter().chain(ServerKind::ALL.map(ServerKind::name)).zip(cells)
    {
        table += &row(&[&name, &kya, &agent]);
    }
    Ok(table)
}

/// Measures the reads and the cost of cold answers about the whole registry.
async fn scans(lab: &mut Lab) -> Result<String> {
    let mut table = head(
        " | agents | round trips | RPC posts | bytes an agent | CPU ms | memory MiB | p50 ms | round trips, first",
    );
    let scanned =
        [(DETAILED, MANY), (ACTIVE, MANY), (COMPLIANCE, MANY), (REVENUE, MANY), (DETAILED, MAX_AGENTS)];
    for (path, agents) in scanned {
        if agents != lab.agents {
            lab.resize(agents).await?;
        }
        let target =
            lab.serve(ServerKind::Worker, &counted(lab).var("AGENT_TTL_SECONDS", 0), json!({})).await?;
        let ask = async |path| Ok(target.client.get(path).await.ok());
        ask("/api/v1/stats").await?;
        let memory = target.server.usage.memory_from_here()?;
        let (_, first) = target.cost(ask(path)).await?;
        let mut costs = Vec::new();
        for _ in 0..SCANS {
            costs.push(target.cost(ask(path)).await?.1);
        }
        let last = costs.last().context("a scan")?;
        table += &row(&[
            &format!("`{path}`"),
            &agents,
            &sequential(&last.posts),
            &last.posts.len(),
            &(last.bytes() / agents),
            &millis(costs.iter().map(|cost| cost.cpu).sum::<Duration>() / SCANS),
            &mib(memory.grown()?),
            &millis(percentile(50, costs.iter().map(|cost| cost.time))),
            &sequential(&first.posts),
        ]);
    }
    Ok(table)
}

/// Measures the upload's size, and a new instance's time to its first answer and then to one from the chain.
async fn starts(lab: &Lab) -> Result<String> {
    let kya = seed::kya("many 7");
    let mut table = head(" | KiB gzipped | first `/livez` ms | then first `/kya` ms");
    for kind in ServerKind::ALL {
        let (mut times, mut size) = ([Vec::new(), Vec::new()], String::new());
        for start in 0..=STARTS {
            let target = lab.serve(kind, &counted(lab), json!({})).await?;
            for (path, times) in [LIVEZ, &kya].into_iter().zip(&mut times) {
                let began = Instant::now();
                target.client.get(path).await.ok();
                times.extend((start > 0).then(|| began.elapsed()));
            }
            if kind != ServerKind::Express {
                let gzipped = |file| {
                    io::copy(&mut GzEncoder::new(fs::File::open(file)?, Compression::best()), &mut io::sink())
                };
                let bytes = target.server.files()?.into_iter().map(gzipped).sum::<io::Result<u64>>()?;
                size = format!("{:.1}", bytes as f64 / 1024.0);
            }
        }
        let [live, kya] = times.map(|times| millis(percentile(50, times)));
        table += &row(&[&kind.name(), &size, &live, &kya]);
    }
    Ok(table)
}
