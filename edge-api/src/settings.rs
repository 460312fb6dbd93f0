//! The Worker's settings: environment variables, checked.

use alloy_primitives::Address;
use registry_core::{
    address,
    error::Error,
    multicall,
    redact::Redactor,
    route::CacheScope,
    rpc::endpoint::{RpcEndpoint, parse_list},
    window::Limit,
};
use worker::Env;

use crate::limiter::{OBJECT_BINDING, Scheme};

/// Base Sepolia's public endpoint, the documented default.
const DEFAULT_RPC_URL: &str = "https://sepolia.base.org";

/// What the operator decided; the README's table of settings.
pub(crate) struct Settings {
    /// At least one.
    pub(crate) rpc: Vec<RpcEndpoint>,
    /// Scheme and host of the first of them, whichever answers: what clients may see.
    pub(crate) public_rpc: String,
    /// Strikes the rest of all of them out of nodes' messages.
    pub(crate) redactor: Redactor,
    /// For one batch at one endpoint.
    pub(crate) rpc_timeout_seconds: u32,
    /// For all of a request's batches and endpoints.
    pub(crate) rpc_deadline_seconds: u32,
    /// 0 is any age.
    pub(crate) max_head_age_seconds: u32,
    /// The chain all endpoints have to be on; `None` is the first one's.
    pub(crate) chain_id: Option<u64>,
    pub(crate) registry: Address,
    pub(crate) multicall3: Address,
    pub(crate) rate_limit: Limit,
    pub(crate) rate_limiter: Scheme,
    agent_ttl: u32,
    lineage_ttl: u32,
    kya_ttl: u32,
}

impl Settings {
    /// Reads the environment. An error names the variable and the rule, and keeps its value to itself.
    pub(crate) fn from_env(env: &Env) -> Result<Self, Error> {
        let rpc = variable(env, "RPC_URL").unwrap_or_else(|| DEFAULT_RPC_URL.to_owned());
        let rpc = parse_list(&rpc).map_err(|error| Error::Misconfigured(format!("RPC_URL {error}")))?;
        let registry = variable(env, "REGISTRY_ADDRESS").ok_or_else(|| {
            Error::Misconfigured(
                "REGISTRY_ADDRESS is not set; it is the deployed registry's address".to_owned(),
            )
        })?;
        let multicall3 = variable(env, "MULTICALL3_ADDRESS");
        Ok(Self {
            public_rpc: rpc.first().map(RpcEndpoint::origin).unwrap_or_default(),
            redactor: Redactor::new(rpc.iter().flat_map(RpcEndpoint::secrets)),
            rpc,
            rpc_timeout_seconds: seconds(env, "RPC_TIMEOUT_SECONDS", 4)?,
            rpc_deadline_seconds: seconds(env, "RPC_DEADLINE_SECONDS", 15)?,
            max_head_age_seconds: number(env, "MAX_HEAD_AGE_SECONDS", 0)?,
            chain_id: chain_id(env)?,
            registry: address("REGISTRY_ADDRESS", &registry)?,
            multicall3: match multicall3 {
                Some(text) => address("MULTICALL3_ADDRESS", &text)?,
                None => multicall::CANONICAL_ADDRESS,
            },
            rate_limit: rate_limit(env)?,
            rate_limiter: rate_limiter(env)?,
            agent_ttl: number(env, "AGENT_TTL_SECONDS", CacheScope::Agent.default_seconds())?,
            lineage_ttl: number(env, "LINEAGE_TTL_SECONDS", CacheScope::Lineage.default_seconds())?,
            kya_ttl: number(env, "KYA_TTL_SECONDS", CacheScope::Kya.default_seconds())?,
        })
    }

    /// How many seconds an answer of that scope may be kept; 0 is not at all.
    pub(crate) const fn time_to_live(&self, scope: CacheScope) -> u32 {
        match scope {
            CacheScope::None => 0,
            CacheScope::Agent => self.agent_ttl,
            CacheScope::Lineage => self.lineage_ttl,
            CacheScope::Kya => self.kya_ttl,
        }
    }
}

/// The limit alone, for the object that counts a client.
pub(crate) fn rate_limit(env: &Env) -> Result<Limit, Error> {
    Ok(Limit { requests: number(env, "RATE_LIMIT_PER_MINUTE", 60)?, window_seconds: 60 })
}

fn rate_limiter(env: &Env) -> Result<Scheme, Error> {
    match variable(env, "RATE_LIMITER").as_deref() {
        None | Some("kv") => Ok(Scheme::Kv),
        Some("durable-object") if env.durable_object(OBJECT_BINDING).is_ok() => Ok(Scheme::DurableObject),
        Some("durable-object") => Err(Error::Misconfigured(format!(
            "RATE_LIMITER is durable-object, but the Worker has no binding {OBJECT_BINDING}"
        ))),
        Some(_) => Err(Error::Misconfigured("RATE_LIMITER must be kv or durable-object".to_owned())),
    }
}

/// A variable's value; one left empty counts as not set.
fn variable(env: &Env, name: &str) -> Option<String> {
    let value = env.var(name).ok()?.to_string();
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn number(env: &Env, name: &str, default: u32) -> Result<u32, Error> {
    let Some(text) = variable(env, name) else { return Ok(default) };
    text.parse().map_err(|_| Error::Misconfigured(format!("{name} must be a whole number of at least 0")))
}

/// A time to wait, which is at least one second and at most an hour.
fn seconds(env: &Env, name: &str, default: u32) -> Result<u32, Error> {
    match number(env, name, default)? {
        seconds @ 1..=3_600 => Ok(seconds),
        _ => Err(Error::Misconfigured(format!("{name} must be 1 to 3600 seconds"))),
    }
}

fn chain_id(env: &Env) -> Result<Option<u64>, Error> {
    let Some(text) = variable(env, "CHAIN_ID") else { return Ok(None) };
    match text.parse() {
        Ok(id) if id > 0 => Ok(Some(id)),
        _ => Err(Error::Misconfigured("CHAIN_ID must be a whole number of at least 1".to_owned())),
    }
}

fn address(name: &str, text: &str) -> Result<Address, Error> {
    address::parse(text).map_err(|error| Error::Misconfigured(format!("{name}: {error}")))
}
