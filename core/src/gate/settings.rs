//! The policies of a gate's configuration file, for the daemon and for a gate in a service's own process.
//!
//! A host deserializes the tables from its file, and has them validated together by [`policies`].

use std::collections::BTreeMap;

use alloy_primitives::{Address, address};
use serde::Deserialize;

use super::{
    answer::Links,
    candidate::{BASELINE_VALIDITY, Posture, SignatureRules, WithoutNonce},
    dialect::Dialect,
    policy::{AgentPolicy, LiabilityRule, Wallets},
    request::Origin,
    request_fault::RequestRules,
};
use crate::{
    eth::multicall,
    liability::DomainName,
    registry::{
        kya::Decision,
        liability::{ATTESTED_SECONDS, Basis},
        well_known::{self, WellKnown},
    },
};

/// The days for which a read API counts an attestation by the liable wallet.
const LONGEST_ATTESTED_DAYS: u64 = ATTESTED_SECONDS / 86_400;

/// The longest validity in seconds that a policy may allow: nonces are remembered for as long.
const LONGEST_VALIDITY: u64 = 3_600;

/// Contracts that make calls for any caller, and could so become the creator of any agent: Multicall3, and
/// EntryPoint 0.6, 0.7 and 0.8 (ERC-4337).
const PUBLIC_EXECUTORS: [Address; 4] = [
    multicall::CANONICAL_ADDRESS,
    address!("5FF137D4b0FDCD49DcA30c7CF57E578a026d2789"),
    address!("0000000071727De22E5E9d8BAf0edAc6f37da032"),
    address!("4337084D9E255Ff0702461CF8895CE9E3b5Ff108"),
];

/// The rules of a route for requests.
#[derive(Debug, Clone)]
pub struct RoutePolicy {
    /// Its name.
    pub name: String,
    /// The scheme and authority that clients use.
    pub origin: Origin,
    /// Rules for the request, whatever its signature.
    pub requests: RequestRules,
    /// Rules for the signature.
    pub rules: SignatureRules,
    /// The registry of its agents.
    pub registry: Address,
    /// Rules for the agent.
    pub agents: AgentPolicy,
    /// Admits every request, and only reports the decision.
    pub observe: bool,
    /// URLs for agents that are not served.
    pub links: Links,
    /// The routes under this policy, as `/.well-known/erc8128` names them.
    pub routes: Vec<String>,
}

/// A table `[policy.<name>]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PolicyTable {
    origin: Option<String>,
    allow: Vec<Decision>,
    #[serde(default)]
    routes: Vec<String>,
    #[serde(default)]
    observe: bool,
    #[serde(default)]
    allow_ambiguous_targets: bool,
    #[serde(default)]
    websocket_paths: Vec<String>,
    #[serde(default)]
    components: Vec<String>,
    #[serde(default = "default_validity")]
    longest_validity: u64,
    #[serde(default)]
    accounts: Posture,
    #[serde(default)]
    replayable: WithoutNonce,
    wallets: Option<Vec<Address>>,
    #[serde(default)]
    liable: LiableTable,
    #[serde(default)]
    creators: WalletsTable,
    #[serde(default)]
    remaining_seconds: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WalletsTable {
    allow: Option<Vec<Address>>,
    #[serde(default)]
    deny: Vec<Address>,
}

/// Liable persons with agents that are served, and the bases that count for their wallets.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LiableTable {
    allow: Option<Vec<Address>>,
    #[serde(default)]
    deny: Vec<Address>,
    domains: Option<Vec<String>>,
    basis: Option<Vec<Basis>>,
    attested_days: Option<u64>,
}

