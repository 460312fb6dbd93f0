//! Routes: path and query text to a typed [`Route`], and back to its canonical form, which is the cache key.
//!
//! Every 400 and 404 that does not need the chain is decided here. Parsed as text, because a URL library
//! brings 160 KB of internationalised domain names into the Worker.

mod agent_query;
mod canonical;
mod parse;
mod query;

use alloy_primitives::Address;

use crate::{
    eth::as_of::BlockId,
    registry::agent::{AgentId, Status},
    registry::agent_query::AgentQuery,
    registry::changes::Since,
    registry::compliance::CompliancePage,
    registry::cursor::AgentCursor,
    registry::history::HistoryCursor,
    registry::kya::WalletInput,
    registry::page::Page,
};

/// Largest page of `/agents` (`service.md` section 8).
pub const AGENTS_LIMIT_MAX: u64 = 100;
/// Page size of `/agents` where none is given.
pub const AGENTS_LIMIT_DEFAULT: u64 = 20;
/// Largest page of `/agent/:id/revenue`.
pub const REVENUE_LIMIT_MAX: u64 = 500;
/// Most changes of an answer of `/changes`.
pub const CHANGES_LIMIT_MAX: u64 = 500;
/// Changes of an answer of `/changes` where no number is given.
pub const CHANGES_LIMIT_DEFAULT: u64 = 100;
/// Most events of a page of `/agent/:id/history`.
pub const HISTORY_LIMIT_MAX: u64 = 100;
/// Events of a page of `/agent/:id/history` where no number is given.
pub const HISTORY_LIMIT_DEFAULT: u64 = 50;
/// The most wallets of `GET /kya/:wallet,:wallet...`.
pub const KYA_PATH_MAX: usize = 20;
/// The most wallets of `POST /kya`.
pub const KYA_BODY_MAX: usize = 100;
/// The most bytes of its body: a hundred wallets take 4,600, and the rest is room for spaces.
pub const KYA_BODY_BYTES_MAX: usize = 16 * 1024;
/// Page size of `/agent/:id/revenue` where none is given.
pub const REVENUE_LIMIT_DEFAULT: u64 = 100;

/// One question the API answers, its parameters checked and cut to their limits (`service.md` section 4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// `/health`
    Health,
    /// `/api/v1/stats`
    Stats,
    /// `/api/v1/stats/detailed`
    DetailedStats,
    /// `/api/v1/agent/:id`
    Agent {
        /// Which agent.
        id: AgentId,
        /// At which block, if not the newest.
        block: Option<BlockId>,
    },
    /// `/api/v1/agent/:id/ancestors`
    Ancestors(AgentId),
    /// `/api/v1/agents`
    Agents {
        /// Which page.
        page: Page,
        /// Only agents of this status.
        status: Option<Status>,
    },
    /// `/api/v1/agents`, filtered by more than a status, searched, sorted or with a cursor
    Listing(Box<AgentQuery>),
    /// `/api/v1/agents/compliance`; a page of it where one is asked for
    Compliance(Option<CompliancePage>),
    /// `/api/v1/liable/:wallet`
    Liable {
        /// Who is liable.
        person: Address,
        /// Agents to give at most.
        limit: u64,
        /// Where to go on.
        cursor: Option<AgentCursor>,
    },
    /// `/api/v1/agent/:id/lineage`
    Lineage(AgentId),
    /// `/api/v1/agent/:id/history`
    History {
        /// Whose.
        id: AgentId,
        /// Events to give at most.
        limit: u64,
        /// Where to go on.
        cursor: Option<HistoryCursor>,
    },
    /// `/api/v1/agent/:id/revenue`
    Revenue {
        /// Whose history.
        id: AgentId,
        /// Reports to pass over.
        offset: u64,
        /// Reports to give at most.
        limit: u64,
    },
    /// `/api/v1/revenue/aggregate`
    RevenueAggregate,
    /// `/api/v1/kya/:wallet`
    Kya {
        /// Which wallet.
        wallet: Address,
        /// At which block, if not the newest.
        block: Option<BlockId>,
        /// With its past, whatever it takes.
        history: bool,
    },
    /// `/api/v1/kya/:wallet,:wallet...`, and `POST /api/v1/kya`
    KyaList {
        /// Which wallets, in the order asked.
        wallets: Vec<WalletInput>,
        /// At which block, if not the newest.
        block: Option<BlockId>,
    },
    /// `/api/v1/kya/:wallet?evidence=1`
    Evidence(Address),
    /// `/api/v1/changes`
    Changes {
        /// Where to begin.
        since: Since,
        /// Changes to give at most.
        limit: u64,
    },
}

