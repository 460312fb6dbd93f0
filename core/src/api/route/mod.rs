//! Routes: path and query text to a typed [`Route`], and back to its canonical form, which is the cache key.
//!
//! Every 400 and 404 that does not need the chain is decided here. Targets are parsed as plain text, because
//! a URL library brings 160 KB of internationalised domain names into the Worker.

mod agent_query;
mod canonical;
mod parse;
mod prefix;
mod query;
#[cfg(test)]
mod tests;
mod time_to_live;

pub(super) use parse::decoded;
pub use prefix::KyaPrefix;
pub(super) use query::parameter;
pub use time_to_live::{CacheScope, FINAL_SECONDS};

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
    registry::liability::Basis,
    registry::page::Page,
};

/// Largest page of `/agents` (`service.md` section 8).
pub const AGENTS_LIMIT_MAX: u64 = 100;
/// Page size of `/agents` where none is given.
pub const AGENTS_LIMIT_DEFAULT: u64 = 20;
/// Largest page of `/agent/:id/revenue`.
pub const REVENUE_LIMIT_MAX: u64 = 500;
/// Largest page of `/changes`.
pub const CHANGES_LIMIT_MAX: u64 = 500;
/// Page size of `/changes` where none is given.
pub const CHANGES_LIMIT_DEFAULT: u64 = 100;
/// Largest page of `/agent/:id/history`.
pub const HISTORY_LIMIT_MAX: u64 = 100;
/// Page size of `/agent/:id/history` where none is given.
pub const HISTORY_LIMIT_DEFAULT: u64 = 50;
/// The most wallets of `GET /kya/:wallet,:wallet...`.
pub const KYA_PATH_MAX: usize = 20;
/// The most wallets of `POST /kya`.
pub const KYA_BODY_MAX: usize = 100;
/// The largest body of `POST /kya` in bytes: a hundred wallets take 4,600, the rest is room for white space.
pub const KYA_BODY_BYTES_MAX: usize = 16 * 1024;
/// Page size of `/agent/:id/revenue` where none is given.
pub const REVENUE_LIMIT_DEFAULT: u64 = 100;

/// One request to the API, its parameters checked and cut to their limits (`service.md` section 4).
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
        /// The agent.
        id: AgentId,
        /// The block to read at; `None` for the newest.
        block: Option<BlockId>,
    },
    /// `/api/v1/agent/:id/ancestors`
    Ancestors(AgentId),
    /// `/api/v1/agents`
    Agents {
        /// The page.
        page: Page,
        /// The status to filter by.
        status: Option<Status>,
    },
    /// `/api/v1/agents`, filtered by more than a status, searched, sorted or with a cursor
    Listing(Box<AgentQuery>),
    /// `/api/v1/agents/compliance`; a page of it where one is asked for
    Compliance(Option<CompliancePage>),
    /// `/api/v1/liable/:wallet`
    Liable {
        /// The wallet of the liable person.
        person: Address,
        /// The page size.
        limit: u64,
        /// The cursor of the page before.
        cursor: Option<AgentCursor>,
        /// The basis of the person's liability for the agents that are listed; `None` for any.
        basis: Option<Basis>,
    },
    /// `/api/v1/agent/:id/lineage`
    Lineage(AgentId),
    /// `/api/v1/agent/:id/history`
    History {
        /// The agent.
        id: AgentId,
        /// The page size.
        limit: u64,
        /// The cursor of the page before.
        cursor: Option<HistoryCursor>,
    },
    /// `/api/v1/agent/:id/revenue`
    Revenue {
        /// The agent.
        id: AgentId,
        /// The number of reports to skip.
        offset: u64,
        /// The page size.
        limit: u64,
    },
    /// `/api/v1/revenue/aggregate`
    RevenueAggregate,
    /// `/api/v1/kya/:wallet`
    Kya {
        /// The wallet.
        wallet: Address,
        /// The block to read at; `None` for the newest.
        block: Option<BlockId>,
        /// True if the past is read even where that takes the whole registry.
        history: bool,
    },
    /// `/api/v1/kya/:wallet,:wallet...`, and `POST /api/v1/kya`
    KyaList {
        /// The wallets, in the order asked.
        wallets: Vec<WalletInput>,
        /// The block to read at; `None` for the newest.
        block: Option<BlockId>,
    },
    /// `/api/v1/kya/range/:prefix`
    KyaRange(KyaPrefix),
    /// `/api/v1/kya/:wallet?evidence=1`
    Evidence(Address),
    /// `/api/v1/changes`
    Changes {
        /// The cursor to start after.
        since: Since,
        /// The page size.
        limit: u64,
        /// The liable wallet that the agents name; `None` for all.
        liable: Option<Address>,
    },
}

