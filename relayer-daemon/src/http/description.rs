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
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::shapes::{
    AccountStateBody, DomainBody, ExecutedBody, FailureBody, NonceBody, ReadyBody, RelayBody, StatusBody,
};
use crate::{
    chain::RpcError,
    outcome::{
        ErrorCode::{
            self, AccountDelegated, ChainSilent, InvalidAddress, InvalidId, InvalidWait, IpRateLimited,
            JournalFailed, MethodNotAllowed, NotFound, RelayNotFound, RpcFailed, RpcTimeout, SenderStalled,
            ShuttingDown, SignerFailed, StoreUnavailable,
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
pub(crate) struct DescriptionParameters {
    pub(crate) chain_id: u64,
    pub(crate) registry: Address,
    pub(crate) forwarder: Address,
    pub(crate) max_gas: u64,
}

/// Returns the description as JSON text.
pub(crate) fn text(relayer: DescriptionParameters) -> String {
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
            { "name": "Relaying", "description": "Sign requests, send them, and follow them until they are final." },
            { "name": "Operations", "description": "Run and monitor the relayer." },
        ],
        "paths": paths,
        "webhooks": webhooks,
        "components": { "schemas": schemas, "headers": headers(), "securitySchemes": { API_KEY: api_key() } },
    }))
}

/// Headers of every answer.
const EVERY: &[&str] = &["X-Request-Id", "Cache-Control"];
/// Headers of answers about one relay.
const OF_RELAY: &[&str] = &["X-Request-Id", "Cache-Control", "X-Relay-Id"];
/// Headers of answers that say when to try again.
const LATER: &[&str] = &["X-Request-Id", "Cache-Control", "Retry-After"];

fn headers() -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    json!({
        "X-Request-Id": header(
            "The id of this HTTP request in the relayer's log. A client chooses it by sending the header itself, with 1 to \
            64 letters, digits and `-_.`.",
            true,
            &text("^[0-9A-Za-z_.-]{1,64}$"),
            &json!("5f0c9e2ab17d43d8a1c2e3f405162738"),
        ),
        "Cache-Control": header("Caches must not store the answer.", true, &json!({ "const": "no-store" }), &json!("no-store")),
        "X-Relay-Id": header("The relay's id.", false, &text("^0x[0-9a-f]{64}$"), &json!(ID.to_string())),
        "Retry-After": header(
            "Seconds to wait before the next attempt.",
            true,
            &json!({ "type": "integer", "minimum": 0 }),
            &json!(180),
        ),
    })
}

fn paths(schemas: &mut Schemas, relayer: DescriptionParameters) -> Value {
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

/// Describes the requests that the relayer posts to the webhook of an API key.
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
            "summary": "Reports a change of a relay that your API key sponsors.",
            "description": "Each event is delivered at least once, and the events of one relay come in order. An event counts \
                as delivered when the receiver answers with a status of 2xx within 10 seconds. Otherwise it is sent again, \
                with exponential backoff, for 24 hours.",
            "parameters": [
                header(
                    "X-Relayer-Signature",
                    "The time of the attempt, `t`, in unix seconds, and `v1`, the HMAC-SHA256 of that time, a dot and the \
                    body under the webhook's secret.",
                    "^t=[0-9]+,v1=[0-9a-f]{64}$",
                ),
                header("X-Relayer-Event", "The event's id, the same in every attempt.", "^evt_[0-9a-f]{32}$"),
            ],
            "requestBody": { "required": true, "content": schemas.answer(&example) },
            "responses": { "2XX": { "description": "The receiver has taken the event; it is not sent again." } },
        } },
    })
}

fn relay(schemas: &mut Schemas) -> OpenApiOperation {
    let executed = schemas.answer(&ExecutedBody::new(ID, &MINED, Some(U256::from(42))));
    let pending = RelayRecord { outcome: None, finality: None, hashes: vec![MINED.tx_hash] };
    let pending = schemas.answer(&RelayBody::new(ID, &pending, HEAD));
    let answer = |description, content| linked(response(description, OF_RELAY, content), "getRelay", "/id");
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
    let content = json_content(&json!({ "$ref": "#/components/schemas/SignedRequest" }));
    OpenApiOperation::new("relay", RELAYING, "Executes a signed request and waits for its receipt.")
        // Without a key, or with one: the relayer's policy says which.
        .with("security", json!([{}, { API_KEY: [] }]))
        .with("requestBody", json!({ "required": true, "content": content }))
        .answer("200", answer("The request was executed.", &executed))
        .answer(
            "202",
            answer(
                "The request was accepted, and is not mined yet. The relay goes on without the client; \
                `GET /relay/{id}` returns its state.",
                &pending,
            ),
        )
        .failing(&failures)
}

/// The name of the security scheme.
const API_KEY: &str = "apiKey";

fn api_key() -> Value {
    json!({
        "type": "http",
        "scheme": "bearer",
        "description": "An API key that the relayer's operator has issued. The operator's policy decides whether requests \
            need one; a relayer without a policy ignores it.",
    })
}

