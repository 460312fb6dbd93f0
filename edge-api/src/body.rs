//! The bodies of clients' requests: size-capped, and JSON alone.

use registry_core::api::error::Error;
use registry_fetch::body::{self, BodyReader};
use worker::web_sys;

/// Reads the body of a request, which must be JSON of at most `max_bytes`. No more than that is read. Errors:
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
    match body::read(request, max_bytes, BodyReader::Byob).await {
        Ok(Some(body)) => Ok(body),
        Ok(None) => Err(Error::BodyTooLarge(max_bytes)),
        Err(_) => Ok(Vec::new()),
    }
}

/// Returns whether a `Content-Type` is JSON's, with parameters or without.
fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
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
