//! The settings that both Workers have: environment variables, checked. They are read once per instance: a
//! change of them is a deployment, which begins with new instances.

use core::fmt::Display;
use std::{cell::OnceCell, rc::Rc};

use alloy_primitives::{Address, B256};
use registry_core::{
    api::{error::Error, route::CacheScope},
    eth::{
        address, multicall,
        redact::Redactor,
        rpc::endpoint::{RpcEndpoint, parse_list},
    },
    evidence::Layout,
    index::protocol::{earlier_object_names, object_name},
    snapshot::Identity,
};
use worker::{
    Env, console_warn,
    js_sys::{Object, Reflect},
    wasm_bindgen::{JsCast as _, JsValue},
};

/// The binding of the objects that keep indexes.
pub const INDEX_BINDING: &str = "REGISTRY_INDEX";

/// All settings of both Workers, which have the same variables.
const NAMES: [&str; 30] = [
    "REGISTRY_ADDRESS",
    "RPC_URL",
    "CHAIN_ID",
    "RPC_HEDGING",
    "MULTICALL3_ADDRESS",
    "RPC_TIMEOUT_SECONDS",
    "RPC_DEADLINE_SECONDS",
    "MAX_HEAD_AGE_SECONDS",
    "AGENT_TTL_SECONDS",
    "LINEAGE_TTL_SECONDS",
    "KYA_TTL_SECONDS",
    "RATE_LIMIT_PER_MINUTE",
    "RATE_LIMIT_PER_MINUTE_IPV6_48",
    "RATE_LIMIT_WINDOW_SECONDS",
    "RATE_LIMITER",
    "INDEX",
    "INDEX_LOCATION_HINT",
    "VERDICT_KEYS",
    "VERDICT_ISSUER",
    "MCP_ORIGINS",
    "FORWARDER_ADDRESS",
    "RELAYER_URLS",
    "DOCUMENT_URLS",
    "KYA_SOURCE",
    "CHANGES_STREAM_SECONDS",
    "INDEX_SELF_CONTAINED_CODE",
    "INDEX_SPOT_CHECKS",
    "CHANGES_STREAMS_PER_CLIENT",
    "CHANGES_STREAMS_PER_INSTANCE",
    "EVIDENCE_LAYOUT",
];

/// The regions that Cloudflare takes as location hints of Durable Objects.
const LOCATION_HINTS: [&str; 9] = ["wnam", "enam", "sam", "weur", "eeur", "apac", "oc", "afr", "me"];

/// Base Sepolia's public endpoint, the documented default.
const DEFAULT_RPC_URL: &str = "https://sepolia.base.org";
/// The chain of that endpoint.
const DEFAULT_CHAIN_ID: u64 = 84_532;
/// Verdicts must not rest on the state of a node that has been stuck for longer: a suspension has to show
/// within the TTL of verdicts, which counts from the block's time.
const DEFAULT_MAX_HEAD_AGE_SECONDS: u32 = 60;

/// The operator's settings, as documented in `docs/operating.md`.
#[derive(Debug)]
pub struct WorkerSettings {
    /// The RPC endpoints, at least one.
    pub rpc: Vec<RpcEndpoint>,
    /// Scheme and host of the first RPC endpoint, whichever answers, for clients to see.
    pub public_rpc: String,
    /// Removes the secret parts of the endpoints' URLs from nodes' messages.
    pub redactor: Redactor,
    /// Time limit of one batch at one endpoint.
    pub rpc_timeout_seconds: u32,
    /// Time limit of all batches of a request together.
    pub rpc_deadline_seconds: u32,
    /// True if a request that takes longer than usual is sent to the next endpoint as well.
    pub hedges: bool,
    /// The age above which a node's newest block is refused; 0 is any age.
    pub max_head_age_seconds: u32,
    /// The chain that all endpoints must be on; `None`, for a single endpoint without an index, is any chain.
    pub chain_id: Option<u64>,
    /// The registry's address.
    pub registry: Address,
    /// Multicall3's address.
    pub multicall3: Address,
    /// Source of answers about the whole registry.
    pub index_mode: IndexMode,
    /// Region in which the platform should create the index's object.
    pub index_location: Option<&'static str>,
    /// The storage layout for evidence, where the registry's code is not this project's.
    pub layout: Option<Layout>,
    /// The Keccak-256 of registry code that keeps all state in its own storage, for the index.
    pub self_contained_code: Option<B256>,
    /// Agents that each refresh of the index proves against the newest block's state root.
    pub spot_checks: u64,
    /// Variables without effect, each with the reason.
    pub warnings: Vec<String>,
    agent_ttl: u32,
    lineage_ttl: u32,
    kya_ttl: u32,
}

