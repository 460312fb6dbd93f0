//! `serve`: everything put together, started in the right order, stopped in good time.

use std::{io::Write as _, sync::Arc, time::Duration};

use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, bail};
use registry_core::forward::{Rules, domain};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    check::{self, Ground},
    clock, descriptors,
    functions::RelayedFunctions,
    http::connections::{self, ConnectionLimits},
    limits::Limits,
    metrics::Metrics,
    monitor,
    readiness::Readiness,
    relay::{Reads, Relayer, inflight::Inflight},
    routes::{App, routes},
    sender::{Parts, Sender, Spending, judge::Contracts, sign::Wallet},
    settings::Settings,
};

/// How long the daemon takes to stop at most; a supervisor may then kill it, and nothing is lost.
const STOP_WITHIN: Duration = Duration::from_millis(4_500);
/// Jobs that wait for the sender.
const JOBS: usize = 256;

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting; nothing was sent then.
pub async fn serve(settings: Settings, key: PrivateKeySigner) -> anyhow::Result<()> {
    let (clock, metrics) = (clock::shared(), Metrics::new()?);
    let (report, ground) = check::run(&settings, &key, &clock, &metrics).await;
    let Some(ground) = ground else {
        eprint!("{report}");
        bail!("not started: see the crosses above");
    };
    let Ground { chain, chain_id, store, identity, has_l1_fee, lock } = ground;
    let proxies = settings.proxies()?;
    store.run(move |store| store.bind(&identity)).await?;
    let listener = TcpListener::bind((settings.bind, settings.port))
        .await
        .with_context(|| format!("cannot listen on {}:{}", settings.bind, settings.port))?;

    let (stop, stopping) = watch::channel(false);
    let (jobs_in, jobs) = mpsc::channel(JOBS);
    let (events_in, mut events) = mpsc::unbounded_channel();
    let wallet = Wallet::new(key, chain_id, chain.forwarder);
    let spending = Spending { max_fee: settings.max_fee_per_gas.0, daily_wei: settings.daily_gas_budget.0 };
    let relayer = Arc::new(Relayer {
        domain: domain(chain_id, chain.forwarder),
        rules: Rules { registry: chain.registry, max_gas: settings.max_request_gas },
        functions: RelayedFunctions::new(settings.relayed_functions.clone()),
        limits: Limits::new(
            settings.rate_limit_per_ip,
            settings.rate_limit_per_signer,
            settings.rate_limit_reads,
        ),
        spending,
        has_l1_fee,
        wallet: wallet.clone(),
        inflight: Inflight::new(settings.max_queue),
        reads: Reads::default(),
        clock: clock.clone(),
        metrics: metrics.clone(),
        jobs: jobs_in,
        checks: Relayer::check_permits(),
        patience: settings.relay_retry,
        stopping: stopping.clone(),
        chain: Arc::clone(&chain),
        store: Arc::clone(&store),
    });

    // Whatever a former life left behind comes first: no request is accepted before it is accounted for.
    let contracts = Contracts { forwarder: chain.forwarder, registry: chain.registry };
    let node = Arc::clone(&chain);
    let now = clock.now();
    let mut sender = Sender::new(Parts {
        node,
        store: Arc::clone(&store),
        wallet,
        contracts,
        spending,
        clock,
        metrics: metrics.clone(),
        events: events_in,
    });
    for slot in sender.recover().await.context("journal not recovered")? {
        if let Some(relay) = slot.relay {
            let _ = relayer.inflight.start(relay.id, relay.signer, relay.forward_nonce);
        }
    }
    for relay in store.run(move |store| store.unsent(now)).await? {
        relayer.resume(relay);
    }

    let readiness = Readiness::default();
    let sender = tokio::spawn(sender.run(jobs, stopping.clone()));
    let monitor = tokio::spawn(monitor::run(Arc::clone(&relayer), readiness.clone(), stopping.clone()));
    let listening = tokio::spawn({
        let relayer = Arc::clone(&relayer);
        async move {
            while let Some(event) = events.recv().await {
                relayer.on_event(event).await;
            }
        }
    });
    let app = Arc::new(App {
        relayer,
        readiness: readiness.clone(),
        chain_id,
        relay_wait: settings.relay_wait,
        proxies: proxies.clone(),
    });
    let address = listener.local_addr()?;
    let limits = connection_limits(&settings);
    let http = tokio::spawn(connections::serve(listener, routes(app), metrics, limits, proxies, stopping));
    announce(&address.to_string());

    stop_signal().await?;
    tracing::info!("stopping");
    readiness.stop();
    let _ = stop.send(true);
    wind_down([http, sender, monitor]).await;
    listening.abort();
    drop(lock);
    tracing::info!("stopped");
    Ok(())
}

/// What the operator allows, as far as the process may open files.
fn connection_limits(settings: &Settings) -> ConnectionLimits {
    let (wanted, descriptors) = (settings.connections(), descriptors::limit());
    let limits = wanted.within(descriptors);
    if limits.total < wanted.total {
        tracing::warn!(
            connections = limits.total,
            descriptors,
            "fewer connections than set: the process may not open more files"
        );
    }
    limits
}

/// Says on standard output where the daemon listens: with port 0 nobody else knows.
fn announce(address: &str) {
    tracing::info!(address, version = env!("CARGO_PKG_VERSION"), "listening");
    let mut out = std::io::stdout();
    // Nobody may be reading.
    let _ = writeln!(out, "relayer-daemon listening on http://{address}").and_then(|()| out.flush());
}

async fn stop_signal() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    Ok(())
}

async fn wind_down(tasks: [JoinHandle<()>; 3]) {
    let all = futures_util::future::join_all(tasks);
    if tokio::time::timeout(STOP_WITHIN, all).await.is_err() {
        tracing::warn!("not everything ended in time; the journal knows the rest");
    }
}
