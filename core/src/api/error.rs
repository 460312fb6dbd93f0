//! Every error the read API can answer with: its status, its code, its message, its body.

use serde::Serialize;

use crate::{
    chain::{Halt, QueryError, RunError},
    eth::redact::Redactor,
    evidence::MAX_SCOPE_BYTES,
    index::IndexError,
    registry::{agent::AgentId, error_code::Code},
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
    /// What reading the registry ended with.
    #[error(transparent)]
    Query(#[from] QueryError),
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

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        Self::Query(error.into())
    }
}

impl From<Halt> for Halt<Error> {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Need(need) => Self::Need(need),
            Halt::Error(error) => Self::Error(error.into()),
        }
    }
}

/// The error that clients are told where an index ends with one; the others are the host's to judge.
impl TryFrom<IndexError> for Error {
    type Error = IndexError;

    fn try_from(error: IndexError) -> Result<Self, IndexError> {
        match error {
            IndexError::Query(error) => Ok(error.into()),
            IndexError::CursorExpired => Ok(Self::CursorExpired),
            IndexError::Busy => Ok(Self::IndexUnavailable),
            other => Err(other),
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
            Self::Query(error) => Self::Query(error.redacted(redactor)),
            other => other,
        }
    }

    /// What it is to a program.
    pub const fn code(&self) -> Code {
        match self {
            Self::InvalidParameter { .. } => Code::InvalidParameter,
            Self::NotFound => Code::NotFound,
            Self::MethodNotAllowed | Self::PostOnly => Code::MethodNotAllowed,
            Self::BodyTooLarge(_) => Code::BodyTooLarge,
            Self::UnsupportedMediaType => Code::UnsupportedMediaType,
            Self::RateLimited => Code::RateLimited,
            Self::ScopeTooLong(_) => Code::TooLarge,
            Self::Evidence(_) => Code::RpcError,
            Self::Query(error) => error.code(),
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
    /// limited client has to wait is in its [`RateLimitVerdict`](crate::host::rate_limit::RateLimitVerdict).
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
        let code = Code::from_name(&code)?;
        Some(Self::Relayed { code, message })
    }

    /// The JSON body: `{"error": message, "code": code}`.
    pub fn body(&self) -> String {
        let body = ErrorBody { error: self.to_string(), code: self.code().name() };
        // Two strings: serialization has nothing to fail on.
        serde_json::to_string(&body).unwrap_or_default()
    }
}
