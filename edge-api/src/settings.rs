//! The Worker's settings: environment variables, checked. They are read once per instance: a change of them
//! is a deployment, which begins with new instances.

use core::fmt::Display;
use std::{cell::OnceCell, rc::Rc};

use alloy_primitives::{Address, B256, hex, keccak256};
use registry_core::{
    api::{error::Error, route::CacheScope},
    eth::{
        address, multicall,
        redact::Redactor,
        rpc::endpoint::{RpcEndpoint, parse_list},
    },
    evidence::Layout,
    host::{rate_limit::WindowLimit, stream_slots::StreamLimits},
    snapshot::Identity,
    token::{Audience, KeySet},
};
use worker::Env;

/// The binding of the objects that count clients' requests.
pub(crate) const LIMITER_BINDING: &str = "CLIENT_LIMITS";
/// The binding of Cloudflare's own limiter.
pub(crate) const RATE_BINDING: &str = "CLIENT_RATE";
/// The binding of the objects that keep indexes.
pub(crate) const INDEX_BINDING: &str = "REGISTRY_INDEX";

/// Whether this is the Worker that clients reach, and not the index's.
const COUNTS_CLIENTS: bool = cfg!(not(feature = "index-object"));

/// The regions that Cloudflare takes as location hints of Durable Objects.
const LOCATION_HINTS: [&str; 9] = ["wnam", "enam", "sam", "weur", "eeur", "apac", "oc", "afr", "me"];

/// Base Sepolia's public endpoint, the documented default.
const DEFAULT_RPC_URL: &str = "https://sepolia.base.org";
/// The chain of that endpoint.
const DEFAULT_CHAIN_ID: u64 = 84_532;
/// Verdicts must not rest on the state of a node that has been stuck for longer: a suspension is to show
/// within the TTL of verdicts, which counts from the block's time.
const DEFAULT_MAX_HEAD_AGE_SECONDS: u32 = 60;
/// The default limit of a /48 of IPv6, in limits of one client.
const CLIENTS_OF_A_SITE: u32 = 10;

/// The operator's settings, as documented in the README.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The RPC endpoints, at least one.
    pub(crate) rpc: Vec<RpcEndpoint>,
    /// Scheme and host of the first RPC endpoint, whichever answers: what clients may see.
    pub(crate) public_rpc: String,
    /// A name that differs for every set of endpoints and chain, and discloses no endpoint.
    pub(crate) upstream: String,
    /// Removes the secret parts of the endpoints' URLs from nodes' messages.
    pub(crate) redactor: Redactor,
    /// Time limit of one batch at one endpoint.
    pub(crate) rpc_timeout_seconds: u32,
    /// Time limit of all batches of a request together.
    pub(crate) rpc_deadline_seconds: u32,
    /// Whether a request that takes longer than usual is sent to the next endpoint as well.
    pub(crate) hedges: bool,
    /// The age above which a node's newest block is refused; 0 is any age.
    pub(crate) max_head_age_seconds: u32,
    /// The chain that all endpoints must be on; `None`, for a single endpoint without an index, is any chain.
    pub(crate) chain_id: Option<u64>,
    pub(crate) registry: Address,
    pub(crate) multicall3: Address,
    pub(crate) limits: ClientLimits,
    pub(crate) limiter_mode: LimiterMode,
    pub(crate) index_mode: IndexMode,
    /// Where verdicts come from.
    pub(crate) kya_source: KyaSource,
    /// Where the platform should create the index's object.
    pub(crate) index_location: Option<&'static str>,
    /// The longest duration of a stream of changes.
    pub(crate) stream_seconds: u32,
    /// How many streams of changes may be open.
    pub(crate) streams: StreamLimits,
    /// The storage layout for evidence, where the registry's code is not this project's.
    pub(crate) layout: Option<Layout>,
    /// How verdicts are signed; `None` where they are not.
    pub(crate) signing: Option<Signing>,
    /// The Keccak-256 of registry code that keeps all state in its own storage, for the index.
    #[cfg_attr(not(feature = "index-object"), allow(dead_code, reason = "the index's object reads it"))]
    pub(crate) self_contained_code: Option<B256>,
    /// Agents that each refresh of the index proves against the newest block's state root.
    #[cfg_attr(not(feature = "index-object"), allow(dead_code, reason = "the index's object reads it"))]
    pub(crate) spot_checks: u64,
    agent_ttl: u32,
    lineage_ttl: u32,
    kya_ttl: u32,
}

