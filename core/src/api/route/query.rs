//! Query parameters: each is read from text by its rule.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::{AGENTS_LIMIT_DEFAULT, AGENTS_LIMIT_MAX};
use crate::{
    api::error::Error, eth::as_of::BlockId, registry::agent::Status, registry::changes::Since,
    registry::compliance::CompliancePage, registry::cursor::AgentCursor, registry::cursor::SortKey,
    registry::history::HistoryCursor, token::Audience,
};

/// The value of a query parameter, decoded; `None` where it is absent.
pub(super) fn parameter<'a>(query: &'a str, field: &'static str) -> Result<Option<Cow<'a, str>>, Error> {
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

/// A parameter read by `read`; `None` where it is absent.
pub(super) fn optional<T>(
    query: &str,
    field: &'static str,
    rule: &'static str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(text) = parameter(query, field)? else { return Ok(None) };
    read(&text).map(Some).ok_or(Error::InvalidParameter { field, rule })
}

/// The site that a signed verdict is for.
pub(super) fn audience(query: &str) -> Result<Option<Audience>, Error> {
    optional(query, "audience", Audience::RULE, Audience::parse)
}

pub(super) fn block(query: &str) -> Result<Option<BlockId>, Error> {
    optional(query, "block", BlockId::RULE, BlockId::parse)
}

/// A flag: 1 sets it, 0 and absence do not.
pub(super) fn flag(query: &str, field: &'static str) -> Result<bool, Error> {
    match parameter(query, field)?.as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(Error::InvalidParameter { field, rule: "must be 0 or 1" }),
    }
}

/// A whole number: below the range is an error, above it is cut.
pub(super) fn count(
    query: &str,
    field: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
) -> Result<u64, Error> {
    let Some(value) = parameter(query, field)? else { return Ok(default) };
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    // Digits that do not parse are more than a u64 holds, and are cut to the range's end.
    let number = digits.then(|| value.parse::<u64>().unwrap_or(u64::MAX));
    match number {
        Some(number) if number >= *range.start() => Ok(number.min(*range.end())),
        _ if *range.start() == 0 => {
            Err(Error::InvalidParameter { field, rule: "must be a whole number of at least 0" })
        }
        _ => Err(Error::InvalidParameter { field, rule: "must be a whole number of at least 1" }),
    }
}

/// The page size of a list of agents.
pub(super) fn agents_limit(query: &str) -> Result<u64, Error> {
    count(query, "limit", 1..=AGENTS_LIMIT_MAX, AGENTS_LIMIT_DEFAULT)
}

/// The cursor of a list sorted by `key`.
pub(super) fn cursor(query: &str, key: SortKey) -> Result<Option<AgentCursor>, Error> {
    optional(query, "cursor", AgentCursor::RULE, |text| AgentCursor::parse(text, key))
}

pub(super) fn history_cursor(query: &str) -> Result<Option<HistoryCursor>, Error> {
    optional(query, "cursor", AgentCursor::RULE, HistoryCursor::parse)
}

/// The page of the compliance list; `None` for the whole list.
pub(super) fn compliance_page(query: &str) -> Result<Option<CompliancePage>, Error> {
    let page = CompliancePage { limit: agents_limit(query)?, cursor: cursor(query, SortKey::Attestation)? };
    let is_asked_for = page.cursor.is_some() || parameter(query, "limit")?.is_some();
    Ok(is_asked_for.then_some(page))
}

pub(super) fn since(query: &str) -> Result<Since, Error> {
    Ok(optional(query, "since", Since::RULE, Since::parse)?.unwrap_or(Since::Oldest))
}

