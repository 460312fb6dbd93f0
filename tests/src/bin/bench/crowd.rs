//! Crowds of clients: an instance's memory, the operations on its KV store, and the CPU of waiting requests.

use std::net::Ipv4Addr;

use alloy::primitives::U256;
use e2e::anvil::wall_clock;
use e2e::chain::Write;
use e2e::client::concurrently;
use e2e::fault::{FaultRule, NodeFault};
use e2e::http::request_to_reset;
use e2e::seed::{registration_call, report, wallet};
use futures_util::FutureExt as _;
use tokio::io::AsyncReadExt as _;
use tokio::time::{interval, sleep};

use crate::lab::*;

const ROUNDS: u64 = 3; // of each crowd: without a leak, memory is level from the second on
const REPORTS: u64 = 5_300; // of an agent: 4 MB of an RPC reply
const PAGES: u64 = 40; // of an agent's history, at once
const AGENTS: u64 = 120_000; // of a registry
const RANGES: usize = 16; // of the registry, at once
const CLIENTS: u64 = 10_000; // that reset their connections while they wait
const CLIENTS_AT_ONCE: u64 = 1_000;
const STREAMS: u64 = 1_000; // event streams that close
const STREAMS_AT_ONCE: u64 = 250;
const ADDRESSES: u32 = 1_000; // of clients that each use the documented limit
const LIMIT: u64 = 60;
const OPERATION_DOLLARS: f64 = 5e-6; // a write or a list
const WAITING: u64 = 100; // requests that wait for one read
const WAIT: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

pub(crate) async fn tables() -> Result<Vec<String>> {
    let mut lab = Lab::start().await?;
    let (owner, now) = (lab.chain.owner(), lab.chain.node.time().await?);
    let mut writes = vec![Write::new(owner, &registration_call(1, wallet("crowd").address(), "Crowd", 0))];
    let reports = (1..=REPORTS).map(|amount| report(1, amount, "EUR", "fees", now));
    writes.extend(reports.map(|report| Write::new(owner, &report)));
    lab.chain.send_all(&writes, None).await?;
    // Gas for `eth_call`: one call reads a whole history.
    lab.chain.node.command("evm_setBlockGasLimit", json!([U256::from(1_000_000_000)])).await?;
    lab.chain.node.mine(1).await?;
    let mut memory = head("a round | MiB before | after 1 | after 2 | after 3 | with JavaScript's");
    memory += &pages(&lab).await?;
    memory += &resets(&lab).await?;
    memory += &streams(&lab).await?;
    let tables = [limiter(&lab).await?, waiters(&lab).await?];
    lab.resize(AGENTS).await?;
    memory += &ranges(&lab).await?;
    Ok([[memory].as_slice(), &tables].concat())
}

async fn measured<'a>(
    lab: &'a Lab,
    kind: ServerKind,
    options: &e2e::worker::WorkerOptions,
) -> Result<Target<'a>> {
    lab.serve(kind, options, json!({ "measured": true })).await
}

/// Measures a Worker's wasm memory before and after each round, and at the end that of JavaScript as well.
async fn rounds(what: &str, target: &Target<'_>, round: impl AsyncFn(u64) -> Result<()>) -> Result<String> {
    let mut taken = vec![mib(target.server.wasm_memory().await?)];
    for number in 0..ROUNDS {
        round(number).await.with_context(|| what.to_owned())?;
        taken.push(mib(target.server.wasm_memory().await?));
    }
    let [collected, _] = target.server.memory().await?;
    Ok(row(&[&what, &taken.join(" | "), &mib(collected)]))
}

async fn pages(lab: &Lab) -> Result<String> {
    let target = measured(lab, ServerKind::Worker, &lab.options()).await?;
    lab.proxy.inject(FaultRule::any(NodeFault::Delay(SECOND)));
    let round = async |_| {
        let pages = (0..PAGES).map(|page| format!("/api/v1/agent/1/revenue?offset={}", page * 100));
        concurrently(pages.map(|page| (&target.client, page))).await.iter().for_each(|page| drop(page.ok()));
        Ok(())
    };
    let row = rounds(&format!("{PAGES} pages at once of a history of 4 MB"), &target, round).await?;
    lab.proxy.heal();
    Ok(row)
}

async fn resets(lab: &Lab) -> Result<String> {
    let target = measured(lab, ServerKind::Worker, &lab.options()).await?;
    let round = async |number| {
        for group in 0..CLIENTS / CLIENTS_AT_ONCE {
            let path = format!("/api/v1/agent/{}", 2 + number * CLIENTS + group);
            target.server.reset_by(CLIENTS_AT_ONCE, &path, &lab.proxy, 5 * SECOND).await?;
        }
        Ok(())
    };
    let what = format!("{CLIENTS} clients that reset while they wait, {CLIENTS_AT_ONCE} at once");
    rounds(&what, &target, round).await
}

