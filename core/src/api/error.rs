//! The errors of the read API: status, code, message and body.

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
    /// 400: a parameter breaks its rule.
    #[error("Invalid {field}: {rule}")]
    InvalidParameter {
        /// The parameter, as the API names it.
        field: &'static str,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// 404: no such route.
    #[error("Not found")]
    NotFound,
    /// 405: the API only reads.
    #[error("Method not allowed: this API is read-only, use GET")]
    MethodNotAllowed,
    /// 405: the path takes a body of this form.
    #[error("Method not allowed: use POST with {0}")]
    PostOnly(&'static str),
    /// 406: the client accepts only a token, and gets none for this reason.
    #[error("Not acceptable: {0}; ask for application/json")]
    NotAcceptable(&'static str),
    /// 413: the body is larger than any valid one.
    #[error("Body too large: at most {0} bytes")]
    BodyTooLarge(usize),
    /// 415: the `Content-Type` is not JSON.
    #[error("Unsupported media type: the Content-Type must be application/json")]
    UnsupportedMediaType,
    /// 429: too many requests.
    #[error("Rate limit exceeded. Try again in 1 minute.")]
    RateLimited,
    /// 429: too many streams are open.
    #[error("Too many open streams. Close one, or try again in a minute.")]
    TooManyStreams,
    /// 500: the RPC endpoint's answers prove nothing, for this reason. It is an
    /// [`EvidenceError`](crate::evidence::EvidenceError) as text, so that pages that make no evidence need
    /// not load its messages.
    #[error("Evidence could not be made: {0}")]
    Evidence(String),
    /// 500: an operational scope in the registry is too long to be proved.
    #[error(
        "Evidence covers operational scopes of up to {MAX_SCOPE_BYTES} bytes; that of agent {0} is longer"
    )]
    ScopeTooLong(AgentId),
    /// 500, for the operator: evidence needs the registry's storage layout.
    #[error(
        "Evidence needs the storage layout of the registry's code, which is not this project's; set EVIDENCE_LAYOUT"
    )]
    NoLayout,
    /// 500, for the operator: the configured layout is that of another contract.
    #[error("EVIDENCE_LAYOUT is not the storage layout of the registry: {0}")]
    WrongLayout(&'static str),
    /// Reading the registry failed.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// 503: the registry is too large to be read for one answer, and its index is not filled yet.
    #[error("The index of the registry is being filled: {percent} % are done. Try again soon.")]
    Indexing {
        /// The part of the registry that the index has read, in percent.
        percent: u8,
    },
    /// 410: the changes since this cursor are no longer kept, or its list was closed.
    #[error(
        "The changes since this cursor are no longer kept. Read what you need anew, and go on with since=now."
    )]
    CursorExpired,
    /// 501: the route needs an index of the registry, and the service keeps none.
    #[error("This is answered from an index of the registry, and this service keeps none")]
    IndexRequired,
    /// 503: the route needs the index of the registry, which does not answer.
    #[error("The index of the registry does not answer. Try again soon.")]
    IndexUnavailable,
    /// 501: the route needs a snapshot of the registry, and the index gives none, for this reason.
    #[error("This is answered from a snapshot of the registry, and there is none: {0}")]
    NoSnapshot(NoSnapshot),
    /// The error that another part of the service answered with.
    #[error("{message}")]
    Relayed {
        /// The relayed code.
        code: Code,
        /// The relayed message.
        message: String,
    },
    /// 500, for the operator: a setting is missing or wrong.
    #[error("Misconfigured: {0}")]
    Misconfigured(String),
}

/// The reason that a working index gives no snapshot of the registry, until its operator changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSnapshot {
    /// The TTL of verdicts, in seconds, is too short: a manifest serves for less than that.
    #[error("KYA_TTL_SECONDS is {0}, and must be at least 2")]
    ShortTtl(u32),
    /// No proof shows that the rows are the chain's.
    #[error(
        "the RPC endpoint proves no state (eth_getProof), or the registry's code is not known to keep all state in its own storage"
    )]
    NoProofs,
}

