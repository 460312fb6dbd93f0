//! The operator's settings: environment variables, and flags of the same meaning, validated once.
//!
//! The published contract's variables keep their names and defaults. [`crate::keys`] reads the key.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use alloy::primitives::{Address, utils::parse_units};
use clap::Args;
use ipnet::IpNet;
use reqwest::Url;
use thiserror::Error;

use crate::{
    budget::share::Shares,
    http::{
        client_address::{TrustedProxies, parse_network},
        connections::ConnectionLimits,
    },
    process::logging::LogFormat,
    relay::functions::RegistryFunction,
    signatures::short_hash,
    telemetry::{TelemetryError, TelemetryTarget},
};

/// Wei as parsed from an amount with a decimal point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wei(pub u128);

/// The address and port that the daemon listens on.
#[derive(Debug, Clone, Copy, Args)]
pub struct Listen {
    /// Listening port; 0 takes a free one
    #[arg(long, env = "RELAYER_PORT", hide_env_values = true, default_value_t = 3001)]
    pub port: u16,

    /// Address to listen on
    #[arg(long, env = "RELAYER_BIND", hide_env_values = true, default_value = "127.0.0.1")]
    pub bind: IpAddr,
}

impl Listen {
    /// Returns the address with the port.
    pub fn address(self) -> SocketAddr {
        SocketAddr::new(self.bind, self.port)
    }
}

