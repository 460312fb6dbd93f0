//! Prometheus metrics. Label values come from closed sets only, so that no client can grow them.

use std::time::Duration;

use alloy::primitives::Address;
use prometheus::{
    Counter, CounterVec, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter,
    IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

/// Defines [`Metrics`]: for each metric its field and how it is made.
macro_rules! metrics {
    ($(#[$doc:meta] $name:ident: $kind:ty = $make:expr;)*) => {
        /// Every metric of the daemon. What each one means, and what to alert on, is in the README.
        #[derive(Debug, Clone)]
        pub struct Metrics {
            registry: Registry,
            $(#[$doc] pub $name: $kind,)*
        }

        impl Metrics {
            /// All metrics, at zero.
            ///
            /// # Errors
            /// If two metrics have the same name: a mistake in this file.
            pub fn new() -> Result<Self, prometheus::Error> {
                let registry = Registry::new();
                $(
                    let $name = $make?;
                    registry.register(Box::new($name.clone()))?;
                )*
                Ok(Self { registry, $($name,)* })
            }
        }
    };
}

metrics! {
    /// HTTP answers by `route` and `status`.
    http_requests: IntCounterVec =
        IntCounterVec::new(opts("http_requests_total", "HTTP answers"), &["route", "status"]);
    /// Time to answer by `route`, seconds.
    http_seconds: HistogramVec =
        HistogramVec::new(seconds("http_seconds", "Time to answer a request", &SLOW), &["route"]);
    /// Open HTTP connections.
    http_connections: IntGauge = IntGauge::with_opts(opts("http_connections", "Open HTTP connections"));
    /// Connections closed at once: their client's share was used up.
    http_refused: IntCounter =
        IntCounter::with_opts(opts("http_connections_refused_total", "Connections beyond their client's share"));
    /// Relays by how they ended: `executed`, `reverted`, `dropped`.
    relays: IntCounterVec = IntCounterVec::new(opts("relays_total", "Relays by how they ended"), &["state"]);
    /// Refusals and failures by stable `code`.
    failures: IntCounterVec =
        IntCounterVec::new(opts("failures_total", "Refusals and failures by code"), &["code"]);
    /// From acceptance to receipt, seconds.
    relay_seconds: Histogram =
        Histogram::with_opts(seconds("relay_seconds", "From acceptance to receipt", &SLOW));
    /// Answers of the decision webhook by `result`: `allow`, `deny`, `less_gas`, `undecided`.
    decisions: IntCounterVec =
        IntCounterVec::new(opts("decisions_total", "Answers of the decision webhook"), &["result"]);
    /// Reloads of the policy by `result`: `ok`, `error`.
    policy_reloads: IntCounterVec =
        IntCounterVec::new(opts("policy_reloads_total", "Reloads of the policy file"), &["result"]);
    /// Transactions of the journal's writes.
    store_commits: IntCounter = IntCounter::with_opts(opts("store_commits_total", "Transactions of the journal"));
    /// Writes in them.
    store_writes: IntCounter = IntCounter::with_opts(opts("store_writes_total", "Writes of the journal"));
    /// Time that writes have waited for those before them, seconds.
    store_wait_seconds: Counter =
        Counter::with_opts(opts("store_wait_seconds_total", "Time that the journal's writes have waited"));
    /// Time that their transactions have lasted, the wait for locks and the commit included, seconds.
    store_commit_seconds: Counter =
        Counter::with_opts(opts("store_commit_seconds_total", "Time that the journal's transactions have lasted"));
    /// Connections to the database that were made.
    store_connects: IntCounter =
        IntCounter::with_opts(opts("store_connects_total", "Connections to the database that were made"));
    /// Nonces in flight of accounts that no daemon of the fleet holds.
    nonces_without_key: IntGauge =
        IntGauge::with_opts(opts("nonces_without_key", "Nonces in flight of accounts that no daemon holds"));
    /// 1 while the operator has paused the intake.
    intake_paused: IntGauge = IntGauge::with_opts(opts("intake_paused", "Whether the intake is paused"));
    /// The first 48 bits of the hash of the policy in force.
    policy_hash: IntGauge = IntGauge::with_opts(opts("policy_hash", "Hash of the policy, 48 bits of it"));
    /// The first 48 bits of the hash of the settings that a fleet's daemons have alike.
    settings_hash: IntGauge = IntGauge::with_opts(opts("settings_hash", "Hash of the settings, 48 bits of it"));
    /// Attempts to deliver events to webhooks by `result`: `delivered`, `failed`, `given_up`.
    webhook_attempts: IntCounterVec =
        IntCounterVec::new(opts("webhook_attempts_total", "Attempts to deliver events"), &["result"]);
    /// Age of the oldest event that is neither delivered nor given up, seconds.
    webhook_oldest_seconds: IntGauge =
        IntGauge::with_opts(opts("webhook_oldest_seconds", "Age of the oldest undelivered event"));
    /// Transactions signed by `account` and `purpose`.
    transactions: IntCounterVec =
        IntCounterVec::new(opts("transactions_total", "Transactions signed"), &["account", "purpose"]);
    /// The daemons of the fleet that live.
    fleet_daemons: IntGauge = IntGauge::with_opts(opts("fleet_daemons", "Daemons of the fleet that live"));
    /// Accounts that are leased to this daemon.
    leases: IntGauge = IntGauge::with_opts(opts("leases", "Accounts leased to this daemon"));
    /// Leases that ended before this daemon gave them back.
    leases_lost: IntCounter =
        IntCounter::with_opts(opts("leases_lost_total", "Leases that were not renewed in time"));
    /// Relays taken over from other daemons.
    relays_claimed: IntCounter =
        IntCounter::with_opts(opts("relays_claimed_total", "Relays taken over from other daemons"));
    /// Replacement transactions.
    replacements: IntCounter =
        IntCounter::with_opts(opts("replacements_total", "Transactions that replaced another"));
    /// Rebroadcasts of the same bytes.
    resends: IntCounter = IntCounter::with_opts(opts("resends_total", "Same bytes sent once more"));
    /// Nonces used by foreign transactions, by `account`.
    foreign_nonces: IntCounterVec =
        IntCounterVec::new(opts("foreign_nonces_total", "Nonces lost to foreign transactions"), &["account"]);
    /// Mined nonces that a reorg undid.
    reorganised: IntCounter =
        IntCounter::with_opts(opts("reorganised_total", "Nonces that a reorganisation took back"));
    /// Rounds that an account's sender has finished, by `account`.
    sender_rounds: IntCounterVec =
        IntCounterVec::new(opts("sender_rounds_total", "Rounds that an account's sender has finished"), &["account"]);
    /// Gas paid, wei, by `account`.
    paid_wei: CounterVec = CounterVec::new(opts("paid_wei_total", "Gas paid, wei"), &["account"]);
    /// RPC calls by `method` and `result`: `ok`, `error`, `fault`.
    rpc_calls: IntCounterVec =
        IntCounterVec::new(opts("rpc_calls_total", "RPC calls"), &["method", "result"]);
    /// Time an RPC call takes, by `method`, seconds.
    rpc_seconds: HistogramVec =
        HistogramVec::new(seconds("rpc_seconds", "Time an RPC call takes", &FAST), &["method"]);
    /// The balance of each `account`, wei.
    balance_wei: GaugeVec =
        GaugeVec::new(opts("balance_wei", "Balance of a paying account, wei"), &["account"]);
    /// 1 if an `account` gets relays, else 0.
    account_ready: IntGaugeVec =
        IntGaugeVec::new(opts("account_ready", "Whether an account gets relays"), &["account"]);
    /// Transactions of each `account` that wait to be mined.
    pending_transactions: IntGaugeVec =
        IntGaugeVec::new(opts("pending_transactions", "Transactions that wait to be mined"), &["account"]);
    /// The budget, wei.
    budget_limit_wei: Gauge = Gauge::with_opts(opts("budget_limit_wei", "Daily gas budget, wei"));
    /// The paid and reserved part of the budget, wei.
    budget_used_wei: Gauge = Gauge::with_opts(opts("budget_used_wei", "Of it paid or reserved, wei"));
    /// Relays in flight.
    queue_depth: IntGauge = IntGauge::with_opts(opts("queue_depth", "Relays in flight"));
    /// Age of the oldest pending relay, seconds.
    oldest_pending_seconds: IntGauge =
        IntGauge::with_opts(opts("oldest_pending_seconds", "Age of the oldest pending relay"));
    /// Number of the newest block seen.
    head_block: IntGauge = IntGauge::with_opts(opts("head_block", "Newest block seen"));
}

const FAST: [f64; 9] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0];
const SLOW: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0];

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("relayer_{name}"), help)
}

