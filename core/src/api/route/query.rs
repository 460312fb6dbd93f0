//! Query parameters, each read from text by its rule.

use std::borrow::Cow;

use alloy_primitives::Address;
use percent_encoding::percent_decode_str;

use super::{AGENTS_LIMIT_DEFAULT, AGENTS_LIMIT_MAX};
use crate::{
    api::error::Error, eth::address, eth::as_of::BlockId, registry::agent::Status, registry::changes::Since,
    registry::compliance::CompliancePage, registry::cursor::AgentCursor, registry::cursor::SortKey,
    registry::history::HistoryCursor, token::Audience,
};

/// Returns the decoded value of a query parameter; `None` if it is absent.
pub(in crate::api) fn parameter<'a>(
    query: &'a str,
    field: &'static str,
) -> Result<Option<Cow<'a, str>>, Error> {
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

/// Parses a wallet: 0x and 40 hexadecimal digits, in one case or with its EIP-55 checksum.
pub(super) fn wallet(field: &'static str, text: &str) -> Result<Address, Error> {
    address::parse(text).map_err(|error| Error::InvalidParameter { field, rule: error.rule() })
}

/// Parses a parameter that is a wallet.
pub(super) fn some_wallet(query: &str, field: &'static str) -> Result<Option<Address>, Error> {
    parameter(query, field)?.map(|text| wallet(field, &text)).transpose()
}

/// Reads a parameter with `read`; `None` if it is absent.
pub(super) fn optional<T>(
    query: &str,
    field: &'static str,
    rule: &'static str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(text) = parameter(query, field)? else { return Ok(None) };
    read(&text).map(Some).ok_or(Error::InvalidParameter { field, rule })
}

/// Parses the site that a signed verdict is for.
pub(super) fn audience(query: &str) -> Result<Option<Audience>, Error> {
    optional(query, "audience", Audience::RULE, Audience::parse)
}

pub(super) fn block(query: &str) -> Result<Option<BlockId>, Error> {
    optional(query, "block", BlockId::RULE, BlockId::parse)
}

/// Parses a flag: true for 1, false for 0 or if it is absent.
pub(super) fn flag(query: &str, field: &'static str) -> Result<bool, Error> {
    match parameter(query, field)?.as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(Error::InvalidParameter { field, rule: "must be 0 or 1" }),
    }
}

/// Parses a whole number. A number below the range is an error; one above it is cut.
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

/// Parses the page size of a list of agents.
pub(super) fn agents_limit(query: &str) -> Result<u64, Error> {
    count(query, "limit", 1..=AGENTS_LIMIT_MAX, AGENTS_LIMIT_DEFAULT)
}

/// Parses the cursor of a list sorted by `key`.
pub(super) fn cursor(query: &str, key: SortKey) -> Result<Option<AgentCursor>, Error> {
    optional(query, "cursor", AgentCursor::RULE, |text| AgentCursor::parse(text, key))
}

pub(super) fn history_cursor(query: &str) -> Result<Option<HistoryCursor>, Error> {
    optional(query, "cursor", AgentCursor::RULE, HistoryCursor::parse)
}

/// Parses the page of the compliance list; `None` for the whole list.
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