async fn streams(lab: &Lab) -> Result<String> {
    let options = lab.options().var("INDEX", "durable-object").var("CHANGES_STREAMS_PER_CLIENT", STREAMS);
    let options = options.var("CHANGES_STREAMS_PER_INSTANCE", STREAMS);
    let target = measured(lab, ServerKind::Indexed, &options).await?;
    target.client.until_snapshot(FILL).await?;
    let (url, accept) = (target.server.url(), "Accept: text/event-stream");
    let round = async |_| {
        for _ in 0..STREAMS / STREAMS_AT_ONCE {
            let mut open = Vec::new();
            for _ in 0..STREAMS_AT_ONCE {
                open.push(request_to_reset(url, "/api/v1/changes", accept).await?);
            }
            for stream in &mut open {
                let mut head = [0; 12];
                stream.read_exact(&mut head).await?;
                ensure!(head == *b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&head));
            }
        }
        Ok(())
    };
    rounds(&format!("{STREAMS} event streams that close, {STREAMS_AT_ONCE} at once"), &target, round).await
}

async fn ranges(lab: &Lab) -> Result<String> {
    let target = measured(lab, ServerKind::Indexed, &lab.with_snapshot().await?).await?;
    target.client.until_snapshot(FILL).await.with_context(|| target.server.log())?;
    let digits = usize::from(*target.manifest().await?.prefix_digits().start());
    let round = async |_| {
        for first in (0..16_u64.pow(digits.try_into()?)).step_by(RANGES) {
            let prefixes =
                (first..).take(RANGES).map(|prefix| format!("/api/v1/kya/range/{prefix:0digits$x}"));
            let ranges = concurrently(prefixes.map(|path| (&target.client, path))).await;
            ranges.iter().for_each(|range| drop(range.ok()));
        }
        Ok(())
    };
    rounds(&format!("all of the shortest ranges of {AGENTS} agents, {RANGES} at once"), &target, round).await
}

/// Measures the cost of clients that use their whole limit, spread over a minute.
async fn limiter(lab: &Lab) -> Result<String> {
    let options = lab.options().var("RATE_LIMIT_PER_MINUTE", LIMIT).var("KYA_TTL_SECONDS", 3_600);
    let target = measured(lab, ServerKind::Worker, &options.var("RATE_LIMITER", "kv")).await?;
    let path = format!("/api/v1/kya/{}", wallet("crowd").address());
    target.server.until_cached(&path).await?;
    let (client, url) = (kept_alive()?, format!("{}{path}", target.server.url()));
    sleep(Duration::from_secs(60 - wall_clock() % 60)).await;
    let mut seconds = interval(SECOND * 58 / 60);
    let minute = async {
        for _ in 0..LIMIT {
            seconds.tick().await;
            let clients = (0..ADDRESSES).map(|client| Ipv4Addr::from(0x0a00_0000 + client).to_string());
            let ask = async |address| fetch(client.get(&url).header("CF-Connecting-IP", address)).await;
            timed(CONNECTIONS, clients, ask).await?;
        }
        Ok(())
    };
    let ((), cost) = target.cost(minute).await?;
    let counts = target.client.get("/counts").await.ok();
    let [writes, lists] = ["write", "list"].map(|name| counts[name].as_u64().unwrap_or(0));
    let requests = u64::from(ADDRESSES) * LIMIT;
    let table = head("addresses | requests | writes | lists | $ a day of such minutes | CPU ms a request");
    let dollars = (writes + lists) as f64 * OPERATION_DOLLARS * 1_440.0;
    let cpu = format!("{:.3}", cost.cpu.as_secs_f64() * 1e3 / requests as f64);
    Ok(table + &row(&[&ADDRESSES, &requests, &writes, &lists, &format!("{dollars:.2}"), &cpu]))
}

/// Measures the CPU of requests that wait for another request's read.
async fn waiters(lab: &Lab) -> Result<String> {
    let target = lab.serve(ServerKind::Worker, &lab.options(), json!({})).await?;
    lab.proxy.inject(FaultRule::any(NodeFault::Delay(WAIT + 10 * SECOND)));
    let asking = concurrently((0..WAITING).map(|_| (&target.client, "/api/v1/agent/1")));
    let measuring = async {
        sleep(5 * SECOND).await;
        let ((), cost) = target.cost(sleep(WAIT).map(Ok)).await?;
        Ok::<_, anyhow::Error>(cost.cpu)
    };
    let (answers, cpu) = tokio::join!(asking, measuring);
    lab.proxy.heal();
    answers.iter().for_each(|answer| drop(answer.ok()));
    let table = head("requests that wait | seconds | CPU ms of all");
    Ok(table + &row(&[&WAITING, &WAIT.as_secs(), &millis(cpu?)]))
}
