//! Answers from the cache, under load.

use anyhow::{Context as _, Result, ensure};
use e2e::load::{CONNECTIONS, Load};
use e2e::process::eventually;
use e2e::seed;
use e2e::server::{Kind, Server};

use super::{FEW, Setup};
use crate::table::{Table, millis};

/// Seconds before anything is counted.
const WARM_UP: u32 = 1;

/// Seconds that count.
const SECONDS: u32 = 5;

pub(super) async fn measure(setup: &Setup) -> Result<String> {
    let kya = format!("/api/v1/kya/{}", seed::wallet("many 7").address());
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

    let mut table = Table::new(&["", "requests/s", "of `/livez`", "p50 ms", "p99 ms", "CPU ms"]);
    for kind in Kind::ALL {
        setup.freshen().await?;
        let server = setup.start(kind).await?;
        let live = load(&server, "/livez").await?;
        row(&mut table, kind, "/livez", live, live);
        let paths = of_one.into_iter().chain(of_many.into_iter().filter(|_| kind == Kind::Worker));
        for path in paths {
            until_cached(&server, path).await?;
            let shown = if path == kya { "/api/v1/kya/:wallet" } else { path };
            row(&mut table, kind, shown, load(&server, path).await?, live);
        }
    }
    Ok(format!(
        "### Warm answers\n\n\
         From the cache, on {CONNECTIONS} connections (`wrk`), {FEW} agents. CPU is that of workerd, or of Node for Express, for one \
         request. Goals for each: 0.7 of `/livez`'s requests a second, p99 below 10 ms, 0.15 ms CPU, and ahead of both \
         peers.\n\n{}",
        table.finish()
    ))
}

async fn load(server: &Server, path: &str) -> Result<Load> {
    let url = format!("{}{path}", server.url());
    Load::on(&url, &server.usage, WARM_UP).await?;
    Load::on(&url, &server.usage, SECONDS).await
}

/// Asks until the answer is from the cache: some caches store after they have answered.
async fn until_cached(server: &Server, path: &str) -> Result<()> {
    let client = server.client();
    let first = client.get(path).await;
    ensure!(first.status == 200, "{}: {path}: {}", server.kind.name(), first.text);
    eventually("cached", std::time::Duration::from_secs(10), async || {
        (client.get(path).await.header("x-cache") == "HIT").then_some(())
    })
    .await
    .with_context(|| format!("{}: {path}", server.kind.name()))
}

fn row(table: &mut Table, kind: Kind, path: &str, load: Load, live: Load) {
    table.row(&[
        format!("{}: `{path}`", kind.name()),
        format!("{:.0}", load.per_second),
        format!("{:.2}", load.per_second / live.per_second),
        millis(load.p50),
        millis(load.p99),
        format!("{:.3}", load.cpu.as_secs_f64() * 1e3),
    ]);
}
