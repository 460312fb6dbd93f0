//! Operations of the read API: the parts that follow from the path, the parameters and the core's rules.

use anyhow::Context as _;
use openapi::response;
use registry_core::api::route::Route;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::examples;

/// Headers of all answers.
pub(crate) const COMMON_HEADERS: &[&str] = &["X-Request-Id", "Cache-Control"];
/// Headers of answers that count against the rate limit.
pub(crate) const RATE_LIMIT_HEADERS: &[&str] =
    &["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy"];
/// Headers of answers that may be cached.
const CACHE_HEADERS: &[&str] = &["ETag", "Age", "X-Cache"];

/// An operation of `read_api.json`, and once completed of the description.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ApiOperation {
    pub(crate) operation_id: String,
    tags: Vec<String>,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_body: Option<Value>,
    #[serde(default)]
    responses: Map<String, Value>,
}

/// A response of `read_api.json`, which has only the parts that cannot be derived.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ResponseSource {
    description: String,
    headers: Vec<String>,
    content: Value,
    links: Option<Value>,
}

impl ResponseSource {
    /// Returns the whole response, with these headers beside its own, and this content in place of its own.
    pub(crate) fn complete(self, headers: &[&str], content: Option<Value>) -> Value {
        let own = self.headers.iter().map(String::as_str);
        let headers: Vec<&str> = headers.iter().copied().chain(own).collect();
        let mut complete = response(&self.description, &headers, &content.unwrap_or(self.content));
        if let (Some(links), Some(complete)) = (self.links, complete.as_object_mut()) {
            complete.insert("links".to_owned(), links);
        }
        complete
    }
}

impl ApiOperation {
    /// Writes out the parameters, and the 200 with this content. Operations that the core answers get their
    /// caching and failures from its rules; all others have them in `read_api.json`.
    pub(crate) fn complete(
        &mut self,
        path: &str,
        content: Option<Value>,
        shared: &Map<String, Value>,
    ) -> anyhow::Result<()> {
        for parameter in self.parameters.iter_mut().flatten() {
            if let Value::String(name) = parameter {
                *parameter = shared.get(name).with_context(|| format!("no parameter {name}"))?.clone();
            }
        }
        let source = self.responses.remove("200").unwrap_or_else(|| json!({}));
        let mut source: ResponseSource = serde_json::from_value(source)?;
        if source.description.is_empty() {
            source.description.clone_from(&self.summary);
        }
        let mut headers = Vec::new();
        if let Some(endpoint) = self.endpoint(path) {
            // Tokens and streams are never cached.
            let is_document = Route::media_type(&target(path)).is_none();
            let ttl = if is_document { endpoint.cache_scope().default_seconds() } else { 0 };
            let (is_indexed, needs_index) = (is_indexed(&target(path)), needs_index(&target(path)));
            self.responses.extend(self.failures(&endpoint, ttl > 0, is_indexed, needs_index));
            headers.extend([COMMON_HEADERS, RATE_LIMIT_HEADERS].concat());
            headers.extend(self.has("limit").then_some("Link"));
            let verdicts = ["/api/v1/kya", "/api/v1/changes", "/api/v1/evidence", "/api/v1/token"];
            let is_about_verdicts = verdicts.iter().any(|at| path.starts_with(at));
            headers.extend(is_about_verdicts.then_some("KYA-Registry"));
            let parameters = self.parameters.get_or_insert_default();
            if ttl > 0 {
                headers.extend(CACHE_HEADERS);
                headers.extend(is_indexed.then_some("X-As-Of-Block"));
                parameters.push(json!({ "$ref": "#/components/parameters/If-None-Match" }));
                *self.description.get_or_insert_default() += &format!(" Kept for up to {ttl} seconds.");
            }
        }
        self.responses.insert("200".to_owned(), source.complete(&headers, content));
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        let mut parameters = self.parameters.iter().flatten();
        parameters.any(|parameter| parameter.get("name").is_some_and(|known| known == name))
    }