/// All settings. Flags win over the environment. `--help` never shows a variable's value.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// The address and port to listen on
    #[command(flatten)]
    pub listen: Listen,

    /// RPC endpoints, comma-separated; reads stick to one that works, transactions go to all
    #[arg(long, env = "RPC_URL", hide_env_values = true, default_value = "https://sepolia.base.org")]
    pub rpc_url: String,

    /// The chain id the endpoints must have; without it, whatever they say
    #[arg(long, env = "CHAIN_ID", hide_env_values = true)]
    pub chain_id: Option<u64>,

    /// The forwarder contract
    #[arg(long, env = "FORWARDER_ADDRESS", hide_env_values = true)]
    pub forwarder_address: Address,

    /// The registry contract: the only one that requests may call
    #[arg(long, env = "REGISTRY_ADDRESS", hide_env_values = true)]
    pub registry_address: Address,

    /// Budget for gas in 24 hours, ETH
    #[arg(long, env = "DAILY_GAS_BUDGET", hide_env_values = true, default_value = "0.05", value_parser = ether)]
    pub daily_gas_budget: Wei,

    /// Percent of the daily budget for one signer
    #[arg(long, env = "BUDGET_SHARE_PER_SIGNER", hide_env_values = true, default_value_t = 25,
          value_parser = clap::value_parser!(u8).range(1..=100))]
    pub budget_share_per_signer: u8,

    /// Percent of the daily budget for one client: an IPv4 address or an IPv6 /64
    #[arg(long, env = "BUDGET_SHARE_PER_IP", hide_env_values = true, default_value_t = 30,
          value_parser = clap::value_parser!(u8).range(1..=100))]
    pub budget_share_per_ip: u8,

    /// Percent of the daily budget for one network: an IPv4 /24 or an IPv6 /48
    #[arg(long, env = "BUDGET_SHARE_PER_NETWORK", hide_env_values = true, default_value_t = 40,
          value_parser = clap::value_parser!(u8).range(1..=100))]
    pub budget_share_per_network: u8,

    /// Requests per hour and client IP; 0 switches the limit off
    #[arg(long, env = "RATE_LIMIT_PER_IP", hide_env_values = true, default_value_t = 20)]
    pub rate_limit_per_ip: u32,

    /// Requests per hour and signer; 0 switches the limit off
    #[arg(long, env = "RATE_LIMIT_PER_SIGNER", hide_env_values = true, default_value_t = 10)]
    pub rate_limit_per_signer: u32,

    /// GET /nonce and GET /status per minute and client IP; 0 switches the limit off
    #[arg(long, env = "RATE_LIMIT_READS", hide_env_values = true, default_value_t = 60)]
    pub rate_limit_reads: u32,

    /// GET /relay/:id per minute and client IP; 0 switches the limit off
    #[arg(long, env = "RATE_LIMIT_POLLS", hide_env_values = true, default_value_t = 600)]
    pub rate_limit_polls: u32,

    /// The registry's functions that are relayed, comma-separated; views never are
    #[arg(long, env = "RELAYED_FUNCTIONS", hide_env_values = true, value_delimiter = ',', hide_possible_values = true,
          default_values_t = RegistryFunction::ALL.iter().copied())]
    pub relayed_functions: Vec<RegistryFunction>,

    /// The file that says who is sponsored: API keys, denied signers, a decision webhook; read again on
    /// SIGHUP
    #[arg(long, env = "POLICY_FILE", hide_env_values = true)]
    pub policy_file: Option<PathBuf>,

    /// Addresses and networks (CIDR) of our proxies, comma-separated; X-Forwarded-For is believed from them
    /// only
    #[arg(long, env = "TRUSTED_PROXIES", hide_env_values = true, value_delimiter = ',', value_parser = parse_network)]
    pub trusted_proxies: Vec<IpNet>,

    /// Position of the client in X-Forwarded-For, counted from the right; 0: the last entry that is no
    /// trusted proxy
    #[arg(long, env = "TRUSTED_PROXY_HOPS", hide_env_values = true, default_value_t = 0)]
    pub trusted_proxy_hops: usize,

    /// Connections at once; fewer where the process may not open enough files
    #[arg(long, env = "MAX_CONNECTIONS", hide_env_values = true, default_value = "1024", value_parser = count)]
    pub max_connections: usize,

    /// Connections at once from one client IP
    #[arg(long, env = "MAX_CONNECTIONS_PER_IP", hide_env_values = true, default_value = "64", value_parser = count)]
    pub max_connections_per_ip: usize,

    /// The largest `request.gas`
    #[arg(long, env = "MAX_REQUEST_GAS", hide_env_values = true, default_value_t = 2_000_000,
          value_parser = clap::value_parser!(u64).range(1..=15_000_000))]
    pub max_request_gas: u64,

    /// The highest maxFeePerGas ever offered, gwei
    #[arg(long, env = "MAX_FEE_PER_GAS_GWEI", hide_env_values = true, default_value = "50", value_parser = gwei)]
    pub max_fee_per_gas: Wei,

    /// The highest maxPriorityFeePerGas taken from the market, gwei; a replacement may offer more
    #[arg(long, env = "MAX_PRIORITY_FEE_GWEI", hide_env_values = true, default_value = "10", value_parser = gwei)]
    pub max_priority_fee_per_gas: Wei,

    /// Relays in flight, all signers together
    #[arg(long, env = "MAX_QUEUE", hide_env_values = true, default_value_t = 2048)]
    pub max_queue: usize,

    /// Transactions of the key that wait in the nodes' pools at once; nodes drop what is beyond their own
    /// limit
    #[arg(long, env = "MAX_PENDING_PER_KEY", hide_env_values = true, default_value = "16", value_parser = count)]
    pub max_pending_per_key: usize,

    /// Number of transactions of a key, counted by the chain and without a receipt yet, from which on
    /// receipts are read by the block (eth_getBlockReceipts) instead of one by one; 0: never
    #[arg(long, env = "BLOCK_RECEIPTS_FROM", hide_env_values = true, default_value_t = 4)]
    pub block_receipts_from: usize,

    /// Seconds that a client waits for the receipt before it gets 202
    #[arg(long, env = "RELAY_WAIT_SECONDS", hide_env_values = true, default_value = "30", value_parser = seconds)]
    pub relay_wait: Duration,

    /// Seconds that an accepted relay waits for RPC endpoints or a disk that fail; then it is dropped
    #[arg(long, env = "RELAY_RETRY_SECONDS", hide_env_values = true, default_value = "300", value_parser = seconds)]
    pub relay_retry: Duration,

    /// Timeout of a call to an RPC endpoint, seconds
    #[arg(long, env = "RPC_TIMEOUT_SECONDS", hide_env_values = true, default_value = "10", value_parser = seconds)]
    pub rpc_timeout: Duration,

    /// Timeout of a signature by a signer outside this process, seconds
    #[arg(long, env = "SIGNER_TIMEOUT_SECONDS", hide_env_values = true, default_value = "5", value_parser = seconds)]
    pub signer_timeout: Duration,

    /// Directory of the journal; created if missing
    #[arg(long, env = "RELAYER_DATA_DIR", hide_env_values = true, default_value = "relayer-data")]
    pub data_dir: PathBuf,

    /// The socket for `ctl`, for the daemon's user alone; without it, a file in the journal's directory
    #[arg(long, env = "RELAYER_CONTROL_SOCKET", hide_env_values = true)]
    pub control_socket: Option<PathBuf>,

    /// A Postgres database for the journal, which several daemons may share; without it the journal is a file
    #[arg(long, env = "STORE_URL", hide_env_values = true)]
    pub store_url: Option<String>,

    /// Days after which a relay that has ended shrinks to what GET /relay/:id answers; after twelve times as
    /// long it is forgotten
    #[arg(long, env = "JOURNAL_RETENTION_DAYS", hide_env_values = true, default_value_t = 30,
          value_parser = clap::value_parser!(u16).range(1..=3_650))]
    pub journal_retention_days: u16,

    /// The OpenTelemetry collector for traces and metrics, by OTLP over HTTP; without it nothing is exported
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true)]
    pub otlp_endpoint: Option<String>,

    /// Headers for the collector: name=value, comma-separated
    #[arg(long, env = "OTEL_EXPORTER_OTLP_HEADERS", hide_env_values = true)]
    pub otlp_headers: Option<String>,

    /// The name of this service in traces and metrics
    #[arg(long, env = "OTEL_SERVICE_NAME", hide_env_values = true, default_value = "relayer-daemon")]
    pub otel_service_name: String,

    /// Interval between exports of metrics, milliseconds
    #[arg(long, env = "OTEL_METRIC_EXPORT_INTERVAL", hide_env_values = true, default_value_t = 60_000,
          value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub otel_metric_interval: u64,

    /// Format of log lines
    #[arg(long, env = "LOG_FORMAT", hide_env_values = true, default_value = "text")]
    pub log_format: LogFormat,

    /// Lowest level that is logged: error, warn, info, debug or trace
    #[arg(long, env = "LOG_LEVEL", hide_env_values = true, default_value = "info")]
    pub log_level: tracing::Level,
}