/// How verdicts are signed.
#[derive(Debug)]
pub(crate) struct Signing {
    /// The keys, of which the first one signs.
    pub(crate) keys: KeySet,
    /// Who signs: `iss` of the tokens.
    pub(crate) issuer: String,
    /// The chain of the wallets.
    pub(crate) chain_id: u64,
}

/// The rate limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientLimits {
    /// The limit of one client.
    pub(crate) client: WindowLimit,
    /// The limit of all clients of a /48 of IPv6 together.
    pub(crate) site: WindowLimit,
}

/// How the instances of a Worker count a client's requests together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimiterMode {
    /// Each instance counts, and publishes its count through KV.
    Kv,
    /// A Durable Object per client counts for all instances.
    DurableObject,
    /// Cloudflare's own limiter counts for the instances of a data centre.
    Binding,
}

/// Where verdicts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KyaSource {
    /// From the index's snapshot of the registry, and from the chain where that has none.
    Snapshot,
    /// From the chain.
    Chain,
}

/// Where answers about the whole registry are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexMode {
    /// From scans of the chain.
    Off,
    /// From the index in a Durable Object.
    DurableObject,
}

thread_local! {
    static SETTINGS: OnceCell<Result<Rc<Settings>, Error>> = const { OnceCell::new() };
}

impl Settings {
    /// The settings of this instance.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`], naming the variable and the rule; its value is kept back.
    pub(crate) fn of(env: &Env) -> Result<Rc<Self>, Error> {
        let variable = |name: &str| env.var(name).ok().map(|value| value.to_string());
        SETTINGS.with(|settings| {
            settings
                .get_or_init(|| {
                    let settings = Self::parse(&Variables(&variable))?;
                    let is_bound =
                        |name: &str| env.durable_object(name).is_ok() || env.rate_limiter(name).is_ok();
                    settings.check_bindings(COUNTS_CLIENTS, is_bound)?;
                    Ok(Rc::new(settings))
                })
                .clone()
        })
    }

    /// Checks that the Worker has the bindings of its modes. The index's Worker has the same settings and
    /// counts no clients, so that it needs no limiter.
    fn check_bindings(&self, counts_clients: bool, is_bound: impl Fn(&str) -> bool) -> Result<(), Error> {
        let limiter = match self.limiter_mode {
            _ if !counts_clients => None,
            LimiterMode::Kv => None,
            LimiterMode::DurableObject => Some(("durable-object", LIMITER_BINDING)),
            LimiterMode::Binding => Some(("binding", RATE_BINDING)),
        };
        let index = match self.index_mode {
            IndexMode::Off => None,
            IndexMode::DurableObject => Some(("durable-object", INDEX_BINDING)),
        };
        for (variable, needed) in [("RATE_LIMITER", limiter), ("INDEX", index)] {
            if let Some((mode, binding)) = needed.filter(|(_, binding)| !is_bound(binding)) {
                let problem = format_args!("is {mode}, but the Worker has no binding {binding}");
                return Err(misconfigured(variable, problem));
            }
        }
        Ok(())
    }

