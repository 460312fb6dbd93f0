//! `/openapi.json`, made at start, so that it names this relayer's contracts, limits and chain.

use std::f64;

use alloy::{
    primitives::{Address, B256, U256, address, b256, hex},
    sol_types::SolCall as _,
};
use openapi::{Schemas, body, error, header, linked, response};
use registry_core::{
    eth::abi::IAgentRegistry::attestComplianceCall,
    forward::{DOMAIN_NAME, DOMAIN_VERSION, ParseError, Refusal},
};
use serde_json::{Map, Value, json};

use super::shapes::{
    AccountStateBody, DomainBody, ExecutedBody, FailureBody, NonceBody, ReadyBody, RelayBody, StatusBody,
};
use crate::{
    chain::RpcError,
    outcome::{
        ErrorCode::{
            self, AccountDelegated, ChainSilent, GasBudgetExhausted, InvalidAddress, InvalidId, InvalidWait,
            IpRateLimited, JournalFailed, MethodNotAllowed, NotFound, RelayNotFound, RelayerBalanceTooLow,
            RpcFailed, RpcTimeout, SenderStalled, ShuttingDown, StoreUnavailable,
        },
        Failure, Finality, MinedTransaction, RelayOutcome,
    },
    sender::health::AccountState,
    store::{
        RelayRecord,
        events::{EventBody, EventKind},
    },
};

const ABOUT: &str = "\
Agents with a key and no ETH sign requests; this relayer executes them through the forwarder and pays the gas.

1. `GET /domain` is the EIP-712 domain, `GET /nonce/{address}` has the `next` nonce to sign.
2. Sign a `ForwardRequest(address from,address to,uint256 value,uint256 gas,uint256 nonce,uint48 deadline,bytes data)`.
3. `POST /relay` with the request and the signature.

A request's `id` is its EIP-712 digest, so a client can compute it beforehand; the same request sent twice is one \
transaction. Errors are `{\"error\": message, \"code\": code}`: messages may change, codes are a closed set. Any web page \
may use the relayer.";

/// The signer, the request and the transaction of the examples.
const SIGNER: Address = address!("D9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0");
const SIGNATURE: &str = "0xe260f85576c38b7430000b371d7de18fa0330bd01b84fdc9d66aa373719eab02\
    48f6d9ede5209d45e019d831ea7d7c77222393dd1b3b88748e149ad12e8c2f361b";
const ID: B256 = b256!("9ef41553f467c3e349a8d2fc73eef147f80d232f785e634134ea087c449c6c8c");
/// The newest block of the examples.
const HEAD: u64 = 4_718;
const MINED: MinedTransaction =
    MinedTransaction { tx_hash: B256::repeat_byte(0xc4), block_number: 4_711, gas_used: 277_676 };

/// This relayer's contracts and limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Particulars {
    pub(crate) chain_id: u64,
    pub(crate) registry: Address,
    pub(crate) forwarder: Address,
    pub(crate) max_gas: u64,
}

/// The description as JSON text.
pub(crate) fn text(relayer: Particulars) -> String {
    let mut schemas = Schemas::default();
    let (paths, webhooks) = (paths(&mut schemas, relayer), webhooks(&mut schemas));
    schemas.of::<FailureBody<'_>>();
    let mut schemas = schemas.into_components();
    schemas.insert("SignedRequest".to_owned(), signed_request(relayer));
    openapi::text(&json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Agent registry: relayer",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [],
        "tags": [
            { "name": "Relaying", "description": "Signing, sending, and what became of it." },
            { "name": "Operations", "description": "For those who run or watch the relayer." },
        ],
        "paths": paths,
        "webhooks": webhooks,
        "components": { "schemas": schemas, "headers": headers(), "securitySchemes": { API_KEY: api_key() } },
    }))
}

/// On every answer.
const EVERY: &[&str] = &["X-Request-Id", "Cache-Control"];
/// On answers about one relay.
const OF_RELAY: &[&str] = &["X-Request-Id", "Cache-Control", "X-Relay-Id"];
/// On answers that say when to come back.
const LATER: &[&str] = &["X-Request-Id", "Cache-Control", "Retry-After"];

fn headers() -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    json!({
        "X-Request-Id": header(
            "Names the request in the relayer's log. A client's own is taken over: 1 to 64 letters, digits, `-_.`.",
            true,
            &text("^[0-9A-Za-z_.-]{1,64}$"),
            &json!("5f0c9e2ab17d43d8a1c2e3f405162738"),
        ),
        "Cache-Control": header("Nothing here may be kept.", true, &json!({ "const": "no-store" }), &json!("no-store")),
        "X-Relay-Id": header("The relay's id.", false, &text("^0x[0-9a-f]{64}$"), &json!(ID.to_string())),
        "Retry-After": header(
            "Seconds after which another try makes sense.",
            true,
            &json!({ "type": "integer", "minimum": 0 }),
            &json!(180),
        ),
    })
}

