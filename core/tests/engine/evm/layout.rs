//! The tables of `core::evidence` against solc's output for `AgentRegistry`.

use alloy_primitives::{U256, keccak256};
use registry_core::evidence::{AGENT_REGISTRY_CODE_HASH, FORWARDER_PLACES, Field, GracePeriod, Layout};
use serde_json::Value;

use super::chain::{artifact, compiled};

fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap()
}

#[test]
fn the_layout_is_the_one_that_the_compiler_made() {
    let compiled = compiled("AgentRegistry");
    let (variables, types) = (&compiled["storageLayout"]["storage"], &compiled["storageLayout"]["types"]);
    let records = "t_mapping(t_uint256,t_struct(AgentRecord)_storage)";
    let members = &types[types[records]["value"].as_str().unwrap()]["members"];
    let (layout, record) = (Layout::AGENT_REGISTRY, Layout::AGENT_REGISTRY.record);
    let GracePeriod::Slot(grace) = layout.attestation_grace_period else { panic!("it is a variable") };
    // A variable with a slot of its own.
    let whole = |slot: U256| Field { slot: slot.to(), offset: 0, bytes: 32 };
    for (of, name, field, kind) in [
        (variables, "walletToAgent", whole(layout.wallet_to_agent), "mapping(address => uint256)"),
        (variables, "attestationGracePeriod", whole(grace), "uint256"),
        (variables, "_agents", whole(layout.agents), types[records]["label"].as_str().unwrap()),
        (members, "creator", record.creator, "address"),
        (members, "haftungsperson", record.haftungsperson, "address"),
        (members, "agentWallet", record.agent_wallet, "address"),
        (members, "operationalScope", whole(U256::from(record.operational_scope)), "string"),
        (members, "status", record.status, "enum AgentRegistry.Status"),
        (members, "registeredAt", record.registered_at, "uint64"),
        (members, "lastAttestation", record.last_attestation, "uint64"),
    ] {
        let found = of.as_array().unwrap().iter().find(|variable| variable["label"] == name).unwrap();
        let of_kind = &types[found["type"].as_str().unwrap()];
        let [offset, bytes] = [&found["offset"], &of_kind["numberOfBytes"]].map(|it| number(it) as u8);
        assert_eq!(field, Field { slot: number(&found["slot"]), offset, bytes }, "{name}");
        assert_eq!(of_kind["label"], kind, "{name}");
    }
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