fn relay_state(schemas: &mut Schemas) -> OpenApiOperation {
    let outcome = RelayOutcome::Reverted { mined: MINED, failure: Failure::reverted("Agent not active") };
    let finality = Some(Finality::Safe);
    let record = RelayRecord { outcome: Some(outcome), finality, hashes: vec![MINED.tx_hash] };
    let content = schemas.answer(&RelayBody::new(ID, &record, HEAD));
    let id = json!({
        "description": "The relay's id: the EIP-712 digest of its request.",
        "type": "string",
        "format": "relay-id",
        "pattern": "^0x[0-9a-fA-F]{64}$",
    });
    let wait = json!({
        "name": "wait",
        "in": "query",
        "description": "Delays the answer until the relay has this finality or is dropped. After the relayer's time limit \
            (30 seconds by default) the answer has the state as it is then.",
        "schema": { "enum": ["latest", "safe", "finalized"] },
        "example": "latest",
    });
    OpenApiOperation::new("getRelay", RELAYING, "Returns the state of a relay.")
        .with("parameters", json!([parameter("id", &id, &ID), wait]))
        .ok("The relay's state, transactions and finality.", &content)
        .failing(&[InvalidId, InvalidWait, RelayNotFound, NotFound])
        .failing(&[IpRateLimited, JournalFailed, StoreUnavailable])
}

/// Failures of operations that read the chain and the store.
const CHAIN_READ: [ErrorCode; 5] = [IpRateLimited, RpcFailed, RpcTimeout, JournalFailed, StoreUnavailable];

fn nonce(schemas: &mut Schemas) -> OpenApiOperation {
    let content = schemas.answer(&NonceBody { address: SIGNER, nonce: U256::from(5), next: U256::from(6) });
    OpenApiOperation::new("getNonce", RELAYING, "Returns the nonce to sign the next request with.")
        .with("parameters", json!([parameter("address", &address("The signer's address."), &SIGNER)]))
        .ok("The signer's nonce on chain, and the next one to sign with.", &content)
        .failing(&[InvalidAddress, NotFound])
        .failing(&CHAIN_READ)
}

fn domain(schemas: &mut Schemas, relayer: DescriptionParameters) -> OpenApiOperation {
    let content = schemas.answer(&DomainBody {
        name: DOMAIN_NAME,
        version: DOMAIN_VERSION,
        chain_id: relayer.chain_id,
        verifying_contract: relayer.forwarder,
    });
    OpenApiOperation::new("getDomain", RELAYING, "Returns the EIP-712 domain to sign requests for.")
        .ok("The forwarder's EIP-712 domain.", &content)
}

fn status(schemas: &mut Schemas) -> OpenApiOperation {
    let content = json_content(&schemas.of::<StatusBody>());
    OpenApiOperation::new(
        "getStatus",
        OPERATIONS,
        "Returns the relayer's accounts, gas budget, limits and queue.",
    )
    .ok("The relayer's accounts, gas budget, limits and queue now.", &content)
    .failing(&CHAIN_READ)
}

fn live() -> OpenApiOperation {
    let schema =
        json!({ "type": "object", "properties": { "live": { "const": true } }, "required": ["live"] });
    let content = body(&schema, &json!({ "live": true }));
    OpenApiOperation::new("isLive", OPERATIONS, "Reports that the relayer's process runs.")
        .ok("The process runs.", &content)
}

fn ready(schemas: &mut Schemas) -> OpenApiOperation {
    let codes = [
        ShuttingDown,
        JournalFailed,
        StoreUnavailable,
        ChainSilent,
        SenderStalled,
        AccountDelegated,
        SignerFailed,
    ];
    let accounts = vec![AccountStateBody { address: SIGNER, state: AccountState::Ready }];
    let content = schemas.answer(&ReadyBody { ready: true, refusing: None, accounts });
    OpenApiOperation::new("isReady", OPERATIONS, "Reports whether the relayer answers requests.")
        .ok("The relayer answers requests; `refusing` says why it executes none.", &content)
        // One status for all codes, whatever their own is.
        .answer("503", failure(503, &codes))
}

fn metrics() -> OpenApiOperation {
    let content = json!({ "text/plain": { "schema": { "type": "string" } } });
    OpenApiOperation::new("getMetrics", OPERATIONS, "Returns the relayer's metrics.")
        .ok("All metrics, in Prometheus's text format.", &content)
}

fn description() -> OpenApiOperation {
    OpenApiOperation::new("getDescription", OPERATIONS, "Returns this description.")
        .ok("An OpenAPI document.", &json_content(&json!({ "type": "object" })))
}

const RELAYING: &str = "Relaying";
const OPERATIONS: &str = "Operations";

fn json_content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// An operation, built member by member.
#[derive(Serialize)]
struct OpenApiOperation {
    #[serde(flatten)]
    members: Map<String, Value>,
    responses: Map<String, Value>,
}

