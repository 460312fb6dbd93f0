//! An independent reading of the registry, to hold the read API's answers against.
//!
//! It asks the contract's own functions one by one, and decodes the answers by the interface the compiler
//! wrote next to the bytecode: no multicall, no block pinning, and no type that the Worker uses too.

use alloy::dyn_abi::{DynSolValue, FunctionExt as _, JsonAbiExt as _};
use alloy::hex::encode_prefixed;
use alloy::json_abi::{JsonAbi, Param};
use alloy::primitives::{Address, U256};
use alloy::providers::{DynProvider, Provider as _};
use alloy::rpc::types::TransactionRequest;
use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::anvil::connect;
use crate::repo::Artifact;

/// A struct of the contract as JSON: its fields by their names in Solidity, addresses in their EIP-55 form.
#[derive(Debug, Clone, PartialEq)]
pub struct Record(pub(crate) Value);

impl Record {
    /// A whole number.
    pub fn number(&self, field: &str) -> u64 {
        self.0[field].as_u64().unwrap_or_else(|| panic!("{field} of {} is no number", self.0))
    }

    /// An address in its EIP-55 form.
    pub fn address(&self, field: &str) -> String {
        self.text(field)
    }

    /// A string, or a hash.
    pub fn text(&self, field: &str) -> String {
        self.0[field].as_str().unwrap_or_else(|| panic!("{field} of {} is no text", self.0)).to_owned()
    }
}

/// All the registry knows about one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// `getAgent`.
    pub record: Record,
    /// `getChildren`.
    pub children: Vec<u64>,
    /// `getRevenueHistory`.
    pub revenue: Vec<Record>,
}

/// Reads one registry.
#[derive(Debug, Clone)]
pub struct Oracle {
    provider: DynProvider,
    abi: JsonAbi,
    registry: Address,
}

impl Oracle {
    /// A reader of the registry at `registry`.
    pub fn new(rpc_url: &str, registry: Address) -> Result<Self> {
        Ok(Self { provider: connect(rpc_url)?, abi: Artifact::load("AgentRegistry")?.abi, registry })
    }

    /// How many agents there are.
    pub async fn total(&self) -> Result<u64> {
        Ok(self.call("nextAgentId", &[]).await?.as_u64().context("a number")? - 1)
    }

    /// For how many seconds an attestation holds.
    pub async fn grace_seconds(&self) -> Result<u64> {
        self.call("attestationGracePeriod", &[]).await?.as_u64().context("a number")
    }

    /// The agent of a wallet; `None` where it has none.
    pub async fn agent_of(&self, wallet: Address) -> Result<Option<u64>> {
        let id = self.call("walletToAgent", &[DynSolValue::Address(wallet)]).await?;
        Ok(id.as_u64().filter(|id| *id > 0))
    }

    /// Everything about one agent.
    pub async fn facts(&self, id: u64) -> Result<Facts> {
        let id = [DynSolValue::Uint(U256::from(id), 256)];
        let revenue = self.call("getRevenueHistory", &id).await?;
        Ok(Facts {
            record: Record(self.call("getAgent", &id).await?),
            children: serde_json::from_value(self.call("getChildren", &id).await?)?,
            revenue: revenue.as_array().into_iter().flatten().cloned().map(Record).collect(),
        })
    }

    /// Everything about every agent, in order of registration: agent `id` is at `id - 1`.
    pub async fn all(&self) -> Result<Vec<Facts>> {
        let mut all = Vec::new();
        for id in 1..=self.total().await? {
            all.push(self.facts(id).await?);
        }
        Ok(all)
    }

    /// What a function with one output returns.
    async fn call(&self, name: &str, arguments: &[DynSolValue]) -> Result<Value> {
        let function = self.abi.function(name).and_then(|overloads| overloads.first());
        let function = function.with_context(|| format!("no {name}"))?;
        let data = function.abi_encode_input(arguments)?;
        let request = TransactionRequest::default().to(self.registry).input(data.into());
        let answer = self.provider.call(request).latest().await.with_context(|| name.to_owned())?;
        let values = function.abi_decode_output(&answer)?;
        Ok(json(values.first().context("a value")?, function.outputs.first().context("an output")?))
    }
}

/// A value as JSON; `parameter` has the names of a struct's fields.
fn json(value: &DynSolValue, parameter: &Param) -> Value {
    match value {
        DynSolValue::Bool(flag) => (*flag).into(),
        DynSolValue::Uint(number, _) => number.to::<u64>().into(),
        DynSolValue::Address(address) => address.to_checksum(None).into(),
        DynSolValue::FixedBytes(word, _) => encode_prefixed(word).into(),
        DynSolValue::String(text) => text.as_str().into(),
        DynSolValue::Array(items) => items.iter().map(|item| json(item, parameter)).collect(),
        DynSolValue::Tuple(fields) => {
            let named = parameter.components.iter().zip(fields);
            Value::Object(named.map(|(field, value)| (field.name.clone(), json(value, field))).collect())
        }
        other => panic!("the registry has no {other:?}"),
    }
}
