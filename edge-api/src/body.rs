//! Bodies, of which no more is read than is of use: a client's, which are few and small, and those of replies.

use registry_core::error::Error;
use worker::{
    js_sys::{Function, Promise, Reflect, Uint8Array},
    wasm_bindgen::{JsCast, JsValue},
    wasm_bindgen_futures::JsFuture,
    web_sys,
};

/// The body of a request that has to be JSON of at most `max_bytes`. No more than that is read, whatever the client sends.
///
/// # Errors
///
/// [`Error::UnsupportedMediaType`], [`Error::BodyTooLarge`]; a body that breaks off is an empty one.
pub(crate) async fn read(request: &web_sys::Request, max_bytes: usize) -> Result<Vec<u8>, Error> {
    let header = |name: &str| request.headers().get(name).ok().flatten();
    if !is_json(&header("Content-Type").unwrap_or_default()) {
        return Err(Error::UnsupportedMediaType);
    }
    let announced = header("Content-Length").and_then(|length| length.parse().ok());
    if announced.is_some_and(|length: usize| length > max_bytes) {
        return Err(Error::BodyTooLarge(max_bytes));
    }
    match stream(request, max_bytes).await {
        Ok(Some(body)) => Ok(body),
        Ok(None) => Err(Error::BodyTooLarge(max_bytes)),
        Err(_) => Ok(Vec::new()),
    }
}

/// Whether that is JSON's media type, with parameters or without.
fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}

async fn stream(request: &web_sys::Request, max_bytes: usize) -> Result<Option<Vec<u8>>, JsValue> {
    let stream = Reflect::get(request, &"body".into())?;
    if stream.is_null() {
        return Ok(Some(Vec::new()));
    }
    let get_reader: Function = Reflect::get(&stream, &"getReader".into())?.unchecked_into();
    collect(&get_reader.call0(&stream)?, max_bytes).await
}

/// What the reader of a `ReadableStream` gives until its end; `None` where that is more than `max_bytes`.
pub(crate) async fn collect(reader: &JsValue, max_bytes: usize) -> Result<Option<Vec<u8>>, JsValue> {
    let read: Function = Reflect::get(reader, &"read".into())?.unchecked_into();
    let mut body = Vec::new();
    loop {
        let piece = JsFuture::from(Promise::from(read.call0(reader)?)).await?;
        if Reflect::get(&piece, &"done".into())?.is_truthy() {
            return Ok(Some(body));
        }
        let piece = Uint8Array::new(&Reflect::get(&piece, &"value".into())?);
        if body.len().saturating_add(piece.length() as usize) > max_bytes {
            return Ok(None);
        }
        body.extend(piece.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_media_type_alone() {
        for good in ["application/json", "application/json; charset=utf-8", " Application/JSON "] {
            assert!(is_json(good), "{good}");
        }
        for bad in ["", "text/plain", "application/jsonp", "application/x-www-form-urlencoded", "text/json"] {
            assert!(!is_json(bad), "{bad}");
        }
    }
}
