//! One policy of the configuration file.

use alloy_primitives::Address;
use anyhow::{Context as _, ensure};
use registry_core::{
    gate::{
        AgentPolicy, BASELINE_VALIDITY, Dialect, Links, Origin, Posture, SignatureRules, Wallets,
        WithoutNonce,
    },
    registry::kya::Decision,
};
use serde::Deserialize;

/// The longest validity that a policy may allow: nonces are remembered for as long.
const LONGEST_VALIDITY: u64 = 3_600;

/// What a route asks of a request.
#[derive(Debug, Clone)]
pub struct RoutePolicy {
    /// The scheme and authority that clients use.
    pub origin: Origin,
    /// The signature.
    pub rules: SignatureRules,
    /// The agent.
    pub agents: AgentPolicy,
    /// Admits every request, and records what it would have done.
    pub observe: bool,
    /// Where agents that are not served go on.
    pub links: Links,
    /// The routes it is for, as `/.well-known/erc8128` names them.
    pub routes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PolicyTable {
    origin: Option<String>,
    allow: Vec<Decision>,
    #[serde(default)]
    routes: Vec<String>,
    #[serde(default)]
    observe: bool,
    #[serde(default)]
    components: Vec<String>,
    #[serde(default = "default_validity")]
    longest_validity: u64,
    #[serde(default)]
    accounts: Accounts,
    #[serde(default)]
    replayable: Replayable,
    #[serde(default)]
    wallets: Vec<Address>,
    #[serde(default)]
    liable: WalletsTable,
    #[serde(default)]
    creators: WalletsTable,
    #[serde(default)]
    remaining_seconds: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Accounts {
    #[default]
    Universal,
    EoaOnly,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Replayable {
    #[default]
    Unsupported,
    Elsewhere,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WalletsTable {
    #[serde(default)]
    allow: Vec<Address>,
    #[serde(default)]
    deny: Vec<Address>,
}

const fn default_validity() -> u64 {
    BASELINE_VALIDITY
}

impl PolicyTable {
    pub(super) fn validated(
        self,
        origin: &Origin,
        dialects: &[Dialect],
        chain: u64,
        links: &Links,
    ) -> anyhow::Result<RoutePolicy> {
        let origin = match &self.origin {
            Some(text) => Origin::parse(text).context("origin: must be a scheme and a host")?,
            None => origin.clone(),
        };
        ensure!(!self.allow.is_empty(), "allow: must name the decisions that are served");
        ensure!(
            (BASELINE_VALIDITY..=LONGEST_VALIDITY).contains(&self.longest_validity),
            "longest-validity: must be from {BASELINE_VALIDITY} to {LONGEST_VALIDITY} seconds"
        );
        for component in &self.components {
            let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
            ensure!(
                !component.is_empty() && component.bytes().all(is_plain),
                "components: {component:?} must be the name of a header in lower case"
            );
        }
        ensure!(
            self.routes.is_empty() || self.origin.is_none(),
            "routes: are listed for the gate's own origin, and this policy has another"
        );
        for route in &self.routes {
            ensure!(is_route(route), "routes: {route:?} must be a path, a path and /*, or default");
        }
        Ok(RoutePolicy {
            origin,
            rules: SignatureRules {
                chain,
                dialects: dialects.to_vec(),
                components: self.components,
                longest_validity: self.longest_validity,
                posture: match self.accounts {
                    Accounts::Universal => Posture::Universal,
                    Accounts::EoaOnly => Posture::EoaOnly,
                },
                without_nonce: match self.replayable {
                    Replayable::Unsupported => WithoutNonce::Unknown,
                    Replayable::Elsewhere => WithoutNonce::ElsewhereOnly,
                },
                principals: self.wallets,
            },
            agents: AgentPolicy {
                allow: self.allow,
                liable: self.liable.into(),
                creators: self.creators.into(),
                remaining_seconds: self.remaining_seconds,
            },
            observe: self.observe,
            links: links.clone(),
            routes: self.routes,
        })
    }
}

/// Whether a text is a key of `route_policies` (ERC-8128, section 7).
fn is_route(text: &str) -> bool {
    let path = text.strip_suffix("/*").unwrap_or(text);
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"*?#".contains(&byte);
    text == "default" || (text.starts_with('/') && path.bytes().all(is_plain))
}

impl From<WalletsTable> for Wallets {
    fn from(table: WalletsTable) -> Self {
        Self { allow: table.allow, deny: table.deny }
    }
}