fn seconds(name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
    HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec())
}

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

    /// Ends the series that say how an account is: in a fleet another daemon has it now.
    pub fn forget_account(&self, account: Address) {
        let account = account.to_string();
        let label = [account.as_str()];
        // Those that were never set are not there.
        let _ = self.sender_rounds.remove_label_values(&label);
        let _ = self.balance_wei.remove_label_values(&label);
        let _ = self.account_ready.remove_label_values(&label);
        let _ = self.pending_transactions.remove_label_values(&label);
    }

    /// Takes over what the store has counted.
    pub fn saw_store(&self, [commits, writes]: [u64; 2], [waited, lasted]: [f64; 2], connects: u64) {
        for (counter, total) in
            [(&self.store_commits, commits), (&self.store_writes, writes), (&self.store_connects, connects)]
        {
            counter.inc_by(total.saturating_sub(counter.get()));
        }
        for (counter, total) in [(&self.store_wait_seconds, waited), (&self.store_commit_seconds, lasted)] {
            counter.inc_by((total - counter.get()).max(0.0));
        }
    }

    /// All metrics as they stand.
    pub fn gather(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.registry.gather()
    }

    /// Rounds that the senders of these accounts have finished, together.
    pub fn all_sender_rounds(&self, accounts: &[Address]) -> u64 {
        let rounds =
            |account: &Address| self.sender_rounds.with_label_values(&[account.to_string().as_str()]).get();
        accounts.iter().map(rounds).sum()
    }

    /// The text that Prometheus scrapes.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        match TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            Ok(()) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("# {error}\n"),
        }
    }
}

/// Wei as a gauge's value; a double keeps the leading 15 digits, enough for a dashboard.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
pub const fn gauge_value(wei: u128) -> f64 {
    wei as f64
}
