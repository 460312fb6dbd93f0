//! The codes that error bodies carry, and their HTTP statuses (`service.md` section 7).

use strum::VariantArray as _;

/// The stable code of an error, for programs. A closed set: messages may change, codes do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ErrorCode", rename_all = "SCREAMING_SNAKE_CASE"))]
pub enum Code {
    /// A parameter breaks its rule; the same request will fail again.
    InvalidParameter,
    /// The registry has no such agent.
    AgentNotFound,
    /// No RPC endpoint has the state of the requested block.
    BlockNotAvailable,
    /// No such route.
    NotFound,
    /// The path does not support this method; `Allow` names those that it supports.
    MethodNotAllowed,
    /// The answer cannot be given in the form that `Accept` asks for.
    NotAcceptable,
    /// The body is too large.
    BodyTooLarge,
    /// The body's `Content-Type` is not JSON.
    UnsupportedMediaType,
    /// Too many requests; `Retry-After` says when to retry.
    RateLimited,
    /// No RPC endpoint answered; the same request may succeed later.
    RpcUnavailable,
    /// The RPC endpoint answered with an error, or with an invalid response.
    RpcError,
    /// The registry's address has no contract, or its answer does not fit the interface.
    RegistryError,
    /// The registry, or a list of an agent, is too large for this answer.
    TooLarge,
    /// The service is misconfigured.
    Misconfigured,
    /// The changes since the cursor are no longer kept.
    CursorExpired,
    /// The answer needs an index of the registry, and the service has none.
    IndexRequired,
    /// The RPC endpoint lacks what the answer needs, such as proofs; the message names it.
    NodeLacksMethod,
    /// The registry's index is being built, or does not answer; `Retry-After` says when to retry.
    Indexing,
}

impl Code {
    /// Returns all codes.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::VARIANTS.iter().copied()
    }

    /// Returns the code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|code| code.name() == name)
    }

    /// Returns the code as error bodies carry it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the HTTP status (`service.md` section 7).
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidParameter => 400,
            Self::AgentNotFound | Self::BlockNotAvailable | Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::BodyTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::RateLimited => 429,
            Self::RpcUnavailable
            | Self::RpcError
            | Self::RegistryError
            | Self::TooLarge
            | Self::Misconfigured => 500,
            Self::CursorExpired => 410,
            Self::IndexRequired | Self::NodeLacksMethod => 501,
            Self::Indexing => 503,
        }
    }
}
