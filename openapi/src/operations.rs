//! The questions of the read API, an operation each: what it is called, what it takes, what it answers.

use openapi::{Schemas, body, linked, response};
use registry_core::{
    api::route::{
        AGENTS_LIMIT_DEFAULT, AGENTS_LIMIT_MAX, CHANGES_LIMIT_DEFAULT, CHANGES_LIMIT_MAX,
        HISTORY_LIMIT_DEFAULT, HISTORY_LIMIT_MAX, KYA_BODY_BYTES_MAX, KYA_BODY_MAX, KYA_PATH_MAX,
        REVENUE_LIMIT_DEFAULT, REVENUE_LIMIT_MAX, Route,
    },
    evidence::Evidence,
    index::LIST_IN_MEMORY_MAX,
    registry::agent::Status,
    registry::agent_query::{NUMBERED_MAX, TEXT_MAX},
    registry::kya::Kya,
    registry::page::{AgentList, AgentPage},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    examples,
    headers::{EVERY, KEPT, STANDING},
    parameters::{address, block, count, count_of, cursor, evidence, history, id, wallet},
};

/// One question.
struct Question {
    /// The path, parameters in braces.
    path: &'static str,
    /// What code generators call it.
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    description: String,
    parameters: Vec<Value>,
    /// The body of the request; a question with one is a POST.
    body: Value,
    /// The body of a 200: its schema, and an example.
    content: Value,
    /// Asks for an agent, who may not exist.
    of_agent: bool,
    /// Answers with one page of a list.
    paged: bool,
    /// Where in its answer the id of an agent stands.
    names_agent: Option<&'static str>,
}

/// All of them, by path.
pub(crate) fn paths(schemas: &mut Schemas) -> Map<String, Value> {
    questions(schemas).into_iter().map(|question| (question.path.to_owned(), question.describe())).collect()
}

