//! Request targets, and the body of a POST, to a [`Route`].

use alloy_primitives::{Address, U256};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::{
    CHANGES_LIMIT_DEFAULT, CHANGES_LIMIT_MAX, HISTORY_LIMIT_DEFAULT, HISTORY_LIMIT_MAX, KYA_BODY_BYTES_MAX,
    KYA_BODY_MAX, KYA_PATH_MAX, KyaPrefix, REVENUE_LIMIT_DEFAULT, REVENUE_LIMIT_MAX, Route,
    query::{agents_limit, audience, block, compliance_page, count, cursor, flag, history_cursor, since},
};
use crate::{
    api::error::Error,
    eth::address::{self, AddressError},
    eth::as_of::BlockId,
    registry::agent::AgentId,
    registry::cursor::SortKey,
    registry::kya::WalletInput,
    token::Audience,
};

/// What `POST /api/v1/kya` takes, and what else there is.
const WALLETS: &str = "a body of the form {\"wallets\": [\"0x...\"]}, or GET /api/v1/kya/:wallet";

impl Route {
    /// Parses a request target, such as `/api/v1/agents?page=2`. Unknown query parameters are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] for an unknown route, [`Error::InvalidParameter`] for a parameter that breaks its
    /// rule.
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
            (Some("agents"), None, ..) => Self::parse_agents(query)?,
            (Some("agents"), Some("compliance"), None, _) => Self::Compliance(compliance_page(query)?),
            (Some("liable"), Some(person), None, _) => Self::Liable {
                person: wallet(person)?,
                limit: agents_limit(query)?,
                // A cursor before the first agent is the list's beginning.
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
            (Some("kya"), None, ..) => return Err(Error::PostOnly(WALLETS)),
            (Some("kya"), Some(list), None, _) if list.contains(',') => {
                let wallets: Vec<WalletInput> = list.split(',').map(asked).collect();
                if wallets.len() > KYA_PATH_MAX {
                    let rule = "must be at most 20 wallets; POST /api/v1/kya takes 100";
                    return Err(Error::InvalidParameter { field: "wallet", rule });
                }
                if let Some(WalletInput::Malformed { error, .. }) =
                    wallets.first().filter(|_| !wallets.iter().any(WalletInput::is_wallet))
                {
                    return Err(Error::InvalidParameter { field: "wallet", rule: error.rule() });
                }
                Self::KyaList { wallets, block: block(query)? }
            }
            (Some("kya"), Some("range"), Some(prefix), None) => Self::KyaRange(KyaPrefix::parse(prefix)?),
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

    /// The site that a signed verdict is asked for, from the target of a [`Route::Kya`]. It is no part of the
    /// route, as one verdict is signed for any of them, and [`parse`](Self::parse) does not look at it: hosts
    /// that sign nothing need no rule for it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidParameter`].
    pub fn audience(target: &str) -> Result<Option<Audience>, Error> {
        audience(target.split_once('?').map_or("", |(_, query)| query))
    }

    /// Parses a POST: its target, and a body such as `{"wallets": ["0x...", "0x..."]}`.
    ///
    /// # Errors
    ///
    /// [`Error::MethodNotAllowed`] for a path that takes no POST, [`Error::BodyTooLarge`],
    /// [`Error::InvalidParameter`] for a body of another form, or a parameter that breaks its rule.
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
        Self::kya_list(wallets.iter().map(|text| WalletInput::parse(text)).collect(), block(query)?)
    }

