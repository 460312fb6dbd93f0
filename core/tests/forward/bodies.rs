//! Reading the relay body: the error of a malformed body names the right field.

use alloy_primitives::{Bytes, U256, address, aliases::U48, bytes};
use registry_core::eth::address::AddressError;
use registry_core::forward::{ForwardRequest, ParseError, Problem, SignedRequest};
use serde_json::{Value, json};

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
fn a_recovery_id_of_0_or_1_is_read_as_27_or_28_and_no_other_signature_is_changed() {
    let read = |signature: Vec<u8>| {
        let mut body = good();
        body["signature"] = json!(Bytes::from(signature));
        parse(&body).unwrap().signature
    };
    for (v, expected) in [(0, 27), (1, 28), (27, 27), (28, 28), (2, 2), (29, 29)] {
        assert_eq!(read([vec![7; 64], vec![v]].concat())[..], [vec![7; 64], vec![expected]].concat()[..]);
    }
    for length in [1, 64, 66] {
        assert_eq!(read(vec![1; length])[..], vec![1; length][..]);
    }
}

#[test]
fn what_is_no_body_gets_the_documented_error() {
    let refused = |body: &[u8]| SignedRequest::from_json(body).unwrap_err();
    let twice = r#"{"signature":"0x","request":{},"request":{}}"#;
    for body in ["", "   ", "null", "[]", "[{}, \"0x\"]", "\"x\"", "1", "{", "{]", "\u{feff}{}", "{}x", twice]
    {
        assert_eq!(refused(body.as_bytes()), ParseError::NotJson, "{body}");
    }
    assert_eq!(refused(b"{\"request\": \"\xff\"}"), ParseError::NotJson);
    // Deep nesting in an ignored field does not overflow the stack.
    let deep = ["[".repeat(30_000), "]".repeat(30_000)].join("1");
    let deep = refused(format!(r#"{{"x":{deep},"request":{{}},"signature":"0x00"}}"#).as_bytes());
    assert!(matches!(deep, ParseError::Field { .. }), "{deep:?}");
    for body in [
        "{}",
        r#"{"request":{}}"#,
        r#"{"signature":"0x00"}"#,
        r#"{"request":null,"signature":"0x"}"#,
        r#"{"request":{},"signature":null}"#,
        r#"{"request":{},"signature":""}"#,
    ] {
        assert_eq!(refused(body.as_bytes()).to_string(), "Missing request or signature", "{body}");
    }
    let twice = good().to_string().replace("\"value\":0", "\"value\":0,\"value\":1");
    assert_eq!(refused(twice.as_bytes()), ParseError::NotAnObject);
    for request in [json!("x"), json!(1), json!([]), json!(["0x", "0x"]), json!(true)] {
        let mut body = good();
        body["request"] = request;
        assert_eq!(parse(&body), Err(ParseError::NotAnObject));
    }
}

#[test]
fn each_wrong_field_is_named_with_its_rule() {
    let fields = ["from", "to", "value", "gas", "nonce", "deadline", "data"];
    for name in fields {
        let [mut absent, mut null] = [good(), good()];
        absent["request"].as_object_mut().unwrap().remove(name);
        null["request"][name] = Value::Null;
        for body in [absent, null] {
            assert_eq!(parse(&body).unwrap_err().to_string(), format!("Invalid request.{name}: missing"));
        }
    }

    let too_large = |bits| Problem::TooLarge { bits };
    let (shape, checksum) = (Problem::Address(AddressError::Shape), Problem::Address(AddressError::Checksum));
    let (long, beyond) = ("9".repeat(1_000), format!("0x1{}", "0".repeat(64)));
    let short = "0xD9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17";
    let typo = "0xd9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0";
    for (name, problem, values) in [
        ("from", Problem::NotAString, json!([5])),
        ("from", shape, json!([short, &format!("{short}a0")[2..]])),
        ("from", checksum, json!([typo])),
        ("to", shape, json!(["agent.eth", "0xzz"])),
        ("value", Problem::NotWhole, json!([1.5])),
        ("value", Problem::Negative, json!([-1])),
        ("value", Problem::NotANumber, json!(["one"])),
        ("gas", Problem::NotANumber, json!([{"type": "BigNumber"}, "0x"])),
        ("gas", too_large(256), json!([beyond])),
        ("nonce", Problem::NotANumber, json!([true])),
        ("nonce", too_large(256), json!([long])),
        ("deadline", too_large(48), json!([281_474_976_710_656_u64, "0x1000000000000", long])),
        ("data", Problem::OddHex, json!(["0xabc"])),
        ("data", Problem::NotHex, json!(["abcd", "0xgg", ""])),
        ("data", Problem::NotAString, json!([[1, 2]])),
        ("signature", Problem::OddHex, json!(["0xabc"])),
        ("signature", Problem::NotHex, json!(["abcd"])),
        ("signature", Problem::NotAString, json!([7])),
    ] {
        for value in values.as_array().unwrap() {
            let mut body = good();
            let field = if name == "signature" { name.to_owned() } else { format!("request.{name}") };
            *body.pointer_mut(&format!("/{}", field.replace('.', "/"))).unwrap() = value.clone();
            let Err(ParseError::Field { field: found, problem: why }) = parse(&body) else {
                panic!("{name} = {value} was accepted");
            };
            assert_eq!((found, why), (&*field, problem), "{name} = {value}");
        }
    }
    let mut body = good();
    body["request"]["deadline"] = json!(281_474_976_710_655_u64);
    assert_eq!(parse(&body).unwrap().request.deadline, U48::MAX, "the largest fits");
}