impl OpenApiOperation {
    fn new(id: &str, tag: &str, summary: &str) -> Self {
        Self { members: Map::new(), responses: Map::new() }
            .with("operationId", json!(id))
            .with("tags", json!([tag]))
            .with("summary", json!(summary))
    }

    fn with(mut self, member: &str, value: Value) -> Self {
        self.members.insert(member.to_owned(), value);
        self
    }

    fn answer(mut self, status: &str, response: Value) -> Self {
        self.responses.insert(status.to_owned(), response);
        self
    }

    fn ok(self, description: &str, content: &Value) -> Self {
        self.answer("200", response(description, EVERY, content))
    }

    /// Adds a response for the codes of each status.
    fn failing(mut self, failures: &[ErrorCode]) -> Self {
        for status in failures.iter().map(|code| code.status()) {
            let codes: Vec<_> = failures.iter().copied().filter(|code| code.status() == status).collect();
            self = self.answer(&status.to_string(), failure(status, &codes));
        }
        self
    }
}

/// Describes a parameter in a path.
fn parameter(name: &str, schema: &Value, example: &impl ToString) -> Value {
    json!({ "name": name, "in": "path", "required": true, "schema": schema, "example": example.to_string() })
}

/// Describes a response for errors with these codes, all of this status.
fn failure(status: u16, codes: &[ErrorCode]) -> Value {
    let description = match status {
        400 => "A parameter or the body is malformed; `error` names the rule that it breaks.",
        401 => "The signature, the nonce, the deadline or the API key is not valid.",
        403 => {
            "The relayer does not execute this request: its target, value, function or signer is not allowed."
        }
        404 => "The relay or the path does not exist.",
        409 => "Another transaction used the request's nonce first, and may have executed the same request.",
        408 => "The body did not arrive within 10 seconds.",
        413 => "The body is larger than 65,536 bytes.",
        429 => {
            "A rate limit or a gas budget is used up. `Retry-After` has the seconds until the next attempt."
        }
        503 => {
            "The relayer cannot execute requests now. `Retry-After` has the seconds until the next attempt."
        }
        _ => "The call reverted, or the chain, the journal or the signer failed; `code` says which.",
    };
    let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
    let examples = [
        Failure::from(ParseError::Missing),
        Failure::of(ErrorCode::InvalidSignatureOrNonce),
        Failure::from(Refusal::Target),
        Failure::ip_limit(20, 180),
        Failure::reverted("Agent not active"),
        Failure::of(ErrorCode::Superseded),
        Failure::from(RpcError::Timeout),
        Failure::of(ErrorCode::JournalFailed),
        Failure::of(ErrorCode::RelayerBalanceTooLow),
    ];
    let example = examples.iter().find(|failure| codes.contains(&failure.code));
    let example = example.map(|failure| FailureBody { error: failure.message(), code: failure.code });
    let headers = if matches!(status, 429 | 503) { LATER } else { EVERY };
    response(description, headers, &error(&names, &json!(example)))
}

/// Describes the body of `POST /relay`.
fn signed_request(relayer: DescriptionParameters) -> Value {
    let call = json!({
        "description": "The ABI-encoded call of a registry function that changes state. Views are not relayed.",
        "type": "string",
        "pattern": "^0x([0-9a-fA-F]{2})*$",
    });
    json!({
        "description": "A request to the forwarder and its EIP-712 signature. Other fields are ignored.",
        "type": "object",
        "required": ["request", "signature"],
        "properties": {
            "request": {
                "type": "object",
                "required": ["from", "to", "value", "gas", "nonce", "deadline", "data"],
                "properties": {
                    "from": address("The signer: the agent's wallet, its creator, or the person liable for it."),
                    "to": address(&format!("The registry, {}.", relayer.registry)),
                    "value": number("The value of the call in wei; it must be 0.", 256),
                    "gas": number(
                        &format!("The gas limit of the call to the registry; at most {}.", relayer.max_gas),
                        256,
                    ),
                    "nonce": number("The signer's next nonce, which `GET /nonce/{address}` returns.", 256),
                    "deadline": number("The last unix second at which the request is valid; 0 is no deadline.", 48),
                    "data": call,
                },
            },
            "signature": {
                "description": "The signer's EIP-712 signature of the request: 65 bytes, with `v` 27 or 28 and a low `s`.",
                "type": "string",
                "pattern": "^0x([0-9a-fA-F]{2}){65}$",
            },
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

/// Describes an address in a request.
fn address(description: &str) -> Value {
    json!({
        "description": format!("{description} Lower case, upper case, or mixed case with the EIP-55 checksum."),
        "type": "string",
        "format": "ethereum-address",
        "pattern": "^0x[0-9a-fA-F]{40}$",
    })
}

/// Describes an unsigned integer of `bits` bits in one of three spellings: a JSON number up to what every
/// JSON library keeps exactly, or digits up to the last power of ten that fits, because a pattern cannot
/// compare. The parser accepts more, up to the type's end.
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
        let text = text(DescriptionParameters {
            chain_id: 84_532,
            registry: SIGNER,
            forwarder: SIGNER,
            max_gas: 2_000_000,
        });
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
