//! `/openapi.json`, made at start, so that it names this relayer's contracts, limits and chain.

use std::f64;

use alloy::{
    primitives::{Address, B256, U256, address, b256, hex},
    sol_types::SolCall as _,
};
use openapi::{Schemas, body, error, header, linked, response};
use registry_core::{
    abi::IAgentRegistry::attestComplianceCall,
    forward::{DOMAIN_NAME, DOMAIN_VERSION, ParseError, Refusal},
};
use serde_json::{Map, Value, json};

use super::shapes::{DomainBody, ExecutedBody, FailureBody, NonceBody, RelayBody, StatusBody};
use crate::{
    chain::RpcError,
    outcome::{ErrorCode, Failure, MinedTransaction, RelayOutcome},
    store::RelayRecord,
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
    let paths = paths(&mut schemas, relayer);
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
        "components": { "schemas": schemas, "headers": headers() },
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
        "/readyz": { "get": ready() },
        "/metrics": { "get": metrics() },
        "/openapi.json": { "get": description() },
    })
}

fn relay(schemas: &mut Schemas) -> Value {
    let executed = body(&schemas.of::<ExecutedBody>(), &ExecutedBody::new(ID, &MINED, Some(U256::from(42))));
    let pending = RelayRecord { outcome: None, hashes: vec![MINED.tx_hash] };
    let pending = body(&schemas.of::<RelayBody<'_>>(), &RelayBody::new(ID, &pending));
    let elsewhere = [
        ErrorCode::InvalidId,
        ErrorCode::InvalidAddress,
        ErrorCode::RelayNotFound,
        ErrorCode::NotFound,
        ErrorCode::MethodNotAllowed,
        ErrorCode::ChainSilent,
        ErrorCode::SenderStalled,
    ];
    let failures: Vec<ErrorCode> =
        ErrorCode::ALL.iter().copied().filter(|code| !elsewhere.contains(code)).collect();
    let operation = Operation {
        id: "relay",
        tag: "Relaying",
        summary: "Executes a signed request",
        answers: vec![
            ("200", linked(response("It was executed.", OF_RELAY, &executed), "getRelay", "/id")),
            (
                "202",
                linked(
                    response("It goes on, whether you wait or not.", OF_RELAY, &pending),
                    "getRelay",
                    "/id",
                ),
            ),
        ],
        failures: &failures,
        ..Operation::default()
    };
    let request =
        json!({ "application/json": { "schema": { "$ref": "#/components/schemas/SignedRequest" } } });
    operation.describe(&[("requestBody", json!({ "required": true, "content": request }))])
}

fn relay_state(schemas: &mut Schemas) -> Value {
    let outcome = RelayOutcome::Reverted { mined: MINED, failure: Failure::reverted("Agent not active") };
    let record = RelayRecord { outcome: Some(outcome), hashes: vec![MINED.tx_hash] };
    let content = body(&schemas.of::<RelayBody<'_>>(), &RelayBody::new(ID, &record));
    let operation = Operation {
        id: "getRelay",
        tag: "Relaying",
        summary: "What became of a request",
        answers: vec![("200", response("Its state.", EVERY, &content))],
        failures: &[
            ErrorCode::InvalidId,
            ErrorCode::RelayNotFound,
            ErrorCode::NotFound,
            ErrorCode::JournalFailed,
        ],
        ..Operation::default()
    };
    operation.describe(&[parameter("id", &relay_id(), &ID)])
}

fn nonce(schemas: &mut Schemas) -> Value {
    let nonce = NonceBody { address: SIGNER, nonce: U256::from(5), next: U256::from(6) };
    let content = body(&schemas.of::<NonceBody>(), &nonce);
    let operation = Operation {
        id: "getNonce",
        tag: "Relaying",
        summary: "The nonce to sign with",
        answers: vec![("200", response("Its nonces.", EVERY, &content))],
        failures: &[
            ErrorCode::InvalidAddress,
            ErrorCode::NotFound,
            ErrorCode::IpRateLimited,
            ErrorCode::RpcFailed,
            ErrorCode::RpcTimeout,
            ErrorCode::JournalFailed,
        ],
        ..Operation::default()
    };
    operation.describe(&[parameter("address", &address("The signer."), &SIGNER)])
}

fn domain(schemas: &mut Schemas, relayer: Particulars) -> Value {
    let domain = DomainBody {
        name: DOMAIN_NAME,
        version: DOMAIN_VERSION,
        chain_id: relayer.chain_id,
        verifying_contract: relayer.forwarder,
    };
    let content = body(&schemas.of::<DomainBody>(), &domain);
    let operation = Operation {
        id: "getDomain",
        tag: "Relaying",
        summary: "The EIP-712 domain to sign for",
        answers: vec![("200", response("The domain.", EVERY, &content))],
        ..Operation::default()
    };
    operation.describe(&[])
}

fn status(schemas: &mut Schemas) -> Value {
    let content = json!({ "application/json": { "schema": schemas.of::<StatusBody>() } });
    let operation = Operation {
        id: "getStatus",
        summary: "Account, budget, limits and queue",
        answers: vec![("200", response("As things stand.", EVERY, &content))],
        failures: &[
            ErrorCode::IpRateLimited,
            ErrorCode::RpcFailed,
            ErrorCode::RpcTimeout,
            ErrorCode::JournalFailed,
        ],
        ..Operation::default()
    };
    operation.describe(&[])
}

fn live() -> Value {
    let answers = vec![("200", response("It does.", EVERY, &flag("live")))];
    Operation { id: "isLive", summary: "Whether the relayer runs", answers, ..Operation::default() }
        .describe(&[])
}

fn ready() -> Value {
    let operation = Operation {
        id: "isReady",
        summary: "Whether requests make sense now",
        answers: vec![("200", response("They do.", EVERY, &flag("ready")))],
        failures: &[
            ErrorCode::ShuttingDown,
            ErrorCode::JournalFailed,
            ErrorCode::ChainSilent,
            ErrorCode::SenderStalled,
            ErrorCode::RelayerBalanceTooLow,
            ErrorCode::GasBudgetExhausted,
        ],
        failure_status: Some(503),
        ..Operation::default()
    };
    operation.describe(&[])
}

fn metrics() -> Value {
    let content = json!({ "text/plain": { "schema": { "type": "string" } } });
    let answers = vec![("200", response("Every metric, in Prometheus's text format.", EVERY, &content))];
    Operation { id: "getMetrics", summary: "Metrics", answers, ..Operation::default() }.describe(&[])
}

fn description() -> Value {
    let content = json!({ "application/json": { "schema": { "type": "object" } } });
    let answers = vec![("200", response("An OpenAPI document.", EVERY, &content))];
    Operation { id: "getDescription", summary: "This description", answers, ..Operation::default() }
        .describe(&[])
}

/// An operation of the description.
struct Operation<'a> {
    id: &'a str,
    tag: &'a str,
    summary: &'a str,
    /// The answers of success, by status.
    answers: Vec<(&'a str, Value)>,
    /// The codes of the failures.
    failures: &'a [ErrorCode],
    /// The status of all failures, if it is not each code's own.
    failure_status: Option<u16>,
}

impl Default for Operation<'_> {
    fn default() -> Self {
        Self {
            id: "",
            tag: "Operations",
            summary: "",
            answers: Vec::new(),
            failures: &[],
            failure_status: None,
        }
    }
}

impl Operation<'_> {
    /// The operation's JSON; `takes` are its parameters or its body.
    fn describe(self, takes: &[(&str, Value)]) -> Value {
        let owned = |(name, value): &(&str, Value)| ((*name).to_owned(), value.clone());
        let mut responses: Map<String, Value> = self.answers.iter().map(owned).collect();
        let status_of = |code: &ErrorCode| self.failure_status.unwrap_or_else(|| code.status());
        for status in self.failures.iter().map(status_of) {
            let codes: Vec<ErrorCode> =
                self.failures.iter().copied().filter(|code| status_of(code) == status).collect();
            responses.insert(status.to_string(), failure(status, &codes));
        }
        let mut operation: Map<String, Value> = takes.iter().map(owned).collect();
        operation.insert("operationId".to_owned(), json!(self.id));
        operation.insert("tags".to_owned(), json!([self.tag]));
        operation.insert("summary".to_owned(), json!(self.summary));
        operation.insert("responses".to_owned(), responses.into());
        operation.into()
    }
}

