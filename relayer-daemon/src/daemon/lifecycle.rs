//! `serve` and `drain`: the daemon's start, draining and shutdown.
//!
//! `serve` answers HTTP until it is stopped (SIGTERM, SIGINT) or drained (SIGUSR1, which `relayer-daemon
//! drain` sends). A draining daemon accepts nothing new, finishes what it has accepted, and ends. `drain`
//! without a running daemon finishes what the store holds, without HTTP. Both follow the operator's orders.
//!
//! ```text
//! serve:  start -> listening --SIGUSR1--> draining --nothing in flight--> stop -> exit 0
//!                      |                      |
//!                      +------- SIGTERM ------+--> stop -> exit 0
//! drain:  [ask the running daemon, wait for its end] -> start --nothing in flight--> stop -> exit 0
//!                                                         +------- SIGTERM --------> stop -> exit 1
//! ```
//!
//! Shutdown takes at most [`STOP_WITHIN`]; the store has what is in flight.

use std::{io, sync::Arc, time::Duration};

use alloy::primitives::Address;
use anyhow::{Context as _, anyhow, bail};
use futures_util::{
    FutureExt as _,
    future::{join_all, select_all},
};
use host_kit::{print, say, sockets};
use registry_core::forward::Rules;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, watch},
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use crate::{
    budget::share::Allowance,
    chain::{Chain, ChainNode},
    daemon::{
        assembly::{Assembly, DaemonParts},
        check::{self, CheckMode, StartParts},
        control::Controller,
        ctl,
        fleet::LeaseKeeper,
        keyless, monitor,
        settings::Settings,
    },
    http::{
        connections::{self, ConnectionLimits},
        readiness::RelayerReadiness,
        routes::{App, FactsCache, routes},
        waiting::WaitingPlaces,
    },
    metrics::Metrics,
    outcome::ErrorCode,
    process::{clock, lock::ProcessLock, shutdown::ShutdownSignal},
    relay::{
        Relayer, RequestTerms, fleet, functions::RelayedFunctions, policy::decision::DecisionClient,
        rate_limits::RateLimits,
    },
    sender::{Sender, SpendingLimits, carrier::Carrier, lease::Lease, receipt_reader::Contracts},
    signer::TxSigner,
    store::{
        Retention,
        fleet::{BEAT, FleetRecord, LEASE},
        retention,
    },
    telemetry::{Exporter, SpanQueue},
    webhooks::{self, Deliverer, DeliveryClient},
};

