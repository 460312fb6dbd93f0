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

/// The response of a binding: to a GET, or to a POST with this body.
pub(crate) async fn fetch(binding: &JsValue, url: &str, body: Option<&str>) -> Result<Response> {
    let init = RequestInit::new();
    if let Some(body) = body {
        init.set_method("POST");
        init.set_body(&body.into());
    }
    let fetch: Function = Reflect::get(binding, &"fetch".into())?.unchecked_into();
    let response: Promise = fetch.call2(binding, &url.into(), &init)?.unchecked_into();
    Ok(JsFuture::from(response).await?.unchecked_into())
}

/// Sends a request to an object as JSON. Any valid URL will do: an object has one endpoint.
///
/// # Errors
///
/// What the object throws, and every status but 200.
pub(crate) async fn post(object: Stub, request: &impl Serialize) -> Result<Response> {
    let body = serde_json::to_string(request)?;
    let response = fetch(&object.into_rpc(), "https://object/", Some(&body)).await?;
    match response.status() {
        200 => Ok(response),
        status => Err(format!("status {status}").into()),
    }
}

/// Sends a request to an object, and reads its response; both are JSON.
///
/// # Errors
///
/// Those of [`post`], and a response of another type.
pub(crate) async fn ask<A: DeserializeOwned>(object: Stub, request: &impl Serialize) -> Result<A> {
    let response = post(object, request).await?;
    Ok(serde_json::from_str(&text(&response).await?)?)
}

/// A response's body, as bytes.
pub(crate) async fn bytes(response: &Response) -> Result<Vec<u8>> {
    let buffer: ArrayBuffer = JsFuture::from(response.array_buffer()?).await?.unchecked_into();
    let bytes = Uint8Array::new(&buffer).to_vec();
    // Frees its memory: V8 would let tens of megabytes gather before it collects them.
    let _ = buffer.transfer_with_length(0);
    Ok(bytes)
}

/// A response's body.
pub(crate) async fn text(response: &Response) -> Result<String> {
    Ok(JsFuture::from(response.text()?).await?.as_string().unwrap_or_default())
}
