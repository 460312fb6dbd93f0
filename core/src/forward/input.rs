//! A client's input for a forward request: the forwarder's domain, the relayer's rules, and the arguments of
//! the call. They are read from JSON as leniently as [`SignedRequest`](super::SignedRequest), with its
//! errors.

use alloy_sol_types::Eip712Domain;
use serde::Deserialize;

use super::{
    ParseError, Problem, Rules, eip712, number,
    parse::{address, field, hash, object, raw_object, string},
};
use crate::eth::abi::IAgentRegistry::{attestComplianceCall, registerAgentCall};

raw_object!(RawDomain { chain_id, forwarder });
raw_object!(RawRules { registry, max_gas });
raw_object!(RawRegistration {
    haftungsperson,
    agent_wallet,
    constitution_hash,
    capability_hash,
    operational_scope,
    parent_agent_id,
    self_modifying,
});

/// Parses the EIP-712 domain from `{chainId, forwarder}`.
///
/// # Errors
/// [`ParseError`], naming the field.
pub fn domain_from_json(json: &[u8]) -> Result<Eip712Domain, ParseError> {
    let raw: RawDomain<'_> = named("domain", json)?;
    Ok(eip712::domain(field("chainId", raw.chain_id, chain_id)?, field("forwarder", raw.forwarder, address)?))
}

/// Parses the relayer's rules from `{registry, maxGas}`. Without `maxGas` there is no cap.
///
/// # Errors
/// [`ParseError`], naming the field.
pub fn rules_from_json(json: &[u8]) -> Result<Rules, ParseError> {
    let raw: RawRules<'_> = named("rules", json)?;
    let max_gas = raw.max_gas.map(|gas| field("maxGas", Some(gas), uint64)).transpose()?;
    Ok(Rules { registry: field("registry", raw.registry, address)?, max_gas: max_gas.unwrap_or(u64::MAX) })
}

/// Parses the arguments of `registerAgent`, by the names of the ABI.
///
/// # Errors
/// [`ParseError`], naming the first field in the order of the ABI that breaks a rule.
pub fn registration_from_json(json: &[u8]) -> Result<registerAgentCall, ParseError> {
    let raw: RawRegistration<'_> = named("registration", json)?;
    Ok(registerAgentCall {
        haftungsperson: field("haftungsperson", raw.haftungsperson, address)?,
        agentWallet: field("agentWallet", raw.agent_wallet, address)?,
        constitutionHash: field("constitutionHash", raw.constitution_hash, hash)?,
        capabilityHash: field("capabilityHash", raw.capability_hash, hash)?,
        operationalScope: field("operationalScope", raw.operational_scope, text)?,
        parentAgentId: field("parentAgentId", raw.parent_agent_id, number::parse)?,
        selfModifying: field("selfModifying", raw.self_modifying, boolean)?,
    })
}

/// Parses the argument of `attestCompliance`: an agent's id.
///
/// # Errors
/// [`ParseError`] if it is not a number.
pub fn attestation_from_json(json: &str) -> Result<attestComplianceCall, ParseError> {
    let agent_id = number::parse(json).map_err(|problem| ParseError::Field { field: "agentId", problem })?;
    Ok(attestComplianceCall { agentId: agent_id })
}

fn named<'a, T: Deserialize<'a>>(name: &'static str, json: &'a [u8]) -> Result<T, ParseError> {
    object(json).ok_or(ParseError::Field { field: name, problem: Problem::NotAnObject })
}

fn uint64(json: &str) -> Result<u64, Problem> {
    u64::try_from(number::parse(json)?).map_err(|_| Problem::TooLarge { bits: 64 })
}

/// Parses a chain id, at most 2^53 - 1: wallets and libraries hold it in a double.
fn chain_id(json: &str) -> Result<u64, Problem> {
    let id = number::parse(json)?;
    u64::try_from(id).ok().filter(|id| *id < 1 << 53).ok_or(Problem::TooLarge { bits: 53 })
}

fn text(json: &str) -> Result<String, Problem> {
    string(json).map(|text| text.into_owned())
}

fn boolean(json: &str) -> Result<bool, Problem> {
    match json {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Problem::NotABoolean),
    }
}
