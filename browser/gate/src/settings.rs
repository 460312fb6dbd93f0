//! The daemon's configuration file, as a gate in a service's own process reads it.
//!
//! The policies are the core's. Settings for a port, a proxy, a file or a background task are refused in
//! words: ignoring them would break their promises.

use std::collections::BTreeMap;

use alloy_primitives::Address;
use host_kit::{ConfigFault, without_values};
use registry_core::{
    eth::{
        multicall,
        rpc::endpoint::{MOST_ENDPOINTS, RpcEndpoint, parse_list},
    },
    gate::{
        Dialect, DiscoveryTable, Links, Origin, PolicyTable, RoutePolicy, SettingError, SharedPolicySettings,
        discovery_document, policies,
    },
    registry::well_known::WellKnown,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

/// A validated configuration.
pub(crate) struct GateSettings {
    pub(crate) chain: ChainSettings,
    pub(crate) kya: KyaSettings,
    pub(crate) policies: BTreeMap<String, RoutePolicy>,
    pub(crate) nonces: NonceSettings,
    /// The document that describes the registry to programs.
    pub(crate) document: WellKnown,
}

/// The chain of the accounts.
pub(crate) struct ChainSettings {
    pub(crate) id: u64,
    pub(crate) endpoints: Vec<RpcEndpoint>,
    pub(crate) multicall3: Address,
    pub(crate) max_head_age_seconds: u64,
    /// The most reads of accounts in a second.
    pub(crate) reads_per_second: u32,
}

/// Source and caching of verdicts.
pub(crate) struct KyaSettings {
    /// The registry of the verdicts.
    pub(crate) registry: Address,
    /// The read API's URL in front of `/api/v1`; `None` where the registry is read with the account.
    pub(crate) api: Option<String>,
    /// Milliseconds for which facts about an account are used without another read.
    pub(crate) cached_ms: u64,
}

/// The store of nonces that the file sets.
pub(crate) enum NonceSettings {
    /// The process's memory, with at most so many nonces.
    Memory(Option<usize>),
    /// Redis, under this prefix.
    Redis(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    origin: String,
    chain: ChainTable,
    #[serde(default)]
    kya: KyaTable,
    nonces: Option<usize>,
    redis: Option<RedisTable>,
    #[serde(default)]
    links: LinksTable,
    dialects: Option<Vec<Dialect>>,
    #[serde(default)]
    discovery: DiscoveryTable,
    #[serde(default)]
    policy: BTreeMap<String, PolicyTable>,
    // Settings of the daemon alone.
    listen: Option<IgnoredAny>,
    proxy: Option<IgnoredAny>,
    verdict: Option<IgnoredAny>,
    records: Option<IgnoredAny>,
    log_wallets: Option<IgnoredAny>,
    liable: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ChainTable {
    id: u64,
    #[serde(default)]
    rpc: Vec<String>,
    multicall3: Option<Address>,
    max_head_age_seconds: Option<u64>,
    reads_per_second: Option<u32>,
    reads_in_flight: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KyaTable {
    registry: Option<Address>,
    api: Option<String>,
    #[serde(default)]
    follow_changes: bool,
    cache_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedisTable {
    /// Ignored: the host passes in a client, which knows the address.
    #[serde(rename = "url")]
    _url: Option<IgnoredAny>,
    prefix: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinksTable {
    register: Option<String>,
    renew: Option<String>,
}

type SettingResult<T> = Result<T, SettingError>;

impl GateSettings {
    /// Parses a file's text. `rpc` has endpoints in place of the file's, separated by commas: URLs with a key
    /// do not belong in a file. Errors: a setting and its fault, in words for people.
    pub(crate) fn parse(text: &str, rpc: Option<&str>) -> Result<Self, String> {
        // By way of JSON, which the module parses anyway: toml's own deserializer takes 30 KiB, gzipped.
        let table = DeTable::parse(text)
            .map_err(|error| ConfigFault::new(text, error.span(), error.message()).to_string())?;
        let json = object(table.get_ref()).map_err(|error| error.to_string())?;
        let file: File = serde_json::from_str(&json.to_string()).map_err(|error| {
            let error = error.to_string();
            // Line and column are of the JSON, not of the file.
            without_values(error.split(" at line ").next().unwrap_or_default())
        })?;
        let nothing = "means nothing inside a service";
        for (setting, value, rule) in [
            ("listen", &file.listen, nothing),
            ("proxy", &file.proxy, nothing),
            ("verdict", &file.verdict, "signs with keys from a file, which only the daemon kya-gate reads"),
            ("records", &file.records, "are written to a file, which only the daemon kya-gate does"),
            (
                "liable",
                &file.liable,
                "is about files of domains, which only the daemon kya-gate and its layer fetch",
            ),
            ("log-wallets", &file.log_wallets, "is about the log of the daemon kya-gate"),
        ] {
            if value.is_some() {
                return Err(SettingError::new(setting, rule).to_string());
            }
        }
        Self::validated(file, rpc).map_err(|error| error.to_string())
    }

    fn validated(file: File, rpc: Option<&str>) -> SettingResult<Self> {
        let origin = Origin::parse(&file.origin).ok_or_else(|| {
            SettingError::new("origin", "must be a scheme and a host, such as https://api.example")
        })?;
        let link = |name: &str, link: Option<String>| match link {
            Some(link) if RpcEndpoint::parse(&link).is_none() => {
                Err(SettingError::new(name, "must be a URL"))
            }
            link => Ok(link),
        };
        let links = Links {
            register: link("links.register", file.links.register)?,
            renew: link("links.renew", file.links.renew)?,
        };
        let chain = file.chain.validated(rpc)?;
        let kya = file.kya.validated()?;
        let document = file.discovery.document(chain.id, kya.registry)?;
        let (dialects, registry) = (file.dialects.as_deref().unwrap_or(Dialect::ALL), kya.registry);
        let shared = SharedPolicySettings {
            origin: &origin,
            dialects,
            chain: chain.id,
            registry,
            links: &links,
            domain: None,
        };
        let policies = policies(file.policy, &shared)?;
        let nonces = match (file.nonces, file.redis) {
            (Some(0), _) => return Err(SettingError::new("nonces", "must be at least 1")),
            (Some(_), Some(_)) => {
                return Err(SettingError::new("nonces", "means nothing where they are in Redis"));
            }
            (capacity, None) => NonceSettings::Memory(capacity),
            (None, Some(redis)) => {
                NonceSettings::Redis(redis.prefix.unwrap_or_else(|| "kya-gate:".to_owned()))
            }
        };
        Ok(Self { chain, kya, policies, nonces, document })
    }

    /// Returns the document for `/.well-known/erc8128`.
    pub(crate) fn discovery_document(&self) -> String {
        let routes = self
            .policies
            .values()
            .flat_map(|policy| policy.routes.iter().map(|route| (route.as_str(), &policy.rules)));
        discovery_document(self.chain.id, routes)
    }
}

impl ChainTable {
    fn validated(self, rpc: Option<&str>) -> SettingResult<ChainSettings> {
        if self.id == 0 {
            return Err(SettingError::new("chain.id", "must be at least 1"));
        }
        let reads_per_second = self.reads_per_second.unwrap_or(100);
        if reads_per_second == 0 {
            return Err(SettingError::new("chain.reads-per-second", "must be at least 1"));
        }
        if self.reads_in_flight.is_some() {
            let rule =
                "is the daemon's: a Worker is not told of requests that end early. Set reads-per-second";
            return Err(SettingError::new("chain.reads-in-flight", rule));
        }
        // Endpoints are not quoted: they may hold keys.
        let rule = format!("must be 1 to {MOST_ENDPOINTS} URLs, here or in the option rpc");
        let endpoints = parse_list(rpc.unwrap_or(&self.rpc.join(",")));
        Ok(ChainSettings {
            id: self.id,
            endpoints: endpoints.map_err(|_| SettingError::new("chain.rpc", rule))?,
            multicall3: self.multicall3.unwrap_or(multicall::CANONICAL_ADDRESS),
            max_head_age_seconds: self.max_head_age_seconds.unwrap_or(60),
            reads_per_second,
        })
    }
}

impl KyaTable {
    fn validated(self) -> SettingResult<KyaSettings> {
        let rule = "is needed: verdicts are of this registry alone";
        let registry = self.registry.ok_or_else(|| SettingError::new("kya.registry", rule))?;
        if self.follow_changes {
            let rule = "a gate in process does not follow changes: verdicts are used for cache-seconds";
            return Err(SettingError::new("kya.follow-changes", rule));
        }
        if self.api.as_deref().is_some_and(|url| RpcEndpoint::parse(url).is_none()) {
            return Err(SettingError::new("kya.api", "must be http or https"));
        }
        let seconds = self.cache_seconds.unwrap_or(60);
        if seconds > 3_600 {
            return Err(SettingError::new("kya.cache-seconds", "must be at most 3600"));
        }
        Ok(KyaSettings { registry, api: self.api, cached_ms: seconds * 1_000 })
    }
}

/// Converts a table to a JSON object. No setting is a float or a time.
fn object(table: &DeTable<'_>) -> SettingResult<Value> {
    let mut members = Map::new();
    for (name, value) in table {
        let name = name.get_ref().to_string();
        let value = json(&name, value.get_ref())?;
        members.insert(name, value);
    }
    Ok(Value::Object(members))
}

fn json(name: &str, value: &DeValue<'_>) -> SettingResult<Value> {
    match value {
        DeValue::String(text) => Ok(Value::String(text.to_string())),
        DeValue::Boolean(is_true) => Ok(Value::Bool(*is_true)),
        DeValue::Array(items) => items
            .iter()
            .map(|item| json(name, item.get_ref()))
            .collect::<SettingResult<_>>()
            .map(Value::Array),
        DeValue::Table(table) => object(table),
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
            .map(Value::from)
            .map_err(|_| SettingError::new(name, "must be a whole number that is not negative")),
        DeValue::Float(_) | DeValue::Datetime(_) => {
            Err(SettingError::new(name, "is no setting of this type"))
        }
    }
}
