//! Bodies, of which no more is read than is of use: a client's, which are few and small, and those of replies.

use registry_core::api::error::Error;
use worker::{
    js_sys::{Function, JSON, Promise, Reflect, Uint8Array},
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
    collect(&stream, max_bytes).await
}

/// Bytes that are read of a stream at once, first and at most.
const PIECE_BYTES: [u32; 2] = [32 * 1024, 512 * 1024];

/// What a `ReadableStream` of bytes has until its end; `None` where that is more than `max_bytes`. It is read into one buffer, which goes
/// there and back, and is exchanged for a larger one while there is more: each read leaves kilobytes of objects behind until V8
/// collects all.
pub(crate) async fn collect(stream: &JsValue, max_bytes: usize) -> Result<Option<Vec<u8>>, JsValue> {
    let method = |object: &JsValue, name: &str| -> Result<Function, JsValue> {
        Ok(Reflect::get(object, &name.into())?.unchecked_into())
    };
    let reader = method(stream, "getReader")?.call1(stream, &JSON::parse(r#"{"mode":"byob"}"#)?)?;
    let read = method(&reader, "read")?;
    let (value, done) = (JsValue::from("value"), JsValue::from("done"));
    let [mut size, most] = PIECE_BYTES;
    let mut buffer = Uint8Array::new_with_length(size);
    // Whatever is there: what is too large by then need not be waited for.
    let mut options = JSON::parse(r#"{"min":1}"#)?;
    let mut body = Vec::new();
    loop {
        let read = JsFuture::from(Promise::from(read.call2(&reader, &buffer, &options)?)).await?;
        if Reflect::get(&read, &done)?.is_truthy() {
            return Ok(Some(body));
        }
        let piece: Uint8Array = Reflect::get(&read, &value)?.unchecked_into();
        let (begin, length) = (body.len(), piece.length() as usize);
        if begin.saturating_add(length) > max_bytes {
            return Ok(None);
        }
        body.resize(begin + length, 0);
        if let Some(end) = body.get_mut(begin..) {
            piece.copy_to(end);
        }
        if size < most && body.len() >= size as usize {
            size *= 4;
            buffer = Uint8Array::new_with_length(size);
            options = JSON::parse(&format!(r#"{{"min":{size}}}"#))?;
        } else {
            buffer = Uint8Array::new(&piece.buffer());
        }
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
