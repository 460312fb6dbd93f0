//! A JSON-RPC message: its form, its revision, and the headers that mirror it.

use std::borrow::Cow;

use base64ct::{Base64, Encoding as _};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    reply::{BATCHING, EARLIER, Era, REVISION, Reply, quoted, versions},
    tools,
};
use crate::{
    api::{error::Error, route::Route},
    eth::rpc::present,
};

/// JSON-RPC 2.0: the body is not JSON.
const PARSE_ERROR: i32 = -32_700;
/// JSON-RPC 2.0: the JSON is not a request.
const INVALID_REQUEST: i32 = -32_600;
/// JSON-RPC 2.0: no such method.
const METHOD_NOT_FOUND: i32 = -32_601;
/// JSON-RPC 2.0: the parameters are not those of the method.
const INVALID_PARAMS: i32 = -32_602;
/// MCP: a header is missing, or differs from the body.
const HEADER_MISMATCH: i32 = -32_020;
/// MCP: a revision that this server does not speak.
const UNSUPPORTED_VERSION: i32 = -32_022;
/// JSON-RPC 2.0: an error of this server's own.
const SERVER_ERROR: i32 = -32_000;

/// The most messages of a batch.
const BATCH_MAX: usize = 20;

/// The request's headers that mirror its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// `MCP-Protocol-Version`.
    pub version: Option<String>,
    /// `Mcp-Method`.
    pub method: Option<String>,
    /// `Mcp-Name`.
    pub name: Option<String>,
}

/// A request.
#[derive(Debug)]
pub(super) struct McpRequest<'a> {
    /// A string or a whole number.
    pub(super) id: &'a RawValue,
    pub(super) method: Cow<'a, str>,
    pub(super) params: Params<'a>,
}

/// The parameters of all methods.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Meta<'a>,
    /// The tool that is called.
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    /// The cursor of a list's next page, which no list here has.
    #[serde(borrow)]
    cursor: Option<&'a RawValue>,
    /// The revision that a handshake asks for.
    #[serde(borrow, rename = "protocolVersion")]
    version: Option<Cow<'a, str>>,
}

/// Metadata of a request.
#[derive(Debug, Default, Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
}

/// The reason that a message has no result.
#[derive(Debug)]
pub(super) struct McpError {
    status: u16,
    code: i32,
    message: String,
    /// JSON, or empty.
    data: String,
}

