//! JSON-RPC for a host without an endpoint: a wallet's provider takes one call at a time and gives its result, or
//! throws (EIP-1193).
//!
//! [`calls`] takes a batch apart; [`reply`] makes of the outcomes the reply an endpoint would have sent, errors
//! included. So a run cannot tell the two apart, and a provider's errors are classified as a node's are.

use serde::Deserialize;
use serde_json::value::RawValue;

/// One call of a batch.
#[derive(Debug, Deserialize)]
pub struct Call<'a> {
    /// Unique within its batch.
    pub id: u64,
    /// Such as `eth_call`.
    pub method: &'a str,
    /// The parameter array.
    #[serde(borrow)]
    params: &'a RawValue,
}

impl Call<'_> {
    /// The parameter array as JSON text.
    pub fn params(&self) -> &str {
        self.params.get()
    }
}

/// The calls in a batch's body, as [`encode`](super::encode) writes it; empty where it is none.
pub fn calls(body: &str) -> Vec<Call<'_>> {
    serde_json::from_str(body)
        .or_else(|_| serde_json::from_str(body).map(|call| Vec::from([call])))
        .unwrap_or_default()
}

/// The body of a reply with these outcomes, by the calls' ids: results and error objects as JSON text.
pub fn reply(outcomes: impl IntoIterator<Item = (u64, Result<String, String>)>) -> String {
    let answer = |(id, outcome): (u64, Result<String, String>)| {
        let (name, value) = match outcome {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"{name}":{value}}}"#)
    };
    let answers: Vec<String> = outcomes.into_iter().map(answer).collect();
    format!("[{}]", answers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eth::rpc::{Request, decode, encode};

    #[test]
    fn a_batch_comes_apart_into_its_calls() {
        let request = |id, params: &str| Request { id, method: "eth_call", params: params.to_string() };
        for count in 1..4 {
            let requests: Vec<Request> =
                (0..count).map(|id| request(id, r#"[{"to":"0x1"},"latest"]"#)).collect();
            let body = encode(&requests);
            let calls: Vec<Request> =
                calls(&body).iter().map(|call| request(call.id, call.params())).collect();
            assert_eq!(calls, requests);
        }
        assert!(calls("<html>").is_empty());
    }

    #[test]
    fn outcomes_put_together_are_read_as_an_endpoints_reply() {
        let error = r#"{"code":3,"message":"execution \"reverted\"","data":"0x08c379a0"}"#;
        let outcomes = [
            (0, Ok("null".to_string())),
            (1, Ok(r#"{"number":"0x1"}"#.to_string())),
            (2, Err(error.to_string())),
        ];
        let reply = reply(outcomes);
        let outcomes = decode(reply.as_bytes(), &[0, 1, 2]).unwrap();
        assert_eq!((&outcomes[&0], &outcomes[&1]), (&Ok("null"), &Ok(r#"{"number":"0x1"}"#)));
        let error = outcomes[&2].as_ref().unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (3, r#"execution "reverted""#));
        assert_eq!(error.data, Some(r#""0x08c379a0""#.to_string()));
    }
}
