//! The read API's description: `read_api.json`, completed from the core's types.
//!
//! `read_api.json` is OpenAPI, but for three abbreviations:
//!
//! - `{NAME}` is one of [`limits`], as a number where it is the whole value.
//! - A string in a list of parameters stands for that parameter of `components/parameters`.
//! - A list under `headers` names headers of `components/headers`. Those that all answers carry are added.
//!
//! The content of answers and errors comes from [`examples`], by the name of the operation or the response.

use std::collections::BTreeMap;

use anyhow::ensure;
use openapi::{Schemas, error};
use registry_core::{
    api::error::{Error, ErrorBody},
    api::route::{
        AGENTS_LIMIT_DEFAULT, AGENTS_LIMIT_MAX, CHANGES_LIMIT_DEFAULT, CHANGES_LIMIT_MAX,
        HISTORY_LIMIT_DEFAULT, HISTORY_LIMIT_MAX, KYA_BODY_BYTES_MAX, KYA_BODY_MAX, KYA_PATH_MAX,
        REVENUE_LIMIT_DEFAULT, REVENUE_LIMIT_MAX,
    },
    index::LIST_IN_MEMORY_MAX,
    registry::agent_query::{NUMBERED_MAX, TEXT_MAX},
    registry::error_code::Code,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    examples,
    operations::{ApiOperation, COMMON_HEADERS, RATE_LIMIT_HEADERS, ResponseSource},
};

/// Names constants of the core, each with its value.
macro_rules! named {
    ($($name:ident),* $(,)?) => { [$((stringify!($name), $name.to_string())),*] };
}

/// Returns the limits that `read_api.json` names.
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
    pub(crate) paths: BTreeMap<String, BTreeMap<String, ApiOperation>>,
    components: Components,
    info: Map<String, Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Components {
    parameters: Map<String, Value>,
    responses: Map<String, Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Returns `read_api.json` with its limits written out.
pub(crate) fn source() -> serde_json::Result<Description> {
    let text = limits().into_iter().fold(include_str!("read_api.json").to_owned(), |text, (name, value)| {
        text.replace(&format!("\"{{{name}}}\""), &value).replace(&format!("{{{name}}}"), &value)
    });
    serde_json::from_str(&text)
}

/// Returns the whole description.
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
    components.responses = failures(components.responses)?;
    info.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
    Ok(serde_json::to_value(Description { paths, components, info, others })?)
}

/// Returns the responses of `components/responses`, with the bodies of those that are errors.
fn failures(sources: Map<String, Value>) -> anyhow::Result<Map<String, Value>> {
    let mut examples = examples::failures();
    let headers = [COMMON_HEADERS, RATE_LIMIT_HEADERS].concat();
    let complete = |(name, source): (String, Value)| {
        let content = examples.remove(name.as_str()).map(|example| body_of(&example));
        let source: ResponseSource = serde_json::from_value(source)?;
        Ok((name, source.complete(&headers, content)))
    };
    let failures = sources.into_iter().map(complete).collect();
    ensure!(examples.is_empty(), "no response has the examples {:?}", examples.keys());
    failures
}

/// Returns the body of errors with the status of this one.
fn body_of(example: &Error) -> Value {
    let status = example.code().status();
    let codes: Vec<_> = Code::all().filter(|code| code.status() == status).map(Code::name).collect();
    error(&codes, &ErrorBody { error: example.to_string(), code: example.code().name() })
}
