//! The registry and its endpoints, from options or a service's discovery document.

use alloy::primitives::{Address, U256};
use clap::Args;
use registry_core::{
    eth::{
        abi::{
            AgentRecord,
            IAgentRegistry::{getAgentByWalletCall, getAgentCall},
        },
        address, multicall,
        rpc::revert::Revert,
        timestamp::Timestamp,
    },
    registry::{
        agent::Status,
        well_known::{self, WellKnown},
    },
};
use reqwest::Url;
use serde_json::Value;

use crate::{
    chain::{RpcNode, http_url},
    discovery,
    relayer::{self, Relayer},
    report::{CommandFailure, Exit, Result},
};

/// Options that name the registry and its endpoints.
#[derive(Clone, Debug, Args)]
pub struct RegistryAccessOptions {
    /// A service for agents, or a read API: everything that is not given comes from its discovery document.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub at: Option<Url>,
    /// The chain's id.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub chain: Option<u64>,
    /// The registry.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    pub registry: Option<Address>,
    /// An RPC endpoint of the chain. One with a key belongs into the environment.
    #[arg(long, value_name = "URL", env = "KYA_RPC_URL", hide_env_values = true)]
    pub rpc: Option<String>,
    /// A read API, which is asked where there is no RPC endpoint.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub api: Option<Url>,
    /// The gasless relayer. It gets the API key in `KYA_RELAYER_KEY`; a relayer that --at finds does not.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub relayer: Option<Url>,
    /// Multicall3 of the chain.
    #[arg(long, value_name = "0x...", value_parser = address::parse, default_value_t = multicall::CANONICAL_ADDRESS)]
    pub multicall3: Address,
}

/// Parses an agent's id: decimal digits, or hexadecimal ones after `0x`. The parser of `U256` itself reads an
/// empty text as 0, and skips `_`.
pub(crate) fn agent_id(text: &str) -> Result<U256, &'static str> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let id = is_number.then(|| U256::from_str_radix(digits, radix));
    id.and_then(|id| id.ok()).ok_or("must be a number of decimal digits, or 0x and hexadecimal digits")
}

/// A registry and its endpoints.
#[derive(Debug)]
pub struct RegistryAccess {
    /// The chain's id.
    pub chain: u64,
    /// The registry.
    pub registry: Address,
    /// The relayer, where there is one.
    pub relayer: Option<Relayer>,
    /// Source of records.
    pub reader: Reader,
    /// Discovery document of the service, where it was asked.
    pub document: Option<WellKnown>,
}

/// Source of records.
#[derive(Debug)]
pub enum Reader {
    /// An RPC endpoint of the chain.
    Node(RpcNode),
    /// A read API, at this URL.
    Api(Url),
}

impl RegistryAccessOptions {
    /// Checks that the record of an agent to sign for does not come from the service at --at alone, which
    /// could show another agent's. Errors: it does.
    pub fn reads_where_the_user_says(&self) -> Result<()> {
        match self.at.is_none() || self.rpc.is_some() || self.api.is_some() {
            true => Ok(()),
            false => Err(CommandFailure::usage(
                "the service at --at alone would say which agent you sign for: give --rpc, or --api of a read API that you trust",
            )),
        }
    }

    /// Resolves the options to a registry and its endpoints. Errors: something is missing, does not answer,
    /// or contradicts something else.
    pub async fn resolve(&self) -> Result<RegistryAccess> {
        let document = match &self.at {
            Some(url) => Some(discovery::find(url).await?),
            None => None,
        };
        let said = document.as_ref();
        // URLs of other schemes are never asked.
        let first = |urls: &[String]| {
            urls.iter().filter(|url| well_known::is_public(url)).find_map(|url| url.parse().ok())
        };
        let relayer = match &self.relayer {
            Some(url) => Some(Relayer::new(url, std::env::var(relayer::KEY_VARIABLE).ok())?),
            None => {
                said.and_then(|said| first(&said.relayers)).map(|url| Relayer::new(&url, None)).transpose()?
            }
        };
        let terms = match &relayer {
            Some(relayer) if said.is_none() && (self.chain.is_none() || self.registry.is_none()) => {
                Some(relayer.terms().await?)
            }
            _ => None,
        };
        let chain =
            agreed("chain", self.chain, said.map(|said| said.chain_id), terms.map(|terms| terms.chain))?;
        let registry = agreed(
            "registry",
            self.registry,
            said.map(|said| said.registry),
            terms.map(|terms| terms.registry),
        )?;
        if let Some(api) = &self.api {
            // An API without a discovery document is trusted, as the user has named it.
            match discovery::find(api).await {
                Ok(of_api) => {
                    agreed("chain", Some(chain), Some(of_api.chain_id), None)?;
                    agreed("registry", Some(registry), Some(of_api.registry), None)?;
                }
                Err(failure) if failure.exit == Exit::TryAgain => return Err(failure),
                Err(_) => {}
            }
        }
        let api = self.api.clone().or_else(|| first(&said?.read_apis));
        let reader = match (&self.rpc, api) {
            (Some(rpc), _) => Reader::Node(RpcNode::connect(rpc, Some(chain), self.multicall3).await?),
            (None, Some(api)) => Reader::Api(api),
            (None, None) => {
                return Err(CommandFailure::usage("nowhere to read the registry: give --rpc, --api or --at"));
            }
        };
        Ok(RegistryAccess { chain, registry, relayer, reader, document })
    }
}