impl LiableTable {
    fn validated(self, domains: &[DomainName]) -> Result<(Wallets, Option<LiabilityRule>), SettingError> {
        let allow = named("liable.allow", self.allow)?;
        for wallet in &allow {
            let rule = format!("{wallet} is a contract that calls for anyone, and proves no consent");
            ensure(!PUBLIC_EXECUTORS.contains(wallet), "liable.allow", rule)?;
        }
        let days = self.attested_days.unwrap_or(LONGEST_ATTESTED_DAYS);
        ensure(
            (1..=LONGEST_ATTESTED_DAYS).contains(&days),
            "liable.attested-days",
            format!("must be from 1 to {LONGEST_ATTESTED_DAYS}"),
        )?;
        let names_persons = !allow.is_empty() || !domains.is_empty();
        let basis = self.basis.or_else(|| names_persons.then(|| LiabilityRule::DEFAULT.to_vec()));
        ensure(
            basis.as_ref().is_none_or(|basis| !basis.is_empty()),
            "liable.basis",
            "must name what counts: accepted, registered, attested, named or unknown",
        )?;
        ensure(
            basis.is_some() || self.attested_days.is_none(),
            "liable.attested-days",
            "needs liable.allow, liable.domains or liable.basis",
        )?;
        let rule = basis.map(|basis| LiabilityRule { basis, attested_seconds: days * 86_400 });
        Ok((Wallets { allow, deny: self.deny }, rule))
    }
}

const fn default_validity() -> u64 {
    BASELINE_VALIDITY
}

/// The table `[discovery]`: ways to the registry that a service publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct DiscoveryTable {
    forwarder: Option<Address>,
    relayers: Vec<String>,
    read_apis: Vec<String>,
    documents: Vec<String>,
}

impl DiscoveryTable {
    /// Returns the document of the service.
    ///
    /// # Errors
    ///
    /// [`SettingError`] for a list with a URL that cannot be published.
    pub fn document(self, chain: u64, registry: Address) -> Result<WellKnown, SettingError> {
        let Self { forwarder, relayers, read_apis, documents } = self;
        for (name, urls) in [("relayers", &relayers), ("read-apis", &read_apis), ("documents", &documents)] {
            let are_public = urls.iter().all(|url| well_known::is_public(url));
            ensure(are_public, &format!("discovery.{name}"), "must be http or https URLs without a user")?;
        }
        Ok(WellKnown { forwarder, relayers, read_apis, documents, ..WellKnown::new(chain, registry) })
    }
}

/// Settings that all policies of a file share.
#[derive(Clone, Copy, Debug)]
pub struct SharedPolicySettings<'a> {
    /// The origin of policies that name none.
    pub origin: &'a Origin,
    /// The dialects.
    pub dialects: &'a [Dialect],
    /// The chain of the accounts.
    pub chain: u64,
    /// The registry of the agents.
    pub registry: Address,
    /// URLs for agents that are not served.
    pub links: &'a Links,
    /// Reads the name of a domain; `None` at a host that fetches no files of domains.
    pub domain: Option<fn(&str) -> Option<DomainName>>,
}

impl SharedPolicySettings<'_> {
    fn domains(&self, names: &[String]) -> Result<Vec<DomainName>, SettingError> {
        let error = |rule| SettingError::new("liable.domains", rule);
        let read = match self.domain {
            _ if names.is_empty() => return Ok(Vec::new()),
            None => return Err(error("only the daemon kya-gate and its layer fetch files of domains")),
            Some(read) => read,
        };
        names.iter().map(|name| read(name).ok_or_else(|| error(DomainName::RULE))).collect()
    }
}

/// A setting that breaks its rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {rule}")]
pub struct SettingError {
    /// Its name in the file.
    pub setting: String,
    /// Its rule, in words for people.
    pub rule: String,
}

impl SettingError {
    /// Makes the error of a setting.
    pub fn new(setting: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { setting: setting.into(), rule: rule.into() }
    }
}

/// Validates the policies of a file, and returns them by name.
///
/// # Errors
///
/// [`SettingError`]: the setting that breaks its rule.
pub fn policies(
    tables: BTreeMap<String, PolicyTable>,
    shared: &SharedPolicySettings<'_>,
) -> Result<BTreeMap<String, RoutePolicy>, SettingError> {
    ensure(!shared.dialects.is_empty(), "dialects", "must name tagged, untagged or both")?;
    ensure(!tables.is_empty(), "policy", "at least one is needed, such as [policy.api]")?;
    let mut routes: Vec<String> = Vec::new();
    let mut policies = BTreeMap::new();
    for (name, table) in tables {
        let place = format!("policy.{name}");
        ensure(is_name(&name), &place, "a name has only a-z, 0-9, - and _")?;
        let policy = table.validated(&name, shared).map_err(|SettingError { setting, rule }| {
            SettingError { setting: format!("{place}: {setting}"), rule }
        })?;
        for route in &policy.routes {
            ensure(!routes.contains(route), "routes", format!("{route} is named twice"))?;
            routes.push(route.clone());
        }
        policies.insert(name, policy);
    }
    Ok(policies)
}

