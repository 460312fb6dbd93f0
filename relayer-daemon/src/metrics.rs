//! Prometheus metrics. Label values come from closed sets only, so that no client can grow them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use alloy::primitives::Address;
use prometheus::{
    Counter, CounterVec, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter,
    IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

/// Defines [`Metrics`]: for each metric its field, name and meaning, then its buckets and labels, if any.
macro_rules! metrics {
    ($($name:ident: $kind:ident = $metric:literal, $help:literal $(in $buckets:ident)? $(by [$($label:literal),+])?;)*) => {
        /// Every metric of the daemon. The README says which to alert on.
        #[derive(Debug, Clone)]
        pub struct Metrics {
            registry: Registry,
            /// Held while the store's counts are taken over: counters are read and raised in two steps.
            store_counts: Arc<Mutex<()>>,
            $(#[doc = concat!($help, ".")] pub $name: $kind,)*
        }

        impl Metrics {
            /// Creates all metrics, at zero.
            ///
            /// # Errors
            /// Fails if two metrics have the same name: a mistake in this file.
            pub fn new() -> Result<Self, prometheus::Error> {
                let registry = Registry::new();
                $(
                    let $name = metrics!(@make $kind, options!($metric, $help $(, $buckets)?) $(, [$($label),+])?)?;
                    registry.register(Box::new($name.clone()))?;
                )*
                Ok(Self { registry, store_counts: Arc::default(), $($name,)* })
            }
        }
    };
    (@make $kind:ident, $options:expr) => { $kind::with_opts($options) };
    (@make $kind:ident, $options:expr, $labels:expr) => { $kind::new($options, &$labels) };
}

/// A metric's name and meaning, with the buckets of a histogram.
macro_rules! options {
    ($metric:literal, $help:literal) => {
        Opts::new(concat!("relayer_", $metric), $help)
    };
    ($metric:literal, $help:literal, $buckets:ident) => {
        HistogramOpts::new(concat!("relayer_", $metric), $help).buckets($buckets.to_vec())
    };
}

metrics! {
    http_requests: IntCounterVec = "http_requests_total", "HTTP answers by `route` and `status`" by ["route", "status"];
    http_seconds: HistogramVec = "http_seconds", "Time to answer by `route`, seconds" in SLOW by ["route"];
    http_connections: IntGauge = "http_connections", "Open HTTP connections";
    http_refused: IntCounter = "http_connections_refused_total", "Connections closed at once: their client's share was used up";
    relays: IntCounterVec = "relays_total", "Relays by how they ended: `executed`, `reverted`, `dropped`" by ["state"];
    failures: IntCounterVec = "failures_total", "Refusals and failures by stable `code`" by ["code"];
    relay_seconds: Histogram = "relay_seconds", "From acceptance to receipt, seconds" in SLOW;
    decisions: IntCounterVec = "decisions_total", "Answers of the decision webhook by `result`: `allow`, `deny`, `less_gas`, `undecided`" by ["result"];
    policy_reloads: IntCounterVec = "policy_reloads_total", "Reloads of the policy by `result`: `ok`, `error`" by ["result"];
    store_commits: IntCounter = "store_commits_total", "Transactions of the journal";
    store_writes: IntCounter = "store_writes_total", "Writes of the journal";
    store_wait_seconds: Counter = "store_wait_seconds_total", "Time that the journal's writes have waited for those before them, seconds";
    store_commit_seconds: Counter = "store_commit_seconds_total", "Time that the journal's transactions have lasted, the wait for locks and the commit included, seconds";
    store_connects: IntCounter = "store_connects_total", "Connections to the database that were made";
    ready: IntGauge = "ready", "1 while `/readyz` answers 200, else 0";
    nonces_without_key: IntGauge = "nonces_without_key", "Nonces in flight of accounts that no daemon of the fleet holds";
    intake_paused: IntGauge = "intake_paused", "1 while the operator has paused the intake";
    policy_hash: IntGauge = "policy_hash", "The first 48 bits of the hash of the policy in force";
    settings_hash: IntGauge = "settings_hash", "The first 48 bits of the hash of the settings that a fleet's daemons have alike";
    webhook_attempts: IntCounterVec = "webhook_attempts_total", "Attempts to deliver events to webhooks by `result`: `delivered`, `failed`, `given_up`" by ["result"];
    webhook_oldest_seconds: IntGauge = "webhook_oldest_seconds", "Age of the oldest event that is neither delivered nor given up, seconds";
    transactions: IntCounterVec = "transactions_total", "Transactions signed by `account` and `purpose`" by ["account", "purpose"];
    fleet_daemons: IntGauge = "fleet_daemons", "The daemons of the fleet that live";
    leases: IntGauge = "leases", "Accounts that are leased to this daemon";
    leases_lost: IntCounter = "leases_lost_total", "Leases that ended before this daemon gave them back";
    relays_claimed: IntCounter = "relays_claimed_total", "Relays taken over from other daemons";
    replacements: IntCounter = "replacements_total", "Replacement transactions";
    resends: IntCounter = "resends_total", "Rebroadcasts of the same bytes";
    foreign_nonces: IntCounterVec = "foreign_nonces_total", "Nonces used by foreign transactions, by `account`" by ["account"];
    reorganised: IntCounter = "reorganised_total", "Mined nonces that a reorg undid";
    sender_rounds: IntCounterVec = "sender_rounds_total", "Rounds that an account's sender has finished, by `account`" by ["account"];
    paid_wei: CounterVec = "paid_wei_total", "Gas paid, wei, by `account`" by ["account"];
    rpc_calls: IntCounterVec = "rpc_calls_total", "RPC calls by `method` and `result`: `ok`, `error`, `fault`" by ["method", "result"];
    rpc_seconds: HistogramVec = "rpc_seconds", "Time an RPC call takes, by `method`, seconds" in FAST by ["method"];
    balance_wei: GaugeVec = "balance_wei", "The balance of each `account`, wei" by ["account"];
    account_ready: IntGaugeVec = "account_ready", "1 if an `account` gets relays, else 0" by ["account"];
    pending_transactions: IntGaugeVec = "pending_transactions", "Transactions of each `account` that wait to be mined" by ["account"];
    budget_limit_wei: Gauge = "budget_limit_wei", "The budget, wei";
    budget_used_wei: Gauge = "budget_used_wei", "The paid and reserved part of the budget, wei";
    queue_depth: IntGauge = "queue_depth", "Relays in flight";
    oldest_pending_seconds: IntGauge = "oldest_pending_seconds", "Age of the oldest pending relay, seconds";
    head_block: IntGauge = "head_block", "Number of the newest block seen";
}

const FAST: [f64; 9] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0];
const SLOW: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0];

