//! The codes that error bodies carry, and their HTTP statuses (`service.md` section 7).

use strum::VariantArray as _;

/// What an error is to a program that has to act on it. A closed set: messages may change, codes do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
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
    pub fn all() -> impl Iterator<Item = Self> {
        Self::VARIANTS.iter().copied()
    }

    /// The code of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|code| code.name() == name)
    }

    /// The code as error bodies carry it.
    pub fn name(self) -> &'static str {
        self.into()
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
