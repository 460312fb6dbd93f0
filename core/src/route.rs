//! Routes: path and query text to a typed [`Endpoint`], and back to its canonical form, which is the cache key.
//!
//! Every 400 and 404 that does not need the chain is decided here. Parsed as text, because a URL library
//! brings 160 KB of internationalised domain names into the Worker.

use std::borrow::Cow;
use std::fmt::Write;

use alloy_primitives::{Address, U256};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::{
    address::{self, AddressError},
    agent::{AgentId, Status},
    as_of::BlockId,
    changes::Since,
    compliance::CompliancePage,
    cursor::AgentCursor,
    error::Error,
    filter::{AgentQuery, SortKey},
    history::HistoryCursor,
    kya::Asked,
    page::Page,
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
pub enum Endpoint {
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
        wallets: Vec<Asked>,
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

impl Endpoint {
    /// Parses a request target, such as `/api/v1/agents?page=2`. Unknown query parameters are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] for an unknown route, [`Error::InvalidParameter`] for a parameter that breaks its rule.
    pub fn parse(target: &str) -> Result<Self, Error> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path == "/health" {
            return Ok(Self::Health);
        }
        let mut segments = path.strip_prefix("/api/v1/").ok_or(Error::NotFound)?.split('/');
        let route = (segments.next(), segments.next(), segments.next(), segments.next());
        Ok(match route {
            (Some("stats"), None, ..) => Self::Stats,
            (Some("stats"), Some("detailed"), None, _) => Self::DetailedStats,
            (Some("agents"), None, ..) => match AgentQuery::parse(query)? {
                Some(query) => Self::Listing(Box::new(query)),
                None => Self::Agents {
                    page: Page {
                        number: count(query, "page", 1..=u64::MAX, 1)?,
                        limit: agents_limit(query)?,
                    },
                    status: status(query)?,
                },
            },
            (Some("agents"), Some("compliance"), None, _) => Self::Compliance(compliance_page(query)?),
            (Some("liable"), Some(person), None, _) => Self::Liable {
                person: wallet(person)?,
                limit: agents_limit(query)?,
                // The cursor before the first agent is none.
                cursor: cursor(query, SortKey::Id)?.filter(|cursor| cursor.id > 0),
            },
            (Some("agent"), Some(id), None, _) => Self::Agent { id: agent_id(id)?, block: block(query)? },
            (Some("agent"), Some(id), Some("ancestors"), None) => Self::Ancestors(agent_id(id)?),
            (Some("agent"), Some(id), Some("lineage"), None) => Self::Lineage(agent_id(id)?),
            (Some("agent"), Some(id), Some("history"), None) => Self::History {
                id: agent_id(id)?,
                limit: count(query, "limit", 1..=HISTORY_LIMIT_MAX, HISTORY_LIMIT_DEFAULT)?,
                cursor: history_cursor(query)?,
            },
            (Some("agent"), Some(id), Some("revenue"), None) => Self::Revenue {
                id: agent_id(id)?,
                offset: count(query, "offset", 0..=u64::MAX, 0)?,
                limit: count(query, "limit", 1..=REVENUE_LIMIT_MAX, REVENUE_LIMIT_DEFAULT)?,
            },
            (Some("revenue"), Some("aggregate"), None, _) => Self::RevenueAggregate,
            (Some("changes"), None, ..) => Self::Changes {
                since: since(query)?,
                limit: count(query, "limit", 1..=CHANGES_LIMIT_MAX, CHANGES_LIMIT_DEFAULT)?,
            },
            (Some("kya"), None, ..) => return Err(Error::PostOnly),
            (Some("kya"), Some(list), None, _) if list.contains(',') => {
                let wallets: Vec<Asked> = list.split(',').map(asked).collect();
                if wallets.len() > KYA_PATH_MAX {
                    let rule = "must be at most 20 wallets; POST /api/v1/kya takes 100";
                    return Err(Error::InvalidParameter { field: "wallet", rule });
                }
                if let Some(Asked::Malformed { error, .. }) =
                    wallets.first().filter(|_| !wallets.iter().any(Asked::is_wallet))
                {
                    return Err(Error::InvalidParameter { field: "wallet", rule: error.rule() });
                }
                Self::KyaList { wallets, block: block(query)? }
            }
            (Some("kya"), Some(address), None, _) => {
                let (wallet, block, history) = (wallet(address)?, block(query)?, flag(query, "history")?);
                if block.is_some() && history {
                    let rule =
                        "must not be asked for together with block: the past is told at the newest block";
                    return Err(Error::InvalidParameter { field: "history", rule });
                }
                if !flag(query, "evidence")? {
                    Self::Kya { wallet, block, history }
                } else if block.is_none() && !history {
                    Self::Evidence(wallet)
                } else {
                    let rule = "must not be asked for together with block or history: it is of the newest block, and proves no past";
                    return Err(Error::InvalidParameter { field: "evidence", rule });
                }
            }
            _ => return Err(Error::NotFound),
        })
    }

    /// Parses a POST: its target, and a body such as `{"wallets": ["0x...", "0x..."]}`.
    ///
    /// # Errors
    ///
    /// [`Error::MethodNotAllowed`] for a path that takes no POST, [`Error::BodyTooLarge`], [`Error::InvalidParameter`] for a body of another form, or a parameter that breaks its rule.
    pub fn parse_post(target: &str, body: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Body {
            wallets: Vec<String>,
        }
        Self::check_post(target)?;
        if body.len() > KYA_BODY_BYTES_MAX {
            return Err(Error::BodyTooLarge(KYA_BODY_BYTES_MAX));
        }
        let rule = "must be JSON of the form {\"wallets\": [\"0x...\", \"0x...\"]}";
        let Body { wallets } =
            serde_json::from_slice(body).map_err(|_| Error::InvalidParameter { field: "body", rule })?;
        let (_, query) = target.split_once('?').unwrap_or((target, ""));
        Self::kya_list(wallets.iter().map(|text| Asked::parse(text)).collect(), block(query)?)
    }

    /// The question about a list of wallets.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidParameter`] where there are none, or too many.
    pub fn kya_list(wallets: Vec<Asked>, block: Option<BlockId>) -> Result<Self, Error> {
        if wallets.is_empty() || wallets.len() > KYA_BODY_MAX {
            return Err(Error::InvalidParameter {
                field: "wallets",
                rule: "must be a list of 1 to 100 wallets",
            });
        }
        Ok(Self::KyaList { wallets, block })
    }

    /// Whether a path takes POST, before its body is read.
    ///
    /// # Errors
    ///
    /// [`Error::MethodNotAllowed`] where it does not.
    pub fn check_post(target: &str) -> Result<(), Error> {
        if Self::parse(target) == Err(Error::PostOnly) { Ok(()) } else { Err(Error::MethodNotAllowed) }
    }

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
                    Asked::Wallet(wallet) => Some(*wallet),
                    Asked::Malformed { .. } => None,
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

    /// The one spelling of this question: defaults left out, the rest in fixed order. Two requests that ask
    /// the same have the same canonical form, and it parses to the same endpoint.
    pub fn canonical(&self) -> String {
        match self {
            Self::Health => "/health".to_string(),
            Self::Stats => "/api/v1/stats".to_string(),
            Self::DetailedStats => "/api/v1/stats/detailed".to_string(),
            Self::Agent { id, block } => at_block(format!("/api/v1/agent/{id}"), *block),
            Self::Ancestors(id) => format!("/api/v1/agent/{id}/ancestors"),
            Self::Agents { page, status } => {
                let mut query = QueryText::new("/api/v1/agents");
                query.push("page", page.number, 1);
                query.push("limit", page.limit, AGENTS_LIMIT_DEFAULT);
                query.push("status", status.map_or("", Status::name), "");
                query.text
            }
            Self::Listing(asked) => {
                let mut query = QueryText::new("/api/v1/agents");
                asked.write(&mut query);
                query.text
            }
            Self::Compliance(page) => {
                let mut query = QueryText::new("/api/v1/agents/compliance");
                if let Some(CompliancePage { limit, cursor }) = page {
                    query.push_some("limit", Some(limit));
                    query.push_some("cursor", cursor.as_ref().map(|cursor| cursor as _));
                }
                query.text
            }
            Self::Liable { person, limit, cursor } => {
                let mut query = QueryText::new(&format!("/api/v1/liable/{person}"));
                query.push("limit", *limit, AGENTS_LIMIT_DEFAULT);
                query.push("cursor", cursor.map_or(0, |cursor| cursor.id), 0);
                query.text
            }
            Self::Lineage(id) => format!("/api/v1/agent/{id}/lineage"),
            Self::History { id, limit, cursor } => {
                let mut query = QueryText::new(&format!("/api/v1/agent/{id}/history"));
                query.push("limit", *limit, HISTORY_LIMIT_DEFAULT);
                query.push(
                    "cursor",
                    cursor.map_or(String::new(), |cursor| cursor.to_string()),
                    String::new(),
                );
                query.text
            }
            Self::Revenue { id, offset, limit } => {
                let mut query = QueryText::new(&format!("/api/v1/agent/{id}/revenue"));
                query.push("limit", *limit, REVENUE_LIMIT_DEFAULT);
                query.push("offset", *offset, 0);
                query.text
            }
            Self::RevenueAggregate => "/api/v1/revenue/aggregate".to_string(),
            Self::Kya { wallet, history: true, .. } => format!("/api/v1/kya/{wallet}?history=1"),
            Self::Kya { wallet, block, history: false } => at_block(format!("/api/v1/kya/{wallet}"), *block),
            Self::KyaList { wallets, block } => {
                let wallets: Vec<String> = wallets.iter().map(Asked::path_segment).collect();
                at_block(format!("/api/v1/kya/{}", wallets.join(",")), *block)
            }
            Self::Evidence(wallet) => format!("/api/v1/kya/{wallet}?evidence=1"),
            Self::Changes { since, limit } => {
                let mut query = QueryText::new("/api/v1/changes");
                query.push("since", since.to_string(), String::new());
                query.push("limit", *limit, CHANGES_LIMIT_DEFAULT);
                query.text
            }
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

/// A path, and the block it is asked at.
fn at_block(path: String, block: Option<BlockId>) -> String {
    match block {
        Some(block) => format!("{path}?block={block}"),
        None => path,
    }
}

/// Builds a canonical query: what equals its default is left out.
pub(crate) struct QueryText {
    text: String,
    separator: char,
}

impl QueryText {
    fn new(path: &str) -> Self {
        Self { text: path.to_string(), separator: '?' }
    }

    pub(crate) fn push<T: std::fmt::Display + PartialEq>(&mut self, name: &str, value: T, default: T) {
        if value != default {
            self.push_some(name, Some(&value));
        }
    }

    pub(crate) fn push_some(&mut self, name: &str, value: Option<&dyn std::fmt::Display>) {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = write!(self.text, "{}{name}={value}", self.separator);
            self.separator = '&';
        }
    }
}

/// A path's agent id: decimal digits, at most `2^256 - 1`.
fn agent_id(segment: &str) -> Result<AgentId, Error> {
    let invalid = Error::InvalidParameter { field: "id", rule: "must be a whole number, at most 2^256 - 1" };
    let segment = percent_decode_str(segment).decode_utf8().map_err(|_| invalid.clone())?;
    if segment.is_empty() || !segment.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid);
    }
    U256::from_str_radix(&segment, 10).map(AgentId).map_err(|_| invalid)
}

/// A path's wallet: 0x and 40 hexadecimal digits, in one case or with its EIP-55 checksum.
fn wallet(segment: &str) -> Result<Address, Error> {
    let segment = percent_decode_str(segment).decode_utf8().map_err(|_| AddressError::Shape);
    segment
        .and_then(|text| address::parse(&text))
        .map_err(|error| Error::InvalidParameter { field: "wallet", rule: error.rule() })
}

/// The value of a query parameter, decoded; `None` where it is absent.
pub(crate) fn parameter<'a>(query: &'a str, field: &'static str) -> Result<Option<Cow<'a, str>>, Error> {
    let mut found = None;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if percent_decode_str(name).decode_utf8().is_ok_and(|name| name == field) {
            if found.is_some() {
                return Err(Error::InvalidParameter { field, rule: "must be given once" });
            }
            let value = percent_decode_str(value).decode_utf8();
            found = Some(value.map_err(|_| Error::InvalidParameter { field, rule: "must be UTF-8 text" })?);
        }
    }
    Ok(found)
}

