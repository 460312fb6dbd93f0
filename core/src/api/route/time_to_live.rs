//! Times to live: for how long answers may be cached, where an operator sets nothing else.

/// For how many seconds the answer at a final block is cached: a day. It stays true, but its shape may gain
/// fields.
pub const FINAL_SECONDS: u32 = 86_400;

/// What sets an answer's time to live: the cache scopes of `service.md` section 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// Not cached.
    None,
    /// Agent data.
    Agent,
    /// Lineage trees.
    Lineage,
    /// KYA checks.
    Kya,
}

impl CacheScope {
    /// The documented time to live in seconds.
    pub const fn default_seconds(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Agent => 300,
            Self::Lineage => 600,
            Self::Kya => 60,
        }
    }
}
