//! Reading the relay body: every malformed body is blamed on the right field, and nothing panics.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]

use alloy_primitives::{U256, address, aliases::U48, bytes};
use proptest::prelude::*;
use registry_core::{
    eth::address::AddressError,
    forward::{ForwardRequest, ParseError, Problem, SignedRequest},
};
use serde_json::{Map, Value, json};

fn good() -> Value {
    json!({
        "request": {
            "from": "0xD9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0",
            "to": "0x2efab5b3bef49e56a6ce1dcb1a39ef63c312ea23",
            "value": 0,
            "gas": "300000",
            "nonce": "0x5",
            "deadline": 1_800_000_000,
            "data": "0x0cef23f3"
        },
        "signature": "0xabcd"
    })
}

fn parse(body: &Value) -> Result<SignedRequest, ParseError> {
    SignedRequest::from_json(body.to_string().as_bytes())
}

#[test]
fn reads_mixed_spellings_and_ignores_unknown_fields() {
    let mut body = good();
    body["request"]["chainId"] = json!({"anything": [1, null]});
    body["extra"] = json!("ignored");
    let signed = parse(&body).unwrap();
    let expected = ForwardRequest {
        from: address!("D9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0"),
        to: address!("2efab5b3bef49e56a6ce1dcb1a39ef63c312ea23"),
        value: U256::ZERO,
        gas: U256::from(300_000),
        nonce: U256::from(5),
        deadline: U48::from(1_800_000_000_u64),
        data: bytes!("0cef23f3"),
    };
    assert_eq!(signed.request, expected);
    assert_eq!(signed.signature, bytes!("abcd"));
}

#[test]
fn digits_beyond_a_double_survive() {
    let text = good()
        .to_string()
        .replace("\"0x5\"", "115792089237316195423570985008687907853269984665640564039457584007913129639935");
    assert_eq!(SignedRequest::from_json(text.as_bytes()).unwrap().request.nonce, U256::MAX);
    let text = good().to_string().replace("\"0x5\"", "9007199254740993");
    let nonce = SignedRequest::from_json(text.as_bytes()).unwrap().request.nonce;
    assert_eq!(nonce, U256::from(9_007_199_254_740_993_u64));
}

#[test]
fn a_body_that_is_no_object_is_refused() {
    for body in ["", "   ", "null", "[]", "[{}, \"0x\"]", "\"x\"", "1", "{", "{]", "\u{feff}{}", "{}x"] {
        assert_eq!(SignedRequest::from_json(body.as_bytes()), Err(ParseError::NotJson), "{body}");
    }
    assert_eq!(SignedRequest::from_json(b"{\"request\": \"\xff\"}"), Err(ParseError::NotJson));
    let twice = r#"{"signature":"0x","request":{},"request":{}}"#;
    assert_eq!(SignedRequest::from_json(twice.as_bytes()), Err(ParseError::NotJson));
}

#[test]
fn a_missing_half_gets_the_documented_message() {
    for body in [
        "{}",
        r#"{"request":{}}"#,
        r#"{"signature":"0x00"}"#,
        r#"{"request":null,"signature":"0x"}"#,
        r#"{"request":{},"signature":null}"#,
        r#"{"request":{},"signature":""}"#,
    ] {
        let error = SignedRequest::from_json(body.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "Missing request or signature", "{body}");
    }
}

#[test]
fn a_request_that_is_no_object_is_refused() {
    for request in [json!("x"), json!(1), json!([]), json!(["0x", "0x"]), json!(true)] {
        let mut body = good();
        body["request"] = request;
        assert_eq!(parse(&body), Err(ParseError::NotAnObject));
    }
    let twice = good().to_string().replace("\"value\":0", "\"value\":0,\"value\":1");
    assert_eq!(SignedRequest::from_json(twice.as_bytes()), Err(ParseError::NotAnObject));
}