/// One of a path's wallets, whatever it is.
fn asked(segment: &str) -> Asked {
    Asked::parse(&percent_decode_str(segment).decode_utf8_lossy())
}

fn block(query: &str) -> Result<Option<BlockId>, Error> {
    let Some(text) = parameter(query, "block")? else { return Ok(None) };
    let error = Error::InvalidParameter { field: "block", rule: BlockId::RULE };
    BlockId::parse(&text).map(Some).ok_or(error)
}

/// A parameter that is 1 for yes; 0 and absence are no.
fn flag(query: &str, field: &'static str) -> Result<bool, Error> {
    match parameter(query, field)?.as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(Error::InvalidParameter { field, rule: "must be 0 or 1" }),
    }
}

/// A counting parameter: below the range is refused, above it cut.
pub(crate) fn count(
    query: &str,
    field: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
) -> Result<u64, Error> {
    let Some(value) = parameter(query, field)? else { return Ok(default) };
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    // All digits and yet no u64: larger than any u64, so the range's end is what it is cut to.
    let number = digits.then(|| value.parse::<u64>().unwrap_or(u64::MAX));
    match number {
        Some(number) if number >= *range.start() => Ok(number.min(*range.end())),
        _ if *range.start() == 0 => {
            Err(Error::InvalidParameter { field, rule: "must be a whole number of at least 0" })
        }
        _ => Err(Error::InvalidParameter { field, rule: "must be a whole number of at least 1" }),
    }
}

