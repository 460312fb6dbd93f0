//! Which agents a list is of, in which order, and where it begins: the parameters of `/agents` that only an index of the registry can
//! answer.

use alloy_primitives::Address;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    address,
    agent::Status,
    cursor::AgentCursor,
    error::Error,
    route::{self, AGENTS_LIMIT_DEFAULT, QueryText, count, parameter},
};

/// Characters that a text to search for may have at most.
pub const TEXT_MAX: usize = 200;
/// Above any agent's id or generation, and an integer to a store in JavaScript.
const NUMBER_MAX: u64 = (1 << 53) - 1;
/// Up to this agent of a list pages are found by their number; cursors go further.
pub const NUMBERED_MAX: u64 = 5_000;

/// Which agents. All that are set have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AgentFilter {
    /// With this person liable.
    pub haftungsperson: Option<Address>,
    /// Registered by this wallet.
    pub creator: Option<Address>,
    /// Children of this agent; 0 for roots.
    pub parent: Option<u64>,
    /// So deep in the lineage.
    pub generation: Option<u64>,
    /// In this state.
    pub status: Option<Status>,
    /// Compliant, or not.
    pub compliant: Option<bool>,
    /// With these words in their operational scope, separated by single spaces; the last may be the beginning of one.
    pub text: Option<String>,
}

/// What a list is sorted by; agents that are equal in that, by id in the same direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// The id, which is the order of registration: the registry counts ids up.
    #[default]
    Id,
    /// The last attestation.
    Attestation,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sort {
    /// By what.
    pub key: SortKey,
    /// The highest first.
    pub is_descending: bool,
}

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// The page of this number, from 1.
    Page(u64),
    /// Behind a place in the list.
    Cursor(AgentCursor),
}

/// A page of a list of agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentQuery {
    /// Which agents.
    pub filter: AgentFilter,
    /// In which order.
    pub sort: Sort,
    /// Where it begins.
    pub start: Start,
    /// Agents per page.
    pub limit: u64,
}

impl Start {
    /// The cursor; none where it is a page's number.
    pub(crate) const fn cursor(self) -> Option<AgentCursor> {
        match self {
            Self::Page(_) => None,
            Self::Cursor(cursor) => Some(cursor),
        }
    }
}

impl AgentQuery {
    /// Reads a query string; `None` where nothing in it takes an index.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidParameter`] for a parameter that breaks its rule.
    pub(crate) fn parse(query: &str) -> Result<Option<Self>, Error> {
        let filter = AgentFilter {
            haftungsperson: wallet(query, "haftungsperson")?,
            creator: wallet(query, "creator")?,
            parent: number(query, "parent")?,
            generation: number(query, "generation")?,
            status: route::status(query)?,
            compliant: compliant(query)?,
            text: text(query)?,
        };
        let sort = sort(query)?;
        let start = start(query, sort.key)?;
        let limit = route::agents_limit(query)?;
        let by_status = AgentFilter { status: filter.status, ..AgentFilter::default() };
        if let (Start::Page(_), true, true) = (start, filter == by_status, sort == Sort::default()) {
            return Ok(None);
        }
        if matches!(start, Start::Page(number) if number.saturating_mul(limit) > NUMBERED_MAX) {
            let rule = "must end within the first 5000 agents where a list is filtered or sorted; a cursor goes further";
            return Err(Error::InvalidParameter { field: "page", rule });
        }
        Ok(Some(Self { filter, sort, start, limit }))
    }

    /// The query string that is read as the same, for a path without one.
    pub(crate) fn write(&self, query: &mut QueryText) {
        let AgentFilter { haftungsperson, creator, parent, generation, status, compliant, text } =
            &self.filter;
        if let Start::Page(number) = self.start {
            query.push("page", number, 1);
        }
        query.push("limit", self.limit, AGENTS_LIMIT_DEFAULT);
        let status = status.map(Status::name);
        let text = text.as_ref().map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC));
        query.push_some("status", &status);
        query.push_some("haftungsperson", haftungsperson);
        query.push_some("creator", creator);
        query.push_some("parent", parent);
        query.push_some("generation", generation);
        query.push_some("compliant", compliant);
        query.push_some("q", &text);
        query.push("sort", self.sort.name(), Sort::default().name());
        if let Start::Cursor(cursor) = self.start {
            query.push_some("cursor", &Some(cursor));
        }
    }
}

impl Sort {
    const fn name(self) -> &'static str {
        match (self.key, self.is_descending) {
            (SortKey::Id, false) => "id",
            (SortKey::Id, true) => "-id",
            (SortKey::Attestation, false) => "attestation",
            (SortKey::Attestation, true) => "-attestation",
        }
    }
}

fn sort(query: &str) -> Result<Sort, Error> {
    let Some(text) = parameter(query, "sort")? else { return Ok(Sort::default()) };
    let (is_descending, key) = text.strip_prefix('-').map_or((false, &*text), |key| (true, key));
    let key = match key {
        // The registry counts ids up as it registers.
        "id" | "registration" => SortKey::Id,
        "attestation" => SortKey::Attestation,
        _ => {
            let rule =
                "must be id, registration or attestation, with a minus sign before it for the highest first";
            return Err(Error::InvalidParameter { field: "sort", rule });
        }
    };
    Ok(Sort { key, is_descending })
}

fn start(query: &str, key: SortKey) -> Result<Start, Error> {
    let page = count(query, "page", 1..=u64::MAX, 1)?;
    let Some(cursor) = route::cursor(query, key)? else { return Ok(Start::Page(page)) };
    if parameter(query, "page")?.is_some() {
        let rule = "must not be given together with page";
        return Err(Error::InvalidParameter { field: "cursor", rule });
    }
    Ok(Start::Cursor(cursor))
}

fn wallet(query: &str, field: &'static str) -> Result<Option<Address>, Error> {
    let Some(text) = parameter(query, field)? else { return Ok(None) };
    let parsed = address::parse(&text).map_err(|error| Error::InvalidParameter { field, rule: error.rule() });
    parsed.map(Some)
}

/// A whole number; what is larger than any agent's is cut, and no agent's all the same.
fn number(query: &str, field: &'static str) -> Result<Option<u64>, Error> {
    match parameter(query, field)? {
        Some(_) => count(query, field, 0..=NUMBER_MAX, 0).map(Some),
        None => Ok(None),
    }
}

fn compliant(query: &str) -> Result<Option<bool>, Error> {
    match parameter(query, "compliant")?.as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(Error::InvalidParameter { field: "compliant", rule: "must be true or false" }),
    }
}

/// Words to search for, separated by single spaces; what is none is left out.
fn text(query: &str) -> Result<Option<String>, Error> {
    let Some(text) = parameter(query, "q")? else { return Ok(None) };
    // Forms write spaces as plus signs, which are part of no word.
    let is_separator = |character: char| character == ' ' || character.is_ascii_control() || character == '+';
    let has_letter = |word: &&str| word.bytes().any(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii());
    let words: Vec<&str> = text.split(is_separator).filter(has_letter).collect();
    if words.is_empty() || text.chars().count() > TEXT_MAX {
        let rule = "must hold a word, in at most 200 characters";
        return Err(Error::InvalidParameter { field: "q", rule });
    }
    // Spellings that find the same share an answer.
    Ok(Some(words.join(" ").to_ascii_lowercase()))
}
