//! JSON-RPC for a host without an endpoint: a wallet's provider takes one call at a time and gives its result, or
//! throws (EIP-1193).
//!
//! [`calls`] takes a batch apart; [`reply`] makes of the outcomes the reply an endpoint would have sent, errors
//! included. So a run cannot tell the two apart, and a provider's errors are classified as a node's are.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Outcome;

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

/// The body of a reply with these outcomes, by the calls' ids.
pub fn reply(outcomes: impl IntoIterator<Item = (u64, Outcome)>) -> String {
    let answer = |(id, outcome): (u64, Outcome)| {
        let (name, value) = match outcome {
            Ok(result) => ("result", result),
            // Numbers, strings and values with string keys: serialization has nothing to fail on.
            Err(error) => ("error", serde_json::to_string(&error).unwrap_or_else(|_| "{}".to_string())),
        };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"{name}":{value}}}"#)
    };
    let answers: Vec<String> = outcomes.into_iter().map(answer).collect();
    format!("[{}]", answers.join(","))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::rpc::{ErrorObject, Request, decode, encode};

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
        let error = ErrorObject {
            code: 3,
            message: "execution \"reverted\"".to_string(),
            data: Some(json!("0x08c379a0")),
        };
        let outcomes: BTreeMap<u64, Outcome> =
            [(0, Ok("null".to_string())), (1, Ok(r#"{"number":"0x1"}"#.to_string())), (2, Err(error))].into();
        assert_eq!(decode(reply(outcomes.clone()).as_bytes(), &[0, 1, 2]), Ok(outcomes));
    }
}