impl Settings {
    /// Returns the hash of the settings that daemons of a fleet must have alike: contracts, budget, limits,
    /// retention.
    pub fn hash(&self) -> String {
        let functions: BTreeSet<String> = self.relayed_functions.iter().map(ToString::to_string).collect();
        let alike = format!(
            "{} {} {:?} {:?} {} {} {functions:?} {} {:?} {:?} {}",
            self.forwarder_address,
            self.registry_address,
            self.daily_gas_budget,
            self.budget_shares(),
            self.rate_limit_per_ip,
            self.rate_limit_per_signer,
            self.max_request_gas,
            self.max_fee_per_gas,
            self.max_priority_fee_per_gas,
            self.journal_retention_days,
        );
        short_hash(&[alike.as_bytes()])
    }

    /// Returns the percentage of the daily budget that one party of each kind may use. The policy has the
    /// share of requests without an API key.
    pub const fn budget_shares(&self) -> Shares {
        Shares {
            signer: self.budget_share_per_signer,
            without_key: 100,
            client: self.budget_share_per_ip,
            network: self.budget_share_per_network,
        }
    }

    /// Parses the RPC endpoints. clap's errors would quote them, and a URL may hold a provider's key.
    ///
    /// # Errors
    /// The position of the entry that is wrong; never its text.
    pub fn endpoints(&self) -> Result<Vec<Url>, EndpointError> {
        self.rpc_url
            .split(',')
            .zip(1..)
            .map(|(text, position)| endpoint(text).ok_or(EndpointError { position }))
            .collect()
    }

    /// Parses the OpenTelemetry collector, if there is one.
    ///
    /// # Errors
    /// The name of the setting that is wrong; never its text.
    pub fn telemetry(&self) -> Result<Option<TelemetryTarget>, TelemetryError> {
        let Some(endpoint) = &self.otlp_endpoint else { return Ok(None) };
        let every = Duration::from_millis(self.otel_metric_interval);
        TelemetryTarget::new(
            endpoint,
            self.otlp_headers.as_deref().unwrap_or_default(),
            &self.otel_service_name,
            every,
        )
        .map(Some)
    }

    /// Returns the trusted proxies.
    pub fn proxies(&self) -> Result<TrustedProxies, HopsWithoutProxies> {
        if self.trusted_proxy_hops > 0 && self.trusted_proxies.is_empty() {
            return Err(HopsWithoutProxies);
        }
        Ok(TrustedProxies::new(self.trusted_proxies.clone(), self.trusted_proxy_hops))
    }

    /// Returns the limits on connections.
    pub const fn connections(&self) -> ConnectionLimits {
        ConnectionLimits { total: self.max_connections, per_client: self.max_connections_per_ip }
    }
}

/// `TRUSTED_PROXY_HOPS` is set without the proxies that may write `X-Forwarded-For`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("TRUSTED_PROXY_HOPS needs TRUSTED_PROXIES: without it any client could choose its address")]
pub struct HopsWithoutProxies;

fn endpoint(text: &str) -> Option<Url> {
    Url::from_str(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// An entry of `RPC_URL` that is no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("RPC_URL: entry {position} is no http or https URL (its text is not shown: it may hold a key)")]
pub struct EndpointError {
    /// Its position, counting from 1.
    pub position: usize,
}

fn amount(text: &str, unit: &str) -> Result<Wei, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err("must be a decimal number, for example 0.05".to_owned());
    }
    let wei = parse_units(text, unit).map_err(|_| format!("is no amount in {unit}"))?;
    u128::try_from(wei.get_absolute()).map(Wei).map_err(|_| "is too large".to_owned())
}

fn ether(text: &str) -> Result<Wei, String> {
    amount(text, "ether")
}

