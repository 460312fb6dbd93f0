//! The settings that the read API's Worker has beside those that it [shares](WorkerSettings) with the
//! index's. They are read once per instance as well.

use std::{cell::OnceCell, rc::Rc};

use alloy_primitives::{hex, keccak256};
use edge_shared::settings::{
    IndexMode, Variables, WorkerSettings, check_binding, misconfigured, of_environment,
};
use registry_core::{
    api::error::Error,
    eth::rpc::endpoint::RpcEndpoint,
    evidence::Layout,
    host::{leases::LeaseLimits, rate_limit::WindowLimit},
    registry::well_known::{self, WellKnown},
    token::{Audience, KeySet},
};
use worker::Env;

/// The binding of Cloudflare's own limiter.
pub(crate) const RATE_BINDING: &str = "CLIENT_RATE";

/// The binding of the KV store that counts are shared through.
pub(crate) const KV_BINDING: &str = "RATE_COUNTERS";

/// The rule of `MCP_ORIGINS`.
const ORIGINS_RULE: &str = "must be origins as browsers write them, separated by commas";

/// The rule of `RELAYER_URLS` and `DOCUMENT_URLS`.
const URLS_RULE: &str = "must be http or https URLs without a user, separated by commas";

/// The default limit of a /48 of IPv6, in limits of one client.
const CLIENTS_OF_A_SITE: u32 = 10;

/// The operator's settings, as documented in `docs/operating.md`.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Settings that both Workers have.
    pub(crate) shared: Rc<WorkerSettings>,
    /// A name that differs for every set of endpoints, chain and storage layout, and discloses no endpoint.
    pub(crate) upstream: String,
    pub(crate) limits: ClientLimits,
    pub(crate) limiter_mode: LimiterMode,
    /// Source of verdicts.
    pub(crate) kya_source: KyaSource,
    /// The longest duration of a stream of changes.
    pub(crate) stream_seconds: u32,
    /// Limits on open streams of changes.
    pub(crate) streams: LeaseLimits,
    /// Keys and issuer of signed verdicts; `None` where verdicts are not signed.
    pub(crate) signing: Option<Signing>,
    /// The origins of pages that `/mcp` answers; empty where it answers all.
    mcp_origins: Vec<Audience>,
    /// Chain and registry of the verdicts (CAIP-10), `eip155:<chain>:<registry>`; `None` where the chain is
    /// not configured.
    pub(crate) registry: Option<String>,
    /// The document of the registry, without the read API itself; `None` where the chain is not configured.
    pub(crate) well_known: Option<WellKnown>,
}

/// Keys and issuer of signed verdicts.
#[derive(Debug)]
pub(crate) struct Signing {
    /// The keys, of which the first one signs.
    pub(crate) keys: KeySet,
    /// Issuer of the tokens: `iss`.
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

/// Way in which the instances of a Worker count a client's requests together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimiterMode {
    /// Each instance counts, and publishes its count through KV.
    Kv,
    /// Cloudflare's own limiter counts for the instances of a data centre.
    Binding,
}

/// Source of verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KyaSource {
    /// The index's snapshot of the registry, or the chain where that has none.
    Snapshot,
    /// The chain.
    Chain,
}

thread_local! {
    static SETTINGS: OnceCell<Result<Rc<Settings>, Error>> = const { OnceCell::new() };
}

impl Settings {
    /// Returns the settings of this instance. Errors: [`Error::Misconfigured`], naming the variable and the
    /// rule, not the value.
    pub(crate) fn of(env: &Env) -> Result<Rc<Self>, Error> {
        let parsed = || {
            let settings = Self::parse(WorkerSettings::of(env)?, &Variables(&of_environment(env)))?;
            settings.check_limiter(&|name| env.rate_limiter(name).is_ok() || env.kv(name).is_ok())?;
            Ok(Rc::new(settings))
        };
        SETTINGS.with(|settings| settings.get_or_init(parsed).clone())
    }

    /// Returns whether `/mcp` answers a request with this `Origin`. Programs send none.
    pub(crate) fn takes_mcp_of(&self, origin: Option<&str>) -> bool {
        let known = |origin: &str| self.mcp_origins.iter().any(|known| known.as_str() == origin);
        self.mcp_origins.is_empty() || origin.is_none_or(known)
    }

    /// Checks that the Worker has the binding of its limiter.
    fn check_limiter(&self, is_bound: &dyn Fn(&str) -> bool) -> Result<(), Error> {
        let needed = match self.limiter_mode {
            LimiterMode::Kv => (self.limits.client.requests > 0).then_some(("kv", KV_BINDING)),
            LimiterMode::Binding => Some(("binding", RATE_BINDING)),
        };
        check_binding("RATE_LIMITER", needed, is_bound)
    }