/// Milliseconds for which an error that is certain to repeat is kept, so that the work is not done again.
pub const LASTING_MILLIS: u64 = 5_000;

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

/// Converts an index's error to the one that clients get. The host handles the other kinds.
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
    /// The message, in words that may change. For a parameter: its name and its rule.
    pub error: String,
    /// The code for programs.
    #[cfg_attr(feature = "schema", schemars(with = "Code"))]
    pub code: &'static str,
}

impl Error {
    /// Removes the secrets of the RPC endpoints.
    #[must_use]
    pub fn redacted(self, redactor: &Redactor) -> Self {
        match self {
            Self::Query(error) => Self::Query(error.redacted(redactor)),
            other => other,
        }
    }

    /// Returns the code for programs.
    pub const fn code(&self) -> Code {
        match self {
            Self::InvalidParameter { .. } => Code::InvalidParameter,
            Self::NotFound => Code::NotFound,
            Self::MethodNotAllowed | Self::PostOnly(_) => Code::MethodNotAllowed,
            Self::NotAcceptable(_) => Code::NotAcceptable,
            Self::BodyTooLarge(_) => Code::BodyTooLarge,
            Self::UnsupportedMediaType => Code::UnsupportedMediaType,
            Self::RateLimited | Self::TooManyStreams => Code::RateLimited,
            Self::ScopeTooLong(_) => Code::TooLarge,
            Self::Evidence(_) => Code::RpcError,
            Self::Query(error) => error.code(),
            Self::Misconfigured(_) | Self::NoLayout | Self::WrongLayout(_) => Code::Misconfigured,
            Self::CursorExpired => Code::CursorExpired,
            Self::IndexRequired => Code::IndexRequired,
            Self::NoSnapshot(NoSnapshot::ShortTtl(_)) => Code::IndexRequired,
            Self::NoSnapshot(NoSnapshot::NoProofs) => Code::NodeLacksMethod,
            Self::Indexing { .. } | Self::IndexUnavailable => Code::Indexing,
            Self::Relayed { code, .. } => *code,
        }
    }

    /// Returns the HTTP status (`service.md` section 7).
    pub const fn status(&self) -> u16 {
        self.code().status()
    }

    /// Returns the milliseconds for which the error is certain to repeat, so that a retry is pointless; 0 if
    /// a retry may succeed at once.
    pub const fn lasting_millis(&self) -> u64 {
        match self.code() {
            Code::TooLarge | Code::RegistryError | Code::BlockNotAvailable => LASTING_MILLIS,
            _ => 0,
        }
    }

    /// Returns the seconds for `Retry-After`, if the fault is an RPC endpoint's or the index's, or too many
    /// streams are open. A rate-limited client's wait is in its
    /// [`RateLimitVerdict`](crate::host::rate_limit::RateLimitVerdict).
    pub const fn retry_after(&self) -> Option<u32> {
        match (self, self.code()) {
            (Self::TooManyStreams, _) => Some(60),
            (_, Code::RpcUnavailable | Code::RpcError | Code::Indexing) => Some(10),
            _ => None,
        }
    }

    /// Parses a [body](Self::body); `None` for another text.
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

    /// Returns the JSON body: `{"error": message, "code": code}`.
    pub fn body(&self) -> String {
        let body = ErrorBody { error: self.to_string(), code: self.code().name() };
        // Serialization of two strings cannot fail.
        serde_json::to_string(&body).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eth::as_of::BlockId;

    #[test]
    fn an_error_that_is_certain_to_repeat_lasts_for_five_seconds() {
        for (error, millis) in [
            (RunError::NoContract(Default::default()).into(), 5_000),
            (QueryError::BlockNotAvailable(BlockId::Number(9)).into(), 5_000),
            (QueryError::TooHeavy { function: "f" }.into(), 5_000),
            (RunError::Unreachable.into(), 0),
            (Error::IndexUnavailable, 0),
        ] {
            assert_eq!(Error::lasting_millis(&error), millis, "{error}");
        }
    }
}
