//! The configuration file: TOML, read as a whole and validated field by field. The README describes each
//! field.

mod domains;
mod nonces;
mod proxy;

use std::{
    collections::BTreeMap,
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use alloy_primitives::{Address, B256, keccak256};
use anyhow::{Context as _, ensure};
use host_kit::ConfigFault;
use registry_core::{
    eth::multicall,
    gate::{
        Dialect, DiscoveryTable, Links, Origin, PolicyTable, SharedPolicySettings, discovery_document,
        policies,
    },
    liability::DomainName,
    registry::well_known::WellKnown,
    token::Audience,
};
use serde::{Deserialize, de::DeserializeOwned};
use url::Url;

pub use domains::DomainSettings;
use domains::DomainsTable;
use nonces::RedisTable;
pub use nonces::{NonceSettings, RedisSettings};
use proxy::ProxyTable;
pub use proxy::{ContentSource, ProxySettings, TargetSource};
pub use registry_core::gate::RoutePolicy;

/// A validated configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address at which the gate listens.
    pub listen: SocketAddr,
    /// The reverse proxy.
    pub proxy: ProxySettings,
    /// The chain of the accounts.
    pub chain: ChainSettings,
    /// Source and caching of verdicts.
    pub kya: KyaSettings,
    /// Signing of verdicts; `None` where they are not signed.
    pub signing: Option<SigningSettings>,
    /// Recording of admissions; `None` where they are not recorded.
    pub records: Option<RecordSettings>,
    /// Store of spent nonces.
    pub nonces: NonceSettings,
    /// True if log lines name wallets.
    pub log_wallets: bool,
    /// Fetching of domains' files.
    pub domains: DomainSettings,
    /// The document that describes the registry to programs.
    pub discovery: WellKnown,
    /// The policies by name.
    pub policies: BTreeMap<String, RoutePolicy>,
    /// Hash of each policy's table: the Keccak-256 of its JSON, with members sorted by name and no white
    /// space.
    pub policy_hashes: BTreeMap<String, B256>,
}

/// Settings for the signing of verdicts.
#[derive(Debug, Clone)]
pub struct SigningSettings {
    /// The issuer: `iss` of the tokens.
    pub issuer: Audience,
    /// The file with the keys, a JWK set; the first one signs.
    pub keys: PathBuf,
}

/// Settings for the records of admissions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordSettings {
    /// The file to which lines are appended.
    pub file: PathBuf,
    /// True if each line has the proof of its verdict.
    #[serde(default)]
    pub evidence: bool,
}

/// The chain of the accounts.
#[derive(Debug, Clone)]
pub struct ChainSettings {
    /// Its id.
    pub id: u64,
    /// RPC endpoints, the preferred first. Their paths and queries may hold keys.
    pub rpc: Vec<Url>,
    /// Address of Multicall3.
    pub multicall3: Address,
    /// An endpoint counts as failed if its newest block is older than this; 0 accepts any age.
    pub max_head_age_seconds: u64,
    /// Bounds on the reads of accounts.
    pub reads: ReadLimits,
}

/// Bounds on the reads that requests cause together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Reads at once.
    pub in_flight: u32,
    /// Reads in a second.
    pub per_second: u32,
}

/// Source and caching of verdicts.
#[derive(Debug, Clone)]
pub struct KyaSettings {
    /// The registry of the verdicts.
    pub registry: Address,
    /// The source.
    pub source: KyaSource,
    /// Time for which a verdict, or the absence of an account's code, is used without another read.
    pub cached: Duration,
}

impl KyaSettings {
    /// Returns whether changes of verdicts are followed.
    pub const fn follows_changes(&self) -> bool {
        matches!(self.source, KyaSource::Api { follow_changes: true, .. })
    }
}

