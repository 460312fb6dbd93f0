//! Routes: path and query text to a typed [`Endpoint`], and back to its canonical form, which is the cache key.
//!
//! Every 400 and 404 that does not need the chain is decided here. Parsed as text, because a URL library
//! brings 160 KB of internationalised domain names into the Worker.

use std::borrow::Cow;
use std::fmt::Write;

use alloy_primitives::{Address, U256};
use percent_encoding::percent_decode_str;

use crate::{
    address::{self, AddressError},
    agent::{AgentId, Status},
    error::Error,
    page::Page,
};

/// Largest page of `/agents` (`service.md` section 8).
pub const AGENTS_LIMIT_MAX: u64 = 100;
/// Page size of `/agents` where none is given.
pub const AGENTS_LIMIT_DEFAULT: u64 = 20;
/// Largest page of `/agent/:id/revenue`.
pub const REVENUE_LIMIT_MAX: u64 = 500;
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
    Agent(AgentId),
    /// `/api/v1/agents`
    Agents {
        /// Which page.
        page: Page,
        /// Only agents of this status.
        status: Option<Status>,
    },
    /// `/api/v1/agents/compliance`
    Compliance,
    /// `/api/v1/agent/:id/lineage`
    Lineage(AgentId),
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
    Kya(Address),
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
            (Some("agents"), None, ..) => Self::Agents {
                page: Page {
                    number: count(query, "page", 1..=u64::MAX, 1)?,
                    limit: count(query, "limit", 1..=AGENTS_LIMIT_MAX, AGENTS_LIMIT_DEFAULT)?,
                },
                status: status(query)?,
            },
            (Some("agents"), Some("compliance"), None, _) => Self::Compliance,
            (Some("agent"), Some(id), None, _) => Self::Agent(agent_id(id)?),
            (Some("agent"), Some(id), Some("lineage"), None) => Self::Lineage(agent_id(id)?),
            (Some("agent"), Some(id), Some("revenue"), None) => Self::Revenue {
                id: agent_id(id)?,
                offset: count(query, "offset", 0..=u64::MAX, 0)?,
                limit: count(query, "limit", 1..=REVENUE_LIMIT_MAX, REVENUE_LIMIT_DEFAULT)?,
            },
            (Some("revenue"), Some("aggregate"), None, _) => Self::RevenueAggregate,
            (Some("kya"), Some(address), None, _) => Self::Kya(wallet(address)?),
            _ => return Err(Error::NotFound),
        })
    }

    /// The one spelling of this question: defaults left out, the rest in fixed order. Two requests that ask
    /// the same have the same canonical form, and it parses to the same endpoint.
    pub fn canonical(&self) -> String {
        match self {
            Self::Health => "/health".to_string(),
            Self::Stats => "/api/v1/stats".to_string(),
            Self::DetailedStats => "/api/v1/stats/detailed".to_string(),
            Self::Agent(id) => format!("/api/v1/agent/{id}"),
            Self::Agents { page, status } => {
                let mut query = QueryText::new("/api/v1/agents");
                query.push("page", page.number, 1);
                query.push("limit", page.limit, AGENTS_LIMIT_DEFAULT);
                query.push("status", status.map_or("", Status::name), "");
                query.text
            }
            Self::Compliance => "/api/v1/agents/compliance".to_string(),
            Self::Lineage(id) => format!("/api/v1/agent/{id}/lineage"),
            Self::Revenue { id, offset, limit } => {
                let mut query = QueryText::new(&format!("/api/v1/agent/{id}/revenue"));
                query.push("limit", *limit, REVENUE_LIMIT_DEFAULT);
                query.push("offset", *offset, 0);
                query.text
            }
            Self::RevenueAggregate => "/api/v1/revenue/aggregate".to_string(),
            Self::Kya(wallet) => format!("/api/v1/kya/{wallet}"),
        }
    }

    /// The route, parameters by name: what logs and documentation call the endpoint.
    pub const fn route(&self) -> &'static str {
        match self {
            Self::Health => "/health",
            Self::Stats => "/api/v1/stats",
            Self::DetailedStats => "/api/v1/stats/detailed",
            Self::Agent(_) => "/api/v1/agent/:id",
            Self::Agents { .. } => "/api/v1/agents",
            Self::Compliance => "/api/v1/agents/compliance",
            Self::Lineage(_) => "/api/v1/agent/:id/lineage",
            Self::Revenue { .. } => "/api/v1/agent/:id/revenue",
            Self::RevenueAggregate => "/api/v1/revenue/aggregate",
            Self::Kya(_) => "/api/v1/kya/:wallet",
        }
    }

    /// How long its answer may be kept.
    pub const fn cache_scope(&self) -> CacheScope {
        match self {
            Self::Health | Self::Revenue { .. } => CacheScope::None,
            Self::Stats
            | Self::DetailedStats
            | Self::Agent(_)
            | Self::Agents { .. }
            | Self::Compliance
            | Self::RevenueAggregate => CacheScope::Agent,
            Self::Lineage(_) => CacheScope::Lineage,
            Self::Kya(_) => CacheScope::Kya,
        }
    }
}

/// Builds a canonical query: what equals its default is left out.
struct QueryText {
    text: String,
    separator: char,
}

impl QueryText {
    fn new(path: &str) -> Self {
        Self { text: path.to_string(), separator: '?' }
    }

    fn push<T: std::fmt::Display + PartialEq>(&mut self, name: &str, value: T, default: T) {
        if value != default {
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
fn parameter<'a>(query: &'a str, field: &'static str) -> Result<Option<Cow<'a, str>>, Error> {
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

/// A counting parameter: below the range is refused, above it cut.
fn count(
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

fn status(query: &str) -> Result<Option<Status>, Error> {
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
            ("/api/v1/agent/7".to_string(), Endpoint::Agent(id)),
            ("/api/v1/agents".to_string(), agents(1, 20, None)),
            ("/api/v1/agents/compliance".to_string(), Endpoint::Compliance),
            ("/api/v1/agent/7/lineage".to_string(), Endpoint::Lineage(id)),
            ("/api/v1/agent/7/revenue".to_string(), Endpoint::Revenue { id, offset: 0, limit: 100 }),
            ("/api/v1/revenue/aggregate".to_string(), Endpoint::RevenueAggregate),
            (format!("/api/v1/kya/{wallet}"), Endpoint::Kya(wallet)),
        ] {
            assert_eq!(Endpoint::parse(&target), Ok(endpoint.clone()), "{target}");
            assert_eq!(endpoint.canonical(), target);
            let route = endpoint.route().replace(":id", "7").replace(":wallet", &wallet.to_string());
            assert_eq!(route, target);
        }
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
            "/api/v1/kya",
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
        assert_eq!(Endpoint::parse(&format!("/api/v1/agent/{max}")), Ok(Endpoint::Agent(AgentId(U256::MAX))));
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
