//! Requests to what is bound to a Worker: assets, and objects. The library's own `Request` and `Response` would bring kilobytes of
//! conversions along.

use worker::{
    Result, Stub,
    js_sys::{Function, Promise, Reflect},
    wasm_bindgen::{JsCast as _, JsValue},
    wasm_bindgen_futures::JsFuture,
    web_sys::{RequestInit, Response},
};

/// What `binding` answers: to a GET, or to a POST with this body.
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

/// What an object answers. It knows what it is about: the URL only has to be one.
pub(crate) async fn ask(object: Stub, body: &str) -> Result<Response> {
    fetch(&object.into_rpc(), "https://object/", Some(body)).await
}

/// A response's body.
pub(crate) async fn text(response: &Response) -> Result<String> {
    Ok(JsFuture::from(response.text()?).await?.as_string().unwrap_or_default())
}
