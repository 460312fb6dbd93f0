//! Reading the input of a forward request: domain, rules and calls, each wrong field named with its rule.

use alloy_primitives::{Address, B256, U256};
use registry_core::forward::{
    ParseError, Rules, attestation_from_json, domain, domain_from_json, registration_from_json,
    rules_from_json,
};
use serde_json::{Value, json};

const NUMBER: &str = "must be a whole number: a JSON number, a decimal string or a 0x-hex string";

/// Formats a repeated byte as hex.
fn bytes(byte: u8, count: usize) -> String {
    format!("0x{}", format!("{byte:02x}").repeat(count))
}

fn registration() -> Value {
    json!({
        "haftungsperson": bytes(1, 20),
        "agentWallet": bytes(2, 20),
        "constitutionHash": bytes(3, 32),
        "capabilityHash": bytes(4, 32),
        "operationalScope": "税務 \"申告\"",
        "parentAgentId": U256::MAX.to_string(),
        "selfModifying": true,
    })
}

/// Checks that reading refuses `good` with each of these fields replaced (for `null`, also left out), and
/// names the field and its problem.
fn are_refused<T>(good: &Value, rows: &[(&str, Value, &str)], read: impl Fn(&[u8]) -> Result<T, ParseError>) {
    for (field, value, problem) in rows {
        let [mut replaced, mut without] = [good.clone(), good.clone()];
        replaced[field] = value.clone();
        without.as_object_mut().unwrap().remove(*field);
        for body in std::iter::once(replaced).chain(value.is_null().then_some(without)) {
            let error = read(body.to_string().as_bytes()).err().expect("a wrong field is refused");
            assert_eq!((error.code(), error.status()), ("INVALID_FIELD", 400));
            assert_eq!(error.to_string(), format!("Invalid {field}: {problem}"));
        }
    }
}

#[test]
fn a_registration_becomes_its_call() {
    let call = registration_from_json(registration().to_string().as_bytes()).ok().unwrap();
    assert_eq!((call.haftungsperson, call.agentWallet), (Address::repeat_byte(1), Address::repeat_byte(2)));
    assert_eq!((call.constitutionHash, call.capabilityHash), (B256::repeat_byte(3), B256::repeat_byte(4)));
    assert_eq!(call.operationalScope, "税務 \"申告\"");
    assert_eq!((call.parentAgentId, call.selfModifying), (U256::MAX, true));
}

#[test]
fn each_wrong_field_of_a_registration_is_named_with_its_rule() {
    const ADDRESS: &str = "must be 0x followed by 40 hexadecimal digits";
    let rows = [
        ("haftungsperson", json!(null), "missing"),
        ("haftungsperson", json!("me"), ADDRESS),
        ("agentWallet", json!(2), "must be a string"),
        ("agentWallet", json!("0x"), ADDRESS),
        ("constitutionHash", json!("0xab"), "must be 32 bytes, 0x and 64 hex digits"),
        ("constitutionHash", json!("abcd"), "must be 0x-prefixed hex"),
        ("capabilityHash", json!("0xabc"), "must have an even number of hex digits"),
        ("capabilityHash", json!(null), "missing"),
        ("operationalScope", json!(7), "must be a string"),
        ("parentAgentId", json!(-1), "must not be negative"),
        ("parentAgentId", json!(null), "missing"),
        ("selfModifying", json!("true"), "must be true or false"),
        ("selfModifying", json!(1), "must be true or false"),
    ];
    are_refused(&registration(), &rows, registration_from_json);
    assert_eq!(attestation_from_json("\"0x7\"").ok().unwrap().agentId, U256::from(7));
    let error = attestation_from_json("").err().unwrap();
    assert_eq!(error.to_string(), format!("Invalid agentId: {NUMBER}"));
    for none in ["", "[]", "null", "7", "{", r#"{"agentWallet":"0x","agentWallet":"0x"}"#] {
        let error = registration_from_json(none.as_bytes()).err().unwrap();
        assert_eq!(error.to_string(), "Invalid registration: must be an object with each field once");
    }
}

#[test]
fn domain_and_rules_are_read_from_one_object() {
    let forwarder = Address::repeat_byte(5);
    let relayer = json!({
        "chainId": "0x14a34", "forwarder": bytes(5, 20), "registry": bytes(6, 20), "maxGas": 1_000_000,
    });
    let text = relayer.to_string();
    assert_eq!(domain_from_json(text.as_bytes()).unwrap(), domain(84_532, forwarder));
    let rules = Rules { registry: Address::repeat_byte(6), max_gas: 1_000_000 };
    assert_eq!(rules_from_json(text.as_bytes()), Ok(rules.clone()));
    let uncapped = json!({ "registry": bytes(6, 20) }).to_string();
    assert_eq!(rules_from_json(uncapped.as_bytes()), Ok(Rules { max_gas: u64::MAX, ..rules }));

    let rows = [
        ("chainId", json!(null), "missing"),
        ("chainId", json!(1_u64 << 53), "must fit in 53 bits"),
        ("chainId", json!(U256::MAX.to_string()), "must fit in 53 bits"),
        ("chainId", json!("mainnet"), NUMBER),
        ("forwarder", json!(null), "missing"),
    ];
    are_refused(&relayer, &rows, domain_from_json);
    let beyond = json!("0x10000000000000000");
    let rows = [("registry", json!(null), "missing"), ("maxGas", beyond, "must fit in 64 bits")];
    are_refused(&relayer, &rows, rules_from_json);
}
