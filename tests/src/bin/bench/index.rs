//! The index: the cost of its fill, its refreshes and its answers, at several sizes of a registry.

use alloy::primitives::Address;
use e2e::client::HttpAnswer;
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::eventually;
use e2e::proxy::sequential;
use e2e::synthetic::{creator, person};
use registry_core::chain::MAX_AGENTS;

use crate::lab::*;

const CALL: Duration = Duration::from_millis(20); // of the RPC endpoint, beside its work
const CHANGES: u64 = 100; // before each refresh
const LISTS_A_DAY: u64 = 288; // refreshes for lists that are always in demand: one each TTL of five minutes
const LOOKS_A_DAY: u64 = 8_640; // for a client that follows the changes: every ten seconds; most find none
const DETAILED: &str = "/api/v1/stats/detailed"; // by the index; without a TTL, after a refresh

pub(crate) const COLUMNS: [&str; 5] = [
    "seconds | RPC bytes an agent | `eth_call`s | rows written | CPU s | memory MiB",
    "sequential round trips | RPC calls | KiB | CPU ms | p50 ms | round trips, nothing changed | RPC calls | KiB",
    "lists: RPC calls | rows read | rows written | CPU s | changes followed: RPC calls | rows read | rows written | CPU s",
    "list page ms | filtered and sorted ms | searched ms | searched of a creator ms | `/liable/:wallet` ms | lineage ms | `/stats/detailed` with a refresh ms",
    "seconds | first byte ms | MiB | CPU s | memory MiB",
];

pub(crate) async fn measure(lab: &Lab) -> Result<[String; 5]> {
    // Without a TTL each answer is as of the newest block.
    let target = start(lab, 0).await?;
    lab.proxy.inject(FaultRule::any(NodeFault::Delay(CALL)));
    let fill = fill(&target).await?;
    let [refresh, day] = refreshes(&target).await?;
    lab.proxy.heal();
    let detailed = answers(&target, |_| DETAILED.to_owned()).await?;
    drop(target);

    let target = start(lab, 3_600).await?;
    self::fill(&target).await?;
    let (agents, lists) = (lab.agents, "/api/v1/agents?limit=100");
    let word = |sample: u64| -> String { "translation".chars().take(2 + sample as usize).collect() };
    let creator = |sample: u64| creator(1 + sample);
    let compliant = "compliant=true&sort=-attestation";
    let times = [
        answers(&target, |it| format!("{lists}&status=Active&page={}", 1 + it * agents / 1_000)).await?,
        answers(&target, |it| format!("{lists}&creator={}&{compliant}", creator(it))).await?,
        answers(&target, |it| format!("{lists}&q={}&compliant=true", word(it))).await?,
        answers(&target, |it| format!("{lists}&creator={}&q={}", creator(it), word(it))).await?,
        answers(&target, |it| format!("/api/v1/liable/{}?limit=100", person(7 * it))).await?,
        answers(&target, |it| format!("/api/v1/agent/{}/lineage", agents / 2 + it)).await?,
        detailed,
    ];
    Ok([fill, refresh, day, row(&[&times.join(" | ")]), list(&target).await?])
}

/// Starts the Worker and the one that keeps its index.
async fn start(lab: &Lab, ttl_seconds: u32) -> Result<Target<'_>> {
    let options = lab.options().var("INDEX", "durable-object").var("RATE_LIMIT_PER_MINUTE", 1_000_000);
    let options = options.var("INDEX_SELF_CONTAINED_CODE", lab.code_hash().await?);
    let options = options.var("AGENT_TTL_SECONDS", ttl_seconds).var("LINEAGE_TTL_SECONDS", ttl_seconds);
    lab.serve(ServerKind::Indexed, &options, json!({})).await
}

/// Measures the fill, from the first request to the first answer of the index.
async fn fill(target: &Target<'_>) -> Result<String> {
    target.lab.chain.node.freshen().await?;
    let agents = target.lab.agents;
    let filled = async {
        // The first request starts the fill. Its answer means that both Workers run, so that their own memory
        // does not count as the index's.
        target.client.get("/readyz").await.ok();
        let memory = target.server.usage.memory_from_here()?;
        // Only the index answers this: all RPC calls meanwhile are the fill's.
        let path = format!("/api/v1/liable/{}", Address::ZERO);
        let answer = eventually("filled", FILL, async || {
            // Lists are requested meanwhile, of registries too large for a scan: they are refused without an
            // RPC call.
            if agents > MAX_AGENTS {
                target.client.get("/api/v1/agents?status=Active").await;
            }
            Some(target.client.get(&path).await).filter(is_indexed)
        });
        answer.await.with_context(|| target.server.log())?;
        Ok(memory)
    };
    let (memory, cost) = target.cost(filled).await?;
    let methods = cost.posts.iter().flat_map(|post| &post.methods);
    let calls = methods.filter(|method| *method == "eth_call").count();
    let [_, written, _] = target.rows().await?;
    let bytes = cost.bytes() / agents;
    Ok(row(&[&seconds(cost.time), &bytes, &calls, &written, &seconds(cost.cpu), &mib(memory.grown()?)]))
}