/// The one parameter of a path.
fn parameter(name: &str, schema: &Value, example: &impl ToString) -> (&'static str, Value) {
    let parameter = json!({
        "name": name, "in": "path", "required": true, "schema": schema, "example": example.to_string(),
    });
    ("parameters", json!([parameter]))
}

fn relay_id() -> Value {
    json!({
        "description": "The request's EIP-712 digest.",
        "type": "string",
        "format": "relay-id",
        "pattern": "^0x[0-9a-fA-F]{64}$",
    })
}

/// A response for errors with these codes, all of this status.
fn failure(status: u16, codes: &[ErrorCode]) -> Value {
    let description = match status {
        400 => "The request cannot be read.",
        401 => "The signature is not good, or not any more.",
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
        Failure::nonce_mismatch(),
        Failure::from(Refusal::Target),
        Failure::ip_limit(20, 180),
        Failure::reverted("Agent not active"),
        Failure::from(RpcError::Timeout),
        Failure::store(),
        Failure::balance_too_low(),
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

/// An unsigned integer of `bits` bits in one of three spellings: a JSON number up to what every JSON library keeps
/// exactly, or digits up to the last power of ten that fits, because a pattern cannot compare. The parser accepts more,
/// up to the type's end.
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
        let elsewhere = [ErrorCode::MethodNotAllowed];
        for code in ErrorCode::ALL.iter().copied().filter(|code| !elsewhere.contains(code)) {
            assert!(paths.contains(&format!("\"{}\"", code.name())), "{code:?}");
        }
    }
}
