//! Times to live of cached answers, where an operator sets no others.

/// Time to live of an answer at a final block, in seconds: a day. The answer stays true, but its shape may
/// gain fields.
pub const FINAL_SECONDS: u32 = 86_400;

/// The cache scopes of `service.md` section 1, which set an answer's time to live.
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
    /// Returns the documented time to live in seconds.
    pub const fn default_seconds(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Agent => 300,
            Self::Lineage => 600,
            Self::Kya => 60,
        }
    }
}