/// Returns the first value given. Errors: a service's document contradicts the options, or none is given.
fn agreed<T: PartialEq + std::fmt::Display>(
    name: &str,
    given: Option<T>,
    document: Option<T>,
    relayer: Option<T>,
) -> Result<T> {
    match (given, document, relayer) {
        (Some(given), Some(said), _) if given != said => {
            Err(CommandFailure::refused(format!("the service is for the {name} {said}, and not for {given}")))
        }
        (Some(value), ..) | (None, Some(value), _) | (None, None, Some(value)) => Ok(value),
        (None, None, None) => {
            Err(CommandFailure::usage(format!("which {name}? Give --{name}, --at or --relayer")))
        }
    }
}

impl RegistryAccess {
    /// Returns the RPC endpoint, where there is one.
    pub const fn node(&self) -> Option<&RpcNode> {
        match &self.reader {
            Reader::Node(node) => Some(node),
            Reader::Api(_) => None,
        }
    }

    /// Reads the record of a wallet's agent; `None` where none is registered. Errors: it cannot be read.
    pub async fn record_of(&self, wallet: Address) -> Result<Option<AgentRecord>> {
        match &self.reader {
            Reader::Node(node) => {
                let answer = node.call(self.registry, &getAgentByWalletCall { wallet }).await?;
                found(answer, "No agent registered for this wallet")
            }
            Reader::Api(api) => {
                let Some(kya) = discovery::api(api, &format!("kya/{wallet}"), None).await? else {
                    return Ok(None);
                };
                match registered_as(&kya)? {
                    Some(id) => self.record(id).await,
                    None => Ok(None),
                }
            }
        }
    }

    /// Reads the record of an agent; `None` where there is no agent of this id. Errors: it cannot be read.
    pub async fn record(&self, id: U256) -> Result<Option<AgentRecord>> {
        match &self.reader {
            Reader::Node(node) => {
                found(node.call(self.registry, &getAgentCall { agentId: id }).await?, "Agent not found")
            }
            Reader::Api(api) => {
                let Some(agent) = discovery::api(api, &format!("agent/{id}"), None).await? else {
                    return Ok(None);
                };
                from_api(&agent).map(Some)
            }
        }
    }
}

/// Returns the record; `None` where the registry reverts with this message.
fn found(answer: Result<AgentRecord, Revert>, words: &str) -> Result<Option<AgentRecord>> {
    match answer {
        Ok(record) => Ok(Some(record)),
        Err(revert) if revert.message.as_deref() == Some(words) => Ok(None),
        Err(revert) => Err(CommandFailure::refused(format!("the registry refuses: {revert}"))),
    }
}

/// Returns the id of the agent in a read API's verdict; `None` where the wallet has none.
pub(crate) fn registered_as(kya: &Value) -> Result<Option<U256>> {
    let (registered, id) = (kya.get("isRegistered"), kya.pointer("/agent/agentId"));
    match (registered, id.and_then(Value::as_u64)) {
        (Some(Value::Bool(true)), Some(id)) => Ok(Some(U256::from(id))),
        (Some(Value::Bool(false)), _) => Ok(None),
        _ => Err(CommandFailure::try_again("the read API gives no verdict")),
    }
}

/// Parses the record in a read API's answer about an agent.
pub(crate) fn from_api(answer: &Value) -> Result<AgentRecord> {
    let record = answer.get("agent").and_then(parse);
    record.ok_or_else(|| CommandFailure::try_again("the read API's record cannot be read"))
}

fn parse(agent: &Value) -> Option<AgentRecord> {
    let text = |name: &str| agent.get(name)?.as_str();
    let number = |name: &str| agent.get(name)?.as_u64();
    let seconds = |name: &str| Some(Timestamp::parse(text(name)?)?.seconds());
    Some(AgentRecord {
        agentId: U256::from(number("agentId")?),
        creator: text("creator")?.parse().ok()?,
        haftungsperson: text("haftungsperson")?.parse().ok()?,
        agentWallet: text("agentWallet")?.parse().ok()?,
        constitutionHash: text("constitutionHash")?.parse().ok()?,
        capabilityHash: text("capabilityHash")?.parse().ok()?,
        operationalScope: text("operationalScope")?.to_owned(),
        parentAgentId: U256::from(number("parentAgentId")?),
        generation: U256::from(number("generation")?),
        selfModifying: agent.get("selfModifying")?.as_bool()?,
        registeredAt: seconds("registeredAt")?,
        lastAttestation: seconds("lastAttestation")?,
        lastRevenueReport: seconds("lastRevenueReport").unwrap_or_default(),
        status: Status::from_name(text("status")?)? as u8,
    })
}
