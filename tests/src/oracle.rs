//! An independent reading of the registry, to hold the read API's answers against.
//!
//! It asks the contract's own functions one by one, and decodes the answers by the interface the compiler
//! wrote next to the bytecode: no multicall, no block pinning, and no type that the Worker uses too.

use std::collections::BTreeMap;

use alloy::dyn_abi::{DynSolValue, FunctionExt as _, JsonAbiExt as _};
use alloy::json_abi::{Function, JsonAbi, Param};
use alloy::primitives::{Address, U256};
use alloy::providers::{DynProvider, Provider as _};
use alloy::rpc::types::TransactionRequest;
use anyhow::{Context as _, Result};

use crate::anvil::connect;
use crate::repo::Artifact;

/// A struct of the contract: its fields by their names in Solidity.
#[derive(Debug, Clone, PartialEq)]
pub struct Record(BTreeMap<String, DynSolValue>);

impl Record {
    /// An unsigned integer that fits 64 bits.
    pub fn number(&self, field: &str) -> u64 {
        self.0[field].as_uint().unwrap_or_else(|| panic!("{field} is no number")).0.to()
    }

    /// An address in its EIP-55 form.
    pub fn address(&self, field: &str) -> String {
        self.0[field].as_address().unwrap_or_else(|| panic!("{field} is no address")).to_checksum(None)
    }

    /// 32 bytes as 0x-prefixed lower-case hexadecimal digits.
    pub fn word(&self, field: &str) -> String {
        self.0[field]
            .as_fixed_bytes()
            .map(|(word, _)| alloy::hex::encode_prefixed(word))
            .unwrap_or_else(|| panic!("{field}"))
    }

    /// A string.
    pub fn text(&self, field: &str) -> String {
        self.0[field].as_str().unwrap_or_else(|| panic!("{field} is no text")).to_owned()
    }

    /// A boolean.
    pub fn flag(&self, field: &str) -> bool {
        self.0[field].as_bool().unwrap_or_else(|| panic!("{field} is no boolean"))
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
        Ok(single_number(&self.call("nextAgentId", &[]).await?)? - 1)
    }

    /// For how many seconds an attestation holds.
    pub async fn grace_seconds(&self) -> Result<u64> {
        single_number(&self.call("attestationGracePeriod", &[]).await?)
    }

    /// The agent of a wallet; `None` where it has none.
    pub async fn agent_of(&self, wallet: Address) -> Result<Option<u64>> {
        let id = single_number(&self.call("walletToAgent", &[DynSolValue::Address(wallet)]).await?)?;
        Ok((id > 0).then_some(id))
    }

    /// Everything about one agent.
    pub async fn facts(&self, id: u64) -> Result<Facts> {
        let id = [DynSolValue::Uint(U256::from(id), 256)];
        let record = self.call("getAgent", &id).await?;
        let children = self.call("getChildren", &id).await?;
        let revenue = self.call("getRevenueHistory", &id).await?;
        let children = children[0].as_array().context("an array")?;
        let reports = revenue[0].as_array().context("an array")?;
        Ok(Facts {
            record: self.record("getAgent", &record[0])?,
            children: children.iter().filter_map(DynSolValue::as_uint).map(|(child, _)| child.to()).collect(),
            revenue: reports
                .iter()
                .map(|report| self.record("getRevenueHistory", report))
                .collect::<Result<_>>()?,
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

    async fn call(&self, function: &str, arguments: &[DynSolValue]) -> Result<Vec<DynSolValue>> {
        let function = self.function(function)?;
        let data = function.abi_encode_input(arguments)?;
        let request = TransactionRequest::default().to(self.registry).input(data.into());
        let answer = self.provider.call(request).latest().await.with_context(|| function.name.clone())?;
        Ok(function.abi_decode_output(&answer)?)
    }

    fn function(&self, name: &str) -> Result<&Function> {
        self.abi.function(name).and_then(|overloads| overloads.first()).with_context(|| format!("no {name}"))
    }

    /// The struct `function` returns, alone or in an array, under its names.
    fn record(&self, function: &str, value: &DynSolValue) -> Result<Record> {
        let output: &Param = self.function(function)?.outputs.first().context("an output")?;
        let fields = value.as_tuple().context("a struct")?;
        Ok(Record(
            output.components.iter().map(|field| field.name.clone()).zip(fields.iter().cloned()).collect(),
        ))
    }
}

fn single_number(values: &[DynSolValue]) -> Result<u64> {
    Ok(values.first().and_then(DynSolValue::as_uint).context("a number")?.0.to())
}
