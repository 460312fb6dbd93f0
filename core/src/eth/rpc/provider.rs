//! JSON-RPC for a host without an endpoint: a wallet's provider takes one call at a time and gives its
//! result, or throws (EIP-1193).
//!
//! [`calls`] takes a batch apart; [`reply`] joins the results into the reply that an endpoint would have
//! sent, errors included. So a run need not know which of the two it talks to, and a provider's errors are
//! classified as a node's are.

use alloy_json_rpc::{Id, Response, ResponsePayload};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ErrorPayload;
use crate::eth::json;

/// One call of a batch.
#[derive(Debug, Deserialize)]
pub struct Call<'a> {
    /// The id, unique within its batch.
    pub id: u64,
    /// The method, such as `eth_call`.
    pub method: &'a str,
    /// The parameter array.
    #[serde(borrow)]
    params: &'a RawValue,
}

impl Call<'_> {
    /// Returns the parameter array as JSON text.
    pub fn params(&self) -> &str {
        self.params.get()
    }
}

/// Parses the calls in a batch's body, as [`encode`](super::encode) writes it; empty if it is none.
pub fn calls(body: &str) -> Vec<Call<'_>> {
    serde_json::from_str(body)
        .or_else(|_| serde_json::from_str(body).map(|call| Vec::from([call])))
        .unwrap_or_default()
}

/// Returns the body of a reply with these results, each with its call's id.
pub fn reply(results: impl IntoIterator<Item = (u64, Result<Box<RawValue>, ErrorPayload>)>) -> String {
    let response = |(id, result): (u64, Result<_, _>)| Response {
        id: Id::Number(id),
        payload: result.map_or_else(ResponsePayload::Failure, ResponsePayload::Success),
    };
    json::text(&results.into_iter().map(response).collect::<Vec<_>>(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eth::rpc::{decode, encode, request};

    #[test]
    fn a_batch_comes_apart_into_its_calls() {
        let params = r#"[{"to":"0x1"},"latest"]"#;
        for count in 1..4 {
            let requests: Vec<_> = (0..count).map(|id| request(id, "eth_call", params.to_owned())).collect();
            let body = encode(&requests);
            let calls = calls(&body);
            let calls = calls.iter().map(|call| (call.id, call.method, call.params()));
            assert!(calls.eq((0..count).map(|id| (id, "eth_call", params))), "{body}");
        }
        assert!(calls("<html>").is_empty());
    }

    #[test]
    fn results_put_together_are_read_as_an_endpoints_reply() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let message = r#"execution "reverted""#;
        let error = ErrorPayload { code: 3, message: message.into(), data: Some(raw(r#""0x08c379a0""#)) };
        let block = r#"{"number":"0x1"}"#;
        let reply = reply([(0, Ok(raw("null"))), (1, Ok(raw(block))), (2, Err(error))]);
        let results = decode(reply.as_bytes(), &[0, 1, 2]).unwrap();
        assert_eq!((results[&0].as_ref().ok(), results[&1].as_ref().ok()), (Some(&"null"), Some(&block)));
        let error = results[&2].as_ref().unwrap_err();
        assert_eq!((error.code, &*error.message), (3, message));
        assert_eq!(error.data.as_ref().unwrap().get(), r#""0x08c379a0""#);
    }
}