fn gwei(text: &str) -> Result<Wei, String> {
    amount(text, "gwei")
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be a whole number above 0".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (1..=3_600).contains(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| "must be 1 to 3600 seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches as _};
    use std::ffi::OsStr;

    const REQUIRED: [&str; 5] = [
        "relayer-daemon",
        "--forwarder-address",
        "0x70c2fdD0CDada6b43195981928D76f5D32AE29e5",
        "--registry-address",
        "0x2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23",
    ];

    fn command() -> Command {
        Settings::augment_args(Command::new("relayer-daemon"))
    }

    /// Parses settings without the environment.
    fn parse(extra: &[&str]) -> Result<Settings, clap::Error> {
        let command = command().mut_args(|argument| argument.env(None::<&'static str>));
        Settings::from_arg_matches(&command.try_get_matches_from(REQUIRED.iter().chain(extra))?)
    }

    #[test]
    fn endpoints_are_separated_by_commas_and_a_bad_one_is_counted_and_not_shown() {
        let urls = parse(&["--rpc-url", "http://a:1/x, https://b/y?z"]).unwrap().endpoints().unwrap();
        assert_eq!(urls.iter().map(Url::host_str).collect::<Vec<_>>(), [Some("a"), Some("b")]);
        for bad in ["http://a,ftp://host/secret", "http://a,secret", "http://a,", "http://a,http://?secret"] {
            let error = parse(&["--rpc-url", bad]).unwrap().endpoints().unwrap_err();
            assert_eq!(error.position, 2, "{bad}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn bad_values_name_the_setting_and_hops_alone_are_refused() {
        assert_eq!(parse(&["--trusted-proxy-hops", "1"]).unwrap().proxies(), Err(HopsWithoutProxies));
        let both = parse(&["--trusted-proxy-hops", "1", "--trusted-proxies", "10.0.0.0/8,::1"]).unwrap();
        assert_eq!(both.proxies().unwrap().networks().len(), 2);
        for (flag, value) in [
            ("--trusted-proxies", "10.0.0.0/8,proxy.example"),
            ("--trusted-proxies", "0.0.0.0/0"),
            ("--max-connections", "0"),
            ("--relayed-functions", "registerAgent,getAgent"),
            ("--daily-gas-budget", "-1"),
            ("--daily-gas-budget", "lots"),
            ("--max-fee-per-gas", "1e3"),
            ("--max-request-gas", "0"),
            ("--relay-wait", "0"),
            ("--journal-retention-days", "0"),
        ] {
            let error = parse(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(error.to_string().contains(flag), "{error}");
        }
    }

    /// Reads the README's table of settings: each name with its default, `None` for a default in words.
    fn documented() -> Vec<(String, Option<String>)> {
        let readme = include_str!("../../README.md");
        let section = readme.split("\n## ").find(|section| section.starts_with("Settings\n")).unwrap();
        // Only whole cells of code are values; a comma inside one is part of it.
        let code = |cell: &str| -> Vec<Option<String>> {
            let quoted = |part: &str| Some(part.strip_prefix('`')?.strip_suffix('`')?.to_owned());
            cell.trim().split(", ").map(quoted).collect()
        };
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let settings = rows.flat_map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            let defaults = code(cells[2]).into_iter().chain(std::iter::repeat(None));
            code(cells[1]).into_iter().map(Option::unwrap).zip(defaults)
        });
        settings.collect()
    }

    #[test]
    fn the_readmes_table_has_every_setting_with_its_default() {
        let mut command = command();
        let known: Vec<(String, Option<String>)> = command
            .get_arguments()
            .filter_map(|argument| {
                let text = |value: &OsStr| value.to_str().unwrap().to_owned();
                let defaults = argument.get_default_values().iter().map(|value| text(value));
                let defaults = defaults.reduce(|all, next| format!("{all},{next}"));
                Some((text(argument.get_env()?), defaults))
            })
            .collect();
        let documented = documented();
        for setting in &known {
            assert!(documented.contains(setting), "{setting:?} is not in the README's table");
        }
        // The key has no flag.
        for (name, _) in documented.iter().filter(|(name, _)| !name.starts_with("RELAYER_KEY")) {
            assert!(known.iter().any(|(known, _)| known == name), "{name} is in the README and no setting");
        }
        let settings = parse(&[]).unwrap();
        assert_eq!(settings.daily_gas_budget, Wei(50_000_000_000_000_000), "0.05 ETH");
        assert_eq!(settings.relay_wait, Duration::from_secs(30));
        let Shares { signer, client, network, .. } = settings.budget_shares();
        assert!(signer <= client && client <= network && 2 * network < 100, "two networks may take all");
        let help = command.render_long_help().to_string();
        assert!(help.contains("[env: RPC_URL]") && !help.to_lowercase().contains("relayer_key"));
    }
}
