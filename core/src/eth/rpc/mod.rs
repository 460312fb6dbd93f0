//! JSON-RPC 2.0 as text: requests out, answers in. Moving the bytes is the host's part.
//!
//! Answers are matched by id alone. Nodes and the proxies before them shuffle a batch, cut it short, quote
//! ids, or answer it with one lone error object: all of that is survived, because what is missing is asked
//! again. Whatever a reply holds, reading it takes little more memory than the reply itself: what nobody asked for is
//! skipped, not kept.
//!
//! The wire types are not `alloy-json-rpc`'s. Its packet of responses is read as a whole: one element without a result, or with an
//! error that is a bare text or has no code, makes it refuse all the others. It also keeps every element, asked for or not: 7 MB
//! for a reply of 1 MB that repeats `{"id":0,"result":0}`. What remains would be a request of four fields and an error of three,
//! at the price of `http` and `tracing` in the Worker's wasm.

pub mod endpoint;
pub mod provider;
pub mod read_error;
pub mod revert;

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ErrorObject {
    /// The code; what it means depends on the node.
    #[serde(default)]
    pub code: i64,
    /// The message.
    #[serde(default)]
    pub message: String,
    /// Revert data in one of many forms, or anything else, as JSON text.
    #[serde(default, deserialize_with = "text")]
    pub data: Option<String>,
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(|raw| Some(raw.get().to_owned()))
}

/// What one request came to: the result as JSON text, or the node's error.
pub type Outcome<'a> = Result<&'a str, ErrorObject>;

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
pub fn decode<'a>(body: &'a [u8], asked: &[u64]) -> Result<BTreeMap<u64, Outcome<'a>>, BadReply> {
    let text = str::from_utf8(body).map_err(|_| BadReply::Malformed)?.trim_start();
    let mut replies = Replies { asked, outcomes: BTreeMap::new(), stray: None };
    let read = if text.starts_with('[') {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        deserializer.deserialize_seq(&mut replies).and_then(|()| deserializer.end())
    } else {
        serde_json::from_str(text).and_then(|answer| replies.take(answer, true))
    };
    if read.is_err() {
        return Err(BadReply::Malformed);
    }
    match (replies.outcomes.is_empty(), replies.stray) {
        (false, _) => Ok(replies.outcomes),
        (true, Some(error)) => Err(BadReply::Refused(error)),
        (true, None) => Err(BadReply::Malformed),
    }
}

/// Sorts answers by id as they are read.
struct Replies<'asked, 'a> {
    asked: &'asked [u64],
    outcomes: BTreeMap<u64, Outcome<'a>>,
    /// The last error that no request asked for.
    stray: Option<ErrorObject>,
}

impl<'a> Replies<'_, 'a> {
    fn take(&mut self, answer: Answer<'a>, lone: bool) -> serde_json::Result<()> {
        // A number, or a number in quotes; nothing else is an id of ours.
        let id = answer.id.and_then(|id| id.get().trim_matches('"').parse().ok());
        let Some(outcome) = answer.outcome()? else { return Ok(()) };
        match (id.filter(|id| self.asked.contains(id)), outcome) {
            (Some(id), outcome) => {
                self.outcomes.insert(id, outcome);
            }
            // A lone answer to a lone question needs no id; some proxies answer errors with `"id": null`.
            (None, outcome) if lone && id.is_none() && self.asked.len() == 1 => {
                self.outcomes.extend(self.asked.first().map(|id| (*id, outcome)));
            }
            (None, Err(error)) => self.stray = Some(error),
            (None, Ok(_)) => {}
        }
        Ok(())
    }
}

impl<'a> Visitor<'a> for &mut Replies<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of JSON-RPC answers")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut answers: A) -> Result<(), A::Error> {
        while let Some(answer) = answers.next_element()? {
            self.take(answer, false).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// A value of `null` is there; only an absent one is not.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Answer<'a> {
    fn outcome(&self) -> serde_json::Result<Option<Outcome<'a>>> {
        let error = match self.error.map(RawValue::get).filter(|error| *error != "null") {
            // Some proxies put a bare string where the error object belongs.
            Some(text) if text.starts_with('"') => {
                Some(ErrorObject { code: 0, message: serde_json::from_str(text)?, data: None })
            }
            Some(object) => Some(serde_json::from_str(object)?),
            None => None,
        };
        Ok(match (error, self.result) {
            (Some(error), _) => Some(Err(error)),
            (None, result) => result.map(|result| Ok(result.get())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ok(text: &str) -> Outcome<'_> {
        Ok(text)
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