/// The size of a page of agents.
pub(crate) fn agents_limit(query: &str) -> Result<u64, Error> {
    count(query, "limit", 1..=AGENTS_LIMIT_MAX, AGENTS_LIMIT_DEFAULT)
}

/// Where to go on in a list that is sorted so.
fn cursor(query: &str, key: SortKey) -> Result<Option<AgentCursor>, Error> {
    let Some(text) = parameter(query, "cursor")? else { return Ok(None) };
    let error = Error::InvalidParameter { field: "cursor", rule: AgentCursor::RULE };
    AgentCursor::parse(&text, key).map(Some).ok_or(error)
}

fn history_cursor(query: &str) -> Result<Option<HistoryCursor>, Error> {
    let Some(text) = parameter(query, "cursor")? else { return Ok(None) };
    let error = Error::InvalidParameter { field: "cursor", rule: AgentCursor::RULE };
    HistoryCursor::parse(&text).map(Some).ok_or(error)
}

/// A page of the compliance list, where one is asked for.
fn compliance_page(query: &str) -> Result<Option<CompliancePage>, Error> {
    let page = CompliancePage { limit: agents_limit(query)?, cursor: cursor(query, SortKey::Attestation)? };
    let is_asked_for = page.cursor.is_some() || parameter(query, "limit")?.is_some();
    Ok(is_asked_for.then_some(page))
}

