//! First answers about one agent, one after the other, beside the RPC call they are made of.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::server::{Kind, Server};
use e2e::{http, synthetic};

use super::{MANY, Setup};
use crate::table::{Table, median, millis};

/// Agents asked for.
const SAMPLES: u64 = 200;

/// Agents asked for before anything is counted.
const WARM_UP: u64 = 20;

pub(super) async fn measure(setup: &Setup) -> Result<String> {
    setup.chain.node.freshen().await?;
    let mut servers = Vec::new();
    for kind in Kind::ALL {
        servers.push(setup.start(kind).await?);
    }
    let mut table = Table::new(&["p50 ms", "`/kya/:wallet`", "`/agent/:id`"]);
    let kya = question(setup, &servers, |id| format!("/api/v1/kya/{}", synthetic::wallet(id))).await?;
    let agent = question(setup, &servers, |id| format!("/api/v1/agent/{id}")).await?;
    table.row(&["the bare RPC call".to_owned(), millis(kya.bare), millis(agent.bare)]);
    for (index, server) in servers.iter().enumerate() {
        let cell = |times: &Times| -> Result<String> {
            let time = times.servers.get(index).context("a time per server")?;
            let over = time.as_secs_f64() - times.bare.as_secs_f64();
            Ok(format!("{} ({:+.2})", millis(*time), over * 1e3))
        };
        table.row(&[server.kind.name().to_owned(), cell(&kya)?, cell(&agent)?]);
    }
    Ok(format!(
        "### Cold answers about one agent\n\n\
         {SAMPLES} agents of {MANY}, each asked for once, one after the other. The bare RPC call is the very request that this Worker \
         sends, sent by the client; in parentheses what a server adds to it. Goal: at most 5 ms.\n\n{}",
        table.finish()
    ))
}

/// The medians of one question.
struct Times {
    bare: Duration,
    servers: Vec<Duration>,
}

/// Asks every server for the same agents in turn: what slows the machine down for a while slows all of them.
async fn question(setup: &Setup, servers: &[Server], path: impl Fn(u64) -> String) -> Result<Times> {
    let client = http::builder().pool_max_idle_per_host(1).timeout(Duration::from_secs(30)).build()?;
    let mut bare = Vec::new();
    let mut times = vec![Vec::new(); servers.len()];
    for sample in 0..WARM_UP + SAMPLES {
        let path = path(1 + sample * (MANY / (WARM_UP + SAMPLES)));
        let counts = sample >= WARM_UP;
        for (server, times) in servers.iter().zip(&mut times) {
            setup.proxy.reset();
            let began = Instant::now();
            let answer = client.get(format!("{}{path}", server.url())).send().await?;
            let status = answer.status();
            let text = answer.text().await?;
            let time = began.elapsed();
            ensure!(status == 200, "{}: {path}: {text}", server.kind.name());
            let posts = setup.proxy.reset();
            ensure!(posts.len() == 1 || !counts, "{}: {path}: {} RPC calls", server.kind.name(), posts.len());
            if counts {
                times.push(time);
            }
            if server.kind == Kind::Worker {
                let body = &posts.last().context("an RPC call")?.body;
                let began = Instant::now();
                let answer = client.post(setup.proxy.url()).json(body).send().await?;
                answer.error_for_status()?.bytes().await?;
                if counts {
                    bare.push(began.elapsed());
                }
            }
        }
    }
    Ok(Times {
        bare: median(&bare).context("samples")?,
        servers: times.iter().map(|times| median(times).context("samples")).collect::<Result<_>>()?,
    })
}
