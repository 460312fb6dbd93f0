//! The parameters of `/agents` that only an index of the registry can answer, read and written.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    AGENTS_LIMIT_DEFAULT, Route,
    canonical::QueryText,
    query::{agents_limit, count, cursor, optional, parameter, some_wallet, status},
};
use crate::{
    api::error::Error,
    registry::{
        agent::Status,
        agent_query::{AgentFilter, AgentQuery, NUMBERED_MAX, Sort, Start, TEXT_MAX},
        cursor::SortKey,
        page::Page,
    },
};

/// Above any agent's id or generation, and an integer to a store in JavaScript.
const NUMBER_MAX: u64 = (1 << 53) - 1;

impl Route {
    /// Parses the query string of `/agents`.
    pub(super) fn parse_agents(query: &str) -> Result<Self, Error> {
        let filter = AgentFilter {
            haftungsperson: some_wallet(query, "haftungsperson")?,
            creator: some_wallet(query, "creator")?,
            parent: number(query, "parent")?,
            generation: number(query, "generation")?,
            status: status(query)?,
            compliant: compliant(query)?,
            text: text(query)?,
        };
        let sort = sort(query)?;
        let start = start(query, sort.key)?;
        let limit = agents_limit(query)?;
        if let Start::Page(number) = start {
            let status = filter.status;
            if filter == (AgentFilter { status, ..AgentFilter::default() }) && sort == Sort::default() {
                return Ok(Self::Agents { page: Page { number, limit }, status });
            }
            if number.saturating_mul(limit) > NUMBERED_MAX {
                let rule = "must end within the first 5000 agents where a list is filtered or sorted; a cursor goes further";
                return Err(Error::InvalidParameter { field: "page", rule });
            }
        }
        Ok(Self::Listing(Box::new(AgentQuery { filter, sort, start, limit })))
    }
}

impl AgentQuery {
    /// Writes the query string that parses to this query.
    pub(super) fn write(&self, query: &mut QueryText) {
        let AgentFilter { haftungsperson, creator, parent, generation, status, compliant, text } =
            &self.filter;
        if let Start::Page(number) = self.start {
            query.push("page", number, 1);
        }
        query.push("limit", self.limit, AGENTS_LIMIT_DEFAULT);
        query.push_some("status", &status.map(Status::name));
        query.push_some("haftungsperson", haftungsperson);
        query.push_some("creator", creator);
        query.push_some("parent", parent);
        query.push_some("generation", generation);
        query.push_some("compliant", compliant);
        query.push_some("q", &text.as_ref().map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC)));
        query.push_some("sort", &Some(self.sort).filter(|sort| *sort != Sort::default()).map(Sort::name));
        query.push_some("cursor", &self.start.cursor());
    }
}

fn sort(query: &str) -> Result<Sort, Error> {
    let rule = "must be id, registration or attestation, with a minus sign before it for the highest first";
    let sort = optional(query, "sort", rule, |text| {
        let (is_descending, key) = text.strip_prefix('-').map_or((false, text), |key| (true, key));
        let key = match key {
            // Ids ascend in the order of registration.
            "id" | "registration" => SortKey::Id,
            "attestation" => SortKey::Attestation,
            _ => return None,
        };
        Some(Sort { key, is_descending })
    });
    Ok(sort?.unwrap_or_default())
}

fn start(query: &str, key: SortKey) -> Result<Start, Error> {
    let page = count(query, "page", 1..=u64::MAX, 1)?;
    let Some(cursor) = cursor(query, key)? else { return Ok(Start::Page(page)) };
    if parameter(query, "page")?.is_some() {
        let rule = "must not be given together with page";
        return Err(Error::InvalidParameter { field: "cursor", rule });
    }
    Ok(Start::Cursor(cursor))
}

/// Parses a whole number. Larger ones are cut to [`NUMBER_MAX`], which no agent has either.
fn number(query: &str, field: &'static str) -> Result<Option<u64>, Error> {
    parameter(query, field)?.map(|_| count(query, field, 0..=NUMBER_MAX, 0)).transpose()
}

fn compliant(query: &str) -> Result<Option<bool>, Error> {
    optional(query, "compliant", "must be true or false", |text| text.parse().ok())
}

/// Parses the words to search for, joined by single spaces; words without a letter or digit are left out.
fn text(query: &str) -> Result<Option<String>, Error> {
    let Some(text) = parameter(query, "q")? else { return Ok(None) };
    // HTML forms write spaces as plus signs, which no word contains.
    let is_separator = |character: char| character == ' ' || character.is_ascii_control() || character == '+';
    let has_letter = |word: &&str| word.bytes().any(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii());
    let words: Vec<&str> = text.split(is_separator).filter(has_letter).collect();
    if words.is_empty() || text.chars().count() > TEXT_MAX {
        let rule = "must hold a word, in at most 200 characters";
        return Err(Error::InvalidParameter { field: "q", rule });
    }
    // Queries that differ only in case find the same agents, and so share an answer.
    Ok(Some(words.join(" ").to_ascii_lowercase()))
}