/// The longest shutdown. A supervisor may kill the daemon after it, and nothing is lost.
const STOP_WITHIN: Duration = Duration::from_millis(4_500);
/// Interval at which a draining daemon checks whether anything is left.
const DRAIN_POLL: Duration = Duration::from_millis(250);
/// Interval at which a draining daemon says that it waits for an account to be uncordoned.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// Runs until SIGTERM or SIGINT, or until it is drained after SIGUSR1.
///
/// # Errors
/// The reason why it did not start (nothing was sent then), or the part of it that ended early.
pub async fn serve(settings: Settings, keys: Vec<TxSigner>, spans: Option<SpanQueue>) -> anyhow::Result<()> {
    // Installed before the lock file names this process: without a handler the signal would kill it.
    let mut drain = signal(SignalKind::user_defined1())?;
    let reload = signal(SignalKind::hangup())?;
    let (clock, metrics) = (clock::shared(), Metrics::new()?);
    let (report, checked) = check::run(CheckMode::Serve, &settings, &keys, &clock, &metrics).await;
    let Some(checked) = checked else {
        say(&report);
        bail!("not started: see the crosses above");
    };
    let accounts: Vec<_> = keys.iter().map(TxSigner::address).collect();
    metrics.start_at_zero(ErrorCode::ALL.iter().map(|code| code.name()), &accounts);
    // An account that gets no relays is only a warning.
    say(report.warnings());
    let mut stop = StopSignals::listen()?;
    let proxies = settings.proxies()?;
    let chain_id = checked.chain_id;
    let listener = sockets::listen(settings.listen.address())
        .with_context(|| format!("cannot listen on {}", settings.listen.address()))?;
    let mut daemon = RunningDaemon::start(&settings, checked, metrics.clone(), reload).await?;

    let limits = connection_limits(&settings);
    let app = Arc::new(App {
        relayer: Arc::clone(&daemon.relayer),
        store: Arc::new(daemon.relayer.store.with_own_reader()?),
        facts: FactsCache::default(),
        readiness: daemon.readiness.clone(),
        chain_id,
        settings_hash: settings.hash(),
        relay_wait: settings.relay_wait,
        places: WaitingPlaces::new(limits),
        proxies: proxies.clone(),
    });
    let exporter = settings.telemetry()?.map(|target| Exporter::new(target, metrics.clone())).transpose()?;
    if let Some((exporter, spans)) = exporter.zip(spans) {
        let (app, stopping) = (Arc::clone(&app), daemon.stopping.clone());
        let exporting = exporter.run(spans, move || refreshed(Arc::clone(&app)).boxed(), stopping);
        daemon.parts.push(("telemetry", tokio::spawn(exporting)));
    }
    let address = listener.local_addr()?.to_string();
    let stopping = daemon.stopping.clone();
    let http = connections::serve(listener, routes(app), metrics, limits, proxies, stopping);
    daemon.parts.push(("http", tokio::spawn(http)));
    tracing::info!(address, version = env!("CARGO_PKG_VERSION"), "listening");
    // With port 0 it is not known otherwise. Standard output may be closed.
    let _ = print(format_args!("relayer-daemon listening on http://{address}\n"));

    let ended = tokio::select! {
        () = stop.received() => Ok(()),
        part = daemon.part_ended() => Err(part),
        _ = drain.recv() => {
            tracing::info!("draining: nothing new is accepted");
            daemon.drain();
            tokio::select! {
                () = drained(Arc::clone(&daemon.relayer), daemon.began) => {
                    tracing::info!("drained");
                    Ok(())
                }
                () = stop.received() => Ok(()),
                part = daemon.part_ended() => Err(part),
            }
        }
    };
    daemon.stop().await;
    ended
}

async fn refreshed(app: Arc<App>) {
    app.refresh_gauges().await;
}

/// Asks a running daemon to drain and waits for its end, then finishes what the store still holds.
///
/// # Errors
/// The reason why it did not start, or that it was stopped before everything was mined.
pub async fn drain(settings: Settings, keys: Vec<TxSigner>) -> anyhow::Result<()> {
    // Installed before the lock file names this process. It drains already: without a handler another drain's
    // signal would kill it.
    let _drain = signal(SignalKind::user_defined1())?;
    let reload = signal(SignalKind::hangup())?;
    let (clock, metrics) = (clock::shared(), Metrics::new()?);
    let (report, checked) = check::run(CheckMode::Drain, &settings, &keys, &clock, &metrics).await;
    let Some(checked) = checked else {
        say(&report);
        bail!("not drained: see the crosses above");
    };
    let mut stop = StopSignals::listen()?;
    let mut daemon = RunningDaemon::start(&settings, checked, metrics, reload).await?;
    daemon.drain();
    let ended = tokio::select! {
        () = drained(Arc::clone(&daemon.relayer), daemon.began) => Ok(()),
        () = stop.received() => Err(anyhow!("stopped before everything was mined: run drain again")),
        part = daemon.part_ended() => Err(part),
    };
    daemon.stop().await;
    ended?;
    print("drained: nothing is in flight\n")?;
    Ok(())
}

