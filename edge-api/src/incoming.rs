//! Parsing of a request: its resource, and the form of the answer that its client accepts.

use std::{borrow::Cow, cell::OnceCell};

use registry_core::{
    api::accept::{self, EVENTS_TYPE, Form},
    api::download::Download,
    api::error::Error,
    api::mcp,
    api::route::{KYA_BODY_BYTES_MAX, Route},
    host::rate_limit::ClientKey,
    registry::well_known,
    token::Audience,
};
use worker::{js_sys::Reflect, web_sys};

use crate::{
    body,
    cache::ApiRequest,
    http::Target,
    pages::{self, Page},
    settings::Settings,
    stream,
};

/// A request. It is the runtime's own type and not the library's, which takes unknown methods for GET and
/// converts more than is needed.
pub(crate) struct IncomingRequest<'a> {
    pub(crate) request: &'a web_sys::Request,
    headers: web_sys::Headers,
    /// The tool call in its body, where it is one.
    pub(crate) call: OnceCell<mcp::ToolCall>,
}

impl<'a> IncomingRequest<'a> {
    pub(crate) fn new(request: &'a web_sys::Request) -> Self {
        Self { headers: request.headers(), request, call: OnceCell::new() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).ok().flatten()
    }

    /// Returns the media types that the client accepts: the path's own before the header's.
    pub(crate) fn accept(&self, target: &Target) -> Cow<'static, str> {
        let of_path = Route::media_type(target.path_and_query()).map(Cow::Borrowed);
        of_path.unwrap_or_else(|| self.header("Accept").unwrap_or_default().into())
    }

    /// Returns whether the client takes a body in gzip. The client's own value is beside the request: the
    /// header that a Worker sees is Cloudflare's.
    pub(crate) fn takes_gzip(&self) -> bool {
        let of_client = Reflect::get(self.request, &"cf".into())
            .and_then(|cf| Reflect::get(&cf, &"clientAcceptEncoding".into()))
            .ok()
            .and_then(|accepted| accepted.as_string());
        let accepted = of_client.or_else(|| self.header("Accept-Encoding"));
        accepted.is_some_and(|accepted| accept::names(&accepted, "gzip"))
    }

    /// Returns the key of the rate limit. Only headers are trusted that Cloudflare sets and clients cannot.
    pub(crate) fn client(&self) -> ClientKey {
        ClientKey::of(self.header("CF-Connecting-IP").as_deref(), || self.header("CF-Worker"))
    }
}

/// The resource of a request.
pub(crate) enum Resource {
    /// A static page.
    Page(&'static Page),
    /// Liveness of this code.
    Live,
    /// The keys that verdicts are signed with.
    Keys,
    /// The discovery document of the registry.
    Registry,
    /// A reply to an MCP client that takes no data.
    Message(mcp::Reply),
    /// A tool call of an MCP client, which a route answers.
    Tool(mcp::ToolCall),
    /// Several messages of an MCP client.
    Batch(Vec<mcp::Message>),
    /// A request that is rate-limited, and answered from the chain or the index.
    Counted(ApiRequest),
}

/// Path of the published keys, where verifiers look for them.
const KEYS: &str = "/.well-known/jwks.json";

/// `/readyz`, where every error means that the service is not ready.
pub(crate) const READY: &str = "/readyz";

impl Resource {
    /// Parses the resource of a request. A body is read only where the path takes one.
    pub(crate) async fn parse(
        request: &IncomingRequest<'_>,
        method: &str,
        target: &Target,
    ) -> Result<Self, Error> {
        match method {
            "GET" | "HEAD" => Self::parse_get(target),
            "POST" if target.path() == mcp::PATH => {
                let body = body::read(request.request, mcp::MESSAGE_BYTES_MAX).await?;
                let headers = mcp::Headers {
                    version: request.header("MCP-Protocol-Version"),
                    method: request.header("Mcp-Method"),
                    name: request.header("Mcp-Name"),
                };
                Ok(match mcp::Message::parse(&headers, &body) {
                    mcp::Message::Answered(reply) => Self::Message(reply),
                    mcp::Message::Call(call) => Self::Tool(request.call.get_or_init(|| call).clone()),
                    mcp::Message::Batch(messages) => Self::Batch(messages),
                })
            }
            "POST" => {
                check_post(target)?;
                let body = body::read(request.request, KYA_BODY_BYTES_MAX).await?;
                Route::parse_post(target.path_and_query(), &body)
                    .map(|route| Self::Counted(ApiRequest::Api(route)))
            }
            // Where POST is taken, the error of a GET says which body.
            _ => check_post(target).and_then(|()| Self::parse_get(target)),
        }
    }