/// The data that an answer is read from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DataSource {
    /// Calls that are known at once: one round trip.
    Calls,
    /// Calls that depend on what earlier ones return.
    DependentCalls,
    /// Dependent calls, or an index of the registry.
    DependentCallsOrIndex,
    /// All agents: a scan of the registry, or an index of it.
    Registry,
    /// An index of the registry, and nothing else.
    Index,
    /// A snapshot of the registry, and nothing else.
    Snapshot,
}

impl Route {
    /// Returns the block to read at; `None` for the newest.
    pub const fn block(&self) -> Option<BlockId> {
        match self {
            Self::Agent { block, .. } | Self::Kya { block, .. } | Self::KyaList { block, .. } => *block,
            _ => None,
        }
    }

    /// Returns whether the answer holds verdicts on wallets.
    pub const fn is_about_wallets(&self) -> bool {
        matches!(self, Self::Kya { .. } | Self::KyaList { .. })
    }

    /// Returns the wallets to judge, each once.
    pub fn wallets(&self) -> Vec<Address> {
        match self {
            Self::Kya { wallet, .. } => vec![*wallet],
            Self::KyaList { wallets, .. } => {
                let mut unique = Vec::new();
                for asked in wallets {
                    if let WalletInput::Wallet(wallet) = asked
                        && !unique.contains(wallet)
                    {
                        unique.push(*wallet);
                    }
                }
                unique
            }
            _ => Vec::new(),
        }
    }