#[test]
fn each_wrong_field_is_named_with_its_rule() {
    let fields = ["from", "to", "value", "gas", "nonce", "deadline", "data"];
    for name in fields {
        for missing in [true, false] {
            let mut body = good();
            let request = body["request"].as_object_mut().unwrap();
            if missing {
                request.remove(name);
            } else {
                request.insert(name.into(), Value::Null);
            }
            assert_eq!(parse(&body).unwrap_err().to_string(), format!("Invalid request.{name}: missing"));
        }
    }

    let too_large = |bits| Problem::TooLarge { bits };
    let (shape, checksum) = (Problem::Address(AddressError::Shape), Problem::Address(AddressError::Checksum));
    let cases: [(&str, Value, Problem); 22] = [
        ("from", json!(5), Problem::NotAString),
        ("from", json!("D9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0"), shape),
        ("from", json!("0xD9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17"), shape),
        ("from", json!("0xd9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0"), checksum),
        ("to", json!("agent.eth"), shape),
        ("to", json!("0xzz"), shape),
        ("value", json!(1.5), Problem::NotWhole),
        ("value", json!(-1), Problem::Negative),
        ("value", json!("one"), Problem::NotANumber),
        ("gas", json!({"type": "BigNumber"}), Problem::NotANumber),
        ("gas", json!("0x"), Problem::NotANumber),
        ("gas", json!(format!("0x1{}", "0".repeat(64))), too_large(256)),
        ("nonce", json!(true), Problem::NotANumber),
        ("nonce", json!("9".repeat(1000)), too_large(256)),
        ("deadline", json!(281_474_976_710_656_u64), too_large(48)),
        ("deadline", json!("0x1000000000000"), too_large(48)),
        ("deadline", json!("9".repeat(100)), too_large(48)),
        ("data", json!("0xabc"), Problem::OddHex),
        ("data", json!("abcd"), Problem::NotHex),
        ("data", json!("0xgg"), Problem::NotHex),
        ("data", json!([1, 2]), Problem::NotAString),
        ("data", json!(""), Problem::NotHex),
    ];
    for (name, value, problem) in cases {
        let mut body = good();
        body["request"][name] = value.clone();
        let Err(ParseError::Field { field, problem: found }) = parse(&body) else {
            panic!("{name} = {value} was accepted");
        };
        assert_eq!((field, found), (format!("request.{name}").as_str(), problem), "{name} = {value}");
    }
    for (value, problem) in
        [(json!("0xabc"), Problem::OddHex), (json!("abcd"), Problem::NotHex), (json!(7), Problem::NotAString)]
    {
        let mut body = good();
        body["signature"] = value;
        assert_eq!(parse(&body), Err(ParseError::Field { field: "signature", problem }));
    }
}

#[test]
fn the_largest_deadline_fits() {
    let mut body = good();
    body["request"]["deadline"] = json!(281_474_976_710_655_u64);
    assert_eq!(parse(&body).unwrap().request.deadline, U48::MAX);
}

#[test]
fn deep_nesting_in_an_ignored_field_does_not_overflow_the_stack() {
    let deep = format!(
        r#"{{"x":{}1{}, "request":{{}},"signature":"0x00"}}"#,
        "[".repeat(30_000),
        "]".repeat(30_000)
    );
    let error = SignedRequest::from_json(deep.as_bytes()).unwrap_err();
    assert!(matches!(error, ParseError::NotJson | ParseError::Field { .. }));
}

/// Any JSON, biased towards the body's own field names.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "0x[0-9a-fA-F]{0,66}".prop_map(Value::from),
        "[0-9]{0,90}".prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let keys = ["request", "signature", "from", "to", "value", "gas", "nonce", "deadline", "data"];
    let key = prop_oneof![
        9 => prop::sample::select(keys.to_vec()).prop_map(String::from),
        1 => ".{0,4}".prop_map(String::from),
    ];
    leaf.prop_recursive(4, 48, 9, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..9)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = SignedRequest::from_json(&body);
    }

    #[test]
    fn no_json_panics(body in any_json()) {
        let _ = parse(&body);
    }

    #[test]
    fn no_field_value_panics(name in prop::sample::select(vec!["from", "to", "value", "gas", "nonce", "deadline", "data"]), value in any_json()) {
        let mut body = good();
        body["request"][name] = value;
        let _ = parse(&body);
    }

    #[test]
    fn number_spellings_agree(limbs in any::<[u64; 4]>(), keep in 0_usize..=256, upper in any::<bool>()) {
        let value = U256::from_limbs(limbs) >> (256 - keep);
        let hex = if upper { format!("\"0x{value:X}\"") } else { format!("\"{value:#x}\"") };
        for spelling in [value.to_string(), format!("\"{value}\""), hex, format!("\"0x{value:064x}\"")] {
            let text = good().to_string().replace("\"0x5\"", &spelling);
            prop_assert_eq!(SignedRequest::from_json(text.as_bytes()).unwrap().request.nonce, value);
        }
    }
}