/// Source of answers about the whole registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexMode {
    /// Scans of the chain; there is no index.
    Off,
    /// The index in a Durable Object.
    DurableObject,
}

thread_local! {
    static SETTINGS: OnceCell<Result<Rc<WorkerSettings>, Error>> = const { OnceCell::new() };
}

impl WorkerSettings {
    /// Returns the settings of this instance. Errors: [`Error::Misconfigured`], naming the variable and the
    /// rule, not the value.
    pub fn of(env: &Env) -> Result<Rc<Self>, Error> {
        let parsed = || {
            let warnings =
                check_variables(Object::keys(env.unchecked_ref::<Object>()).iter().filter_map(|name| {
                    let value = Reflect::get(env, &name).ok()?;
                    // Null is workerd's `fromEnvironment` of a variable that is not set.
                    (!value.is_null()).then_some((name.as_string()?, VariableKind::of(&value)))
                }))?;
            for warning in &warnings {
                console_warn!("{warning}");
            }
            let settings = Self { warnings, ..Self::parse(&Variables(&of_environment(env)))? };
            settings.check_binding(&|name| env.durable_object(name).is_ok())?;
            Ok(Rc::new(settings))
        };
        SETTINGS.with(|settings| settings.get_or_init(parsed).clone())
    }

    /// Checks that the Worker is bound to the index's object, where there is to be one.
    fn check_binding(&self, is_bound: &dyn Fn(&str) -> bool) -> Result<(), Error> {
        let needed = match self.index_mode {
            IndexMode::Off => None,
            IndexMode::DurableObject => Some(("durable-object", INDEX_BINDING)),
        };
        check_binding("INDEX", needed, is_bound)
    }

    /// Parses the settings. Errors: [`Error::Misconfigured`], as for [`of`](Self::of).
    pub fn parse(variables: &Variables<'_>) -> Result<Self, Error> {
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
        let problem = match chain_id {
            None if rpc.len() > 1 => {
                "is not set; where RPC_URL names several endpoints, it is the chain they all have to be on"
            }
            // Rows that are kept while endpoints change must not mix two chains.
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
            index_mode,
            index_location: variables.index_location()?,
            layout: variables.layout()?,
            self_contained_code: variables.code_hash("INDEX_SELF_CONTAINED_CODE")?,
            spot_checks: variables.spot_checks()?,
            warnings: Vec::new(),
            agent_ttl: variables.number("AGENT_TTL_SECONDS", CacheScope::Agent.default_seconds())?,
            lineage_ttl: variables.number("LINEAGE_TTL_SECONDS", CacheScope::Lineage.default_seconds())?,
            kya_ttl: variables.number("KYA_TTL_SECONDS", CacheScope::Kya.default_seconds())?,
        })
    }

    /// Returns the TTL of answers of that scope, in seconds; 0 is not to be kept.
    pub const fn time_to_live(&self, scope: CacheScope) -> u32 {
        match scope {
            CacheScope::None => 0,
            CacheScope::Agent => self.agent_ttl,
            CacheScope::Lineage => self.lineage_ttl,
            CacheScope::Kya => self.kya_ttl,
        }
    }

    /// Returns the TTL of answers of that scope, in milliseconds.
    pub fn millis_to_live(&self, scope: CacheScope) -> u64 {
        u64::from(self.time_to_live(scope)) * 1_000
    }

    /// Returns chain and registry of a snapshot; `None` without a chain id, which the settings rule out where
    /// there is an index.
    pub fn identity(&self) -> Option<Identity> {
        self.chain_id.map(|chain_id| Identity { chain_id, registry: self.registry })
    }

    /// Returns the name of the index's object; `None` as for [`identity`](Self::identity).
    pub fn index_name(&self) -> Option<String> {
        self.chain_id.map(|chain_id| object_name(chain_id, self.registry))
    }

    /// Returns the names of the objects of indexes of earlier formats, the latest first.
    pub fn earlier_index_names(&self) -> Option<[String; 4]> {
        self.chain_id.map(|chain_id| earlier_object_names(chain_id, self.registry))
    }

    /// Returns the seconds between two polls of a stream of changes: ten, or fewer where the TTL of verdicts
    /// is shorter.
    pub fn follow_seconds(&self) -> u32 {
        self.kya_ttl.clamp(1, 10)
    }
}