    fn parse(variables: &Variables<'_>) -> Result<Self, Error> {
        let chain_id = variables.chain_id()?;
        let rpc_url = match variables.text("RPC_URL") {
            Some(rpc_url) => rpc_url,
            None if chain_id.is_none_or(|id| id == DEFAULT_CHAIN_ID) => DEFAULT_RPC_URL.to_owned(),
            None => {
                let problem =
                    "is not set; set the secret before you deploy, as only Base Sepolia has a default";
                return Err(misconfigured("RPC_URL", problem));
            }
        };
        let rpc = parse_list(&rpc_url).map_err(|error| misconfigured("RPC_URL", error))?;
        let registry = variables.address("REGISTRY_ADDRESS")?.ok_or_else(|| {
            misconfigured("REGISTRY_ADDRESS", "is not set; it is the deployed registry's address")
        })?;
        let index_mode = variables.index_mode()?;
        let kya_source = variables.kya_source(index_mode)?;
        let problem = match chain_id {
            None if rpc.len() > 1 => {
                "is not set; where RPC_URL names several endpoints, it is the chain they all have to be on"
            }
            // Rows that are kept while endpoints change must not come to be of two chains.
            None if index_mode == IndexMode::DurableObject => {
                "is not set; where INDEX is durable-object, it is the chain that the index is of"
            }
            _ => "",
        };
        if !problem.is_empty() {
            return Err(misconfigured("CHAIN_ID", problem));
        }
        Ok(Self {
            public_rpc: rpc.first().map(RpcEndpoint::origin).unwrap_or_default(),
            upstream: upstream(chain_id, &rpc),
            redactor: Redactor::new(rpc.iter().flat_map(RpcEndpoint::secrets)),
            rpc,
            rpc_timeout_seconds: variables.seconds("RPC_TIMEOUT_SECONDS", 4)?,
            rpc_deadline_seconds: variables.seconds("RPC_DEADLINE_SECONDS", 15)?,
            hedges: variables.parsed("RPC_HEDGING", true, "must be on or off", |text| match text {
                "on" => Some(true),
                "off" => Some(false),
                _ => None,
            })?,
            max_head_age_seconds: variables.number("MAX_HEAD_AGE_SECONDS", DEFAULT_MAX_HEAD_AGE_SECONDS)?,
            chain_id,
            registry,
            multicall3: variables.address("MULTICALL3_ADDRESS")?.unwrap_or(multicall::CANONICAL_ADDRESS),
            limits: variables.limits()?,
            limiter_mode: variables.limiter_mode()?,
            index_mode,
            kya_source,
            index_location: variables.index_location()?,
            stream_seconds: variables.seconds("CHANGES_STREAM_SECONDS", 300)?,
            streams: StreamLimits {
                per_client: variables.number("CHANGES_STREAMS_PER_CLIENT", 10)? as usize,
                per_instance: variables.number("CHANGES_STREAMS_PER_INSTANCE", 500)? as usize,
            },
            layout: variables.layout()?,
            signing: if COUNTS_CLIENTS { variables.signing(chain_id)? } else { None },
            self_contained_code: variables.code_hash("INDEX_SELF_CONTAINED_CODE")?,
            spot_checks: variables.spot_checks()?,
            agent_ttl: variables.number("AGENT_TTL_SECONDS", CacheScope::Agent.default_seconds())?,
            lineage_ttl: variables.number("LINEAGE_TTL_SECONDS", CacheScope::Lineage.default_seconds())?,
            kya_ttl: variables.number("KYA_TTL_SECONDS", CacheScope::Kya.default_seconds())?,
        })
    }

    /// The TTL of answers of that scope, in seconds; 0 is not to be kept.
    pub(crate) const fn time_to_live(&self, scope: CacheScope) -> u32 {
        match scope {
            CacheScope::None => 0,
            CacheScope::Agent => self.agent_ttl,
            CacheScope::Lineage => self.lineage_ttl,
            CacheScope::Kya => self.kya_ttl,
        }
    }

    /// What a snapshot of the registry is of; `None` without a chain id, which the settings rule out where
    /// there is an index.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.chain_id.map(|chain_id| Identity { chain_id, registry: self.registry })
    }

    /// The seconds between two polls of a stream of changes: ten, or fewer where the TTL of verdicts is
    /// shorter.
    pub(crate) fn follow_seconds(&self) -> u32 {
        self.kya_ttl.clamp(1, 10)
    }
}

/// The name of a chain as read through these endpoints: any change of them is another name.
fn upstream(chain_id: Option<u64>, rpc: &[RpcEndpoint]) -> String {
    let mut endpoints = String::new();
    for endpoint in rpc {
        endpoints.push_str(&endpoint.url);
        endpoints.push('\n');
        endpoints.push_str(endpoint.authorization.as_deref().unwrap_or_default());
        endpoints.push('\n');
    }
    let digest = keccak256(endpoints);
    let digest = digest.get(..8).map(hex::encode).unwrap_or_default();
    let chain = chain_id.map_or_else(|| "any".to_owned(), |id| id.to_string());
    format!("{chain}-{digest}")
}

