//! The transport of a run's batches: to a JSON-RPC endpoint with `fetch`, or call by call to a wallet's
//! provider (EIP-1193).

use futures_util::future::join_all;
use host_kit::RpcReply;
use js_sys::{Function, JSON, Promise};
use registry_browser_values::{member::member, value::text_of};
use registry_core::{
    chain::{Batch, Failure},
    eth::redact::Redactor,
    eth::rpc::{
        ErrorPayload,
        endpoint::RpcEndpoint,
        provider::{Call, calls, reply},
    },
};
use registry_fetch::{RpcPost, body::BodyReader, endpoint_headers, round_trip};
use serde_json::value::RawValue;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::AbortSignal;

/// The name in documents of a chain behind a wallet; for endpoints, it is the first one's origin.
const WALLET: &str = "EIP-1193 provider";

#[wasm_bindgen]
extern "C" {
    /// An object that answers one call at a time, such as `window.ethereum`.
    pub type Provider;

    #[wasm_bindgen(method, catch)]
    fn request(this: &Provider, call: &JsValue) -> Result<JsValue, JsValue>;
}

/// The way to a chain.
pub(crate) enum Transport {
    /// JSON-RPC endpoints, and the function to reach them with.
    Endpoints { list: Vec<RpcEndpoint>, fetch: Function },
    /// A wallet.
    Wallet(Provider),
}

impl Transport {
    /// Returns the number of endpoints.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Endpoints { list, .. } => list.len(),
            Self::Wallet(_) => 1,
        }
    }

    /// Returns the name of the chain's endpoint in documents.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Endpoints { list, .. } => list.first().map(RpcEndpoint::origin).unwrap_or_default(),
            Self::Wallet(_) => WALLET.to_owned(),
        }
    }

    /// Returns a redactor of the endpoints' secrets in nodes' messages.
    pub(crate) fn redactor(&self) -> Redactor {
        match self {
            Self::Endpoints { list, .. } => Redactor::new(list.iter().flat_map(RpcEndpoint::secrets)),
            Self::Wallet(_) => Redactor::default(),
        }
    }

    /// Makes one round trip. Sets `thrown` to the value that a wallet threw, if any: the cause of an error
    /// that follows from the reply.
    pub(crate) async fn post(&self, batch: &Batch, thrown: &mut JsValue) -> Result<RpcReply, Failure> {
        round_trip(batch, async |signal| match self {
            Self::Endpoints { list, fetch } => {
                let endpoint = list.get(batch.endpoint).ok_or(Failure::Unreachable)?;
                post(endpoint, fetch, batch, signal).await
            }
            Self::Wallet(provider) => {
                let body = ask(provider, &batch.body, thrown).await;
                Ok(RpcReply { endpoint: batch.endpoint, status: 200, body })
            }
        })
        .await
    }
}

async fn post(
    endpoint: &RpcEndpoint,
    fetch: &Function,
    batch: &Batch,
    signal: &AbortSignal,
) -> Result<RpcReply, Failure> {
    let headers = endpoint_headers(endpoint).map_err(|_| Failure::Unreachable)?;
    let post = RpcPost { fetch, url: &endpoint.url, headers: &headers, reader: BodyReader::Default };
    let (status, body) = post.send(batch, signal).await?;
    Ok(RpcReply { endpoint: batch.endpoint, status, body })
}

impl Provider {
    /// Casts a value to a provider, if it is one.
    pub(crate) fn of(value: JsValue) -> Option<Self> {
        member(&value, "request")?.is_function().then(|| value.unchecked_into())
    }
}

/// Sends a wallet all calls of a batch at once. Returns the reply's body; `thrown` gets the last error.
async fn ask(provider: &Provider, batch: &str, thrown: &mut JsValue) -> Vec<u8> {
    let outcomes = calls(batch).into_iter().map(async |call| (call.id, outcome(provider, &call).await));
    let mut answers = Vec::new();
    *thrown = JsValue::UNDEFINED;
    for (id, outcome) in join_all(outcomes).await {
        answers.push((
            id,
            outcome.map_err(|error| {
                let payload = error_payload(&error);
                *thrown = error;
                payload
            }),
        ));
    }
    reply(answers).into_bytes()
}

/// Makes a call. Errors: the value that the wallet threw.
async fn outcome(provider: &Provider, call: &Call<'_>) -> Result<Box<RawValue>, JsValue> {
    let call = JSON::parse(&format!(r#"{{"method":"{}","params":{}}}"#, call.method, call.params()))?;
    let result = JsFuture::from(Promise::resolve(&provider.request(&call)?)).await?;
    Ok(json(&result).unwrap_or_default())
}

/// Converts a wallet's error to a node's: both have code, message and data (EIP-1193, EIP-1474).
fn error_payload(error: &JsValue) -> ErrorPayload {
    let field = |name| member(error, name).unwrap_or(JsValue::UNDEFINED);
    // The cast saturates; a code that is no number becomes 0.
    let code = field("code").as_f64().unwrap_or_default() as i64;
    let message = field("message").as_string().unwrap_or_else(|| text_of(error));
    ErrorPayload { code, message: message.into(), data: json(&field("data")) }
}

/// Converts a value to JSON; `None` where it has none, such as for `undefined`.
fn json(value: &JsValue) -> Option<Box<RawValue>> {
    RawValue::from_string(JSON::stringify(value).ok()?.as_string()?).ok()
}
