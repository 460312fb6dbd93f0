//! The headers of the read API's answers: `components/headers`.

use openapi::header;
use serde_json::{Value, json};

/// On every answer.
pub(crate) const EVERY: &[&str] = &["X-Request-Id", "Cache-Control"];
/// The client's standing with the limiter, where there is one.
pub(crate) const STANDING: &[&str] =
    &["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy"];
/// On answers that may be kept.
pub(crate) const KEPT: &[&str] = &["ETag", "Age", "X-Cache"];

/// All of them, described.
pub(crate) fn headers() -> Value {
    let text = json!({ "type": "string" });
    let count = json!({ "type": "integer", "minimum": 0 });
    json!({
        "X-Request-Id": header(
            "Names the request in the service's log. A client's own is taken over: 1 to 64 letters, digits, `-_.:`.",
            true,
            &json!({ "type": "string", "pattern": "^[0-9A-Za-z_.:-]{1,64}$" }),
            &json!("9f2c1a7be0d43"),
        ),
        "Cache-Control": header(
            "`no-store`, or for how many seconds the answer may be kept from when it was made (RFC 9111): `Age` of them are over.",
            true,
            &json!({ "type": "string", "pattern": "^(no-store|public, max-age=[0-9]+)$" }),
            &json!("public, max-age=300"),
        ),
        "ETag": header(
            "The same for answers that differ only in when they were given. For `If-None-Match`.",
            false,
            &json!({ "type": "string", "pattern": "^W/\"[^\"]+\"$" }),
            &json!("W/\"7c1f0a39be52d846\""),
        ),
        "Age": header("Seconds since the chain was asked, rounded up.", false, &count, &json!(12)),
        "X-Cache": header(
            "`HIT` where the chain was not asked for this request.",
            false,
            &json!({ "type": "string", "enum": ["HIT", "MISS"] }),
            &json!("HIT"),
        ),
        "Link": header(
            "The list's other pages, as far as there are any: `first`, `prev`, `next`, `last` (RFC 8288); with a cursor `first` and `next`.",
            true,
            &text,
            &json!("</api/v1/agents?limit=2>; rel=\"first\", </api/v1/agents?page=2&limit=2>; rel=\"next\", \
                    </api/v1/agents?page=2&limit=2>; rel=\"last\""),
        ),
        "X-As-Of-Block": header(
            "The block that the answer is as of, where it comes from the registry's index.",
            false,
            &count,
            &json!(41_230_017),
        ),
        "X-RateLimit-Limit": header("Requests a client may make in a window.", false, &count, &json!(60)),
        "X-RateLimit-Remaining": header("Requests left in this window.", false, &count, &json!(41)),
        "X-RateLimit-Reset": header("When the next window begins, in unix seconds.", false, &count, &json!(1_772_366_460)),
        "RateLimit": header(
            "What is left (`r`), and in how many seconds there is more (`t`).",
            false,
            &text,
            &json!("\"default\";r=41;t=18"),
        ),
        "RateLimit-Policy": header(
            "The quota (`q`) and its window in seconds (`w`).",
            false,
            &text,
            &json!("\"default\";q=60;w=60"),
        ),
        "Retry-After": header("Seconds after which another try makes sense.", false, &count, &json!(18)),
    })
}