    /// The route for a list of wallets.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidParameter`] where there are none, or too many.
    pub fn kya_list(wallets: Vec<WalletInput>, block: Option<BlockId>) -> Result<Self, Error> {
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
        match Self::parse(target) {
            Err(Error::PostOnly(_)) => Ok(()),
            _ => Err(Error::MethodNotAllowed),
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

/// One item of a path's list of wallets, which may be malformed.
fn asked(segment: &str) -> WalletInput {
    WalletInput::parse(&percent_decode_str(segment).decode_utf8_lossy())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::registry::{agent::Status, changes::Since, page::Page};

    pub(in crate::api::route) fn agents(number: u64, limit: u64, status: Option<Status>) -> Route {
        Route::Agents { page: Page { number, limit }, status }
    }

    pub(in crate::api::route) fn rule(target: &str) -> String {
        match Route::parse(target) {
            Err(error @ Error::InvalidParameter { .. }) => error.to_string(),
            other => panic!("{target}: {other:?}"),
        }
    }

    #[test]
    fn every_documented_route_is_known_and_has_its_time_to_live() {
        let id = AgentId(U256::from(7));
        let wallet = Address::repeat_byte(0x11);
        let revenue = Route::Revenue { id, offset: 0, limit: 100 };
        let (kya, liable) = (format!("/api/v1/kya/{wallet}"), format!("/api/v1/liable/{wallet}"));
        let history = Route::History { id, limit: HISTORY_LIMIT_DEFAULT, cursor: None };
        for (target, seconds, route) in [
            ("/health", 0, Route::Health),
            ("/api/v1/stats", 300, Route::Stats),
            ("/api/v1/stats/detailed", 300, Route::DetailedStats),
            ("/api/v1/agent/7", 300, Route::Agent { id, block: None }),
            ("/api/v1/agents", 300, agents(1, 20, None)),
            ("/api/v1/agents?status=Active", 300, agents(1, 20, Some(Status::Active))),
            ("/api/v1/agents/compliance", 300, Route::Compliance(None)),
            ("/api/v1/agent/7/lineage", 600, Route::Lineage(id)),
            ("/api/v1/agent/7/revenue", 0, revenue),
            ("/api/v1/revenue/aggregate", 300, Route::RevenueAggregate),
            (&kya, 60, Route::Kya { wallet, block: None, history: false }),
            (&liable, 300, Route::Liable { person: wallet, limit: 20, cursor: None }),
            ("/api/v1/agent/7/ancestors", 300, Route::Ancestors(id)),
            ("/api/v1/agent/7/history", 300, history),
            ("/api/v1/changes", 60, Route::Changes { since: Since::Oldest, limit: 100 }),
        ] {
            assert_eq!(Route::parse(target), Ok(route.clone()), "{target}");
            assert_eq!(route.canonical(), target);
            assert_eq!(route.cache_scope().default_seconds(), seconds, "{target}");
            let pattern = route.pattern().replace(":id", "7").replace(":wallet", &wallet.to_string());
            assert_eq!(target.split('?').next(), Some(&*pattern));
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
            "/api/v1/agents/x",
            "/API/v1/stats",
            "//health",
            "/agents",
        ] {
            assert_eq!(Route::parse(target), Err(Error::NotFound), "{target}");
        }
    }

    #[test]
    fn ids_are_decimal_digits_up_to_256_bits() {
        let max = U256::MAX.to_string();
        assert_eq!(
            Route::parse(&format!("/api/v1/agent/{max}")),
            Ok(Route::Agent { id: AgentId(U256::MAX), block: None })
        );
        for bad in ["abc", "-1", "1.0", "0x1", "", "%ff", "1%2F2", "١", &max.replace("935", "936")] {
            assert!(rule(&format!("/api/v1/agent/{bad}")).starts_with("Invalid id: "), "{bad}");
        }
    }

    #[test]
    fn wallets_are_read_in_one_case_or_with_their_checksum() {
        let checksummed = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"; // an example of EIP-55
        let upper = format!("0x{}", checksummed[2..].to_uppercase());
        for good in [checksummed, &checksummed.to_lowercase(), &upper] {
            let route = Route::parse(&format!("/api/v1/kya/{good}")).unwrap();
            assert_eq!(route.canonical(), format!("/api/v1/kya/{checksummed}"));
        }
        let typo = checksummed.replace("5aAe", "5aae");
        assert!(rule(&format!("/api/v1/kya/{typo}")).contains("EIP-55"));
        for bad in ["", "0x", "me", &checksummed[2..], &checksummed[..41], &format!("{checksummed}0"), "0xg"]
        {
            assert!(rule(&format!("/api/v1/kya/{bad}")).contains("40 hexadecimal digits"), "{bad}");
        }
    }

    #[test]
    fn evidence_is_a_question_of_its_own() {
        let wallet = Address::repeat_byte(0x11);
        let path = format!("/api/v1/kya/{wallet}");
        let evidence = Route::parse(&format!("{path}?utm=x&evidence=1")).unwrap();
        assert_eq!(evidence, Route::Evidence(wallet));
        assert_eq!(evidence.canonical(), format!("{path}?evidence=1"));
        assert_eq!(Route::parse(&evidence.canonical()), Ok(evidence));
        assert_eq!(
            Route::parse(&format!("{path}?evidence=0")),
            Ok(Route::Kya { wallet, block: None, history: false })
        );
        for with in ["block=7", "history=1"] {
            assert!(rule(&format!("{path}?evidence=1&{with}")).starts_with("Invalid evidence: must not"));
        }
        for bad in ["", "2", "true", "01"] {
            assert_eq!(rule(&format!("{path}?evidence={bad}")), "Invalid evidence: must be 0 or 1");
        }
    }

    #[test]
    fn history_is_read_when_asked_for_and_at_the_newest_block_only() {
        let path = "/api/v1/kya/0x1111111111111111111111111111111111111111";
        let canonical = |query: &str| Route::parse(&format!("{path}{query}")).unwrap().canonical();
        assert_eq!(canonical("?history=1&x"), format!("{path}?history=1"));
        assert_eq!(canonical("?history=0"), path);
        assert_eq!(rule(&format!("{path}?history=yes")), "Invalid history: must be 0 or 1");
        assert!(rule(&format!("{path}?history=1&block=7")).starts_with("Invalid history: must not be"));
    }

    #[test]
    fn a_list_keeps_its_order_and_what_is_malformed_in_its_place() {
        let (one, two) = (Address::repeat_byte(0x11), Address::repeat_byte(0x22));
        let path = format!("/api/v1/kya/{two},me%2Ftoo,{one},");
        let Ok(Route::KyaList { wallets, .. }) = Route::parse(&path) else { panic!("{path}") };
        let malformed = |text: &str| WalletInput::Malformed { text: text.into(), error: AddressError::Shape };
        let expected =
            [WalletInput::Wallet(two), malformed("me/too"), WalletInput::Wallet(one), malformed("")];
        assert_eq!(wallets, expected);
        let many = vec![one.to_string(); 20].join(",");
        assert!(Route::parse(&format!("/api/v1/kya/{many}")).is_ok());
        assert!(rule(&format!("/api/v1/kya/{many},{two}")).contains("at most 20 wallets"));
        assert!(rule("/api/v1/kya/me,too").contains("40 hexadecimal digits"), "none is a wallet");
    }

    #[test]
    fn what_may_take_many_calls_counts_as_many_requests() {
        let wallet = "0x5FbDB2315678afecb367f032d93F642f64180aa3";
        for (target, cost) in [
            ("/api/v1/agent/1".to_owned(), 1),
            (format!("/api/v1/kya/{wallet}"), 1),
            (format!("/api/v1/kya/{wallet}?evidence=1"), 2),
            (format!("/api/v1/kya/{wallet}?history=1"), 5),
            ("/api/v1/agent/1/lineage".to_owned(), 5),
            ("/api/v1/agent/1/history".to_owned(), 5),
        ] {
            assert_eq!(Route::parse(&target).unwrap().cost(), cost, "{target}");
        }
    }

    #[test]
    fn a_body_is_a_list_of_one_to_a_hundred_wallets() {
        let post = |body: &str| Route::parse_post("/api/v1/kya", body.as_bytes());
        let wallet = Address::repeat_byte(0x11);
        let list = |count| format!("{{\"wallets\": {:?}}}", vec![wallet.to_string(); count]);
        for (count, cost) in [(1, 1), (10, 1), (11, 2), (100, 10)] {
            let route = post(&list(count)).unwrap();
            assert_eq!(route.cost(), cost, "{count} wallets");
            assert_eq!(
                route,
                Route::KyaList { wallets: vec![WalletInput::Wallet(wallet); count], block: None }
            );
        }
        let Ok(Route::KyaList { wallets, .. }) = post("{\"wallets\": [\"me\", \"\"]}") else { panic!() };
        let malformed = |text: &str| WalletInput::Malformed { text: text.into(), error: AddressError::Shape };
        assert_eq!(wallets, ["me", ""].map(malformed));
        let message = |body: &str| post(body).unwrap_err().to_string();
        for bad in ["", "[]", "{}", "{\"wallets\": 7}", "{\"wallets\": [7]}", "{\"wallets\": [}", "\u{1}"] {
            assert!(message(bad).starts_with("Invalid body: must be JSON of the form"), "{bad}");
        }
        for count in [0, 101] {
            assert_eq!(message(&list(count)), "Invalid wallets: must be a list of 1 to 100 wallets");
        }
        assert_eq!(post(&" ".repeat(KYA_BODY_BYTES_MAX + 1)), Err(Error::BodyTooLarge(KYA_BODY_BYTES_MAX)));
        let elsewhere = Route::parse_post("/api/v1/kya/0x1111111111111111111111111111111111111111", b"{}");
        assert_eq!(elsewhere, Err(Error::MethodNotAllowed));
        assert_eq!(Route::parse("/api/v1/kya"), Err(Error::PostOnly(WALLETS)));
    }
}