/// The source of verdicts.
#[derive(Debug, Clone)]
pub enum KyaSource {
    /// The registry itself, read with the account.
    Registry,
    /// The read API.
    Api {
        /// The URL in front of `/api/v1`.
        url: Url,
        /// Follows `/changes`: verdicts are then used until they change.
        follow_changes: bool,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    listen: Option<SocketAddr>,
    origin: String,
    proxy: Option<ProxyTable>,
    chain: ChainTable,
    #[serde(default)]
    kya: KyaTable,
    verdict: Option<VerdictTable>,
    records: Option<RecordSettings>,
    nonces: Option<usize>,
    redis: Option<RedisTable>,
    #[serde(default)]
    log_wallets: bool,
    #[serde(default)]
    links: LinksTable,
    dialects: Option<Vec<Dialect>>,
    #[serde(default)]
    liable: DomainsTable,
    #[serde(default)]
    discovery: DiscoveryTable,
    #[serde(default)]
    policy: BTreeMap<String, PolicyTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ChainTable {
    id: u64,
    #[serde(default)]
    rpc: Vec<Url>,
    multicall3: Option<Address>,
    max_head_age_seconds: Option<u64>,
    reads_in_flight: Option<u32>,
    reads_per_second: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KyaTable {
    registry: Option<Address>,
    api: Option<Url>,
    follow_changes: Option<bool>,
    cache_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerdictTable {
    issuer: String,
    keys: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LinksTable {
    register: Option<Url>,
    renew: Option<Url>,
}

/// Variable with RPC endpoints, separated by commas: URLs with a key do not belong in a file.
const RPC_VARIABLE: &str = "KYA_GATE_RPC_URL";

impl Settings {
    /// Reads a file, and RPC endpoints from the environment where the file names none. Errors: a setting and
    /// its fault.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        Self::read_by(path, Self::parse)
    }

    /// Reads the file of a gate inside a service, without `listen` and `[proxy]`, and RPC endpoints from the
    /// environment where the file names none. Errors: a setting and its fault.
    pub fn read_embedded(path: &Path) -> anyhow::Result<Self> {
        Self::read_by(path, Self::parse_embedded)
    }

    fn read_by(path: &Path, parse: fn(&str, Option<&str>) -> anyhow::Result<Self>) -> anyhow::Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        parse(&text, env::var(RPC_VARIABLE).ok().as_deref()).with_context(|| format!("{name} is not valid"))
    }

    /// Parses the text of the file of a gate inside a service. `rpc` is the value of `KYA_GATE_RPC_URL`.
    /// Errors: a setting and its fault.
    pub fn parse_embedded(text: &str, rpc: Option<&str>) -> anyhow::Result<Self> {
        let table: toml::Table = from_toml(text)?;
        for key in ["listen", "proxy"] {
            ensure!(!table.contains_key(key), "{key}: means nothing inside a service");
        }
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::validated(text, from_toml(text)?, listen, ProxySettings::embedded(), rpc)
    }

    /// Parses a file's text. `rpc` is the value of `KYA_GATE_RPC_URL`. Errors: a setting and its fault.
    pub fn parse(text: &str, rpc: Option<&str>) -> anyhow::Result<Self> {
        let mut file: File = from_toml(text)?;
        let listen = file.listen.context("listen: is needed, such as 127.0.0.1:4180")?;
        let proxy = file.proxy.take().context("proxy: is needed")?.validated()?;
        Self::validated(text, file, listen, proxy, rpc)
    }

    fn validated(
        text: &str,
        file: File,
        listen: SocketAddr,
        proxy: ProxySettings,
        rpc: Option<&str>,
    ) -> anyhow::Result<Self> {
        let origin = Origin::parse(&file.origin)
            .context("origin: must be a scheme and a host, such as https://api.example")?;
        let links = Links {
            register: file.links.register.map(String::from),
            renew: file.links.renew.map(String::from),
        };
        let chain = file.chain.validated(rpc)?;
        let (kya, records) = (file.kya.validated()?, file.records);
        let (dialects, registry) = (file.dialects.as_deref().unwrap_or(Dialect::ALL), kya.registry);
        let discovery = file.discovery.document(chain.id, registry)?;
        let shared = SharedPolicySettings {
            origin: &origin,
            dialects,
            chain: chain.id,
            registry,
            links: &links,
            // A name that no URL can have (an A-label that decodes to nothing) could never be fetched.
            domain: Some(|text| {
                DomainName::parse(text).filter(|name| Url::parse(&format!("https://{name}/")).is_ok())
            }),
        };
        let policies = policies(file.policy, &shared)?;
        if let Some(records) = &records {
            ensure!(file.verdict.is_some(), "records: need [verdict], with the key that signs them");
            ensure!(
                !records.evidence || matches!(kya.source, KyaSource::Registry),
                "records.evidence: needs the registry itself as the source, without kya.api"
            );
        }
        Ok(Self {
            listen,
            proxy,
            policies,
            policy_hashes: policy_hashes(text)?,
            chain,
            kya,
            records,
            signing: file.verdict.map(VerdictTable::validated).transpose()?,
            nonces: NonceSettings::validated(file.nonces, file.redis)?,
            log_wallets: file.log_wallets,
            domains: file.liable.validated()?,
            discovery,
        })
    }

    /// Returns chain and registry of the verdicts: `eip155:<chain>:<registry>`, the address in lower case.
    pub fn registry(&self) -> String {
        format!("eip155:{}:{:#x}", self.chain.id, self.kya.registry)
    }

    /// Returns the document for `/.well-known/agent-registry`.
    pub fn registry_document(&self) -> String {
        self.discovery.json()
    }

    /// Returns the document for `/.well-known/erc8128`.
    pub fn discovery_document(&self) -> String {
        let routes = self
            .policies
            .values()
            .flat_map(|policy| policy.routes.iter().map(|route| (route.as_str(), &policy.rules)));
        discovery_document(self.chain.id, routes)
    }
}

impl ChainTable {
    fn validated(self, variable: Option<&str>) -> anyhow::Result<ChainSettings> {
        ensure!(self.id > 0, "chain.id: must be at least 1");
        let mut rpc = self.rpc;
        if rpc.is_empty() {
            let urls = variable.unwrap_or_default().split(',').map(str::trim).filter(|url| !url.is_empty());
            // The URL is not quoted: it may hold a key.
            rpc = urls
                .map(|url| Url::parse(url).map_err(|_| anyhow::anyhow!("{RPC_VARIABLE}: must be URLs")))
                .collect::<anyhow::Result<_>>()?;
        }
        ensure!(!rpc.is_empty(), "chain.rpc: an endpoint is needed, here or in {RPC_VARIABLE}");
        let is_http = |url: &Url| matches!(url.scheme(), "http" | "https");
        ensure!(rpc.iter().all(is_http), "chain.rpc: must be http or https");
        let multicall3 = self.multicall3.unwrap_or(multicall::CANONICAL_ADDRESS);
        let (in_flight, per_second) =
            (self.reads_in_flight.unwrap_or(64), self.reads_per_second.unwrap_or(100));
        let reads = ReadLimits { in_flight, per_second };
        ensure!(reads.in_flight > 0, "chain.reads-in-flight: must be at least 1");
        ensure!(reads.per_second > 0, "chain.reads-per-second: must be at least 1");
        let max_head_age_seconds = self.max_head_age_seconds.unwrap_or(60);
        Ok(ChainSettings { id: self.id, rpc, multicall3, max_head_age_seconds, reads })
    }
}

impl KyaTable {
    fn validated(self) -> anyhow::Result<KyaSettings> {
        let registry =
            self.registry.context("kya.registry: is needed: verdicts are of this registry alone")?;
        let source = match self.api {
            None => {
                ensure!(
                    self.follow_changes.is_none(),
                    "kya.follow-changes: only an api lists changes; verdicts of a registry are cached for \
                     cache-seconds"
                );
                KyaSource::Registry
            }
            Some(url) => {
                ensure!(matches!(url.scheme(), "http" | "https"), "kya.api: must be http or https");
                KyaSource::Api { url, follow_changes: self.follow_changes.unwrap_or(true) }
            }
        };
        let seconds = self.cache_seconds.unwrap_or(60);
        ensure!(seconds <= 3_600, "kya.cache-seconds: must be at most 3600");
        Ok(KyaSettings { registry, source, cached: Duration::from_secs(seconds) })
    }
}

impl VerdictTable {
    fn validated(self) -> anyhow::Result<SigningSettings> {
        let issuer = Audience::parse(&self.issuer);
        let issuer = issuer.with_context(|| format!("verdict.issuer: {}", Audience::RULE))?;
        Ok(SigningSettings { issuer, keys: self.keys })
    }
}

/// Hashes the tables of policies for [`Settings::policy_hashes`].
fn policy_hashes(text: &str) -> anyhow::Result<BTreeMap<String, B256>> {
    #[derive(Deserialize)]
    struct Tables {
        policy: BTreeMap<String, BTreeMap<String, serde_json::Value>>,
    }
    let Tables { policy } = from_toml(text)?;
    let hash = |(name, table)| Ok((name, keccak256(serde_json::to_vec(&table)?)));
    policy.into_iter().map(hash).collect()
}

/// Parses TOML. Errors quote nothing of it.
fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, ConfigFault> {
    toml::from_str(text).map_err(|error| ConfigFault::new(text, error.span(), error.message()))
}

#[cfg(test)]
mod tests;
