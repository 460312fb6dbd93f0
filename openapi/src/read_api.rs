//! The read API's description, put together.

use alloy_primitives::U256;
use openapi::{Schemas, body, error, response};
use registry_core::{
    api::error::{Error, ErrorBody},
    api::health::Ready,
    api::route::KYA_BODY_BYTES_MAX,
    chain::{QueryError, RunError},
    registry::agent::AgentId,
    registry::error_code::Code,
};
use serde_json::{Map, Value, json};

use crate::{
    examples,
    headers::{self, EVERY, KEPT, STANDING},
    operations,
};

const ABOUT: &str = "\
Is this wallet a registered AI agent, is it compliant, and who is liable for it? Answers are read from an on-chain \
registry, each from one block, and kept for minutes at the edge.

- Every path takes GET, HEAD and OPTIONS, but for `/api/v1/kya`, which takes POST; any other method is a 405 with `Allow`. Any \
web page may read the answers.
- Errors are `{\"error\": message, \"code\": code}`. Messages may change; codes are a closed set.
- Unknown query parameters are ignored; a known one given twice is a 400. Paths have no trailing slash.
- Numbers keep all their digits, up to 2^256 - 1 and beyond for totals: read them with a parser that does, too.";

/// The whole description.
pub(crate) fn description() -> Value {
    let mut schemas = Schemas::default();
    let mut paths = operations::paths(&mut schemas);
    paths.extend(about_the_service(&mut schemas));
    // The errors' shape is only named in responses, which refer to it.
    schemas.of::<ErrorBody>();
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Agent registry: read API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [],
        "tags": [
            { "name": "KYA", "description": "Know your agent: what to ask before serving one." },
            { "name": "Agents", "description": "Records, compliance, lineage." },
            { "name": "Revenue", "description": "What agents reported." },
            { "name": "Statistics", "description": "The registry as a whole." },
            { "name": "Operations", "description": "For monitors, load balancers and other programs." },
        ],
        "paths": paths,
        "components": {
            "schemas": schemas.into_components(),
            "headers": headers::headers(),
            "parameters": {
                "If-None-Match": {
                    "name": "If-None-Match", "in": "header",
                    "description": "The `ETag` of an answer you have: 304 where it is current.",
                    "schema": { "type": "string" },
                },
            },
            "responses": failures(),
        },
    })
}

/// The answers that are no good answers, by name.
fn failures() -> Value {
    let refused = [EVERY, STANDING].concat();
    let with_wait = [refused.as_slice(), &["Retry-After"]].concat();
    let invalid = Error::InvalidParameter { field: "page", rule: "must be a whole number of at least 1" };
    let unknown = Error::from(QueryError::AgentNotFound(AgentId(U256::from(4))));
    let silent = Error::from(RunError::Unreachable);
    let kept = [EVERY, STANDING, KEPT].concat();
    json!({
        "NotModified": response("What you have is current.", &kept, &Value::Null),
        "BadRequest": response("A parameter breaks its rule; the message names both.", &refused, &of(400, &invalid)),
        "NotFound": response("The registry has no such agent, or the chain no such block.", &refused, &of(404, &unknown)),
        "CursorExpired": response(
            "The changes since this cursor are no longer kept, or the list that it is of was lost.",
            &refused,
            &of(410, &Error::CursorExpired),
        ),
        "BodyTooLarge": response(
            "The body is larger than any good one.",
            &refused,
            &of(413, &Error::BodyTooLarge(KYA_BODY_BYTES_MAX)),
        ),
        "UnsupportedMediaType": response(
            "The body is not said to be JSON.",
            &refused,
            &of(415, &Error::UnsupportedMediaType),
        ),
        "RateLimited": response("Too many requests.", &with_wait, &of(429, &Error::RateLimited)),
        "Failed": response("The chain, the registry or the service failed.", &with_wait, &of(500, &silent)),
        "IndexRequired": response(
            "Only an index of the registry can tell, and the service keeps none.",
            &refused,
            &of(501, &Error::IndexRequired),
        ),
        "Indexing": response(
            "Only the registry's index can tell, as the registry is too large to be read for one answer or the question is one for an index; and the index is not filled yet, or does not answer.",
            &with_wait,
            &of(503, &Error::Indexing { percent: 40 }),
        ),
        "NotReady": response("No question could be answered now.", &with_wait, &of(500, &silent)),
    })
}

/// The body of errors with this status of their own.
fn of(status: u16, example: &Error) -> Value {
    let codes = Code::all().filter(|code| code.status() == status);
    let example = ErrorBody { error: example.to_string(), code: example.code().name() };
    error(&codes.map(Code::name).collect::<Vec<_>>(), &example)
}

/// What is answered without a question to the registry.
fn about_the_service(schemas: &mut Schemas) -> Map<String, Value> {
    let live = json!({ "type": "object", "properties": { "live": { "const": true } }, "required": ["live"] });
    let mut paths = Map::new();
    let mut add = |path: &str, id: &str, summary: &str, responses: Value| {
        let operation = json!({
            "operationId": id, "tags": ["Operations"], "summary": summary, "responses": responses,
        });
        paths.insert(path.to_owned(), json!({ "get": operation }));
    };
    add(
        "/livez",
        "isLive",
        "Whether the service runs",
        json!({
            "200": response("It does.", EVERY, &body(&live, &json!({ "live": true }))),
        }),
    );
    let with_standing = [EVERY, STANDING].concat();
    let ready = body(&schemas.of::<Ready>(), &examples::ready());
    add(
        "/readyz",
        "isReady",
        "Whether a question could be answered now",
        json!({
            "200": response("It could.", &with_standing, &ready),
            "429": { "$ref": "#/components/responses/RateLimited" },
            "503": { "$ref": "#/components/responses/NotReady" },
        }),
    );
    for (path, id, summary, media_type) in [
        ("/openapi.json", "getDescription", "This description", "application/json"),
        (
            "/.well-known/api-catalog",
            "getCatalog",
            "Where the API's description is (RFC 9727)",
            "application/linkset+json",
        ),
        ("/llms.txt", "getIntroduction", "An introduction for language models", "text/plain"),
    ] {
        let schema = if media_type.ends_with("json") {
            json!({ "type": "object" })
        } else {
            json!({ "type": "string" })
        };
        let kept = [EVERY, KEPT].concat();
        add(
            path,
            id,
            summary,
            json!({
                "200": response(summary, &kept, &json!({ media_type: { "schema": schema } })),
                "304": { "$ref": "#/components/responses/NotModified" },
            }),
        );
    }
    paths
}
