//! Requests to the bindings of a Worker: assets and Durable Objects. The library's own `Request` and
//! `Response` would add kilobytes of conversions.

use serde::{Serialize, de::DeserializeOwned};
use worker::{
    Result, Stub,
    js_sys::{ArrayBuffer, Function, Promise, Reflect, Uint8Array},
    wasm_bindgen::{JsCast as _, JsValue},
    wasm_bindgen_futures::JsFuture,
    web_sys::{RequestInit, Response},
};

/// Sends a request to a binding. Errors: the binding's exception.
pub async fn fetch(binding: &JsValue, url: &str, init: &RequestInit) -> Result<Response> {
    let fetch: Function = Reflect::get(binding, &"fetch".into())?.unchecked_into();
    let response: Promise = fetch.call2(binding, &url.into(), init)?.unchecked_into();
    Ok(JsFuture::from(response).await?.unchecked_into())
}

/// Creates a request that posts this as JSON. Errors: the body has no form in JSON.
pub fn json(body: &impl Serialize) -> Result<RequestInit> {
    let init = RequestInit::new();
    init.set_method("POST");
    init.set_body(&serde_json::to_string(body)?.into());
    Ok(init)
}

/// Sends a request to an object. Any valid URL will do: an object has one endpoint. Errors: the object's
/// exception.
pub async fn call(object: Stub, init: &RequestInit) -> Result<Response> {
    fetch(&object.into_rpc(), "https://object/", init).await
}

/// Returns the response, where its status is 200. Errors: every other status.
pub fn ok(response: Response) -> Result<Response> {
    match response.status() {
        200 => Ok(response),
        status => Err(format!("status {status}").into()),
    }
}

/// Sends a request to an object, and reads its response; both are JSON. Errors: the object's exception, every
/// status but 200, and a response of another type.
pub async fn ask<A: DeserializeOwned>(object: Stub, request: &impl Serialize) -> Result<A> {
    from_json(&ok(call(object, &json(request)?).await?)?).await
}

/// Reads a response's body from JSON. Errors: a body that breaks off or is of another type.
pub async fn from_json<A: DeserializeOwned>(response: &Response) -> Result<A> {
    Ok(serde_json::from_str(&text(response).await?)?)
}

/// Reads a response's body as bytes. Errors: a body that breaks off.
pub async fn bytes(response: &Response) -> Result<Vec<u8>> {
    let buffer: ArrayBuffer = JsFuture::from(response.array_buffer()?).await?.unchecked_into();
    let bytes = Uint8Array::new(&buffer).to_vec();
    // Frees its memory: V8 would let tens of megabytes gather before it collects them.
    let _ = buffer.transfer_with_length(0);
    Ok(bytes)
}

/// Reads a response's body as text. Errors: a body that breaks off.
pub async fn text(response: &Response) -> Result<String> {
    Ok(JsFuture::from(response.text()?).await?.as_string().unwrap_or_default())
}
