//! The tables of `core::evidence` against what solc says of `AgentRegistry`.

use alloy_primitives::{U256, keccak256};
use registry_core::evidence::{AGENT_REGISTRY_CODE_HASH, FORWARDER_PLACES, Field, GracePeriod, Layout};
use serde_json::Value;

use super::chain::{artifact, compiled};

/// The member of a struct, or the contract's variable, with this name: its slot, and what it is.
fn variable<'a>(members: &'a Value, name: &str) -> &'a Value {
    let found = members.as_array().unwrap().iter().find(|member| member["label"] == name);
    found.unwrap_or_else(|| panic!("there is no {name}"))
}

fn slot(variable: &Value) -> u64 {
    variable["slot"].as_str().unwrap().parse().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap()
}

#[test]
fn the_layout_is_the_one_that_the_compiler_made() {
    let compiled = compiled("AgentRegistry");
    let (variables, types) = (&compiled["storageLayout"]["storage"], &compiled["storageLayout"]["types"]);
    let layout = Layout::AGENT_REGISTRY;

    let wallets = variable(variables, "walletToAgent");
    assert_eq!(layout.wallet_to_agent, U256::from(slot(wallets)));
    assert_eq!(types[wallets["type"].as_str().unwrap()]["label"], "mapping(address => uint256)");
    let grace = variable(variables, "attestationGracePeriod");
    assert_eq!(layout.attestation_grace_period, GracePeriod::Slot(U256::from(slot(grace))));
    assert_eq!(grace["type"], "t_uint256");
    let agents = variable(variables, "_agents");
    assert_eq!(layout.agents, U256::from(slot(agents)));

    let mapping = &types[agents["type"].as_str().unwrap()];
    assert_eq!(mapping["key"], "t_uint256");
    let members = &types[mapping["value"].as_str().unwrap()]["members"];
    let record = &layout.record;
    for (name, field, kind) in [
        ("creator", record.creator, "address"),
        ("haftungsperson", record.haftungsperson, "address"),
        ("agentWallet", record.agent_wallet, "address"),
        ("status", record.status, "enum AgentRegistry.Status"),
        ("registeredAt", record.registered_at, "uint64"),
        ("lastAttestation", record.last_attestation, "uint64"),
    ] {
        let member = variable(members, name);
        let of = &types[member["type"].as_str().unwrap()];
        let bytes = u8::try_from(number(&of["numberOfBytes"])).unwrap();
        let offset = u8::try_from(number(&member["offset"])).unwrap();
        assert_eq!(field, Field { slot: slot(member), offset, bytes }, "{name}");
        assert_eq!(of["label"], kind, "{name}");
    }
    let scope = variable(members, "operationalScope");
    assert_eq!((record.operational_scope, &scope["type"]), (slot(scope), &"t_string_storage".into()));
}

#[test]
fn the_code_is_the_one_that_the_compiler_made() {
    assert_eq!(AGENT_REGISTRY_CODE_HASH, keccak256(artifact("AgentRegistry", "deployedBytecode")));
    let immutables = compiled("AgentRegistry")["immutableReferences"].clone();
    let immutables = immutables.as_array().unwrap();
    assert_eq!(immutables.len(), 1, "the trusted forwarder is the only one");
    let mut places = Vec::new();
    for place in immutables.iter().flat_map(|places| places.as_array().unwrap()) {
        assert_eq!(place["length"], 32);
        places.push(usize::try_from(number(&place["start"])).unwrap());
    }
    places.sort_unstable();
    assert_eq!(places, FORWARDER_PLACES);
}