fn questions(schemas: &mut Schemas) -> Vec<Question> {
    let agent_id = || vec![id()];
    vec![
        Question {
            description: format!(
                "`decision` says what to do: `provision`, serve it; `request_renewal`, ask it to attest; `deny`, refuse, or ask \
                 it to register. The `haftungsperson` is who is liable. A wallet without an agent is not an error. Up to \
                 {KYA_PATH_MAX} wallets, separated by commas, are answered as by `POST /api/v1/kya`. With `evidence=1` the answer is \
                 a document that proves the verdict, at the time of its block, to whoever has a trusted hash of that block."
            ),
            parameters: vec![wallet(), block(), history(), evidence()],
            names_agent: Some("/agent/agentId"),
            content: verdict_or_evidence(schemas),
            ..Question::new("/api/v1/kya/{wallet}", "checkWallet", "KYA", "The verdict on a wallet")
        },
        Question {
            description: format!(
                "The same verdicts, all at one block, in the order of the wallets; what is no wallet is reported in its place. It \
                 counts as one request for each ten wallets. At most {KYA_BODY_MAX} wallets and {KYA_BODY_BYTES_MAX} bytes; the \
                 `Content-Type` has to be `application/json`."
            ),
            parameters: vec![block()],
            body: json!({
                "required": true,
                "content": { "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": { "wallets": {
                            "type": "array", "minItems": 1, "maxItems": KYA_BODY_MAX,
                            "items": { "type": "string" },
                        }},
                        "required": ["wallets"],
                    },
                    "example": { "wallets": [examples::WALLET.to_string(), examples::STRANGER.to_string()] },
                }},
            }),
            ..Question::new("/api/v1/kya", "checkWallets", "KYA", "The verdicts on up to 100 wallets")
                .answers(schemas, &examples::kya_list())
        },
        Question {
            description: "The full record, the ids of its direct children, and where it stands now.".to_owned(),
            parameters: vec![id(), block()],
            of_agent: true,
            ..Question::new("/api/v1/agent/{id}", "getAgent", "Agents", "One agent")
                .answers(schemas, &examples::agent())
        },
        Question {
            description: format!(
                "By ascending id. A `limit` above {AGENTS_LIMIT_MAX} is cut, and the answer's `limit` says so. A page beyond \
                 the end has empty `data`. Parameters beside `page`, `limit` and `status` take an index: 501 where the service keeps none. \
                 The answer tells more of each agent then. Its pages go on with `cursor`, and stay where they are while the registry \
                 grows; with many filters a page may hold fewer agents than `limit` before the last one, the one without `next`."
            ),
            parameters: vec![
                count(
                    "page",
                    &format!("Which page, from 1; in a list that takes an index within its first {NUMBERED_MAX} agents."),
                    1,
                    1,
                ),
                count(
                    "limit",
                    &format!("Agents per page; {AGENTS_LIMIT_MAX} where more are asked for."),
                    1,
                    AGENTS_LIMIT_DEFAULT,
                ),
                json!({
                    "name": "status", "in": "query", "description": "Only agents in this state.",
                    "schema": schemas.of::<Status>(), "example": Status::Active,
                }),
                address("haftungsperson", "Only agents that this person is liable for."),
                address("creator", "Only agents that this wallet registered."),
                count_of("parent", "Only children of this agent; of 0 the roots."),
                count_of("generation", "Only agents so deep in the lineage."),
                json!({
                    "name": "compliant", "in": "query", "description": "Only agents that are compliant, or only others.",
                    "schema": { "type": "boolean" },
                }),
                json!({
                    "name": "q", "in": "query",
                    "description": "Only agents with all of these words in the first 256 bytes of their `operationalScope`; the last may be the \
                        beginning of one. Case makes no difference.",
                    "schema": { "type": "string", "maxLength": TEXT_MAX, "pattern": "[^\\u0000-/:-@\\[-`{-\\u007f]" },
                    "example": "papers",
                }),
                json!({
                    "name": "sort", "in": "query",
                    "description": "With a minus sign the highest first. Agents that are equal in it are sorted by id.",
                    "schema": {
                        "type": "string", "default": "id",
                        "enum": ["id", "-id", "registration", "-registration", "attestation", "-attestation"],
                    },
                }),
                json!({
                    "name": "cursor", "in": "query",
                    "description": "Where to go on: the `next` of an earlier answer to the same question. Not together with `page`.",
                    "schema": { "type": "string", "pattern": "^([0-9]{1,15}-)?[0-9]{1,15}$" },
                }),
            ],
            paged: true,
            names_agent: Some("/data/0/agentId"),
            content: page_or_list(schemas),
            ..Question::new("/api/v1/agents", "listAgents", "Agents", "A page of agents")
        },
        Question {
            description: format!(
                "All agents, the stalest attestation first; equally stale ones by id. With `limit` or `cursor` a page of them: the answer \
                 has its `limit`, and the `next` page's cursor. A `limit` above {AGENTS_LIMIT_MAX} is cut. The whole list of more than {LIST_IN_MEMORY_MAX} \
                 agents is streamed, without an `ETag`, where the service keeps an index."
            ),
            parameters: vec![
                // No default: without it the list is whole.
                json!({
                    "name": "limit", "in": "query",
                    "description": format!("Agents at most; {AGENTS_LIMIT_MAX} where more are asked for, {AGENTS_LIMIT_DEFAULT} with a `cursor` alone."),
                    "schema": { "type": "integer", "minimum": 1 },
                }),
                json!({
                    "name": "cursor", "in": "query", "description": "Where to go on: the `next` of an earlier answer.",
                    "schema": { "type": "string", "pattern": "^[0-9]{1,15}-[0-9]{1,15}$" },
                }),
            ],
            paged: true,
            ..Question::new("/api/v1/agents/compliance", "listCompliance", "Agents", "All agents with compliance")
                .answers(schemas, &examples::compliance())
        },
        Question {
            description: format!(
                "Who is behind this person: how many agents, by status and by compliance, whose attestations lapse next, and a page of \
                 the agents by ascending id. A wallet that no agent names is no error. The answer's `next` is the `cursor` of the next page. \
                 A `limit` above {AGENTS_LIMIT_MAX} is cut, and the answer's `limit` says so."
            ),
            parameters: vec![
                wallet(),
                count(
                    "limit",
                    &format!("Agents at most; {AGENTS_LIMIT_MAX} where more are asked for."),
                    1,
                    AGENTS_LIMIT_DEFAULT,
                ),
                cursor(),
            ],
            paged: true,
            names_agent: Some("/data/0/agentId"),
            ..Question::new("/api/v1/liable/{wallet}", "getLiable", "Agents", "What a person is liable for")
                .answers(schemas, &examples::liable())
        },
        Question {
            description: "At most 15 levels and 50 children a node. Where children were cut, `truncated` is true and a \
                `note` says so; so does the `note` of a node on the last level that has children."
                .to_owned(),
            parameters: agent_id(),
            of_agent: true,
            ..Question::new("/api/v1/agent/{id}/lineage", "getLineage", "Agents", "The tree below an agent")
                .answers(schemas, &examples::lineage())
        },
        Question {
            description: "The agents above an agent: its parent first, its root last, each with its status and who is liable. \
                At most 15 levels, the agent's own included; a `note` says so where the path goes on."
                .to_owned(),
            parameters: agent_id(),
            of_agent: true,
            ..Question::new("/api/v1/agent/{id}/ancestors", "getAncestors", "Agents", "The path up to an agent's root")
                .answers(schemas, &examples::ancestors())
        },
        Question {
            description: format!(
                "What the registry's events tell of an agent, oldest first: registered, attested, revenueReported, suspended and revoked with the \
                 reason, reactivated, terminated, childRegistered. `complete` says that nothing is missing from the registration \
                 to the end of the page; where it is false, `incompleteBecause` says why: `NO_LOGS`, the RPC endpoint serves no events; \
                 `LOG_RANGE`, it gives so few blocks of them at once that the history begins at `fromBlock`; `EVENTS_MISSING`, it has \
                 pruned some. A page that is not the last has `next`, and may hold fewer events than `limit`, even none. It counts \
                 as five requests. A `limit` above {HISTORY_LIMIT_MAX} is cut, and the answer's `limit` says so."
            ),
            parameters: vec![
                id(),
                count(
                    "limit",
                    &format!("Events at most; {HISTORY_LIMIT_MAX} where more are asked for."),
                    1,
                    HISTORY_LIMIT_DEFAULT,
                ),
                json!({
                    "name": "cursor", "in": "query", "description": "Where to go on: the `next` of an earlier answer.",
                    "schema": { "type": "string", "pattern": "^[0-9]{1,15}(-[0-9]{1,15}){3}$" },
                    "example": "37250005-37250005-0-0",
                }),
            ],
            of_agent: true,
            paged: true,
            ..Question::new("/api/v1/agent/{id}/history", "getHistory", "Agents", "What happened to an agent")
                .answers(schemas, &examples::history())
        },
        Question {
            description: format!(
                "Oldest first; amounts in cents. A `limit` above {REVENUE_LIMIT_MAX} is cut, and the answer's `limit` says so."
            ),
            parameters: vec![
                id(),
                count(
                    "limit",
                    &format!("Reports at most; {REVENUE_LIMIT_MAX} where more are asked for."),
                    1,
                    REVENUE_LIMIT_DEFAULT,
                ),
                count("offset", "Reports to pass over.", 0, 0),
            ],
            of_agent: true,
            paged: true,
            ..Question::new("/api/v1/agent/{id}/revenue", "listRevenue", "Revenue", "What an agent reported")
                .answers(schemas, &examples::revenue())
        },
        Question {
            description: "All reports of all agents, in cents.".to_owned(),
            ..Question::new("/api/v1/revenue/aggregate", "getTotalRevenue", "Revenue", "All revenue added up")
                .answers(schemas, &examples::aggregate())
        },
        Question {
            description: format!(
                "Every change of a verdict: who, from what to what, when. Ask with `since={{next}}` in the next poll, and no change is \
                 missed or told twice, whatever the chain does: what a reorganisation undoes is a change back. An attestation \
                 that lapses is a change at the second it lapses. Without `since` the list begins at the oldest change that is kept; \
                 they are kept for 30 days. A client that accepts `text/event-stream` is sent them as they come, as events named `change` with \
                 the cursor for their id; it goes on with `Last-Event-ID`, and `failure` says that the chain does not answer. A `limit` above {CHANGES_LIMIT_MAX} is cut, and the answer's `limit` says so."
            ),
            parameters: vec![
                json!({
                    "name": "since", "in": "query",
                    "description": "The `next` of an earlier answer; `now` for what changes from now on; `newest` for the newest `limit` changes, and on from there.",
                    "schema": { "type": "string", "format": "change-cursor", "pattern": "^(now|newest|[0-9]{1,16}-[0-9]{1,16})$" },
                    "example": "now",
                }),
                count(
                    "limit",
                    &format!("Changes at most; {CHANGES_LIMIT_MAX} where more are asked for."),
                    1,
                    CHANGES_LIMIT_DEFAULT,
                ),
            ],
            paged: true,
            ..Question::new("/api/v1/changes", "listChanges", "KYA", "Changes of verdicts")
                .answers(schemas, &examples::changes())
        },
        Question {
            description: "How many agents were ever registered, and where.".to_owned(),
            ..Question::new("/api/v1/stats", "getStats", "Statistics", "The number of agents")
                .answers(schemas, &examples::stats())
        },
        Question {
            description: "Distributions, the compliance rate in percent, revenue, the last ten registrations.".to_owned(),
            ..Question::new("/api/v1/stats/detailed", "getDetailedStats", "Statistics", "The whole registry in numbers")
                .answers(schemas, &examples::detailed_stats())
        },
        Question {
            description: "200 only if the registry answers.".to_owned(),
            ..Question::new("/health", "getHealth", "Operations", "Whether the service answers")
                .answers(schemas, &examples::health())
        },
    ]
}