    /// Returns the question that the operation asks the core; `None` for an operation of the host.
    fn endpoint(&self, path: &str) -> Option<Route> {
        let Some(body) = &self.request_body else { return Route::parse(&target(path)).ok() };
        let example = body.pointer("/content/application~1json/example")?.to_string();
        Route::parse_post(path, example.as_bytes()).ok()
    }

    /// Returns the responses beside the 200 of an operation that the core answers, by status.
    fn failures(
        &self,
        endpoint: &Route,
        is_cached: bool,
        is_indexed: bool,
        needs_index: bool,
    ) -> Vec<(String, Value)> {
        let is_post = self.request_body.is_some();
        // `Accept` is negotiated for these alone.
        let is_verdict = endpoint.is_about_wallets() || matches!(endpoint, Route::Evidence(_));
        let responses = [
            ("304", "NotModified", is_cached),
            ("400", "BadRequest", is_post || self.parameters.is_some()),
            ("404", "NotFound", self.has("id") || self.has("block")),
            ("406", "NotAcceptable", is_verdict),
            ("410", "CursorExpired", self.has("since")),
            ("413", "BodyTooLarge", is_post),
            ("415", "UnsupportedMediaType", is_post),
            ("429", "RateLimited", true),
            ("500", "Failed", true),
            ("501", "NotImplemented", needs_index),
            ("503", "Indexing", is_indexed || needs_index),
        ];
        let possible = responses.into_iter().filter(|(_, _, possible)| *possible);
        let named = |name| json!({ "$ref": format!("#/components/responses/{name}") });
        possible.map(|(status, name, _)| (status.to_owned(), named(name))).collect()
    }
}

/// Returns an example of a request target of this path.
fn target(path: &str) -> String {
    path.replace("{id}", "1").replace("{prefix}", "a").replace("{wallet}", &examples::WALLET.to_string())
}

/// Returns whether answers may come from the index, for some queries at least.
fn is_indexed(target: &str) -> bool {
    [target, &format!("{target}?status=Active")]
        .into_iter()
        .filter_map(parsed)
        .any(|asked| asked.is_indexed())
}

/// Returns whether only an index can answer, for some queries at least.
fn needs_index(target: &str) -> bool {
    [target, &format!("{target}?sort=-id")].into_iter().filter_map(parsed).any(|asked| asked.needs_index())
}

fn parsed(target: &str) -> Option<Route> {
    Route::parse(target).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_api;

    #[test]
    fn every_question_the_router_knows_is_described() {
        let mut known = Vec::new();
        for (path, item) in read_api::source().unwrap().paths {
            let operation = item.into_values().next().unwrap();
            // Paths of one form of an answer have another canonical path.
            let is_form = ["/evidence/", "/token/", "/stream"].iter().any(|form| path.contains(form));
            let Some(endpoint) = operation.endpoint(&path) else { continue };
            if operation.request_body.is_none() && !is_form {
                assert_eq!(endpoint.canonical(), target(&path));
            }
            // A new endpoint needs an arm here, and an operation in `read_api.json`.
            known.push(match endpoint {
                Route::Health => 0,
                Route::Stats => 1,
                Route::DetailedStats => 2,
                Route::Agent { .. } => 3,
                Route::Agents { .. } | Route::Listing(_) => 4,
                Route::Compliance(_) => 5,
                Route::Lineage(_) => 6,
                Route::Revenue { .. } => 7,
                Route::RevenueAggregate => 8,
                Route::Kya { .. } | Route::Evidence(_) => 9,
                Route::KyaList { .. } => 10,
                Route::Ancestors(_) => 11,
                Route::Liable { .. } => 12,
                Route::Changes { .. } => 13,
                Route::History { .. } => 14,
                Route::KyaRange(_) => 15,
            });
        }
        known.sort_unstable();
        known.dedup();
        assert_eq!(known, (0..16).collect::<Vec<_>>());
    }
}