struct RunningDaemon {
    began: Instant,
    relayer: Arc<Relayer>,
    readiness: RelayerReadiness,
    draining: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    stopping: ShutdownSignal,
    /// The tasks that end at shutdown, by their names.
    parts: Vec<(&'static str, JoinHandle<()>)>,
    events: JoinHandle<()>,
    locks: Vec<ProcessLock>,
}

impl RunningDaemon {
    /// Recovers the store, then starts the controller, the senders and the monitor; the caller starts HTTP. A
    /// signal of `reload` has the policy read again.
    async fn start(
        settings: &Settings,
        checked: StartParts,
        metrics: Metrics,
        reload: Signal,
    ) -> anyhow::Result<Self> {
        let StartParts { chain, chain_id, policy, keys, store, identity, has_l1_fee, no_op_gas, locks } =
            checked;
        let clock = clock::shared();
        store.run(move |store| store.bind(&identity)).await?;

        let (stop, stopping) = watch::channel(false);
        let (draining, drain) = watch::channel(false);
        let spending =
            SpendingLimits { max_fee: settings.max_fee_per_gas.0, daily_wei: settings.daily_gas_budget.0 };
        let assembly = Assembly::new(DaemonParts {
            chain_id,
            contracts: Contracts { forwarder: chain.forwarder, registry: chain.registry },
            store: Arc::clone(&store),
            keys,
            no_op_gas,
            max_pending: settings.max_pending_per_key,
            max_queue: settings.max_queue,
            terms: RequestTerms {
                rules: Rules { registry: chain.registry, max_gas: settings.max_request_gas },
                functions: RelayedFunctions::new(settings.relayed_functions.clone()),
                spending,
                allowance: Allowance { limit_wei: spending.daily_wei, shares: settings.budget_shares() },
                has_l1_fee,
                patience: settings.relay_retry,
            },
            limits: RateLimits::new(
                settings.rate_limit_per_ip,
                settings.rate_limit_per_signer,
                settings.rate_limit_reads,
                settings.rate_limit_polls,
            ),
            policy: Arc::clone(&policy),
            decisions: DecisionClient::new().context("no client of the decision webhook")?,
            clock: clock.clone(),
            metrics: metrics.clone(),
            stopping: stopping.clone(),
            draining: drain,
            chain,
        })?;
        assembly.recover().await?;
        let (relayer, is_shared) = (Arc::clone(&assembly.relayer), store.is_shared());

        let readiness = RelayerReadiness::default();
        let wake = Arc::new(Notify::new());
        let controller =
            Controller::start(Arc::clone(&relayer), readiness.clone(), Arc::clone(&wake), settings.hash());
        let control = tokio::spawn(controller.await?.run(reload, stopping.clone()));
        if let Some(socket) = ctl::listen(settings) {
            tokio::spawn(ctl::serve(socket, Arc::clone(&relayer), wake, stopping.clone()));
        }
        let duty = if is_shared { Lease::until(Instant::now(), 0) } else { Lease::forever() };
        let sender = if is_shared {
            tokio::spawn(fleet::follow(Arc::clone(&relayer), stopping.clone()));
            let make = Arc::clone(&assembly.make);
            let keeper = LeaseKeeper::new(Arc::clone(&relayer), make, duty.clone());
            tokio::spawn(keeper.run(stopping.clone()))
        } else {
            tokio::spawn(run_all(assembly.senders.clone(), stopping.clone()))
        };
        let make_follower = Arc::clone(&assembly.make_follower);
        tokio::spawn(keyless::follow(Arc::clone(&relayer), make_follower, duty.clone(), stopping.clone()));
        let monitor = tokio::spawn(monitor::run(Arc::clone(&relayer), readiness.clone(), stopping.clone()));
        let retention = Retention::of_days(settings.journal_retention_days);
        let deliverer = Deliverer {
            store: Arc::new(store.with_own_reader()?),
            policy,
            client: DeliveryClient::new().context("no client of webhooks")?,
            clock: clock.clone(),
            metrics: metrics.clone(),
            duty: duty.clone(),
        };
        let webhooks = tokio::spawn(webhooks::run(deliverer, stopping.clone()));
        let pruner =
            tokio::spawn(retention::run(store, retention, clock, move || duty.is_valid(), stopping.clone()));
        let parts = vec![
            ("control", control),
            ("sender", sender),
            ("monitor", monitor),
            ("retention", pruner),
            ("webhooks", webhooks),
        ];
        let events = assembly.listen();
        Ok(Self { began: Instant::now(), relayer, readiness, draining, stop, stopping, parts, events, locks })
    }

    /// Stops accepting new relays.
    fn drain(&self) {
        self.readiness.stop();
        let _ = self.draining.send(true);
    }

