//! Parsing of request targets, and of the body of a POST, to a [`Route`].

use std::borrow::Cow;

use alloy_primitives::U256;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::{
    CHANGES_LIMIT_DEFAULT, CHANGES_LIMIT_MAX, HISTORY_LIMIT_DEFAULT, HISTORY_LIMIT_MAX, KYA_BODY_BYTES_MAX,
    KYA_BODY_MAX, KYA_PATH_MAX, KyaPrefix, REVENUE_LIMIT_DEFAULT, REVENUE_LIMIT_MAX, Route,
    query::{
        agents_limit, audience, block, compliance_page, count, cursor, flag, history_cursor, optional, since,
        some_wallet, wallet,
    },
};
use crate::{
    api::accept::{EVENTS_TYPE, JWT_TYPE},
    api::error::Error,
    eth::as_of::BlockId,
    registry::agent::AgentId,
    registry::cursor::SortKey,
    registry::kya::WalletInput,
    registry::liability::Basis,
    token::Audience,
};

/// Advice to clients that GET `/api/v1/kya`: the body that POST takes, or the other route.
const WALLETS: &str = "a body of the form {\"wallets\": [\"0x...\"]}, or GET /api/v1/kya/:wallet";

impl Route {
    /// Returns the media type that the path of a request target stands for whatever `Accept` says, if any:
    /// `/token/:wallet` and `/changes/stream` are otherwise the routes `/kya/:wallet` and `/changes`.
    pub fn media_type(target: &str) -> Option<&'static str> {
        let (path, _) = target.split_once('?').unwrap_or((target, ""));
        match path.strip_prefix("/api/v1/")? {
            "changes/stream" => Some(EVENTS_TYPE),
            form if form.starts_with("token/") => Some(JWT_TYPE),
            _ => None,
        }
    }

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
                person: wallet("wallet", &decoded(person))?,
                limit: agents_limit(query)?,
                // A cursor before the first agent is the list's beginning.
                cursor: cursor(query, SortKey::Id)?.filter(|cursor| cursor.id > 0),
                basis: basis(query)?,
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
            (Some("changes"), None, ..) | (Some("changes"), Some("stream"), None, _) => Self::Changes {
                since: since(query)?,
                limit: count(query, "limit", 1..=CHANGES_LIMIT_MAX, CHANGES_LIMIT_DEFAULT)?,
                liable: some_wallet(query, "liable")?,
            },
            (Some("kya"), None, ..) => return Err(Error::PostOnly(WALLETS)),
            (Some("kya"), Some("range"), Some(prefix), None) => {
                Self::KyaRange(KyaPrefix::parse(&decoded(prefix))?)
            }
            (Some(form @ ("kya" | "evidence" | "token")), Some(address), None, _) => {
                // Most clients write a comma as `%2C`.
                let address = decoded(address);
                if address.contains(',') && form == "kya" {
                    return Self::kya_path(&address, block(query)?);
                }
                let (wallet, block, history) =
                    (wallet("wallet", &address)?, block(query)?, flag(query, "history")?);
                if block.is_some() && history {
                    let rule =
                        "must not be asked for together with block: the past is told at the newest block";
                    return Err(Error::InvalidParameter { field: "history", rule });
                }
                if form != "evidence" && !flag(query, "evidence")? {
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

    /// Parses the list of wallets in a path to a route.
    fn kya_path(list: &str, block: Option<BlockId>) -> Result<Self, Error> {
        let wallets: Vec<WalletInput> = list.split(',').map(WalletInput::parse).collect();
        if wallets.len() > KYA_PATH_MAX {
            let rule = "must be at most 20 wallets; POST /api/v1/kya takes 100";
            return Err(Error::InvalidParameter { field: "wallet", rule });
        }
        if let Some(WalletInput::Malformed { error, .. }) =
            wallets.first().filter(|_| !wallets.iter().any(WalletInput::is_wallet))
        {
            return Err(Error::InvalidParameter { field: "wallet", rule: error.rule() });
        }
        Ok(Self::KyaList { wallets, block })
    }

    /// Parses the site that a signed verdict is asked for from the target of a [`Route::Kya`]. It is not part
    /// of the route, as one verdict is signed for any site. [`parse`](Self::parse) ignores it: hosts that
    /// sign nothing need no rule for it.
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

    /// Makes the route for a list of wallets.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidParameter`] for an empty or a too long list.
    pub fn kya_list(wallets: Vec<WalletInput>, block: Option<BlockId>) -> Result<Self, Error> {
        if wallets.is_empty() || wallets.len() > KYA_BODY_MAX {
            return Err(Error::InvalidParameter {
                field: "wallets",
                rule: "must be a list of 1 to 100 wallets",
            });
        }
        Ok(Self::KyaList { wallets, block })
    }

    /// Checks that a path takes POST, before the body is read.
    ///
    /// # Errors
    ///
    /// [`Error::MethodNotAllowed`] for a path that does not.
    pub fn check_post(target: &str) -> Result<(), Error> {
        match Self::parse(target) {
            Err(Error::PostOnly(_)) => Ok(()),
            _ => Err(Error::MethodNotAllowed),
        }
    }
}

/// Decodes a segment of a path. Bytes that are not UTF-8 become U+FFFD, which no parameter allows.
pub(in crate::api) fn decoded(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

/// Parses a path's agent id: decimal digits, at most `2^256 - 1`.
fn agent_id(segment: &str) -> Result<AgentId, Error> {
    let segment = decoded(segment);
    let digits =
        Some(&*segment).filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    let id = digits.and_then(|digits| U256::from_str_radix(digits, 10).ok());
    let rule = "must be a whole number, at most 2^256 - 1";
    id.map(AgentId).ok_or(Error::InvalidParameter { field: "id", rule })
}

/// Parses a basis of lists, which know of no acceptances.
fn basis(query: &str) -> Result<Option<Basis>, Error> {
    optional(query, "basis", "must be registered, attested, named or unknown", |text| {
        Basis::from_name(text).filter(|basis| *basis != Basis::Accepted)
    })
}