/// Returns the lookup of environment variables by name. A configuration may have a number as a number.
pub fn of_environment(env: &Env) -> impl Fn(&str) -> Option<String> {
    |name| match VariableKind::of(&Reflect::get(env, &name.into()).ok()?) {
        VariableKind::Text(text) => Some(text),
        VariableKind::Other(_) | VariableKind::Binding => None,
    }
}

/// Kind of an entry of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
enum VariableKind {
    /// A text, or a whole number.
    Text(String),
    /// Another value, of this type.
    Other(&'static str),
    /// A binding, or a table of the configuration.
    Binding,
}

impl VariableKind {
    fn of(value: &JsValue) -> Self {
        match (value.as_string(), value.as_f64()) {
            (Some(text), _) => Self::Text(text),
            // From 2^53 on a double may differ from the number in the configuration.
            (None, Some(number))
                if number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number) =>
            {
                Self::Text((number as u64).to_string())
            }
            (None, Some(_)) => Self::Other("another number"),
            (None, None) if value.as_bool().is_some() => Self::Other("a boolean"),
            (None, None) => Self::Binding,
        }
    }
}

/// Checks the types of all entries of the environment. Warns of those that are no settings.
fn check_variables(entries: impl Iterator<Item = (String, VariableKind)>) -> Result<Vec<String>, Error> {
    let mut warnings = Vec::new();
    for (name, kind) in entries {
        let problem = match (NAMES.contains(&&*name), kind) {
            (true, VariableKind::Text(_)) | (false, VariableKind::Binding) => continue,
            (true, VariableKind::Other(kind)) => kind,
            (true, VariableKind::Binding) => "a table or a list",
            (false, VariableKind::Text(_) | VariableKind::Other(_)) => {
                warnings
                    .push(format!("{name} is no setting, and has no effect: docs/operating.md lists them"));
                continue;
            }
        };
        return Err(misconfigured(&name, format_args!("must be a text or a whole number, and is {problem}")));
    }
    Ok(warnings)
}

/// Checks that the Worker has the binding that a mode needs, a pair of both. Errors:
/// [`Error::Misconfigured`], naming the variable of the mode.
pub fn check_binding(
    variable: &str,
    needed: Option<(&str, &str)>,
    is_bound: &dyn Fn(&str) -> bool,
) -> Result<(), Error> {
    match needed.filter(|(_, binding)| !is_bound(binding)) {
        None => Ok(()),
        Some((mode, binding)) => {
            let problem = format_args!("is {mode}, but the Worker has no binding {binding}");
            Err(misconfigured(variable, problem))
        }
    }
}

/// The environment variables.
pub struct Variables<'a>(pub &'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// Returns a variable's value; an empty one counts as not set.
    pub fn text(&self, name: &str) -> Option<String> {
        debug_assert!(NAMES.contains(&name), "{name} is not among the names of settings");
        let value = (self.0)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// Parses a variable by `parse`; returns `default` where it is not set. Errors:
    /// [`Error::Misconfigured`], with the rule.
    pub fn parsed<T>(
        &self,
        name: &str,
        default: T,
        rule: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let Some(text) = self.text(name) else { return Ok(default) };
        parse(&text).ok_or_else(|| misconfigured(name, rule))
    }

    /// Returns a whole number. Errors: [`Error::Misconfigured`].
    pub fn number(&self, name: &str, default: u32) -> Result<u32, Error> {
        self.parsed(name, default, "must be a whole number of at least 0", |text| text.parse().ok())
    }

    /// Returns a duration of at least one second and at most an hour. Errors: [`Error::Misconfigured`].
    pub fn seconds(&self, name: &str, default: u32) -> Result<u32, Error> {
        match self.number(name, default)? {
            seconds @ 1..=3_600 => Ok(seconds),
            _ => Err(misconfigured(name, "must be 1 to 3600 seconds")),
        }
    }

    /// Returns an address. Errors: [`Error::Misconfigured`].
    pub fn address(&self, name: &str) -> Result<Option<Address>, Error> {
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

    fn index_mode(&self) -> Result<IndexMode, Error> {
        self.parsed("INDEX", IndexMode::Off, "must be durable-object or off", |text| match text {
            "off" => Some(IndexMode::Off),
            "durable-object" => Some(IndexMode::DurableObject),
            _ => None,
        })
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
}

/// Returns the error of a variable that breaks a rule.
pub fn misconfigured(name: &str, problem: impl Display) -> Error {
    Error::Misconfigured(format!("{name} {problem}"))
}

#[cfg(test)]
mod tests;