    /// Waits until a part ends early, by a panic.
    async fn part_ended(&mut self) -> anyhow::Error {
        let tasks = self.parts.iter_mut().map(|(_, task)| task).chain([&mut self.events]);
        let (result, index, _) = select_all(tasks).await;
        let part = self.parts.get(index).map_or("events", |(part, _)| *part);
        let why = result.err().map_or_else(|| "without a reason".to_owned(), |error| error.to_string());
        anyhow!("{part} has ended: {why}")
    }

    /// Finishes the current send and the answers in progress, then releases the locks.
    async fn stop(self) {
        tracing::info!("stopping");
        self.readiness.stop();
        let _ = self.stop.send(true);
        // One that has ended was waited for already.
        let running = self.parts.into_iter().map(|(_, task)| task).filter(|task| !task.is_finished());
        if tokio::time::timeout(STOP_WITHIN, join_all(running)).await.is_err() {
            tracing::warn!("not everything ended in time; the journal knows the rest");
        }
        self.events.abort();
        drop(self.locks);
        tracing::info!("stopped");
    }
}

/// Runs the accounts' senders until the last one has ended. A panic of one ends them all.
async fn run_all(senders: Vec<Arc<Sender<Chain>>>, stopping: ShutdownSignal) {
    let mut running = JoinSet::new();
    for sender in senders {
        running.spawn(sender.run(stopping.clone()));
    }
    while let Some(ended) = running.join_next().await {
        if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Waits until no relay is pending and no nonce is open. Beside other daemons only those of this one count,
/// but for a lease's time after its start at `began`, or after a hand-over, those of the whole fleet.
pub async fn drained<C: ChainNode>(relayer: Arc<Relayer<C>>, began: Instant) {
    let store = &relayer.store;
    let mut said_at: Option<Instant> = None;
    loop {
        let has_sent = relayer.accounts.senders().iter().any(|sender| sender.pending() > 0);
        let relays = relayer.inflight.run_here().len();
        let is_due = said_at.is_none_or(|at| at.elapsed() >= SAY_AGAIN);
        let is_paused = relays > 0 && relayer.accounts.carrier() == Carrier::Paused;
        if is_due && is_paused && !relayer.drains_beside_others().await {
            tracing::warn!(relays, "every account is cordoned: those not sent wait, and so does the drain");
            said_at = Some(Instant::now());
        }
        if relays == 0 && !has_sent {
            let in_flight = store.run(|store| {
                let pending = u64::from(store.oldest_pending()?.is_some());
                let alone = FleetRecord { pending, ..FleetRecord::default() };
                let fleet = if store.is_shared() { store.fleet()? } else { alone };
                Ok((store.accounts_with_open_nonces()?, fleet))
            });
            let in_flight = in_flight.await;
            let since = relayer.handed_over.borrow().map_or(began, |handed_over| handed_over.max(began));
            match in_flight {
                Ok((open, fleet)) if !has_left(&relayer, &open, &fleet, since.elapsed()) => return,
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "journal cannot be read"),
            }
        }
        tokio::time::sleep(DRAIN_POLL).await;
    }
}

/// Returns whether accounts with open nonces, or pending relays, are left to this daemon. `age` is the time
/// since it began, or last handed a relay over.
fn has_left<C>(relayer: &Relayer<C>, open: &[Address], fleet: &FleetRecord, age: Duration) -> bool {
    let is_configured = |account: &Address| relayer.configured.contains(account);
    if fleet.daemons <= 1 {
        // It cannot end nonces of keys that it does not have.
        return open.iter().any(is_configured) || (fleet.pending > 0 && open.iter().all(is_configured));
    }
    let is_own = |account: &Address| {
        fleet.holders.get(account).is_none_or(|holder| Some(holder) == relayer.store.daemon())
    };
    // One that has died counts as another one until its leases end.
    (age < LEASE + BEAT && !(open.is_empty() && fleet.pending == 0))
        || open.iter().any(|account| is_configured(account) && is_own(account))
}

/// Returns the operator's limits, lowered to what the process may open.
fn connection_limits(settings: &Settings) -> ConnectionLimits {
    let (descriptors, wanted) = (sockets::descriptors(), settings.connections());
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

/// SIGTERM and SIGINT, which stop the daemon in good order once this exists.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(&mut self) {
        tokio::select! { _ = self.terminate.recv() => {}, _ = self.interrupt.recv() => {} }
    }
}