fn ensure(holds: bool, setting: &str, rule: impl Into<String>) -> Result<(), SettingError> {
    if holds { Ok(()) } else { Err(SettingError::new(setting, rule)) }
}

/// Validates an allow list; empty where the setting is missing. An empty list in the file is an error: it
/// would serve all.
fn named<T>(setting: &str, list: Option<Vec<T>>) -> Result<Vec<T>, SettingError> {
    let is_empty = list.as_ref().is_some_and(Vec::is_empty);
    ensure(!is_empty, setting, "must name at least one: without this setting all are served")?;
    Ok(list.unwrap_or_default())
}

/// Returns whether a policy's name needs no encoding in a path.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    !name.is_empty() && name.bytes().all(is_plain)
}

impl PolicyTable {
    fn validated(
        mut self,
        name: &str,
        shared: &SharedPolicySettings<'_>,
    ) -> Result<RoutePolicy, SettingError> {
        let origin = match &self.origin {
            Some(text) => Origin::parse(text)
                .ok_or_else(|| SettingError::new("origin", "must be a scheme and a host"))?,
            None => shared.origin.clone(),
        };
        ensure(!self.allow.is_empty(), "allow", "must name the decisions that are served")?;
        ensure(
            (BASELINE_VALIDITY..=LONGEST_VALIDITY).contains(&self.longest_validity),
            "longest-validity",
            format!("must be from {BASELINE_VALIDITY} to {LONGEST_VALIDITY} seconds"),
        )?;
        for component in &self.components {
            let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
            ensure(
                !component.is_empty() && component.bytes().all(is_plain),
                "components",
                format!("{component:?} must be the name of a header in lower case"),
            )?;
            let is_once = self.components.iter().filter(|other| *other == component).count() == 1;
            ensure(is_once, "components", format!("{component} is named twice"))?;
        }
        ensure(
            self.routes.is_empty() || origin == *shared.origin,
            "routes",
            "are listed for the gate's own origin, and this policy has another",
        )?;
        for route in &self.routes {
            ensure(
                is_route(route),
                "routes",
                format!("{route:?} must be a path, a path and /*, or default"),
            )?;
        }
        for path in &self.websocket_paths {
            let is_path = path != "default" && is_route(path);
            ensure(is_path, "websocket-paths", format!("{path:?} must be a path, or a path and /*"))?;
        }
        let domains = shared.domains(&named("liable.domains", self.liable.domains.take())?)?;
        let (liable, liability) = self.liable.validated(&domains)?;
        Ok(RoutePolicy {
            name: name.to_owned(),
            origin,
            requests: RequestRules {
                allow_ambiguous_targets: self.allow_ambiguous_targets,
                websocket_paths: self.websocket_paths,
            },
            rules: SignatureRules {
                chain: shared.chain,
                dialects: shared.dialects.to_vec(),
                components: self.components,
                longest_validity: self.longest_validity,
                posture: self.accounts,
                without_nonce: self.replayable,
                principals: named("wallets", self.wallets)?,
            },
            registry: shared.registry,
            agents: AgentPolicy {
                allow: self.allow,
                liable,
                domains,
                liability,
                creators: Wallets {
                    allow: named("creators.allow", self.creators.allow)?,
                    deny: self.creators.deny,
                },
                remaining_seconds: self.remaining_seconds,
            },
            observe: self.observe,
            links: shared.links.clone(),
            routes: self.routes,
        })
    }
}

/// Returns whether a text is a key of `route_policies` (ERC-8128, section 7).
fn is_route(text: &str) -> bool {
    let path = text.strip_suffix("/*").unwrap_or(text);
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"*?#".contains(&byte);
    text == "default" || (text.starts_with('/') && path.bytes().all(is_plain))
}