/// How long an answer may be kept: the cache scopes of `service.md` section 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// Not at all.
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

impl Route {
    /// The block the question is about, if not the newest.
    pub const fn block(&self) -> Option<BlockId> {
        match self {
            Self::Agent { block, .. } | Self::Kya { block, .. } | Self::KyaList { block, .. } => *block,
            _ => None,
        }
    }

    /// Whether it asks for verdicts.
    pub const fn is_about_wallets(&self) -> bool {
        matches!(self, Self::Kya { .. } | Self::KyaList { .. })
    }

    /// The wallets that it asks for verdicts on.
    pub fn wallets(&self) -> Vec<Address> {
        match self {
            Self::Kya { wallet, .. } => vec![*wallet],
            Self::KyaList { wallets, .. } => wallets
                .iter()
                .filter_map(|asked| match asked {
                    WalletInput::Wallet(wallet) => Some(*wallet),
                    WalletInput::Malformed { .. } => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// How many requests it counts as: a list of wallets one for each ten, a history five, as it may take a hundred calls.
    pub fn cost(&self) -> u32 {
        match self {
            Self::History { .. } => 5,
            Self::KyaList { wallets, .. } => u32::try_from(wallets.len().div_ceil(10)).unwrap_or(u32::MAX),
            _ => 1,
        }
    }

    /// The route, parameters by name: what logs and documentation call the endpoint.
    pub const fn route(&self) -> &'static str {
        match self {
            Self::Health => "/health",
            Self::Stats => "/api/v1/stats",
            Self::DetailedStats => "/api/v1/stats/detailed",
            Self::Agent { .. } => "/api/v1/agent/:id",
            Self::Ancestors(_) => "/api/v1/agent/:id/ancestors",
            Self::Agents { .. } | Self::Listing(_) => "/api/v1/agents",
            Self::Compliance(_) => "/api/v1/agents/compliance",
            Self::Liable { .. } => "/api/v1/liable/:wallet",
            Self::Lineage(_) => "/api/v1/agent/:id/lineage",
            Self::History { .. } => "/api/v1/agent/:id/history",
            Self::Revenue { .. } => "/api/v1/agent/:id/revenue",
            Self::RevenueAggregate => "/api/v1/revenue/aggregate",
            Self::Kya { .. } | Self::Evidence(_) => "/api/v1/kya/:wallet",
            Self::KyaList { .. } => "/api/v1/kya",
            Self::Changes { .. } => "/api/v1/changes",
        }
    }

    /// How long its answer may be kept.
    pub const fn cache_scope(&self) -> CacheScope {
        match self {
            // So many lists can be made of a few wallets that they would push everything else out of a cache.
            Self::Health | Self::Revenue { .. } | Self::KyaList { .. } => CacheScope::None,
            Self::Stats
            | Self::DetailedStats
            | Self::Agent { .. }
            | Self::Ancestors(_)
            | Self::Agents { .. }
            | Self::Listing(_)
            | Self::Compliance(_)
            | Self::Liable { .. }
            | Self::History { .. }
            | Self::RevenueAggregate => CacheScope::Agent,
            Self::Lineage(_) => CacheScope::Lineage,
            // What was proved stays proved; but who asks for evidence wants that of a block as new as a verdict's.
            Self::Kya { .. } | Self::Evidence(_) => CacheScope::Kya,
            // What a verdict no longer says, whoever follows the changes has to hear of as soon.
            Self::Changes { .. } => CacheScope::Kya,
        }
    }
}
