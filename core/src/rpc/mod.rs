//! JSON-RPC 2.0 as text: requests out, answers in. Moving the bytes is the host's part.
//!
//! Answers are matched by id alone. Nodes and the proxies before them shuffle a batch, cut it short, quote
//! ids, or answer it with one lone error object: all of that is survived, because what is missing is asked
//! again. (`alloy-json-rpc` would do for the types, but it needs `std`.)

pub mod classify;
pub mod endpoint;
pub mod provider;
pub mod revert;

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, value::RawValue};

/// One JSON-RPC request. `params` is JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Unique within its batch.
    pub id: u64,
    /// Such as `eth_call`.
    pub method: &'static str,
    /// The parameter array as JSON text.
    pub params: String,
}

/// The error object of a JSON-RPC answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ErrorObject {
    /// The code; what it means depends on the node.
    #[serde(default)]
    pub code: i64,
    /// The message.
    #[serde(default)]
    pub message: String,
    /// Revert data in one of many forms, or anything else.
    #[serde(default)]
    pub data: Option<Value>,
}

/// What one request came to: the result as JSON text, or the node's error.
pub type Outcome = Result<String, ErrorObject>;

/// Why a whole reply is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadReply {
    /// One error object for everything that was asked.
    Refused(ErrorObject),
    /// Not JSON-RPC at all.
    Malformed,
}

/// The body that carries `requests`: an array, or for a single request the bare object, which every node takes.
pub fn encode(requests: &[Request]) -> String {
    let object = |request: &Request| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{}}}"#,
            request.id, request.method, request.params
        )
    };
    match requests {
        [single] => object(single),
        many => {
            let objects: Vec<String> = many.iter().map(object).collect();
            format!("[{}]", objects.join(","))
        }
    }
}

/// The outcomes in a reply, by request id. Ids of `asked` that the reply does not answer are absent.
///
/// # Errors
///
/// [`BadReply`] where not a single request of `asked` is answered.
pub fn decode(body: &[u8], asked: &[u64]) -> Result<BTreeMap<u64, Outcome>, BadReply> {
    let text = core::str::from_utf8(body).map_err(|_| BadReply::Malformed)?;
    let (answers, lone) = match serde_json::from_str::<Vec<Answer<'_>>>(text) {
        Ok(answers) => (answers, false),
        Err(_) => {
            let single = serde_json::from_str::<Answer<'_>>(text).map_err(|_| BadReply::Malformed)?;
            (Vec::from([single]), true)
        }
    };
    let mut outcomes = BTreeMap::new();
    let mut stray = None;
    for answer in answers {
        let id = answer.id();
        let Some(outcome) = answer.outcome() else { continue };
        match (id.filter(|id| asked.contains(id)), outcome) {
            (Some(id), outcome) => {
                outcomes.insert(id, outcome);
            }
            // A lone answer to a lone question needs no id; some proxies answer errors with `"id": null`.
            (None, outcome) if lone && id.is_none() && asked.len() == 1 => {
                outcomes.extend(asked.first().map(|id| (*id, outcome)));
            }
            (None, Err(error)) => stray = Some(error),
            (None, Ok(_)) => {}
        }
    }
    match (outcomes.is_empty(), stray) {
        (false, _) => Ok(outcomes),
        (true, Some(error)) => Err(BadReply::Refused(error)),
        (true, None) => Err(BadReply::Malformed),
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(default)]
    id: Option<Value>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<ErrorField>,
}

/// A result of `null` is a result; only an absent one is none.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Some proxies put a bare string where the error object belongs.
#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorField {
    Object(ErrorObject),
    Text(String),
}

impl Answer<'_> {
    fn id(&self) -> Option<u64> {
        match self.id.as_ref()? {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn outcome(self) -> Option<Outcome> {
        match (self.error, self.result) {
            (Some(ErrorField::Object(error)), _) => Some(Err(error)),
            (Some(ErrorField::Text(message)), _) => Some(Err(ErrorObject { code: 0, message, data: None })),
            (None, Some(result)) => Some(Ok(result.get().to_string())),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ok(text: &str) -> Outcome {
        Ok(text.to_string())
    }

    #[test]
    fn a_single_request_is_a_bare_object_and_several_an_array() {
        let request = |id| Request { id, method: "eth_chainId", params: "[]".to_string() };
        let single = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;
        assert_eq!(encode(&[request(1)]), single);
        assert_eq!(encode(&[request(1), request(2)]), format!("[{single},{}]", single.replace(":1,", ":2,")));
    }

    #[test]
    fn shuffled_short_and_quoted_batches_are_matched_by_id() {
        let body =
            br#"[{"id":"3","result":"c"},{"id":1,"result":"a"},{"id":9,"result":"?"},{"jsonrpc":"2.0"}]"#;
        let outcomes = decode(body, &[1, 2, 3]).unwrap();
        assert_eq!(outcomes, BTreeMap::from([(1, ok("\"a\"")), (3, ok("\"c\""))]));
    }

    #[test]
    fn a_null_result_is_an_answer() {
        let outcomes = decode(br#"{"id":1,"result":null}"#, &[1]);
        assert!(outcomes.is_ok_and(|outcomes| outcomes.get(&1) == Some(&ok("null"))));
    }

    #[test]
    fn a_single_object_answers_a_batch_as_far_as_it_goes() {
        assert_eq!(decode(br#"{"id":2,"result":"b"}"#, &[1, 2]), Ok(BTreeMap::from([(2, ok("\"b\""))])));
        let refused = decode(br#"{"id":null,"error":{"code":-32005,"message":"batch too large"}}"#, &[1, 2]);
        assert!(matches!(refused, Err(BadReply::Refused(error)) if error.code == -32005));
        let alone = decode(br#"{"id":null,"error":{"code":-32005,"message":"slow down"}}"#, &[1]).unwrap();
        assert!(alone[&1].is_err());
    }

    #[test]
    fn what_is_not_json_rpc_is_malformed() {
        for body in ["", "<html>", "null", "[]", "{}", "[1]", r#"{"id":1}"#, "\u{fffd}"] {
            assert_eq!(decode(body.as_bytes(), &[1]), Err(BadReply::Malformed), "{body}");
        }
        assert_eq!(decode(&[0xff], &[1]), Err(BadReply::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(body: Vec<u8>) {
            let _ = decode(&body, &[1, 2]);
        }

        #[test]
        fn any_json_is_survived(body in r#"[\[\]{}",:0-9a-z]{0,60}"#) {
            let _ = decode(body.as_bytes(), &[1, 2]);
        }
    }
}