impl Metrics {
    /// Counts an RPC call.
    pub fn rpc(&self, method: &'static str, result: &'static str, took: Duration) {
        self.rpc_calls.with_label_values(&[method, result]).inc();
        self.rpc_seconds.with_label_values(&[method]).observe(took.as_secs_f64());
    }

    /// Starts the counters with labels at zero: an alert on their rise sees the first event, too.
    pub fn start_at_zero(&self, failure_codes: impl Iterator<Item = &'static str>, accounts: &[Address]) {
        for (counters, values) in [
            (&self.relays, ["executed", "reverted", "dropped"].as_slice()),
            (&self.decisions, &["allow", "deny", "less_gas", "undecided"]),
            (&self.policy_reloads, &["ok", "error"]),
            (&self.webhook_attempts, &["delivered", "failed", "given_up"]),
        ] {
            values.iter().for_each(|value| drop(counters.with_label_values(&[value])));
        }
        for account in accounts.iter().map(Address::to_string) {
            for purpose in ["relay", "superseded", "expired", "rejected", "cancelled", "gap"] {
                let _ = self.transactions.with_label_values(&[account.as_str(), purpose]);
            }
        }
        failure_codes.for_each(|code| drop(self.failures.with_label_values(&[code])));
    }

    /// Removes the series of an account's state: in a fleet another daemon has it now.
    pub fn forget_account(&self, account: Address) {
        let account = account.to_string();
        let label = [account.as_str()];
        // Those that were never set are not there.
        let _ = self.sender_rounds.remove_label_values(&label);
        let _ = self.balance_wei.remove_label_values(&label);
        let _ = self.account_ready.remove_label_values(&label);
        let _ = self.pending_transactions.remove_label_values(&label);
    }

    /// Takes over the store's counts.
    pub fn saw_store(&self, [commits, writes]: [u64; 2], [waited, lasted]: [f64; 2], connects: u64) {
        let _held = self.store_counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (counter, total) in
            [(&self.store_commits, commits), (&self.store_writes, writes), (&self.store_connects, connects)]
        {
            counter.inc_by(total.saturating_sub(counter.get()));
        }
        for (counter, total) in [(&self.store_wait_seconds, waited), (&self.store_commit_seconds, lasted)] {
            counter.inc_by((total - counter.get()).max(0.0));
        }
    }

    /// Returns all metrics as they stand.
    pub fn gather(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.registry.gather()
    }

    /// Returns the rounds that the senders of these accounts have finished, together.
    pub fn all_sender_rounds(&self, accounts: &[Address]) -> u64 {
        let rounds =
            |account: &Address| self.sender_rounds.with_label_values(&[account.to_string().as_str()]).get();
        accounts.iter().map(rounds).sum()
    }

    /// Renders the text that Prometheus scrapes.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        match TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            Ok(()) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("# {error}\n"),
        }
    }
}

/// Converts wei to a gauge's value; a double keeps the leading 15 digits, enough for a dashboard.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
pub const fn gauge_value(wei: u128) -> f64 {
    wei as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        thread,
    };

    #[test]
    fn a_rise_of_the_stores_counts_that_two_scrapes_see_at_once_is_counted_once() {
        let (metrics, total) = (Metrics::new().unwrap(), AtomicU64::new(0));
        let counts_too_much = |_: &u32| {
            let now = total.fetch_add(1, Ordering::SeqCst) + 1;
            metrics.saw_store([now; 2], [0.0; 2], now);
            let counted = metrics.store_commits.get();
            counted > total.load(Ordering::SeqCst)
        };
        let scrape = || (0..200_000).filter(counts_too_much).count();
        let wrong = thread::scope(|threads| {
            [threads.spawn(scrape), threads.spawn(scrape)].map(|scrapes| scrapes.join().unwrap())
        });
        assert_eq!((wrong, metrics.store_commits.get()), ([0, 0], 400_000));
    }
}