/// The environment variables.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// A variable's value; an empty one counts as not set.
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.0)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// What `parse` makes of a variable, `default` where it is not set.
    fn parsed<T>(
        &self,
        name: &str,
        default: T,
        rule: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let Some(text) = self.text(name) else { return Ok(default) };
        parse(&text).ok_or_else(|| misconfigured(name, rule))
    }

    fn number(&self, name: &str, default: u32) -> Result<u32, Error> {
        self.parsed(name, default, "must be a whole number of at least 0", |text| text.parse().ok())
    }

    /// A duration of at least one second and at most an hour.
    fn seconds(&self, name: &str, default: u32) -> Result<u32, Error> {
        match self.number(name, default)? {
            seconds @ 1..=3_600 => Ok(seconds),
            _ => Err(misconfigured(name, "must be 1 to 3600 seconds")),
        }
    }

    fn address(&self, name: &str) -> Result<Option<Address>, Error> {
        let parse = |text: String| {
            address::parse(&text).map_err(|error| Error::Misconfigured(format!("{name}: {error}")))
        };
        self.text(name).map(parse).transpose()
    }

    fn chain_id(&self) -> Result<Option<u64>, Error> {
        self.parsed("CHAIN_ID", None, "must be a whole number of at least 1", |text| {
            text.parse().ok().filter(|id| *id > 0).map(Some)
        })
    }

    fn limits(&self) -> Result<ClientLimits, Error> {
        let window_seconds = self.seconds("RATE_LIMIT_WINDOW_SECONDS", 60)?.into();
        let requests = self.number("RATE_LIMIT_PER_MINUTE", 60)?;
        let client = WindowLimit { requests, window_seconds };
        // Where clients have no limit, a site has none unless the operator sets one.
        let default = requests.saturating_mul(CLIENTS_OF_A_SITE);
        let requests = self.number("RATE_LIMIT_PER_MINUTE_IPV6_48", default)?;
        Ok(ClientLimits { client, site: WindowLimit { requests, window_seconds } })
    }

    fn index_mode(&self) -> Result<IndexMode, Error> {
        self.parsed("INDEX", IndexMode::Off, "must be durable-object or off", |text| match text {
            "off" => Some(IndexMode::Off),
            "durable-object" => Some(IndexMode::DurableObject),
            _ => None,
        })
    }

    fn kya_source(&self, index: IndexMode) -> Result<KyaSource, Error> {
        let source = self.parsed("KYA_SOURCE", None, "must be snapshot or chain", |text| match text {
            "snapshot" => Some(Some(KyaSource::Snapshot)),
            "chain" => Some(Some(KyaSource::Chain)),
            _ => None,
        })?;
        match (source, index) {
            (Some(KyaSource::Snapshot), IndexMode::Off) => Err(misconfigured(
                "KYA_SOURCE",
                "is snapshot, which the index keeps: INDEX must be durable-object",
            )),
            (Some(source), _) => Ok(source),
            (None, IndexMode::Off) => Ok(KyaSource::Chain),
            (None, IndexMode::DurableObject) => Ok(KyaSource::Snapshot),
        }
    }

    fn code_hash(&self, name: &'static str) -> Result<Option<B256>, Error> {
        self.parsed(name, None, "must be 0x and 64 hex digits", |text| {
            let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 64)?;
            digits.parse().ok().map(Some)
        })
    }

    fn index_location(&self) -> Result<Option<&'static str>, Error> {
        let rule = "must be wnam, enam, sam, weur, eeur, apac, oc, afr or me";
        let known = |text: &str| LOCATION_HINTS.into_iter().find(|hint| *hint == text).map(Some);
        self.parsed("INDEX_LOCATION_HINT", None, rule, known)
    }

    fn spot_checks(&self) -> Result<u64, Error> {
        self.parsed("INDEX_SPOT_CHECKS", 2, "must be 0 to 20", |text| {
            text.parse().ok().filter(|agents| *agents <= 20)
        })
    }

    fn layout(&self) -> Result<Option<Layout>, Error> {
        let parse =
            |text: String| Layout::parse(&text).map_err(|error| misconfigured("EVIDENCE_LAYOUT", error));
        self.text("EVIDENCE_LAYOUT").map(parse).transpose()
    }

    fn signing(&self, chain_id: Option<u64>) -> Result<Option<Signing>, Error> {
        let Some(keys) = self.text("VERDICT_KEYS") else { return Ok(None) };
        let keys = KeySet::parse(&keys).and_then(|keys| keys.signer().map(|_| ()).map(|()| keys));
        let keys = keys.map_err(|error| misconfigured("VERDICT_KEYS", error))?;
        let issuer =
            self.parsed("VERDICT_ISSUER", None, Audience::RULE, |text| Audience::parse(text).map(Some))?;
        let needed = |name, what| {
            misconfigured(name, format_args!("is not set; where VERDICT_KEYS is set, it is {what}"))
        };
        let issuer = issuer.ok_or_else(|| needed("VERDICT_ISSUER", "the origin that signs verdicts"))?;
        let chain_id = chain_id.ok_or_else(|| needed("CHAIN_ID", "the chain of the wallets"))?;
        Ok(Some(Signing { keys, issuer: issuer.as_str().to_owned(), chain_id }))
    }

    fn limiter_mode(&self) -> Result<LimiterMode, Error> {
        let rule = "must be kv, durable-object or binding";
        self.parsed("RATE_LIMITER", LimiterMode::Kv, rule, |text| match text {
            "kv" => Some(LimiterMode::Kv),
            "durable-object" => Some(LimiterMode::DurableObject),
            "binding" => Some(LimiterMode::Binding),
            _ => None,
        })
    }
}

fn misconfigured(name: &str, problem: impl Display) -> Error {
    Error::Misconfigured(format!("{name} {problem}"))
}

#[cfg(test)]
mod tests;