fn since(query: &str) -> Result<Since, Error> {
    let Some(text) = parameter(query, "since")? else { return Ok(Since::Oldest) };
    Since::parse(&text).ok_or(Error::InvalidParameter { field: "since", rule: Since::RULE })
}

pub(crate) fn status(query: &str) -> Result<Option<Status>, Error> {
    let Some(name) = parameter(query, "status")? else { return Ok(None) };
    let rule = "must be one of Active, Suspended, Revoked, Terminated";
    Status::from_name(&name).map(Some).ok_or(Error::InvalidParameter { field: "status", rule })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agents(number: u64, limit: u64, status: Option<Status>) -> Endpoint {
        Endpoint::Agents { page: Page { number, limit }, status }
    }

    fn rule(target: &str) -> String {
        match Endpoint::parse(target) {
            Err(error @ Error::InvalidParameter { .. }) => error.to_string(),
            other => panic!("{target}: {other:?}"),
        }
    }

    #[test]
    fn every_documented_route_is_known() {
        let id = AgentId(U256::from(7));
        let wallet = Address::repeat_byte(0x11);
        for (target, endpoint) in [
            ("/health".to_string(), Endpoint::Health),
            ("/api/v1/stats".to_string(), Endpoint::Stats),
            ("/api/v1/stats/detailed".to_string(), Endpoint::DetailedStats),
            ("/api/v1/agent/7".to_string(), Endpoint::Agent { id, block: None }),
            ("/api/v1/agents".to_string(), agents(1, 20, None)),
            ("/api/v1/agents/compliance".to_string(), Endpoint::Compliance(None)),
            ("/api/v1/agent/7/lineage".to_string(), Endpoint::Lineage(id)),
            ("/api/v1/agent/7/revenue".to_string(), Endpoint::Revenue { id, offset: 0, limit: 100 }),
            ("/api/v1/revenue/aggregate".to_string(), Endpoint::RevenueAggregate),
            (format!("/api/v1/kya/{wallet}"), Endpoint::Kya { wallet, block: None, history: false }),
            (
                format!("/api/v1/liable/{wallet}"),
                Endpoint::Liable { person: wallet, limit: 20, cursor: None },
            ),
            ("/api/v1/agent/7/ancestors".to_string(), Endpoint::Ancestors(id)),
            (
                "/api/v1/agent/7/history".to_string(),
                Endpoint::History { id, limit: HISTORY_LIMIT_DEFAULT, cursor: None },
            ),
            ("/api/v1/changes".to_string(), Endpoint::Changes { since: Since::Oldest, limit: 100 }),
        ] {
            assert_eq!(Endpoint::parse(&target), Ok(endpoint.clone()), "{target}");
            assert_eq!(endpoint.canonical(), target);
            let route = endpoint.route().replace(":id", "7").replace(":wallet", &wallet.to_string());
            assert_eq!(route, target);
        }
    }

    #[test]
    fn evidence_is_a_question_of_its_own() {
        let wallet = Address::repeat_byte(0x11);
        let path = format!("/api/v1/kya/{wallet}");
        let evidence = Endpoint::parse(&format!("{path}?utm=x&evidence=1")).unwrap();
        assert_eq!(evidence, Endpoint::Evidence(wallet));
        assert_eq!(evidence.canonical(), format!("{path}?evidence=1"));
        assert_eq!(Endpoint::parse(&evidence.canonical()), Ok(evidence));
        assert_eq!(
            Endpoint::parse(&format!("{path}?evidence=0")),
            Ok(Endpoint::Kya { wallet, block: None, history: false })
        );
        for with in ["block=7", "history=1"] {
            assert!(rule(&format!("{path}?evidence=1&{with}")).starts_with("Invalid evidence: must not"));
        }
        for bad in ["", "2", "true", "01"] {
            assert_eq!(rule(&format!("{path}?evidence={bad}")), "Invalid evidence: must be 0 or 1");
        }
    }

    #[test]
    fn changes_are_asked_for_since_a_cursor_or_from_now_on() {
        for (query, canonical) in [
            ("?limit=100&since=now", "?since=now"),
            ("?limit=5&x=y&since=1800000000123-42", "?since=1800000000123-42&limit=5"),
            ("?limit=501", "?limit=500"),
        ] {
            let endpoint = Endpoint::parse(&format!("/api/v1/changes{query}")).unwrap();
            assert_eq!(endpoint.canonical(), format!("/api/v1/changes{canonical}"));
            assert_eq!(Endpoint::parse(&endpoint.canonical()), Ok(endpoint));
        }
        for bad in ["", "NOW", "7", "1-", "-1", "1-2-3", "9007199254740992-1", "latest", "1800000000123%2d"] {
            let message = rule(&format!("/api/v1/changes?since={bad}"));
            assert_eq!(message, "Invalid since: must be the `next` of an earlier answer, or now", "{bad}");
        }
        assert_eq!(rule("/api/v1/changes?since=now&since=now"), "Invalid since: must be given once");
        assert_eq!(rule("/api/v1/changes?limit=0"), "Invalid limit: must be a whole number of at least 1");
    }

    #[test]
    fn a_history_goes_on_at_its_cursor() {
        for (query, canonical) in [
            ("?limit=50&cursor=5-9-0-3", "?cursor=5-9-0-3"),
            ("?limit=101&x=y&cursor=0-9-7-0", "?limit=100&cursor=0-9-7-0"),
        ] {
            let endpoint = Endpoint::parse(&format!("/api/v1/agent/7/history{query}")).unwrap();
            assert_eq!(endpoint.canonical(), format!("/api/v1/agent/7/history{canonical}"));
            assert_eq!(Endpoint::parse(&endpoint.canonical()), Ok(endpoint));
        }
        for bad in ["", "7", "1-2-3", "1-2-3-4-5", "1-2-3-x"] {
            let message = rule(&format!("/api/v1/agent/7/history?cursor={bad}"));
            assert_eq!(
                message, "Invalid cursor: must be the `next` of an earlier answer to the same question",
                "{bad}"
            );
        }
        assert!(rule("/api/v1/agent/x/history").starts_with("Invalid id: "));
    }

    #[test]
    fn the_compliance_list_is_whole_unless_a_page_is_asked_for() {
        for (query, canonical) in [
            ("?x=1", ""),
            ("?limit=500", "?limit=100"),
            ("?cursor=0-0", "?limit=20&cursor=0-0"),
            ("?cursor=1800000000-7&limit=3", "?limit=3&cursor=1800000000-7"),
        ] {
            let endpoint = Endpoint::parse(&format!("/api/v1/agents/compliance{query}")).unwrap();
            assert_eq!(endpoint.canonical(), format!("/api/v1/agents/compliance{canonical}"));
            assert_eq!(Endpoint::parse(&endpoint.canonical()), Ok(endpoint));
        }
        for bad in ["", "7", "-7", "1-", "1-2-3"] {
            let message = rule(&format!("/api/v1/agents/compliance?cursor={bad}"));
            assert_eq!(message, format!("Invalid cursor: {}", AgentCursor::RULE));
        }
        assert!(rule("/api/v1/agents/compliance?limit=0").starts_with("Invalid limit: "));
    }

    #[test]
    fn unknown_routes_are_not_found() {
        for target in [
            "",
            "/",
            "/api/v1",
            "/api/v1/",
            "/api/v2/stats",
            "/api/v1/stats/",
            "/api/v1/stats/more",
            "/health/",
            "/api/v1/agent",
            "/api/v1/agent/7/",
            "/api/v1/agent/7/lineage/x",
            "/api/v1/agents/x",
            "/API/v1/stats",
        ] {
            assert_eq!(Endpoint::parse(target), Err(Error::NotFound), "{target}");
        }
    }

    #[test]
    fn spellings_of_one_question_share_its_canonical_form() {
        for target in [
            "/api/v1/agents?limit=20&page=1",
            "/api/v1/agents?",
            "/api/v1/agents?page=01&utm=x",
            "/api/v1/agents?p%61ge=%31",
        ] {
            assert_eq!(Endpoint::parse(target).unwrap().canonical(), "/api/v1/agents", "{target}");
        }
        let cut = Endpoint::parse("/api/v1/agents?limit=99999999999999999999999").unwrap();
        assert_eq!(cut, agents(1, 100, None));
        let filtered = Endpoint::parse("/api/v1/agents?status=Revoked&limit=5&page=3").unwrap();
        assert_eq!(filtered.canonical(), "/api/v1/agents?page=3&limit=5&status=Revoked");
    }

    #[test]
    fn a_parameter_that_breaks_its_rule_is_named_with_the_rule() {
        for bad in ["0", "-1", "", "x", "1.5", "1e3", "0x1", "+1", "%20", "NaN"] {
            for target in ["agents?page", "agents?limit", "agent/1/revenue?limit"] {
                let message = rule(&format!("/api/v1/{target}={bad}"));
                assert!(message.ends_with("must be a whole number of at least 1"), "{message}");
            }
        }
        assert!(rule("/api/v1/agent/1/revenue?offset=-1").starts_with("Invalid offset: "));
        assert_eq!(
            rule("/api/v1/agents?status=active"),
            "Invalid status: must be one of Active, Suspended, Revoked, Terminated"
        );
        assert_eq!(rule("/api/v1/agents?page=1&page=2"), "Invalid page: must be given once");
        assert_eq!(rule("/api/v1/agents?page=%ff"), "Invalid page: must be UTF-8 text");
    }

    #[test]
    fn ids_are_decimal_digits_up_to_256_bits() {
        let max = U256::MAX.to_string();
        assert_eq!(
            Endpoint::parse(&format!("/api/v1/agent/{max}")),
            Ok(Endpoint::Agent { id: AgentId(U256::MAX), block: None })
        );
        for bad in ["abc", "-1", "1.0", "0x1", "", "%ff", "1%2e", &format!("{max}0"), &max.replace('9', "99")]
        {
            assert!(rule(&format!("/api/v1/agent/{bad}")).starts_with("Invalid id: "), "{bad}");
        }
    }

    #[test]
    fn wallets_are_read_in_one_case_or_with_their_checksum() {
        let checksummed = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"; // an example of EIP-55
        let upper = format!("0x{}", checksummed[2..].to_uppercase());
        for good in [checksummed, &checksummed.to_lowercase(), &upper] {
            let endpoint = Endpoint::parse(&format!("/api/v1/kya/{good}")).unwrap();
            assert_eq!(endpoint.canonical(), format!("/api/v1/kya/{checksummed}"));
        }
        let typo = checksummed.replace("5aAe", "5aae");
        assert!(rule(&format!("/api/v1/kya/{typo}")).contains("EIP-55"));
        for bad in ["", "0x", "me", &checksummed[2..], &checksummed[..41], &format!("{checksummed}0"), "0xg"]
        {
            assert!(rule(&format!("/api/v1/kya/{bad}")).contains("40 hexadecimal digits"), "{bad}");
        }
    }

    #[test]
    fn a_block_is_part_of_the_question() {
        let hash = format!("0x{}", "ab".repeat(32));
        for block in ["0", "18446744073709551615", &hash] {
            for path in ["/api/v1/agent/7", "/api/v1/kya/0x1111111111111111111111111111111111111111"] {
                let endpoint = Endpoint::parse(&format!("{path}?x=1&block={block}")).unwrap();
                assert_eq!(endpoint.block(), BlockId::parse(block));
                assert_eq!(endpoint.canonical(), format!("{path}?block={block}"));
                assert_ne!(Endpoint::parse(path), Ok(endpoint));
            }
        }
        for bad in ["", "latest", "-1", "0x10", "1e3", &hash[2..]] {
            assert!(
                rule(&format!("/api/v1/agent/7?block={bad}"))
                    .starts_with("Invalid block: must be a block's number"),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_past_is_told_when_asked_for_and_at_the_newest_block_only() {
        let path = "/api/v1/kya/0x1111111111111111111111111111111111111111";
        let canonical = |query: &str| Endpoint::parse(&format!("{path}{query}")).unwrap().canonical();
        assert_eq!(canonical("?history=1&x"), format!("{path}?history=1"));
        assert_eq!(canonical("?history=0"), path);
        assert_eq!(rule(&format!("{path}?history=yes")), "Invalid history: must be 0 or 1");
        assert!(rule(&format!("{path}?history=1&block=7")).starts_with("Invalid history: must not be"));
    }

    #[test]
    fn a_list_keeps_its_order_and_what_is_malformed_in_its_place() {
        let (one, two) = (Address::repeat_byte(0x11), Address::repeat_byte(0x22));
        let path = format!("/api/v1/kya/{two},me%2Ftoo,{one},");
        let Ok(Endpoint::KyaList { wallets, .. }) = Endpoint::parse(&path) else { panic!("{path}") };
        let malformed = |text: &str| Asked::Malformed { text: text.into(), error: AddressError::Shape };
        let expected = [Asked::Wallet(two), malformed("me/too"), Asked::Wallet(one), malformed("")];
        assert_eq!(wallets, expected);
        let many = vec![one.to_string(); 20].join(",");
        assert!(Endpoint::parse(&format!("/api/v1/kya/{many}")).is_ok());
        assert!(rule(&format!("/api/v1/kya/{many},{two}")).contains("at most 20 wallets"));
        assert!(rule("/api/v1/kya/me,too").contains("40 hexadecimal digits"), "none is a wallet");
    }

    #[test]
    fn a_body_is_a_list_of_one_to_a_hundred_wallets() {
        let post = |body: &str| Endpoint::parse_post("/api/v1/kya", body.as_bytes());
        let wallet = Address::repeat_byte(0x11);
        let list = |count| format!("{{\"wallets\": {:?}}}", vec![wallet.to_string(); count]);
        for (count, cost) in [(1, 1), (10, 1), (11, 2), (100, 10)] {
            let endpoint = post(&list(count)).unwrap();
            assert_eq!(endpoint.cost(), cost, "{count} wallets");
            assert_eq!(
                endpoint,
                Endpoint::KyaList { wallets: vec![Asked::Wallet(wallet); count], block: None }
            );
        }
        let Ok(Endpoint::KyaList { wallets, .. }) = post("{\"wallets\": [\"me\", \"\"]}") else { panic!() };
        let malformed = |text: &str| Asked::Malformed { text: text.into(), error: AddressError::Shape };
        assert_eq!(wallets, ["me", ""].map(malformed));
        let message = |body: &str| post(body).unwrap_err().to_string();
        for bad in ["", "[]", "{}", "{\"wallets\": 7}", "{\"wallets\": [7]}", "{\"wallets\": [}", "\u{1}"] {
            assert!(message(bad).starts_with("Invalid body: must be JSON of the form"), "{bad}");
        }
        for count in [0, 101] {
            assert_eq!(message(&list(count)), "Invalid wallets: must be a list of 1 to 100 wallets");
        }
        assert_eq!(post(&" ".repeat(KYA_BODY_BYTES_MAX + 1)), Err(Error::BodyTooLarge(KYA_BODY_BYTES_MAX)));
        let elsewhere = Endpoint::parse_post("/api/v1/kya/0x1111111111111111111111111111111111111111", b"{}");
        assert_eq!(elsewhere, Err(Error::MethodNotAllowed));
        assert_eq!(Endpoint::parse("/api/v1/kya"), Err(Error::PostOnly));
    }

    proptest! {
        #[test]
        fn any_target_is_answered_and_canonical_forms_are_stable(target in "(/api/v1/)?[ -~é]{0,40}") {
            if let Ok(endpoint) = Endpoint::parse(&target) {
                prop_assert_eq!(Endpoint::parse(&endpoint.canonical()), Ok(endpoint));
            }
        }

        #[test]
        fn any_page_has_one_canonical_form(number in 1u64.., limit in 1u64..200, status in prop::option::of(0usize..4)) {
            let status = status.map(|index| Status::ALL[index]);
            let endpoint = agents(number, limit.min(100), status);
            prop_assert_eq!(Endpoint::parse(&endpoint.canonical()), Ok(endpoint));
        }
    }
}
