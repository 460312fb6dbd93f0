//! The read API's description: `read_api.json`, completed from the core's types.
//!
//! `read_api.json` is OpenAPI, but for three abbreviations:
//!
//! - `{NAME}` is one of [`limits`], as a number where it is the whole value.
//! - A string in a list of parameters stands for that parameter of `components/parameters`.
//! - A list under `headers` names headers of `components/headers`.

use std::collections::BTreeMap;

use alloy_primitives::U256;
use anyhow::ensure;
use openapi::{Schemas, error, response};
use registry_core::{
    agent::AgentId,
    error::{Code, Error, ErrorBody},
    filter::{NUMBERED_MAX, TEXT_MAX},
    index::LIST_IN_MEMORY_MAX,
    route::{
        AGENTS_LIMIT_DEFAULT, AGENTS_LIMIT_MAX, CHANGES_LIMIT_DEFAULT, CHANGES_LIMIT_MAX,
        HISTORY_LIMIT_DEFAULT, HISTORY_LIMIT_MAX, KYA_BODY_BYTES_MAX, KYA_BODY_MAX, KYA_PATH_MAX,
        REVENUE_LIMIT_DEFAULT, REVENUE_LIMIT_MAX,
    },
    run::RunError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    examples,
    operations::{CACHE_HEADERS, COMMON_HEADERS, Operation, RATE_LIMIT_HEADERS},
};

/// Names constants of the core, each with its value.
macro_rules! named {
    ($($name:ident),* $(,)?) => { [$((stringify!($name), $name.to_string())),*] };
}

/// The limits that `read_api.json` names.
fn limits() -> impl IntoIterator<Item = (&'static str, String)> {
    named![
        AGENTS_LIMIT_DEFAULT,
        AGENTS_LIMIT_MAX,
        CHANGES_LIMIT_DEFAULT,
        CHANGES_LIMIT_MAX,
        HISTORY_LIMIT_DEFAULT,
        HISTORY_LIMIT_MAX,
        KYA_BODY_BYTES_MAX,
        KYA_BODY_MAX,
        KYA_PATH_MAX,
        LIST_IN_MEMORY_MAX,
        NUMBERED_MAX,
        REVENUE_LIMIT_DEFAULT,
        REVENUE_LIMIT_MAX,
        TEXT_MAX,
    ]
}

/// The parts of `read_api.json` that are completed.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Description {
    pub(crate) paths: BTreeMap<String, BTreeMap<String, Operation>>,
    components: Components,
    info: Map<String, Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Components {
    parameters: Map<String, Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// `read_api.json` with its limits written out.
pub(crate) fn source() -> serde_json::Result<Description> {
    let text = limits().into_iter().fold(include_str!("read_api.json").to_owned(), |text, (name, value)| {
        text.replace(&format!("\"{{{name}}}\""), &value).replace(&format!("{{{name}}}"), &value)
    });
    serde_json::from_str(&text)
}

/// The whole description.
pub(crate) fn description() -> anyhow::Result<Value> {
    let mut schemas = Schemas::default();
    let mut answers = examples::answers(&mut schemas);
    // Responses name the shape of errors only by reference.
    schemas.of::<ErrorBody>();
    let Description { mut paths, mut components, mut info, others } = source()?;
    for (path, item) in &mut paths {
        for operation in item.values_mut() {
            let answer = answers.remove(operation.operation_id.as_str());
            operation.complete(path, answer, &components.parameters)?;
        }
    }
    ensure!(answers.is_empty(), "no operation has the answers {:?}", answers.keys());
    // The others are written out where they are named.
    components.parameters.retain(|name, _| name == "If-None-Match");
    components.others.insert("schemas".to_owned(), schemas.into_components().into());
    components.others.insert("responses".to_owned(), failures());
    info.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
    Ok(serde_json::to_value(Description { paths, components, info, others })?)
}

/// The responses of `components/responses`: failures, and 304.
fn failures() -> Value {
    let invalid = Error::InvalidParameter { field: "page", rule: "must be a whole number of at least 1" };
    let unreachable = Error::Chain(RunError::Unreachable);
    let wait = &["Retry-After"][..];
    let failures = [
        ("BadRequest", "A parameter breaks its rule; the message names both.", invalid, &[][..]),
        (
            "NotFound",
            "The registry has no such agent, or the chain no such block.",
            Error::AgentNotFound(AgentId(U256::from(4))),
            &[],
        ),
        (
            "CursorExpired",
            "The changes since this cursor are no longer kept, or the list that it is of was lost.",
            Error::CursorExpired,
            &[],
        ),
        ("BodyTooLarge", "The body is larger than the limit.", Error::BodyTooLarge(KYA_BODY_BYTES_MAX), &[]),
        ("UnsupportedMediaType", "The body is not said to be JSON.", Error::UnsupportedMediaType, &[]),
        ("RateLimited", "Too many requests.", Error::RateLimited, wait),
        ("Failed", "The chain, the registry or the service failed.", unreachable.clone(), wait),
        (
            "IndexRequired",
            "Only an index of the registry can answer this, and the service has none.",
            Error::IndexRequired,
            &[],
        ),
        (
            "Indexing",
            "Only the registry's index can answer this, by its nature or because the registry is too large to be read for one \
             answer; and the index is not filled yet, or does not answer.",
            Error::Indexing { percent: 40 },
            wait,
        ),
        ("NotReady", "No question could be answered now.", unreachable, wait),
    ];
    let kept = response(
        "What you have is current.",
        &[COMMON_HEADERS, RATE_LIMIT_HEADERS, CACHE_HEADERS].concat(),
        &Value::Null,
    );
    let failures = failures.into_iter().map(|(name, description, example, more)| {
        (
            name.to_owned(),
            response(description, &[COMMON_HEADERS, RATE_LIMIT_HEADERS, more].concat(), &body_of(&example)),
        )
    });
    failures.chain([("NotModified".to_owned(), kept)]).collect::<Map<_, _>>().into()
}

/// The body of errors with the status of this one.
fn body_of(example: &Error) -> Value {
    let status = example.code().status();
    let codes: Vec<_> =
        Code::ALL.into_iter().filter(|code| code.status() == status).map(Code::name).collect();
    error(&codes, &ErrorBody { error: example.to_string(), code: example.code().name() })
}