pub(super) fn status(query: &str) -> Result<Option<Status>, Error> {
    optional(query, "status", "must be one of Active, Suspended, Revoked, Terminated", Status::from_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::route::{Route, parse::tests::rule};

    #[test]
    fn a_parameter_that_breaks_its_rule_is_named_with_the_rule() {
        for bad in ["0", "-1", "", "x", "1.5", "1e3", "0x1", "+1", "%201", "NaN", "1,2", "1;2", "%00", "١"] {
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

    /// Holds each query string of `path` to its canonical form, which parses to the same route.
    fn assert_canonical(path: &str, queries: &[(&str, &str)]) {
        for (query, canonical) in queries {
            let route = Route::parse(&format!("{path}{query}")).unwrap();
            assert_eq!(route.canonical(), format!("{path}{canonical}"));
            assert_eq!(Route::parse(&route.canonical()), Ok(route));
        }
    }

    #[test]
    fn changes_are_asked_for_since_a_cursor_or_from_now_on() {
        let queries = [
            ("?limit=100&since=now", "?since=now"),
            ("?limit=20&since=newest", "?since=newest&limit=20"),
            ("?limit=5&x=y&since=1800000000123-42", "?since=1800000000123-42&limit=5"),
            ("?limit=501", "?limit=500"),
        ];
        assert_canonical("/api/v1/changes", &queries);
        for bad in ["", "NOW", "7", "1-", "-1", "1-2-3", "9007199254740992-1", "latest", "1800000000123%2d"] {
            let message = rule(&format!("/api/v1/changes?since={bad}"));
            let expected = "Invalid since: must be the `next` of an earlier answer, now or newest";
            assert_eq!(message, expected, "{bad}");
        }
        assert_eq!(rule("/api/v1/changes?since=now&since=now"), "Invalid since: must be given once");
        assert_eq!(rule("/api/v1/changes?limit=0"), "Invalid limit: must be a whole number of at least 1");
    }

    #[test]
    fn an_audience_is_checked_and_no_part_of_the_question() {
        let kya = "/api/v1/kya/0x1111111111111111111111111111111111111111";
        let queries = [
            ("?audience=https://shop.example", ""),
            ("?history=1&audience=http%3A%2F%2Fa:8080", "?history=1"),
        ];
        assert_canonical(kya, &queries);
        let audience = |query: &str| Route::audience(&format!("{kya}{query}"));
        assert_eq!(audience("?audience=http%3A%2F%2Fa:8080").unwrap().unwrap().as_str(), "http://a:8080");
        assert_eq!(audience("?history=1"), Ok(None));
        for bad in ["", "shop.example", "https://shop.example/", "*"] {
            let error = audience(&format!("?audience={bad}")).unwrap_err().to_string();
            assert!(error.starts_with("Invalid audience: must be an origin"), "{error}");
        }
    }

    #[test]
    fn a_history_goes_on_at_its_cursor() {
        let queries = [
            ("?limit=50&cursor=5-9-0-3", "?cursor=5-9-0-3"),
            ("?limit=101&x=y&cursor=0-9-7-0", "?limit=100&cursor=0-9-7-0"),
        ];
        assert_canonical("/api/v1/agent/7/history", &queries);
        for bad in ["", "7", "1-2-3", "1-2-3-4-5", "1-2-3-x"] {
            let message = rule(&format!("/api/v1/agent/7/history?cursor={bad}"));
            let expected = "Invalid cursor: must be the `next` of an earlier answer to the same question";
            assert_eq!(message, expected, "{bad}");
        }
        assert!(rule("/api/v1/agent/x/history").starts_with("Invalid id: "));
    }

    #[test]
    fn the_compliance_list_is_whole_unless_a_page_is_asked_for() {
        let queries = [
            ("?x=1", ""),
            ("?limit=500", "?limit=100"),
            ("?cursor=0-0", "?limit=20&cursor=0-0"),
            ("?cursor=1800000000-7&limit=3", "?limit=3&cursor=1800000000-7"),
        ];
        assert_canonical("/api/v1/agents/compliance", &queries);
        for bad in ["", "7", "-7", "1-", "1-2-3"] {
            let message = rule(&format!("/api/v1/agents/compliance?cursor={bad}"));
            assert_eq!(message, format!("Invalid cursor: {}", AgentCursor::RULE));
        }
        assert!(rule("/api/v1/agents/compliance?limit=0").starts_with("Invalid limit: "));
    }

    #[test]
    fn a_block_is_part_of_the_question() {
        let hash = format!("0x{}", "ab".repeat(32));
        for block in ["0", "18446744073709551615", &hash] {
            for path in ["/api/v1/agent/7", "/api/v1/kya/0x1111111111111111111111111111111111111111"] {
                let route = Route::parse(&format!("{path}?x=1&block={block}")).unwrap();
                assert_eq!(route.block(), BlockId::parse(block));
                assert_eq!(route.canonical(), format!("{path}?block={block}"));
                assert_ne!(Route::parse(path), Ok(route));
            }
        }
        for bad in ["", "latest", "-1", "0x10", "1e3", &hash[2..]] {
            let message = rule(&format!("/api/v1/agent/7?block={bad}"));
            assert!(message.starts_with("Invalid block: must be a block's number"), "{bad}");
        }
    }
}
