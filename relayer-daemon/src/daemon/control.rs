//! Follows the operator's orders: reads them from the store once a second, and at once after one that came by
//! the socket; reloads the policy after an order or SIGHUP; reports what this daemon has in force.
//!
//! While the store does not answer, the orders that were read last stay in force.

use std::{sync::Arc, time::Duration};

use tokio::{
    signal::unix::Signal,
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{
    chain::ChainNode,
    http::readiness::RelayerReadiness,
    process::{
        instance,
        shutdown::{ShutdownSignal, stopped},
    },
    relay::Relayer,
    store::{
        StoreError,
        control::{DaemonReport, Orders},
    },
};

/// Interval at which the orders are read.
const FOLLOW: Duration = Duration::from_secs(1);
/// Interval at which a daemon reports.
const REPORT: Duration = Duration::from_secs(5);

/// The follower of orders.
pub(super) struct Controller<N> {
    relayer: Arc<Relayer<N>>,
    readiness: RelayerReadiness,
    /// Notified of each order that came by the socket.
    wake: Arc<Notify>,
    report: DaemonReport,
    reported_at: Option<Instant>,
}

impl<N: ChainNode> Controller<N> {
    /// Starts a follower, with the orders in force already. `settings` is the hash of the settings.
    ///
    /// # Errors
    /// Fails if the orders cannot be read.
    pub(super) async fn start(
        relayer: Arc<Relayer<N>>,
        readiness: RelayerReadiness,
        wake: Arc<Notify>,
        settings: String,
    ) -> Result<Self, StoreError> {
        let orders = relayer.store.run(|store| store.orders()).await?;
        let policy = relayer.policy.current();
        let daemon = relayer.store.daemon().map_or_else(|| instance::id().to_owned(), |id| id.0.to_string());
        tracing::info!(daemon, %policy, hash = policy.hash(), %settings, "policy in force");
        let report = DaemonReport {
            daemon,
            host: instance::host(),
            policy: policy.hash().to_owned(),
            settings: settings.clone(),
            reload: orders.reload,
            fault: None,
        };
        relayer.metrics.policy_hash.set(as_gauge(&report.policy));
        relayer.metrics.settings_hash.set(as_gauge(&settings));
        let mut controller = Self { relayer, readiness, wake, report, reported_at: None };
        controller.take(orders).await;
        Ok(controller)
    }

    /// Follows the orders until shutdown.
    pub(super) async fn run(mut self, mut reload: Signal, mut stop: ShutdownSignal) {
        let mut ticks = interval(FOLLOW);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                Some(()) = reload.recv() => self.reload().await,
                () = self.wake.notified() => {}
                _ = ticks.tick() => {}
            }
            self.follow().await;
        }
        let daemon = self.report.daemon.clone();
        if let Err(error) = self.relayer.store.run(move |store| store.withdraw_report(&daemon)).await {
            tracing::debug!(%error, "report not withdrawn");
        }
    }

    /// Reads the orders, and does what they say.
    async fn follow(&mut self) {
        match self.relayer.store.run(|store| store.orders()).await {
            Ok(orders) => self.take(orders).await,
            Err(error) => tracing::debug!(%error, "orders not read: the last ones stay"),
        }
        if self.reported_at.is_none_or(|at| at.elapsed() >= REPORT) {
            let report = self.report.clone();
            match self.relayer.store.run(move |store| store.report(&report)).await {
                Ok(()) => self.reported_at = Some(Instant::now()),
                Err(error) => tracing::debug!(%error, "not reported"),
            }
            self.look_for_nonces_without_a_key().await;
        }
    }

    /// Counts the open nonces of accounts that no daemon of the fleet holds: only their keys can end them.
    async fn look_for_nonces_without_a_key(&self) {
        if !self.relayer.store.is_shared() {
            return;
        }
        if let Ok(records) = self.relayer.store.run(|store| store.account_records()).await {
            let without = records.iter().filter(|record| record.holder.is_none());
            let nonces = without.map(|record| record.open_nonces).fold(0, u64::saturating_add);
            self.relayer.metrics.nonces_without_key.set(nonces.cast_signed());
        }
    }

    async fn take(&mut self, orders: Orders) {
        let reload = orders.reload;
        let is_paused = orders.paused_since.is_some();
        let before = self.relayer.orders.replace(orders);
        let now = self.relayer.orders.current();
        if before.paused_since.is_some() != is_paused {
            tracing::warn!(is_paused, "the operator has changed the intake");
        }
        if before.cordoned != now.cordoned {
            tracing::warn!(cordoned = ?now.cordoned.keys(), "the operator has changed the cordoned accounts");
        }
        self.relayer.metrics.intake_paused.set(is_paused.into());
        self.readiness.paused(is_paused);
        if reload > self.report.reload {
            self.reload().await;
            self.report.reload = reload;
        }
        if let Err(error) = self.relayer.tell_cancelled().await {
            tracing::debug!(%error, "cancelled relays not told");
        }
    }

    /// Reads the policy file again. One with a fault changes nothing.
    async fn reload(&mut self) {
        let policy = Arc::clone(&self.relayer.policy);
        let Ok(reloaded) = tokio::task::spawn_blocking(move || policy.reload()).await else { return };
        let result = match reloaded {
            Ok(policy) => {
                tracing::info!(%policy, hash = policy.hash(), "policy reloaded");
                policy.hash().clone_into(&mut self.report.policy);
                self.relayer.metrics.policy_hash.set(as_gauge(policy.hash()));
                self.report.fault = None;
                "ok"
            }
            Err(error) => {
                tracing::error!(field = %error.field, rule = %error.rule, "policy not reloaded, the old one stays");
                self.report.fault = Some(error.to_string());
                "error"
            }
        };
        self.relayer.metrics.policy_reloads.with_label_values(&[result]).inc();
        self.reported_at = None;
    }
}

/// Returns the first 48 bits of a hash, which a gauge holds exactly.
fn as_gauge(hash: &str) -> i64 {
    hash.get(..12).and_then(|digits| i64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}