fn paths(schemas: &mut Schemas, relayer: Particulars) -> Value {
    json!({
        "/relay": { "post": relay(schemas) },
        "/relay/{id}": { "get": relay_state(schemas) },
        "/nonce/{address}": { "get": nonce(schemas) },
        "/domain": { "get": domain(schemas, relayer) },
        "/status": { "get": status(schemas) },
        "/livez": { "get": live() },
        "/readyz": { "get": ready(schemas) },
        "/metrics": { "get": metrics() },
        "/openapi.json": { "get": description() },
    })
}

/// What is posted to the webhook of an API key.
fn webhooks(schemas: &mut Schemas) -> Value {
    let outcome = RelayOutcome::Executed { mined: MINED, agent_id: Some(U256::from(42)) };
    let id = "evt_5f0c9e2ab17d43d8a1c2e3f405162738";
    let example = EventBody::new(EventKind::Executed, id, ID, Some(&outcome), 1_767_323_045);
    let header = |name: &str, description: &str, pattern: &str| {
        json!({
            "name": name, "in": "header", "required": true, "description": description,
            "schema": { "type": "string", "pattern": pattern },
        })
    };
    json!({
        "relayChanged": { "post": {
            "operationId": "relayChanged",
            "tags": [RELAYING],
            "summary": "A relay that your API key sponsors has changed",
            "description": "At least once, and in order per relay. Taken with any answer of 2xx within 10 seconds; else it is \
                sent again, with backoff, for a day.",
            "parameters": [
                header(
                    "X-Relayer-Signature",
                    "HMAC-SHA256 over the time, a dot and the body, with the secret that both sides know.",
                    "^t=[0-9]+,v1=[0-9a-f]{64}$",
                ),
                header("X-Relayer-Event", "The event's id.", "^evt_[0-9a-f]{32}$"),
            ],
            "requestBody": { "required": true, "content": body(&schemas.of::<EventBody<'_>>(), &example) },
            "responses": { "2XX": { "description": "You have it." } },
        } },
    })
}

fn relay(schemas: &mut Schemas) -> Value {
    let executed = body(&schemas.of::<ExecutedBody>(), &ExecutedBody::new(ID, &MINED, Some(U256::from(42))));
    let pending = RelayRecord { outcome: None, finality: None, hashes: vec![MINED.tx_hash] };
    let pending = body(&schemas.of::<RelayBody<'_>>(), &RelayBody::new(ID, &pending, HEAD));
    let answer = |description, content| linked(response(description, OF_RELAY, content), "getRelay", "/id");
    let answers = vec![
        ("200", answer("It was executed.", &executed)),
        ("202", answer("It goes on, whether you wait or not.", &pending)),
    ];
    let elsewhere = [
        InvalidId,
        InvalidWait,
        InvalidAddress,
        RelayNotFound,
        NotFound,
        MethodNotAllowed,
        ChainSilent,
        SenderStalled,
    ];
    let failures: Vec<ErrorCode> =
        ErrorCode::ALL.iter().copied().filter(|code| !elsewhere.contains(code)).collect();
    let content =
        json!({ "application/json": { "schema": { "$ref": "#/components/schemas/SignedRequest" } } });
    let request = ("requestBody", json!({ "required": true, "content": content }));
    let mut relay =
        operation("relay", RELAYING, "Executes a signed request", Some(request), answers, &failures);
    // Without a key, or with one: the relayer's policy says which.
    if let Some(relay) = relay.as_object_mut() {
        relay.insert("security".to_owned(), json!([{}, { API_KEY: [] }]));
    }
    relay
}

/// The name of the security scheme.
const API_KEY: &str = "apiKey";

fn api_key() -> Value {
    json!({
        "type": "http",
        "scheme": "bearer",
        "description": "An API key of the relayer's operator. A relayer may take requests without one, and ignores keys \
            where it has none.",
    })
}

fn relay_state(schemas: &mut Schemas) -> Value {
    let outcome = RelayOutcome::Reverted { mined: MINED, failure: Failure::reverted("Agent not active") };
    let finality = Some(Finality::Safe);
    let record = RelayRecord { outcome: Some(outcome), finality, hashes: vec![MINED.tx_hash] };
    let answers = ok("Its state.", &body(&schemas.of::<RelayBody<'_>>(), &RelayBody::new(ID, &record, HEAD)));
    let id = json!({
        "description": "The request's EIP-712 digest.",
        "type": "string",
        "format": "relay-id",
        "pattern": "^0x[0-9a-fA-F]{64}$",
    });
    let wait = json!({
        "name": "wait",
        "in": "query",
        "description": "Answers once the relay is this final, or as things stand after a while.",
        "schema": { "enum": ["latest", "safe", "finalized"] },
        "example": "latest",
    });
    let failures =
        [InvalidId, InvalidWait, RelayNotFound, NotFound, IpRateLimited, JournalFailed, StoreUnavailable];
    let id = parameter("id", &id, &ID).map(|(name, mut parameters)| {
        parameters.as_array_mut().into_iter().for_each(|parameters| parameters.push(wait.clone()));
        (name, parameters)
    });
    operation("getRelay", RELAYING, "What became of a request", id, answers, &failures)
}

fn nonce(schemas: &mut Schemas) -> Value {
    let nonce = NonceBody { address: SIGNER, nonce: U256::from(5), next: U256::from(6) };
    let answers = ok("Its nonces.", &body(&schemas.of::<NonceBody>(), &nonce));
    let signer = parameter("address", &address("The signer."), &SIGNER);
    let failures =
        [InvalidAddress, NotFound, IpRateLimited, RpcFailed, RpcTimeout, JournalFailed, StoreUnavailable];
    operation("getNonce", RELAYING, "The nonce to sign with", signer, answers, &failures)
}

fn domain(schemas: &mut Schemas, relayer: Particulars) -> Value {
    let domain = DomainBody {
        name: DOMAIN_NAME,
        version: DOMAIN_VERSION,
        chain_id: relayer.chain_id,
        verifying_contract: relayer.forwarder,
    };
    let answers = ok("The domain.", &body(&schemas.of::<DomainBody>(), &domain));
    operation("getDomain", RELAYING, "The EIP-712 domain to sign for", None, answers, &[])
}

fn status(schemas: &mut Schemas) -> Value {
    let answers = ok("As things stand.", &json_content(&schemas.of::<StatusBody>()));
    let failures = [IpRateLimited, RpcFailed, RpcTimeout, JournalFailed, StoreUnavailable];
    operation("getStatus", OPERATIONS, "Accounts, budget, limits and queue", None, answers, &failures)
}

fn live() -> Value {
    let answers = ok("It does.", &flag("live"));
    operation("isLive", OPERATIONS, "Whether the relayer runs", None, answers, &[])
}

fn ready(schemas: &mut Schemas) -> Value {
    let codes = [
        ShuttingDown,
        JournalFailed,
        StoreUnavailable,
        ChainSilent,
        SenderStalled,
        RelayerBalanceTooLow,
        AccountDelegated,
        GasBudgetExhausted,
    ];
    // One status for all codes, whatever their own is.
    let accounts = vec![AccountStateBody { address: SIGNER, state: AccountState::Ready }];
    let ready = ReadyBody { ready: true, accounts };
    let mut answers = ok("They do.", &body(&schemas.of::<ReadyBody>(), &ready));
    answers.push(("503", failure(503, &codes)));
    operation("isReady", OPERATIONS, "Whether requests make sense now", None, answers, &[])
}

fn metrics() -> Value {
    let content = json!({ "text/plain": { "schema": { "type": "string" } } });
    let answers = ok("Every metric, in Prometheus's text format.", &content);
    operation("getMetrics", OPERATIONS, "Metrics", None, answers, &[])
}

fn description() -> Value {
    let answers = ok("An OpenAPI document.", &json_content(&json!({ "type": "object" })));
    operation("getDescription", OPERATIONS, "This description", None, answers, &[])
}

const RELAYING: &str = "Relaying";
const OPERATIONS: &str = "Operations";

/// An answer of 200.
fn ok(description: &str, content: &Value) -> Vec<(&'static str, Value)> {
    vec![("200", response(description, EVERY, content))]
}

fn json_content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// An operation that `takes` parameters or a body, with its answers, and its failures by their codes' status.
fn operation(
    id: &str,
    tag: &str,
    summary: &str,
    takes: Option<(&str, Value)>,
    answers: Vec<(&str, Value)>,
    failures: &[ErrorCode],
) -> Value {
    let owned = |(name, value): (&str, Value)| (name.to_owned(), value);
    let mut responses: Map<String, Value> = answers.into_iter().map(owned).collect();
    for status in failures.iter().map(|code| code.status()) {
        let codes: Vec<_> = failures.iter().copied().filter(|code| code.status() == status).collect();
        responses.insert(status.to_string(), failure(status, &codes));
    }
    let rest = [
        ("operationId", json!(id)),
        ("tags", json!([tag])),
        ("summary", json!(summary)),
        ("responses", responses.into()),
    ];
    Value::Object(takes.into_iter().chain(rest).map(owned).collect())
}

/// The one parameter of a path.
fn parameter(name: &str, schema: &Value, example: &impl ToString) -> Option<(&'static str, Value)> {
    let parameter = json!({
        "name": name, "in": "path", "required": true, "schema": schema, "example": example.to_string(),
    });
    Some(("parameters", json!([parameter])))
}

/// A response for errors with these codes, all of this status.
fn failure(status: u16, codes: &[ErrorCode]) -> Value {
    let description = match status {
        400 => "The request cannot be read.",
        401 => "The signature or the API key is not good, or not any more.",
        403 => "Not for this relayer.",
        404 => "There is no such relay or path.",
        408 | 413 => "The body is too slow or too large.",
        429 => "Too much was asked for.",
        503 => "Not now.",
        _ => "The contract, the chain or the relayer failed.",
    };
    let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
    let examples = [
        Failure::from(ParseError::Missing),
        Failure::of(ErrorCode::InvalidSignatureOrNonce),
        Failure::from(Refusal::Target),
        Failure::ip_limit(20, 180),
        Failure::reverted("Agent not active"),
        Failure::from(RpcError::Timeout),
        Failure::of(ErrorCode::JournalFailed),
        Failure::of(ErrorCode::RelayerBalanceTooLow),
    ];
    let example = examples.iter().find(|failure| codes.contains(&failure.code));
    let example = example.map(|failure| FailureBody { error: failure.message(), code: failure.code });
    let headers = if matches!(status, 429 | 503) { LATER } else { EVERY };
    response(description, headers, &error(&names, &json!(example)))
}

/// A body with one property that is always true.
fn flag(name: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { name: { "const": true } }, "required": [name] });
    body(&schema, &json!({ name: true }))
}

/// The body of `POST /relay`.
fn signed_request(relayer: Particulars) -> Value {
    let call = json!({
        "description": "A call of one of the registry's functions that change it; views are not relayed.",
        "type": "string",
        "pattern": "^0x([0-9a-fA-F]{2})*$",
    });
    let bytes =
        |count: &str| json!({ "type": "string", "pattern": format!("^0x([0-9a-fA-F]{{2}}){count}$") });
    json!({
        "description": "A request and its signature. Fields besides these are ignored.",
        "type": "object",
        "required": ["request", "signature"],
        "properties": {
            "request": {
                "type": "object",
                "required": ["from", "to", "value", "gas", "nonce", "deadline", "data"],
                "properties": {
                    "from": address("The signer: the agent's wallet, its creator, or who is liable for it."),
                    "to": address(&format!("The registry: {}.", relayer.registry)),
                    "value": number("Wei; only 0 is relayed.", 256),
                    "gas": number(
                        &format!("What the inner call may use: at most {}.", relayer.max_gas),
                        256,
                    ),
                    "nonce": number("The signer's next nonce.", 256),
                    "deadline": number("Unix seconds; 0 is none.", 48),
                    "data": call,
                },
            },
            "signature": bytes("{65}"),
        },
        "example": {
            "request": {
                "from": SIGNER.to_string(),
                "to": relayer.registry.to_string(),
                "value": "0",
                "gas": 300_000,
                "nonce": "0x5",
                "deadline": 0,
                "data": hex::encode_prefixed(attestComplianceCall { agentId: U256::from(42) }.abi_encode()),
            },
            "signature": SIGNATURE,
        },
    })
}

/// An address in a request.
fn address(description: &str) -> Value {
    json!({
        "description": format!("{description} In lower case, in upper case, or with its EIP-55 checksum."),
        "type": "string",
        "format": "ethereum-address",
        "pattern": "^0x[0-9a-fA-F]{40}$",
    })
}

/// An unsigned integer of `bits` bits in one of three spellings: a JSON number up to what every JSON library
/// keeps exactly, or digits up to the last power of ten that fits, because a pattern cannot compare. The
/// parser accepts more, up to the type's end.
fn number(description: &str, bits: u32) -> Value {
    const EXACT: u64 = 1 << 53;
    let largest = 1_u64.checked_shl(bits).map_or(EXACT, |end| end - 1);
    let (decimal, hex) = (f64::from(bits) * f64::consts::LOG10_2, bits / 4);
    json!({
        "description": description,
        "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": largest },
            { "type": "string", "pattern": format!("^[0-9]{{1,{}}}$", decimal.floor()) },
            { "type": "string", "pattern": format!("^0[xX][0-9a-fA-F]{{1,{hex}}}$") },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented_and_no_reference_leads_nowhere() {
        let text =
            text(Particulars { chain_id: 84_532, registry: SIGNER, forwarder: SIGNER, max_gas: 2_000_000 });
        let description: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(openapi::dangling(&description), Vec::<String>::new());
        let paths = description["paths"].to_string();
        // Codes of no documented path.
        let elsewhere = [MethodNotAllowed];
        for code in ErrorCode::ALL.iter().copied().filter(|code| !elsewhere.contains(code)) {
            assert!(paths.contains(&format!("\"{}\"", code.name())), "{code:?}");
        }
    }
}
