//! The list of `/agents/compliance`: a page, the whole if it fits in memory, and the whole of any size in
//! chunks.
//!
//! Sending all chunks takes longer than the time between refreshes, but all of them are of the block of the
//! first one. So a refresh keeps a copy of each row it replaces while a list is open, once for the newest
//! open list:
//!
//! ```text
//!   list 1 opened      A becomes B      list 2 opened      B becomes C
//!        |           kept for 1: A           |           kept for 2: B         the table itself: C
//!        |                                   |
//!        +--> reads A, kept for 1 or later   +--> reads B
//! ```
//!
//! New agents have ids beyond the list's last one. Each chunk is a request of its own, so that other requests
//! run in between. A list that is not continued is closed.

use std::collections::BTreeMap;

use alloy_primitives::U256;

use super::{
    IndexError,
    indexed_agent::{IndexedAgent, flaw},
    open_lists::{NEWEST, close, close_forgotten},
    postings::{MEMBERS, Property},
    reader::Index,
    store::{SqlValue, Store, StoreError, first_row, ids_as_json, one_number, ordered, query},
};
use crate::{
    chain::QueryError,
    eth::json,
    eth::timestamp::Timestamp,
    registry::agent::AgentId,
    registry::compliance::{Compliance, ComplianceList, ComplianceListItem, CompliancePage},
    registry::cursor::SortKey,
    registry::cursor::{AgentCursor, number},
    registry::row::Row,
};

/// The largest list made in memory: 5 MB of JSON, of which the host holds up to ten copies.
pub const LIST_IN_MEMORY_MAX: u64 = 25_000;
/// Maximum open lists: each takes all the host's time it can get.
const OPEN_LISTS: u64 = 4;
/// Seconds without a request for the next chunk after which a list makes room for another one: its reader
/// has gone, or is too slow.
const IDLE_SECONDS: u64 = 10;
/// Rows read at once when the whole is made in memory.
const ROWS: u64 = 1_000;

/// Selects agents of list `?1` up to its last one `?2` without a copy, of these rows with the column `id`.
fn current(columns: &str, from: &str, id: &str, rows: &str) -> String {
    format!(
        "SELECT {columns} FROM {from} WHERE {rows} AND {id} <= ?2 \
         AND {id} NOT IN (SELECT id FROM former_agents WHERE list >= ?1)"
    )
}

/// Selects the copies kept for list `?1` or a later one up to its last agent `?2`.
fn former(columns: &str, rows: &str) -> String {
    format!(
        " UNION ALL SELECT {columns} FROM former_agents AS former WHERE {rows} AND id <= ?2 \
         AND list = (SELECT min(list) FROM former_agents WHERE id = former.id AND list >= ?1)"
    )
}

/// The position in a list: its number, and the last agent sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListCursor {
    list: u64,
    after: AgentCursor,
}

impl ListCursor {
    /// Parses the [`Display`](core::fmt::Display) format; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (list, after) = text.split_once('/')?;
        Some(Self { list: number(list)?, after: AgentCursor::parse(after, SortKey::Attestation)? })
    }
}

impl core::fmt::Display for ListCursor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.list, self.after)
    }
}

/// A chunk of the JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChunk {
    /// The JSON text.
    pub text: String,
    /// The start of the next chunk; `None` after the last.
    pub next: Option<ListCursor>,
}

/// A list as it was opened.
struct OpenList {
    number: u64,
    /// The last agent's id, which is also the number of agents.
    total: u64,
    grace_seconds: U256,
    /// The time of the verdicts.
    now: Timestamp,
}

/// The position before the first agent.
const BEGIN: AgentCursor = AgentCursor { attested: Some(0), id: 0 };

