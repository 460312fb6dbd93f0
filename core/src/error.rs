//! Every error the read API can answer with: its status, its code, its message, its body.

use serde::Serialize;

use crate::{
    agent::{AgentId, UnknownStatus},
    as_of::BlockId,
    evidence::MAX_SCOPE_BYTES,
    read_api::MAX_AGENTS,
    redact::Redactor,
    rpc::revert::Revert,
    run::RunError,
};

/// An error of the read API (`service.md` section 7).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The caller's: a parameter breaks its rule. 400.
    #[error("Invalid {field}: {rule}")]
    InvalidParameter {
        /// The parameter, as the API names it.
        field: &'static str,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The caller's: the registry has no such agent. 404.
    #[error("Agent not found: {0}")]
    AgentNotFound(AgentId),
    /// The caller's: no RPC endpoint has the state of the block asked about. 404.
    #[error(
        "Block not available: {0}. It is not on the chain, or older than the state that the RPC endpoint keeps"
    )]
    BlockNotAvailable(BlockId),
    /// The caller's: no such route. 404.
    #[error("Not found")]
    NotFound,
    /// The caller's: the API only reads. 405.
    #[error("Method not allowed: this API is read-only, use GET")]
    MethodNotAllowed,
    /// The caller's: what is asked for takes a list of wallets in a body. 405.
    #[error(
        "Method not allowed: use POST with a body of the form {{\"wallets\": [\"0x...\"]}}, or GET /api/v1/kya/:wallet"
    )]
    PostOnly,
    /// The caller's: the body is larger than any good one. 413.
    #[error("Body too large: at most {0} bytes")]
    BodyTooLarge(usize),
    /// The caller's: the body is not said to be JSON. 415.
    #[error("Unsupported media type: the Content-Type must be application/json")]
    UnsupportedMediaType,
    /// The caller's: too many requests. 429.
    #[error("Rate limit exceeded. Try again in 1 minute.")]
    RateLimited,
    /// The registry's: it reverted where it should not have. 500.
    #[error("Registry call {function} reverted: {revert}")]
    Reverted {
        /// The contract function.
        function: &'static str,
        /// What it said.
        revert: Revert,
    },
    /// The registry's: an answer takes more gas than the RPC endpoint has for a call, or is larger than can be read. 500.
    #[error("Registry call {function} needs more gas, or a larger answer, than the RPC endpoint allows")]
    TooHeavy {
        /// The contract function.
        function: &'static str,
    },
    /// The registry's: it answered what its interface does not define. 500.
    #[error("Registry answered nonsense: {0}")]
    UnknownStatus(#[from] UnknownStatus),
    /// The registry's: more agents than one answer can hold. 500.
    #[error("Registry has {0} agents, more than one answer can cover; the most are {MAX_AGENTS}")]
    TooManyAgents(alloy_primitives::U256),
    /// The chain's or the RPC endpoint's: what it answered proves nothing, for this reason (an
    /// [`EvidenceError`](crate::evidence::EvidenceError), as text: pages that make no evidence need not load its messages). 500.
    #[error("Evidence could not be made: {0}")]
    Evidence(String),
    /// The registry's: an operational scope that is too long to be proved. 500.
    #[error(
        "Evidence covers operational scopes of up to {MAX_SCOPE_BYTES} bytes; that of agent {0} is longer"
    )]
    ScopeTooLong(AgentId),
    /// The operator's: evidence needs to know where the registry keeps what. 500.
    #[error(
        "Evidence needs the storage layout of the registry's code, which is not this project's; set EVIDENCE_LAYOUT"
    )]
    NoLayout,
    /// The operator's: the layout is that of another contract. 500.
    #[error("EVIDENCE_LAYOUT is not the storage layout of the registry: {0}")]
    WrongLayout(&'static str),
    /// The chain's or the RPC endpoint's. 500.
    #[error(transparent)]
    Chain(#[from] RunError),
    /// The service's: the registry is too large to be read for one answer, and its index is not filled yet. 503.
    #[error("The index of the registry is being filled: {percent} % are done. Try again soon.")]
    Indexing {
        /// How much of the registry has been read.
        percent: u8,
    },
    /// The client's: a cursor whose changes are no longer kept, or of a list that was lost. 410.
    #[error(
        "The changes since this cursor are no longer kept. Read what you need anew, and go on with since=now."
    )]
    CursorExpired,
    /// The operator's: only an index of the registry can tell, and there is none. 501.
    #[error("This is answered from an index of the registry, and this service keeps none")]
    IndexRequired,
    /// The service's: only the index of the registry can tell, and it does not answer. 503.
    #[error("The index of the registry does not answer. Try again soon.")]
    IndexUnavailable,
    /// What another part of the service answered with.
    #[error("{message}")]
    Relayed {
        /// Its code.
        code: Code,
        /// Its message.
        message: String,
    },
    /// The operator's: a setting is missing or wrong. 500.
    #[error("Misconfigured: {0}")]
    Misconfigured(String),
}