    fn parse(shared: Rc<WorkerSettings>, variables: &Variables<'_>) -> Result<Self, Error> {
        Ok(Self {
            upstream: upstream(shared.chain_id, &shared.rpc, shared.layout.as_ref()),
            limits: limits(variables)?,
            limiter_mode: limiter_mode(variables)?,
            kya_source: kya_source(variables, shared.index_mode)?,
            stream_seconds: variables.seconds("CHANGES_STREAM_SECONDS", 300)?,
            streams: LeaseLimits {
                per_holder: variables.number("CHANGES_STREAMS_PER_CLIENT", 10)? as usize,
                per_instance: variables.number("CHANGES_STREAMS_PER_INSTANCE", 500)? as usize,
            },
            signing: signing(variables, shared.chain_id)?,
            mcp_origins: variables.parsed("MCP_ORIGINS", Vec::new(), ORIGINS_RULE, |text| {
                text.split(',').map(|origin| Audience::parse(origin.trim())).collect()
            })?,
            well_known: well_known(variables, &shared)?,
            registry: shared.chain_id.map(|chain| format!("eip155:{chain}:{:#x}", shared.registry)),
            shared,
        })
    }
}

/// Returns the name of a chain as read through these endpoints with this storage layout: any change of them
/// is another name.
fn upstream(chain_id: Option<u64>, rpc: &[RpcEndpoint], layout: Option<&Layout>) -> String {
    let mut endpoints = String::new();
    for endpoint in rpc {
        endpoints.push_str(&endpoint.url);
        endpoints.push('\n');
        endpoints.push_str(endpoint.authorization.as_deref().unwrap_or_default());
        endpoints.push('\n');
    }
    // Evidence depends on the layout, which always has a form in JSON.
    endpoints += &layout.and_then(|layout| serde_json::to_string(layout).ok()).unwrap_or_default();
    let digest = keccak256(endpoints);
    let digest = digest.get(..8).map(hex::encode).unwrap_or_default();
    let chain = chain_id.map_or_else(|| "any".to_owned(), |id| id.to_string());
    format!("{chain}-{digest}")
}

fn limits(variables: &Variables<'_>) -> Result<ClientLimits, Error> {
    let window_seconds = variables.seconds("RATE_LIMIT_WINDOW_SECONDS", 60)?.into();
    let requests = variables.number("RATE_LIMIT_PER_MINUTE", 60)?;
    let client = WindowLimit { requests, window_seconds };
    // Where clients have no limit, a site has none unless the operator sets one.
    let default = requests.saturating_mul(CLIENTS_OF_A_SITE);
    let requests = variables.number("RATE_LIMIT_PER_MINUTE_IPV6_48", default)?;
    Ok(ClientLimits { client, site: WindowLimit { requests, window_seconds } })
}

fn limiter_mode(variables: &Variables<'_>) -> Result<LimiterMode, Error> {
    let rule = "must be kv or binding";
    variables.parsed("RATE_LIMITER", LimiterMode::Kv, rule, |text| match text {
        "kv" => Some(LimiterMode::Kv),
        "binding" => Some(LimiterMode::Binding),
        _ => None,
    })
}

fn kya_source(variables: &Variables<'_>, index: IndexMode) -> Result<KyaSource, Error> {
    let source = variables.parsed("KYA_SOURCE", None, "must be snapshot or chain", |text| match text {
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

fn well_known(variables: &Variables<'_>, shared: &WorkerSettings) -> Result<Option<WellKnown>, Error> {
    let public = |url: &str| Some(url.trim().to_owned()).filter(|url| well_known::is_public(url));
    let urls =
        |name| variables.parsed(name, Vec::new(), URLS_RULE, |text| text.split(',').map(public).collect());
    let (forwarder, relayers) = (variables.address("FORWARDER_ADDRESS")?, urls("RELAYER_URLS")?);
    let documents = urls("DOCUMENT_URLS")?;
    let document =
        |chain| WellKnown { forwarder, relayers, documents, ..WellKnown::new(chain, shared.registry) };
    Ok(shared.chain_id.map(document))
}

fn signing(variables: &Variables<'_>, chain_id: Option<u64>) -> Result<Option<Signing>, Error> {
    let issuer =
        variables.parsed("VERDICT_ISSUER", None, Audience::RULE, |text| Audience::parse(text).map(Some))?;
    let needed =
        |name, by, what| misconfigured(name, format_args!("is not set; where {by} is set, it is {what}"));
    let keys = match (variables.text("VERDICT_KEYS"), &issuer) {
        (Some(keys), _) => keys,
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(needed(
                "VERDICT_KEYS",
                "VERDICT_ISSUER",
                "the secret with the keys that sign verdicts",
            ));
        }
    };
    let keys = KeySet::parse(&keys).and_then(|keys| keys.signer().map(|_| ()).map(|()| keys));
    let keys = keys.map_err(|error| misconfigured("VERDICT_KEYS", error))?;
    let needed = |name, what| needed(name, "VERDICT_KEYS", what);
    let issuer = issuer.ok_or_else(|| needed("VERDICT_ISSUER", "the origin that signs verdicts"))?;
    let chain_id = chain_id.ok_or_else(|| needed("CHAIN_ID", "the chain of the wallets"))?;
    Ok(Some(Signing { keys, issuer: issuer.as_str().to_owned(), chain_id }))
}

#[cfg(test)]
mod tests;