impl<S: Store> Index<'_, S> {
    /// Returns a page of the list, or the whole, as of `now`.
    pub(crate) fn compliance(
        &self,
        page: Option<CompliancePage>,
        now: Timestamp,
    ) -> Result<ComplianceList, IndexError> {
        let (total, grace_seconds) = (self.state.total, self.state.grace_seconds);
        if page.is_none() && total > LIST_IN_MEMORY_MAX {
            // A larger list would exhaust the host's memory and is served in chunks.
            return Err(QueryError::TooManyAgents(U256::from(total)).into());
        }
        self.check_statuses()?;
        // Higher than any list's number: no copies are kept for it.
        let list = OpenList { number: (1 << 53) - 1, total, grace_seconds, now };
        let (mut rows, mut next) = (Vec::new(), None);
        match page {
            Some(CompliancePage { limit, cursor }) => {
                // One more than shown, to detect a next page.
                rows = self.items(&list, cursor.unwrap_or(BEGIN), limit.saturating_add(1))?;
                if rows.len() as u64 > limit {
                    rows.pop();
                    next = rows.last().map(|(place, _)| *place);
                }
            }
            None => loop {
                let after = rows.last().map_or(BEGIN, |(place, _)| *place);
                let more = self.items(&list, after, ROWS)?;
                if more.is_empty() {
                    break;
                }
                rows.extend(more);
            },
        }
        let data = rows.into_iter().map(|(_, item)| item).collect();
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let limit = page.map(|page| page.limit);
        Ok(ComplianceList { total, limit, data, next, unreadable: self.flawed(flaw::RECORD)? })
    }

    /// Reads at most `most` readable agents after a position, the oldest attestation first, with positions.
    fn items(
        &self,
        list: &OpenList,
        after: AgentCursor,
        most: u64,
    ) -> Result<Vec<(AgentCursor, ComplianceListItem)>, IndexError> {
        let of_list = [SqlValue::from(list.number), list.total.into()];
        let columns = "id, record, attested";
        let rows = "(attested, id) > (?3, ?4) AND flaws & 1 = 0";
        // The index has the agents of each status by themselves; SQLite merges them.
        let of_status = |status| {
            let rows = format!("status = {status} AND {rows}");
            current(columns, "agents INDEXED BY agents_by_attestation", "id", &rows)
        };
        let records = [0, 1, 2, 3].map(of_status).join(" UNION ALL ")
            + &former(columns, rows)
            + " ORDER BY attested, id LIMIT ?5";
        let behind = [ordered(after.attested.unwrap_or(0)), after.id.into(), most.into()];
        let parameters = [&of_list[..], &behind].concat();
        let entries = query(self.store, &records, &parameters, IndexedAgent::read)?;
        let ids: Vec<u64> = entries.iter().map(|(id, _)| *id).collect();
        let asked = "IN (SELECT unhex(printf('%016x', value)) FROM json_each(?3))";
        let lists = format!("kind = ?4 AND postings.key {asked}");
        let parents = current("postings.key AS parent", MEMBERS, "member.value", &lists)
            + &former("parent", &format!("parent {asked}"));
        let counts = format!("SELECT parent, count(*) FROM ({parents}) GROUP BY parent");
        let parameters = [&of_list[..], &[ids_as_json(&ids), Property::Parent.into()]].concat();
        let children: BTreeMap<u64, u64> = query(self.store, &counts, &parameters, |row| {
            Ok((u64::from_be_bytes(row.array()?), row.number()?))
        })?
        .into_iter()
        .collect();
        let item = |(id, entry): (u64, IndexedAgent)| {
            let Row { creator, last_attestation, .. } = entry.row;
            let status = entry.known_status(id).map_err(QueryError::from)?;
            let compliance = Compliance::judge(
                status,
                Timestamp::from_seconds(last_attestation),
                U256::from(children.get(&id).copied().unwrap_or_default()),
                list.grace_seconds,
                list.now,
            );
            let place = AgentCursor { attested: Some(last_attestation), id };
            Ok((place, ComplianceListItem { agent_id: id.into(), creator, status, compliance }))
        };
        entries.into_iter().map(item).collect()
    }

    /// Opens the whole list as of `now`, and returns its first chunk of at most `most` agents. `clock` is the
    /// host's in unix milliseconds.
    ///
    /// # Errors
    ///
    /// [`IndexError::Incomplete`] if the rows are of different blocks, [`IndexError::Busy`] if too many lists
    /// are open, and the errors of the list in one piece.
    pub fn open_list(&self, now: Timestamp, clock: u64, most: u64) -> Result<ListChunk, IndexError> {
        let now = self.not_before_its_block(now)?;
        self.check_statuses()?;
        close_forgotten(self.store, clock / 1_000)?;
        if one_number(self.store, "SELECT count(*) FROM lists", &[])?.unwrap_or(0) >= OPEN_LISTS {
            let idle = "SELECT number FROM lists WHERE used <= ?1 ORDER BY used, number LIMIT 1";
            let since = (clock / 1_000).saturating_sub(IDLE_SECONDS);
            let idle = one_number(self.store, idle, &[since.into()])?.ok_or(IndexError::Busy)?;
            close(self.store, idle)?;
        }
        // Derived from the clock, so that lists of a lost store never share a number with later ones.
        let statement = format!(
            "INSERT INTO lists (number, used, total, grace, seconds) \
             SELECT max(?1, coalesce(({NEWEST}) + 1, 0)), ?2, ?3, ?4, ?5 RETURNING number"
        );
        let (total, grace_seconds) = (self.state.total, self.state.grace_seconds);
        let grace = SqlValue::Blob(grace_seconds.to_be_bytes::<32>().into());
        let parameters = [clock.into(), (clock / 1_000).into(), total.into(), grace, now.seconds().into()];
        let number = one_number(self.store, &statement, &parameters)?.ok_or_else(StoreError::corrupt)?;
        let list = OpenList { number, total, grace_seconds, now };
        self.chunk(&list, BEGIN, most)
    }

    /// Returns the next chunk of a list.
    ///
    /// # Errors
    ///
    /// [`IndexError::CursorExpired`] if the list has been closed, [`IndexError::Store`].
    pub fn next_chunk(&self, cursor: ListCursor, clock: u64, most: u64) -> Result<ListChunk, IndexError> {
        let statement = "UPDATE lists SET used = ?2 WHERE number = ?1 RETURNING total, grace, seconds";
        let parameters = [cursor.list.into(), (clock / 1_000).into()];
        let row = first_row(self.store, statement, &parameters)?;
        let mut row = row.ok_or(IndexError::CursorExpired)?;
        let list = OpenList {
            number: cursor.list,
            total: row.number()?,
            grace_seconds: U256::from_be_bytes(row.array::<32>()?),
            now: Timestamp::from_seconds(row.number()?),
        };
        self.chunk(&list, cursor.after, most)
    }

    /// Closes a list that is not read to its end.
    ///
    /// # Errors
    ///
    /// [`IndexError::Store`].
    pub fn close_list(&self, cursor: ListCursor) -> Result<(), IndexError> {
        Ok(close(self.store, cursor.list)?)
    }

    fn chunk(&self, list: &OpenList, after: AgentCursor, most: u64) -> Result<ListChunk, IndexError> {
        let rows = self.items(list, after, most)?;
        let next = rows.last().map(|(place, _)| ListCursor { list: list.number, after: *place });
        let next = next.filter(|_| rows.len() as u64 == most);
        let data = rows.into_iter().map(|(_, item)| item).collect();
        let mut unreadable = Vec::new();
        if next.is_none() {
            let rows = "flaws > 0 AND flaws & 1 > 0";
            let flawed = current("id", "agents INDEXED BY agents_with_flaws", "id", rows)
                + &former("id", rows)
                + " ORDER BY id";
            let parameters = [list.number.into(), list.total.into()];
            unreadable = query(self.store, &flawed, &parameters, |row| Ok(AgentId::from(row.number()?)))?;
            close(self.store, list.number)?;
        }
        let total = usize::try_from(list.total).unwrap_or(usize::MAX);
        let part = ComplianceList { total, limit: None, data, next: None, unreadable };
        Ok(ListChunk { text: cut(&part, after == BEGIN, next.is_none()), next })
    }
}

/// Returns the JSON of a chunk: without the list's beginning unless it is the first, and without its end
/// unless it is the last.
fn cut(list: &ComplianceList, is_first: bool, is_last: bool) -> String {
    const DATA: &str = "\"data\":[";
    let mut text = json::text(list, list.size_hint());
    if !is_last {
        text.truncate(text.len().saturating_sub("]}".len()));
    }
    if !is_first && let Some(begin) = text.find(DATA) {
        // The comma precedes the agents, if there are any.
        text.replace_range(..begin + DATA.len(), if list.data.is_empty() { "" } else { "," });
    }
    text
}