/// What an [`Error`] is to a program that has to act on it. A closed set: messages may change, codes do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ErrorCode", rename_all = "SCREAMING_SNAKE_CASE"))]
pub enum Code {
    /// A parameter breaks its rule; the same request will fail again.
    InvalidParameter,
    /// The registry has no such agent.
    AgentNotFound,
    /// No RPC endpoint has the state of the block asked about.
    BlockNotAvailable,
    /// No such route.
    NotFound,
    /// The path does not take this method; `Allow` names those it takes.
    MethodNotAllowed,
    /// The body is larger than any good one.
    BodyTooLarge,
    /// The body is not said to be JSON.
    UnsupportedMediaType,
    /// Too many requests; `Retry-After` says when to come back.
    RateLimited,
    /// No RPC endpoint gave an answer; the same request may work soon.
    RpcUnavailable,
    /// The RPC endpoint answered, with an error or with nonsense.
    RpcError,
    /// There is no contract where one should be, or it answers what its interface does not define.
    RegistryError,
    /// The registry, or an agent's list in it, is too large for this answer.
    TooLarge,
    /// The service is set up wrongly.
    Misconfigured,
    /// The changes since the cursor are no longer kept.
    CursorExpired,
    /// Only an index of the registry can tell, and the service keeps none.
    IndexRequired,
    /// The registry's index is being filled, or does not answer; `Retry-After` says when to come back.
    Indexing,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 16] = [
        Self::InvalidParameter,
        Self::AgentNotFound,
        Self::BlockNotAvailable,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::RateLimited,
        Self::RpcUnavailable,
        Self::RpcError,
        Self::RegistryError,
        Self::TooLarge,
        Self::Misconfigured,
        Self::CursorExpired,
        Self::IndexRequired,
        Self::Indexing,
    ];

    /// The code as error bodies carry it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidParameter => "INVALID_PARAMETER",
            Self::AgentNotFound => "AGENT_NOT_FOUND",
            Self::BlockNotAvailable => "BLOCK_NOT_AVAILABLE",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::BodyTooLarge => "BODY_TOO_LARGE",
            Self::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            Self::RateLimited => "RATE_LIMITED",
            Self::RpcUnavailable => "RPC_UNAVAILABLE",
            Self::RpcError => "RPC_ERROR",
            Self::RegistryError => "REGISTRY_ERROR",
            Self::TooLarge => "TOO_LARGE",
            Self::Misconfigured => "MISCONFIGURED",
            Self::CursorExpired => "CURSOR_EXPIRED",
            Self::IndexRequired => "INDEX_REQUIRED",
            Self::Indexing => "INDEXING",
        }
    }

    /// The HTTP status (`service.md` section 7).
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidParameter => 400,
            Self::AgentNotFound | Self::BlockNotAvailable | Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::BodyTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::RateLimited => 429,
            Self::RpcUnavailable
            | Self::RpcError
            | Self::RegistryError
            | Self::TooLarge
            | Self::Misconfigured => 500,
            Self::CursorExpired => 410,
            Self::IndexRequired => 501,
            Self::Indexing => 503,
        }
    }
}

/// The body of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Error"))]
pub struct ErrorBody {
    /// What is wrong, in words that may change. Of a parameter: its name and its rule.
    pub error: String,
    /// What is wrong, to a program.
    #[cfg_attr(feature = "schema", schemars(with = "Code"))]
    pub code: &'static str,
}

impl Error {
    /// The same without the secrets of the RPC endpoints that were asked.
    #[must_use]
    pub fn redacted(self, redactor: &Redactor) -> Self {
        match self {
            Self::Chain(error) => Self::Chain(error.redacted(redactor)),
            other => other,
        }
    }

    /// What it is to a program.
    pub const fn code(&self) -> Code {
        match self {
            Self::InvalidParameter { .. } => Code::InvalidParameter,
            Self::AgentNotFound(_) => Code::AgentNotFound,
            Self::BlockNotAvailable(_) => Code::BlockNotAvailable,
            Self::NotFound => Code::NotFound,
            Self::MethodNotAllowed | Self::PostOnly => Code::MethodNotAllowed,
            Self::BodyTooLarge(_) => Code::BodyTooLarge,
            Self::UnsupportedMediaType => Code::UnsupportedMediaType,
            Self::RateLimited => Code::RateLimited,
            Self::Reverted { .. } | Self::UnknownStatus(_) => Code::RegistryError,
            Self::TooManyAgents(_) | Self::TooHeavy { .. } | Self::ScopeTooLong(_) => Code::TooLarge,
            Self::Evidence(_) => Code::RpcError,
            Self::Chain(error) => error.code(),
            Self::Misconfigured(_) | Self::NoLayout | Self::WrongLayout(_) => Code::Misconfigured,
            Self::CursorExpired => Code::CursorExpired,
            Self::IndexRequired => Code::IndexRequired,
            Self::Indexing { .. } | Self::IndexUnavailable => Code::Indexing,
            Self::Relayed { code, .. } => *code,
        }
    }

    /// The HTTP status (`service.md` section 7).
    pub const fn status(&self) -> u16 {
        self.code().status()
    }

    /// Seconds after which the same request may work, for `Retry-After`, where the fault is an RPC endpoint's. What a
    /// limited client has to wait is in its [`Verdict`](crate::window::Verdict).
    pub const fn retry_after(&self) -> Option<u32> {
        match self.code() {
            Code::RpcUnavailable | Code::RpcError | Code::Indexing => Some(10),
            _ => None,
        }
    }

    /// The error that a [body](Self::body) is of; `None` where it is of none.
    pub fn relayed(body: &str) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Body {
            error: String,
            code: String,
        }
        let Body { error: message, code } = serde_json::from_str(body).ok()?;
        let code = Code::ALL.into_iter().find(|known| known.name() == code)?;
        Some(Self::Relayed { code, message })
    }

    /// The JSON body: `{"error": message, "code": code}`.
    pub fn body(&self) -> String {
        let body = ErrorBody { error: self.to_string(), code: self.code().name() };
        // Two strings: serialization has nothing to fail on.
        serde_json::to_string(&body).unwrap_or_default()
    }
}