/// Measures the cost of one refresh, and computes that of a day's refreshes.
async fn refreshes(target: &Target<'_>) -> Result<[String; 2]> {
    let (many, quiet) = (refresh(target, CHANGES).await?, refresh(target, 0).await?);
    let of_list = refresh(target, CHANGES_A_DAY.div_ceil(LISTS_A_DAY)).await?;
    let of_change = refresh(target, 1).await?;
    let lists = of_list.billed.map(|each| each * LISTS_A_DAY as f64);
    let (found, unchanged) = (CHANGES_A_DAY as f64, (LOOKS_A_DAY - CHANGES_A_DAY) as f64);
    let looks = [0, 1, 2, 3].map(|place| of_change.billed[place] * found + quiet.billed[place] * unchanged);
    let day = [lists, looks].concat().iter().map(|figure| format!("{figure:.0}")).collect::<Vec<_>>();
    let [calls, .., cpu] = many.billed;
    let cpu = millis(Duration::from_secs_f64(cpu));
    let changed = format!("{} | {calls} | {} | {cpu} | {}", many.round_trips, many.kib, millis(many.time));
    let refresh = row(&[&changed, &quiet.round_trips, &quiet.billed[0], &quiet.kib]);
    Ok([refresh, row(&[&day.join(" | ")])])
}

/// Cost of a refresh: medians, and the mean of its CPU.
struct Refresh {
    time: Duration,
    round_trips: u64,
    kib: u64,
    /// RPC calls, rows read, rows written, seconds of CPU.
    billed: [f64; 4],
}

async fn refresh(target: &Target<'_>, changes: u64) -> Result<Refresh> {
    let (mut samples, mut cpu) = (Vec::new(), Duration::ZERO);
    for sample in 0..SAMPLES {
        target.lab.change(sample, changes).await?;
        target.lab.chain.node.freshen().await?;
        let before = target.rows().await?;
        let (_, cost) = target.cost(ask(target, DETAILED)).await?;
        cpu += cost.cpu;
        let calls = cost.posts.iter().map(|post| post.methods.len() as u64).sum();
        let [read, written] = target.rows_after(before).await?;
        let time = cost.time.as_micros() as u64;
        samples.push([time, sequential(&cost.posts) as u64, cost.bytes() >> 10, calls, read, written]);
    }
    let [micros, round_trips, kib, calls, read, written] = medians(&samples);
    // The clock of CPU time is too coarse for a median.
    let billed = [calls as f64, read as f64, written as f64, cpu.as_secs_f64() / SAMPLES as f64];
    Ok(Refresh { time: Duration::from_micros(micros), round_trips, kib, billed })
}

async fn answers(target: &Target<'_>, path: impl Fn(u64) -> String) -> Result<String> {
    target.lab.chain.node.freshen().await?;
    let times = timed(1, 0..SAMPLES, async |sample| ask(target, &path(sample)).await).await?;
    Ok(millis(percentile(50, times.into_iter().map(|(_, time)| time))))
}

async fn list(target: &Target<'_>) -> Result<String> {
    let url = format!("{}/api/v1/agents/compliance", target.server.url());
    let memory = target.server.usage.memory_from_here()?;
    let read = async {
        let began = Instant::now();
        let mut response = e2e::http::client(FILL).get(url).send().await?.error_for_status()?;
        let (mut first, mut list) = (None, Vec::new());
        while let Some(chunk) = response.chunk().await? {
            first.get_or_insert_with(|| began.elapsed());
            list.extend(chunk);
        }
        ensure!(list.ends_with(b"}"), "the list has no end after {} bytes", list.len());
        Ok((first.unwrap_or_default(), list.len() as u64))
    };
    let ((first, bytes), cost) = target.cost(read).await?;
    let cells = [seconds(cost.time), millis(first), mib(bytes), seconds(cost.cpu), mib(memory.grown()?)];
    Ok(row(&[&cells.join(" | ")]))
}

async fn ask(target: &Target<'_>, path: &str) -> Result<()> {
    let answer = target.client.get(path).await;
    ensure!(is_indexed(&answer), "{path}: {} {}", answer.status, answer.text);
    Ok(())
}

fn is_indexed(answer: &HttpAnswer) -> bool {
    answer.status == 200 && !answer.header("x-as-of-block").is_empty()
}