    fn parse_get(target: &Target) -> Result<Self, Error> {
        let path = target.path();
        if let Some(page) = pages::find(path) {
            return Ok(Self::Page(page));
        }
        match path {
            mcp::PATH => Err(Error::PostOnly("one JSON-RPC message of the Model Context Protocol")),
            "/livez" => Ok(Self::Live),
            KEYS => Ok(Self::Keys),
            well_known::PATH => Ok(Self::Registry),
            READY => Ok(Self::Counted(ApiRequest::Ready)),
            _ if let Some(download) = Download::parse(target.path_and_query()) => {
                download.map(|download| Self::Counted(ApiRequest::Download(download)))
            }
            _ => Route::parse(target.path_and_query()).map(|route| Self::Counted(ApiRequest::Api(route))),
        }
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Page(page) => page.path,
            Self::Live => "/livez",
            Self::Keys => KEYS,
            Self::Registry => well_known::PATH,
            Self::Message(_) | Self::Tool(_) | Self::Batch(_) => mcp::PATH,
            Self::Counted(ApiRequest::Ready) => READY,
            Self::Counted(ApiRequest::Download(download)) => download.pattern(),
            Self::Counted(ApiRequest::Api(route)) => route.pattern(),
            // Routes become streams later.
            Self::Counted(ApiRequest::Events(_)) => "/api/v1/changes",
        }
    }
}

/// Checks that a path takes POST.
pub(crate) fn check_post(target: &Target) -> Result<(), Error> {
    if target.path() == mcp::PATH { Ok(()) } else { Route::check_post(target.path_and_query()) }
}

/// Form of an answer.
pub(crate) enum AnswerForm {
    /// The document.
    Json,
    /// The verdict as a token.
    Token(Option<Audience>),
    /// The document as the result of a tool.
    Tool(mcp::ToolCall),
}

impl AnswerForm {
    pub(crate) const fn is_tool(&self) -> bool {
        matches!(self, Self::Tool(_))
    }
}

/// Turns a request for changes into one for a stream, where its client accepts events.
pub(crate) fn as_stream(
    request: &IncomingRequest<'_>,
    target: &Target,
    counted: ApiRequest,
) -> Result<ApiRequest, Error> {
    let is_stream = || accept::names(&request.accept(target), EVENTS_TYPE);
    match counted {
        ApiRequest::Api(Route::Changes { since, liable: None, .. }) if is_stream() => {
            stream::events::begin(request.header("Last-Event-ID").as_deref(), since).map(ApiRequest::Events)
        }
        ApiRequest::Api(Route::Changes { .. }) if Route::media_type(target.path_and_query()).is_some() => {
            let rule = "must not be asked for as a stream";
            Err(Error::InvalidParameter { field: "liable", rule })
        }
        counted => Ok(counted),
    }
}

/// Returns the form that a request accepts: JSON, or a token in its place.
pub(crate) fn form_of(
    request: &IncomingRequest<'_>,
    settings: &Settings,
    target: &Target,
    counted: &ApiRequest,
) -> Result<AnswerForm, Error> {
    let ApiRequest::Api(route @ (Route::Kya { .. } | Route::KyaList { .. } | Route::Evidence(_))) = counted
    else {
        return Ok(AnswerForm::Json);
    };
    let audience = Route::audience(target.path_and_query())?;
    // A verdict at another block may no longer hold; a list and a proof are no statement on one wallet.
    let is_signed = matches!(route, Route::Kya { block: None, .. });
    match accept::form(&request.accept(target), is_signed && settings.signing.is_some()) {
        Some(Form::Json) => Ok(AnswerForm::Json),
        Some(Form::Token) => Ok(AnswerForm::Token(audience)),
        None if settings.signing.is_none() => {
            Err(Error::NotAcceptable("this service signs no verdicts, as VERDICT_KEYS is not set"))
        }
        None => Err(Error::NotAcceptable("only the verdict on one wallet at the newest block is signed")),
    }
}