impl McpError {
    fn new(status: u16, code: i32, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: String::new() }
    }

    /// Makes the error of a request that the API's own rules refuse before it is carried out.
    pub(super) fn of_api(status: u16, error: &Error) -> Self {
        let data = format!(r#"{{"code":{}}}"#, quoted(error.code().name()));
        Self { data, ..Self::new(status, SERVER_ERROR, error.to_string()) }
    }

    /// Makes the error of a request from a page that this server does not serve.
    pub(super) fn of_origin() -> Self {
        Self::new(403, INVALID_REQUEST, "Invalid request: Origin is none that this server answers")
    }

    /// Makes the answer to the request with this id, which is `null` in JSON if it could not be read.
    pub(super) fn reply(self, id: Option<&RawValue>) -> Reply {
        let id = id.map_or("null", RawValue::get);
        let Self { status, code, message, data } = self;
        let data = if data.is_empty() { data } else { format!(r#","data":{data}"#) };
        let message = quoted(&message);
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#);
        Reply { status, body }
    }
}

/// Makes the error of a method that this server does not have.
pub(super) fn unknown_method(era: Era, method: &str) -> McpError {
    let status = if era == Era::Stateless { 404 } else { 200 };
    McpError::new(status, METHOD_NOT_FOUND, format!("Method not found: {method}"))
}

/// Returns whether this JSON is an object.
fn is_object(json: &RawValue) -> bool {
    json.get().starts_with('{')
}

/// Returns whether this JSON is a string or a whole number.
fn is_id(json: &RawValue) -> bool {
    let digits = json.get().strip_prefix('-').unwrap_or(json.get());
    json.get().starts_with('"') || digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the messages of a batch; `None` if the body is not a batch, or the client's revision has none.
pub(super) fn batch<'a>(headers: &Headers, body: &'a [u8]) -> Option<Result<Vec<&'a RawValue>, McpError>> {
    if headers.version.as_deref().is_some_and(|version| version > BATCHING) {
        return None;
    }
    let messages: Vec<&RawValue> = serde_json::from_slice(body).ok()?;
    let is_taken = (1..=BATCH_MAX).contains(&messages.len());
    let message = "Invalid request: a batch must have 1 to 20 messages";
    Some(if is_taken { Ok(messages) } else { Err(McpError::new(400, INVALID_REQUEST, message)) })
}

impl<'a> McpRequest<'a> {
    /// Reads a message; `None` for a notification.
    pub(super) fn parse(body: &'a [u8]) -> Result<Option<Self>, McpError> {
        #[derive(Deserialize)]
        struct JsonRpcMessage<'a> {
            #[serde(borrow)]
            jsonrpc: Cow<'a, str>,
            /// A `null` is present, but not an allowed id.
            #[serde(borrow, default, deserialize_with = "present")]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            method: Cow<'a, str>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let json: &RawValue = serde_json::from_slice(body)
            .map_err(|_| McpError::new(400, PARSE_ERROR, "Parse error: the body is not JSON"))?;
        let invalid = |message| McpError::new(400, INVALID_REQUEST, message);
        let not_one = || invalid("Invalid request: the body must be one JSON-RPC request");
        if !is_object(json) {
            return Err(not_one());
        }
        let JsonRpcMessage { jsonrpc, id, method, params } =
            serde_json::from_str(json.get()).map_err(|_| not_one())?;
        if jsonrpc != "2.0" {
            return Err(invalid("Invalid request: jsonrpc must be \"2.0\""));
        }
        let Some(id) = id else { return Ok(None) };
        if !is_id(id) {
            return Err(invalid("Invalid request: id must be a string or a whole number"));
        }
        let params = match params {
            None => Params::default(),
            Some(params) if is_object(params) => serde_json::from_str(params.get())
                .map_err(|error| McpError::new(400, INVALID_PARAMS, format!("Invalid params: {error}")))?,
            Some(_) => return Err(invalid("Invalid request: params must be an object")),
        };
        Ok(Some(Self { id, method, params }))
    }

    /// Returns the era of the client, after checking that the headers match the message.
    pub(super) fn era(&self, headers: &Headers) -> Result<Era, McpError> {
        let Params { meta, name, .. } = &self.params;
        let header = headers.version.as_deref();
        let is_earlier = |version: &str| EARLIER.contains(&version);
        if meta.version.is_none() && header.is_none_or(is_earlier) && self.method != "server/discover" {
            return Ok(Era::Handshake);
        }
        let missing = |key| {
            let rule = "must be in _meta of each request, as of revision";
            McpError::new(400, INVALID_PARAMS, format!("Invalid params: {key} {rule} {REVISION}"))
        };
        let version = meta.version.as_deref();
        let version = version.ok_or_else(|| missing("io.modelcontextprotocol/protocolVersion"))?;
        must_match("MCP-Protocol-Version", header, version)?;
        if version != REVISION {
            let data = format!(r#"{{"supported":{},"requested":{}}}"#, versions(), quoted(version));
            let refusal = McpError::new(400, UNSUPPORTED_VERSION, "Unsupported protocol version");
            return Err(McpError { data, ..refusal });
        }
        if !meta.capabilities.is_some_and(is_object) {
            return Err(missing("io.modelcontextprotocol/clientCapabilities"));
        }
        must_match("Mcp-Method", headers.method.as_deref(), &self.method)?;
        if self.method == "tools/call" {
            let header = headers.name.as_deref().and_then(decoded);
            must_match("Mcp-Name", header.as_deref(), name.as_deref().unwrap_or_default())?;
        }
        Ok(Era::Stateless)
    }

    /// Returns the revision that a handshake agrees on: the requested one, else the newest.
    pub(super) fn agreed(&self) -> Result<&'static str, McpError> {
        let missing =
            || McpError::new(200, INVALID_PARAMS, "Invalid params: protocolVersion must be a revision");
        let asked = self.params.version.as_deref().ok_or_else(missing)?;
        let [newest, ..] = EARLIER;
        Ok(EARLIER.into_iter().find(|known| asked == *known).unwrap_or(newest))
    }

    /// Checks that a list is requested from its beginning.
    pub(super) fn begins_list(&self) -> Result<(), McpError> {
        let message = "Invalid params: cursor: the list has one page";
        match self.params.cursor {
            None => Ok(()),
            Some(_) => Err(McpError::new(200, INVALID_PARAMS, message)),
        }
    }

    /// Returns the route of a call; the inner error is for the model to read.
    pub(super) fn call(&self) -> Result<Result<Route, Error>, McpError> {
        let invalid = |message: String| McpError::new(200, INVALID_PARAMS, message);
        let name = self.params.name.as_deref();
        let name =
            name.ok_or_else(|| invalid("Invalid params: name must be the name of a tool".to_owned()))?;
        let arguments = self.params.arguments.map_or("{}", RawValue::get);
        let arguments = serde_json::from_str(arguments)
            .map_err(|_| invalid("Invalid params: arguments must be an object".to_owned()))?;
        tools::route(name, &arguments).ok_or_else(|| invalid(format!("Unknown tool: {name}")))
    }
}

fn must_match(name: &str, header: Option<&str>, body: &str) -> Result<(), McpError> {
    if header == Some(body) {
        return Ok(());
    }
    let message = match header {
        Some(header) => {
            format!("Header mismatch: {name} header value '{header}' does not match body value '{body}'")
        }
        None => format!("Header mismatch: {name} is missing"),
    };
    Err(McpError::new(400, HEADER_MISMATCH, message))
}

/// Decodes a header's value: plain ASCII, or `=?base64?...?=` around other text; `None` if malformed.
fn decoded(header: &str) -> Option<String> {
    match header.strip_prefix("=?base64?").and_then(|coded| coded.strip_suffix("?=")) {
        None => Some(header.to_owned()),
        Some(coded) => String::from_utf8(Base64::decode_vec(coded).ok()?).ok(),
    }
}
