//! JSON-RPC 2.0 as text: requests out, responses in. The host moves the bytes.
//!
//! The wire types are `alloy-json-rpc`'s; the envelope around them is tolerant. Responses are matched by id
//! alone: nodes and proxies shuffle a batch, cut it short, quote ids, or answer it with one lone error
//! object. The caller asks again for what is missing. Reading a reply takes little more memory than the reply
//! itself: results are slices of the body, and responses to requests that were not sent are skipped.
//!
//! `alloy-json-rpc`'s `ResponsePacket` and `Response` do not read replies here: one element without a result,
//! or with an error that is a bare text or has no code, makes them refuse the whole batch.

pub mod endpoint;
pub mod provider;
pub mod read_error;
pub mod revert;

use std::{collections::BTreeMap, fmt};

use alloy_json_rpc::Id;
pub use alloy_json_rpc::{ErrorPayload, PartiallySerializedRequest as Request};
use alloy_primitives::{Address, B256};
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::eth::json;

/// Creates a request such as `eth_call`. `id` is unique within its batch; `params` is the parameter array as
/// JSON text.
pub fn request(id: u64, method: &'static str, params: String) -> Request {
    // The callers write valid JSON; anything else would be sent as `null` and refused by the node.
    Request::new(method, Id::Number(id), RawValue::from_string(params).unwrap_or_default())
}

/// Creates a request for a contract's account and slots, proved (EIP-1186). `block` is a block's number, tag
/// or hash as JSON.
pub(crate) fn get_proof(id: u64, contract: Address, slots: &[B256], block: &str) -> Request {
    let slots: Vec<String> = slots.iter().map(|slot| format!(r#""{slot:#x}""#)).collect();
    request(id, "eth_getProof", format!(r#"["{contract:#x}",[{}],{block}]"#, slots.join(",")))
}

/// Parses an [`ErrorPayload`] as nodes and proxies send it: any member may be missing or of another type, and
/// any JSON may be in the error's place.
fn lenient_error(text: &str) -> ErrorPayload {
    #[derive(Deserialize)]
    struct ErrorMembers<'a> {
        #[serde(borrow, default)]
        code: Option<&'a RawValue>,
        #[serde(borrow, default)]
        message: Option<&'a RawValue>,
        #[serde(default)]
        data: Option<Box<RawValue>>,
    }
    let text_of = |json: &str| serde_json::from_str(json).unwrap_or_else(|_| json.to_owned());
    let Ok(ErrorMembers { code, message, data }) = serde_json::from_str(text) else {
        return ErrorPayload { code: 0, message: text_of(text).into(), data: None };
    };
    let code = code.and_then(|code| code.get().trim_matches('"').parse().ok()).unwrap_or_default();
    let message = message.map(|message| text_of(message.get())).unwrap_or_default();
    ErrorPayload { code, message: message.into(), data }
}

/// The outcome of one request: the result as JSON text, or the node's error.
pub type RpcResult<'a> = Result<&'a str, ErrorPayload>;

/// Reason why a reply answers none of its batch's requests.
#[derive(Clone, Debug)]
pub enum BadReply {
    /// One error for the whole batch.
    Refused(ErrorPayload),
    /// The body is not JSON-RPC.
    Malformed,
}

/// Returns the body that carries `requests`: an array, or for a single request the bare object, which every
/// node takes.
pub fn encode(requests: &[Request]) -> String {
    let size_hint = requests.iter().map(|request| 96 + request.params.get().len()).sum();
    match requests {
        [single] => json::text(single, size_hint),
        many => json::text(&many, size_hint),
    }
}

/// Parses the results in a reply by request id, for the requests with these ids. Requests without a response
/// are absent.
///
/// # Errors
///
/// [`BadReply`] where no request is answered.
pub fn decode<'a>(body: &'a [u8], ids: &[u64]) -> Result<BTreeMap<u64, RpcResult<'a>>, BadReply> {
    let text = str::from_utf8(body).map_err(|_| BadReply::Malformed)?.trim_start();
    let mut replies = Replies { ids, results: BTreeMap::new(), stray: None };
    let read = if text.starts_with('[') {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        deserializer.deserialize_seq(&mut replies).and_then(|()| deserializer.end())
    } else {
        serde_json::from_str(text).map(|response| replies.take(response, true))
    };
    if read.is_err() {
        return Err(BadReply::Malformed);
    }
    match (replies.results.is_empty(), replies.stray) {
        (false, _) => Ok(replies.results),
        (true, Some(error)) => Err(BadReply::Refused(error)),
        (true, None) => Err(BadReply::Malformed),
    }
}

/// Collects results by id as responses are read.
struct Replies<'ids, 'a> {
    ids: &'ids [u64],
    results: BTreeMap<u64, RpcResult<'a>>,
    /// The last error that belongs to no request.
    stray: Option<ErrorPayload>,
}

impl<'a> Replies<'_, 'a> {
    fn take(&mut self, response: LenientResponse<'a>, lone: bool) {
        // Requests have numbers as ids; some proxies quote them, or write them as fractions.
        let number = |id: &str| id.strip_suffix(".0").unwrap_or(id).parse().ok();
        let id = response.id.and_then(|id| number(id.get().trim_matches('"')));
        let Some(result) = response.result() else { return };
        match (id.filter(|id| self.ids.contains(id)), result) {
            (Some(id), result) => {
                self.results.insert(id, result);
            }
            // A lone response to a lone request needs no id: some proxies answer errors with `"id": null`.
            (None, result) if lone && id.is_none() && self.ids.len() == 1 => {
                self.results.extend(self.ids.first().map(|id| (*id, result)));
            }
            (None, Err(error)) => self.stray = Some(error),
            (None, Ok(_)) => {}
        }
    }
}