impl Question {
    fn new(path: &'static str, id: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self {
            path,
            id,
            tag,
            summary,
            description: String::new(),
            parameters: Vec::new(),
            body: Value::Null,
            content: Value::Null,
            of_agent: false,
            paged: false,
            names_agent: None,
        }
    }

    fn answers<T: JsonSchema + Serialize>(self, schemas: &mut Schemas, example: &T) -> Self {
        Self { content: body(&schemas.of::<T>(), example), ..self }
    }

    /// A target that asks it.
    fn target(&self) -> String {
        self.path.replace("{id}", "1").replace("{wallet}", &examples::WALLET.to_string())
    }

    /// How long its answers are kept, in seconds; 0 is not at all.
    fn time_to_live(&self) -> u32 {
        Route::parse(&self.target()).map_or(0, |endpoint| endpoint.cache_scope().default_seconds())
    }

    /// Whether its answers may come from the index.
    fn is_indexed(&self) -> bool {
        let target = self.target();
        self.asks(&[target.clone(), format!("{target}?status=Active")], Route::is_indexed)
    }

    /// Whether only an index can answer.
    fn needs_index(&self) -> bool {
        let target = self.target();
        self.asks(&[target.clone(), format!("{target}?sort=-id")], Route::needs_index)
    }

    fn asks(&self, targets: &[String], is_so: impl Fn(&Route) -> bool) -> bool {
        targets.iter().any(|target| Route::parse(target).is_ok_and(|endpoint| is_so(&endpoint)))
    }

    /// The path item.
    fn describe(mut self) -> Value {
        let mut carried = [EVERY, STANDING].concat();
        let mut responses = Map::new();
        if self.time_to_live() > 0 {
            carried.extend(KEPT);
            self.parameters.push(json!({ "$ref": "#/components/parameters/If-None-Match" }));
            self.description += &format!(" Kept for up to {} seconds.", self.time_to_live());
            if self.is_indexed() {
                carried.push("X-As-Of-Block");
            }
            responses.insert("304".to_owned(), json!({ "$ref": "#/components/responses/NotModified" }));
        }
        if self.paged {
            carried.push("Link");
        }
        let mut answer = response(self.summary, &carried, &self.content);
        if let Some(pointer) = self.names_agent {
            answer = linked(answer, "getAgent", pointer);
        }
        responses.insert("200".to_owned(), answer);
        let has = |name: &str| self.parameters.iter().any(|parameter| parameter["name"] == name);
        let is_post = !self.body.is_null();
        let checked = is_post || self.parameters.iter().any(|parameter| parameter["name"].is_string());
        for (status, name, possible) in [
            ("400", "BadRequest", checked),
            ("404", "NotFound", self.of_agent || has("block")),
            ("410", "CursorExpired", has("since")),
            ("413", "BodyTooLarge", is_post),
            ("415", "UnsupportedMediaType", is_post),
            ("429", "RateLimited", true),
            ("500", "Failed", true),
            ("501", "IndexRequired", self.needs_index()),
            ("503", "Indexing", self.is_indexed()),
        ] {
            if possible {
                responses
                    .insert(status.to_owned(), json!({ "$ref": format!("#/components/responses/{name}") }));
            }
        }
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "description": self.description,
            "parameters": self.parameters,
            "responses": responses,
        });
        if is_post && let Some(operation) = operation.as_object_mut() {
            operation.insert("requestBody".to_owned(), self.body);
        }
        let method = if is_post { "post" } else { "get" };
        json!({ method: operation })
    }
}