    /// Returns the approximate bytes of memory that the route takes beyond its own size.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Listing(query) => {
                size_of::<AgentQuery>() + query.filter.text.as_ref().map_or(0, String::len)
            }
            Self::KyaList { wallets, .. } => {
                let of_text = |asked: &WalletInput| match asked {
                    WalletInput::Wallet(_) => 0,
                    WalletInput::Malformed { text, .. } => text.len(),
                };
                size_of_val(wallets.as_slice()) + wallets.iter().map(of_text).sum::<usize>()
            }
            _ => 0,
        }
    }

    /// Returns the number of requests that the rate limits count: one per ten wallets of a list, two for
    /// evidence and ranges, five for histories, lineages and verdicts with the wallet's past, which may take
    /// a hundred RPC calls. A named block counts for two more: it takes two calls more than the newest.
    pub fn cost(&self) -> u32 {
        let cost = match self {
            Self::History { .. } | Self::Lineage(_) | Self::Kya { history: true, .. } => 5,
            Self::Evidence(_) | Self::KyaRange(_) => 2,
            Self::KyaList { wallets, .. } => u32::try_from(wallets.len().div_ceil(10)).unwrap_or(u32::MAX),
            _ => 1,
        };
        cost.saturating_add(if self.block().is_some() { 2 } else { 0 })
    }

    /// Returns roughly the most bytes that RPC endpoints send for the answer, replies of hedged requests
    /// included. Hosts that bound the bytes in flight count it; a single reply has a limit of its own.
    pub const fn reply_bytes(&self) -> usize {
        match self {
            Self::Revenue { .. } => 8 << 20,
            Self::Evidence(_) | Self::Lineage(_) | Self::Ancestors(_) => 1 << 20,
            Self::Agents { .. } | Self::KyaList { .. } | Self::Kya { history: true, .. } => 256 << 10,
            _ => 16 << 10,
        }
    }

    /// Returns the path with its parameters by name, for logs and documentation.
    pub const fn pattern(&self) -> &'static str {
        self.properties().0
    }

    /// Returns the scope that sets for how long the answer may be cached.
    pub const fn cache_scope(&self) -> CacheScope {
        self.properties().1
    }

    /// Returns whether the answer is about all agents, so that a scan of the registry gives it.
    pub const fn is_about_registry(&self) -> bool {
        matches!(self.properties().2, DataSource::Registry)
    }

    /// Returns whether an index of the registry can give the answer.
    pub const fn is_indexed(&self) -> bool {
        matches!(
            self.properties().2,
            DataSource::Registry | DataSource::Index | DataSource::DependentCallsOrIndex
        )
    }

    /// Returns whether only an index or a snapshot of the registry can give the answer.
    pub const fn needs_index(&self) -> bool {
        matches!(self.properties().2, DataSource::Index | DataSource::Snapshot)
    }

    /// Returns whether a snapshot of the registry may give the answer.
    pub const fn is_in_snapshot(&self) -> bool {
        matches!(self, Self::KyaRange(_)) || (self.is_about_wallets() && self.block().is_none())
    }

    /// Returns whether one round trip is enough.
    pub(crate) const fn is_one_round(&self) -> bool {
        matches!(self.properties().2, DataSource::Calls | DataSource::Index | DataSource::Snapshot)
    }

    /// The table of routes.
    const fn properties(&self) -> (&'static str, CacheScope, DataSource) {
        use CacheScope as Cache;
        match self {
            Self::Health => ("/health", Cache::None, DataSource::Calls),
            Self::Stats => ("/api/v1/stats", Cache::Agent, DataSource::Calls),
            Self::DetailedStats => ("/api/v1/stats/detailed", Cache::Agent, DataSource::Registry),
            Self::Agent { .. } => ("/api/v1/agent/:id", Cache::Agent, DataSource::Calls),
            Self::Ancestors(_) => ("/api/v1/agent/:id/ancestors", Cache::Agent, DataSource::DependentCalls),
            Self::Agents { status: None, .. } => ("/api/v1/agents", Cache::Agent, DataSource::Calls),
            Self::Agents { status: Some(_), .. } => ("/api/v1/agents", Cache::Agent, DataSource::Registry),
            Self::Listing(_) => ("/api/v1/agents", Cache::Agent, DataSource::Index),
            Self::Compliance(_) => ("/api/v1/agents/compliance", Cache::Agent, DataSource::Registry),
            Self::Liable { .. } => ("/api/v1/liable/:wallet", Cache::Agent, DataSource::Index),
            Self::Lineage(_) => {
                ("/api/v1/agent/:id/lineage", Cache::Lineage, DataSource::DependentCallsOrIndex)
            }
            Self::History { .. } => ("/api/v1/agent/:id/history", Cache::Agent, DataSource::Index),
            Self::Revenue { .. } => ("/api/v1/agent/:id/revenue", Cache::None, DataSource::Calls),
            Self::RevenueAggregate => ("/api/v1/revenue/aggregate", Cache::Agent, DataSource::Registry),
            // Evidence stays true, but clients that ask for it want a block as new as a verdict's.
            Self::Evidence(_) | Self::Kya { history: true, .. } => {
                ("/api/v1/kya/:wallet", Cache::Kya, DataSource::DependentCalls)
            }
            Self::Kya { history: false, .. } => ("/api/v1/kya/:wallet", Cache::Kya, DataSource::Calls),
            // A few wallets make enough different lists to evict everything else from a cache.
            Self::KyaList { .. } => ("/api/v1/kya", Cache::None, DataSource::Calls),
            Self::KyaRange(_) => ("/api/v1/kya/range/:prefix", Cache::Kya, DataSource::Snapshot),
            // The changes are as fresh as the verdicts that they change.
            Self::Changes { .. } => ("/api/v1/changes", Cache::Kya, DataSource::Index),
        }
    }
}