impl<'a> Visitor<'a> for &mut Replies<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of JSON-RPC responses")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut responses: A) -> Result<(), A::Error> {
        while let Some(response) = responses.next_element()? {
            self.take(response, false);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct LenientResponse<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Distinguishes `null`, which is a value, from an absent member.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> LenientResponse<'a> {
    fn result(&self) -> Option<RpcResult<'a>> {
        match self.error.map(RawValue::get).filter(|error| *error != "null") {
            Some(error) => Some(Err(lenient_error(error))),
            None => self.result.map(|result| Ok(result.get())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the results by id; `None` for an error.
    fn results<'a>(body: &'a str, ids: &[u64]) -> Vec<(u64, Option<&'a str>)> {
        decode(body.as_bytes(), ids).unwrap().into_iter().map(|(id, result)| (id, result.ok())).collect()
    }

    #[test]
    fn a_single_request_is_a_bare_object_and_several_an_array() {
        let request = |id| request(id, "eth_chainId", "[]".to_string());
        let single = r#"{"method":"eth_chainId","params":[],"id":1,"jsonrpc":"2.0"}"#;
        assert_eq!(encode(&[request(1)]), single);
        assert_eq!(encode(&[request(1), request(2)]), format!("[{single},{}]", single.replace(":1,", ":2,")));
    }

    #[test]
    fn shuffled_short_and_quoted_batches_are_matched_by_id() {
        let body =
            r#"[{"id":"3","result":"c"},{"id":1.0,"result":"a"},{"id":9,"result":"?"},{"jsonrpc":"2.0"}]"#;
        assert_eq!(results(body, &[1, 2, 3]), [(1, Some("\"a\"")), (3, Some("\"c\""))]);
    }

    #[test]
    fn errors_of_any_form_are_errors() {
        for (error, code, message) in [
            (r#"{"message":"slow down"}"#, 0, "slow down"),
            (r#"{"message":"slow down","data":null}"#, 0, "slow down"),
            (r#""slow down""#, 0, "slow down"),
            (r#"{"code":"-32602","message":"no"}"#, -32602, "no"),
            (r#"{"code":"EBUSY","message":null}"#, 0, ""),
            (r#"{"code":-32000,"message":{"en":"no"}}"#, -32000, r#"{"en":"no"}"#),
            ("-32000", 0, "-32000"),
            ("true", 0, "true"),
        ] {
            let body = format!(r#"[{{"id":1,"error":{error}}},{{"id":2,"result":7}}]"#);
            assert_eq!(results(&body, &[1, 2]), [(1, None), (2, Some("7"))]);
            let error = decode(body.as_bytes(), &[1]).unwrap().remove(&1).unwrap().unwrap_err();
            assert_eq!((error.code, &*error.message, error.data.is_none()), (code, message, true));
        }
    }

    #[test]
    fn what_is_not_json_rpc_is_malformed() {
        let bodies = ["", "<html>", "null", "[]", "{}", "[1]", r#"{"id":1}"#, "\u{fffd}"].map(str::as_bytes);
        for body in bodies.into_iter().chain([[0xff].as_slice()]) {
            assert!(matches!(decode(body, &[1]), Err(BadReply::Malformed)), "{body:?}");
        }
    }
}