/// What `/kya/{wallet}` answers, without evidence and with it.
fn verdict_or_evidence(schemas: &mut Schemas) -> Value {
    let of = [schemas.of::<Kya>(), schemas.of::<Evidence>()];
    body(&json!({ "anyOf": of }), &examples::kya(examples::WALLET))
}

/// What `/agents` answers, from the chain and from an index.
fn page_or_list(schemas: &mut Schemas) -> Value {
    let of = [schemas.of::<AgentPage>(), schemas.of::<AgentList>()];
    let schema = json!({ "anyOf": of });
    json!({ "application/json": { "schema": schema, "examples": {
        "page": { "value": examples::page() },
        "from an index": { "value": examples::list() },
    } } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_the_router_knows_is_described() {
        let described = questions(&mut Schemas::default());
        for question in described.iter().filter(|question| question.body.is_null()) {
            let endpoint = Route::parse(&question.target()).unwrap();
            assert_eq!(endpoint.canonical(), question.target());
        }
        // An endpoint more needs an arm here, and a question above.
        let posted = described.iter().filter(|question| !question.body.is_null()).map(|question| {
            let body = question.body["content"]["application/json"]["example"].to_string();
            Route::parse_post(question.path, body.as_bytes()).unwrap()
        });
        let asked = described.iter().filter(|question| question.body.is_null());
        let asked = asked.map(|question| Route::parse(&question.target()).unwrap());
        let known = asked.chain(posted).map(|endpoint| match endpoint {
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
        });
        let mut known: Vec<u8> = known.collect();
        known.sort_unstable();
        assert_eq!(known, (0..15).collect::<Vec<_>>());
    }
}
