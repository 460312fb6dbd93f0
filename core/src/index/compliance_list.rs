//! The list of `/agents/compliance`: a page of it, the whole where it fits in memory, and the whole of any size, piece by piece.
//!
//! Telling that takes longer than the time between two refreshes, and all of it is as of the block of its first piece. So what a refresh
//! replaces while a list is open is kept as it was, once for the newest open list:
//!
//! ```text
//!   list 1 opened      A becomes B      list 2 opened      B becomes C
//!        |           kept for 1: A           |           kept for 2: B         the table itself: C
//!        |                                   |
//!        +--> reads A, kept for 1 or later   +--> reads B
//! ```
//!
//! New agents have higher ids than the last of the list. Each piece is a question of its own, so that others are answered in between;
//! a list that nobody goes on with is closed.

use std::collections::BTreeMap;

use alloy_primitives::U256;

use super::{
    IndexError,
    entry::{Entry, flaw},
    open_lists::{NEWEST, close_forgotten, drop_unneeded},
    reader::Index,
    store::{Columns, Store, StoreError, Value, ids_as_json, one_number, ordered},
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

/// Agents up to which the whole list is made in memory, 5 MB of JSON, of which the host has several copies: up to ten times that.
pub const LIST_IN_MEMORY_MAX: u64 = 25_000;
/// Lists that are open at once at most: each takes as much of the host's time as it gets.
const OPEN_LISTS: u64 = 4;
/// Rows that are read at once, where the whole is made in memory.
const ROWS: u64 = 1_000;

/// Rows of a list, `?1`, up to its last agent, `?2`: those that are kept for it or a later one, and the others as they are. `columns` of
/// those of which `rows` is true.
fn select(columns: &str, index: &str, rows: &str) -> String {
    format!(
        "SELECT {columns} FROM agents {index} WHERE {rows} AND id <= ?2 \
         AND id NOT IN (SELECT id FROM former_agents WHERE list >= ?1) \
         UNION ALL SELECT {columns} FROM former_agents AS former WHERE {rows} AND id <= ?2 \
         AND list = (SELECT min(list) FROM former_agents WHERE id = former.id AND list >= ?1)"
    )
}

/// Where a list goes on: which, and behind which agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListCursor {
    list: u64,
    after: AgentCursor,
}

impl ListCursor {
    /// Reads what [`Display`](core::fmt::Display) writes; `None` for anything else.
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

/// A piece of the JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text.
    pub text: String,
    /// Where the next piece begins; `None` where this is the last one.
    pub next: Option<ListCursor>,
}

/// A list, as its first piece found it.
struct List {
    number: u64,
    /// Its last agent, which is how many there are.
    total: u64,
    grace_seconds: U256,
    /// The moment that it is as of.
    now: Timestamp,
}

/// Before the first agent of a list.
const BEGIN: AgentCursor = AgentCursor { attested: Some(0), id: 0 };

impl<S: Store> Index<'_, S> {
    /// The list as it is now: a page of it, or as a whole.
    pub(crate) fn compliance(
        &self,
        page: Option<CompliancePage>,
        now: Timestamp,
    ) -> Result<ComplianceList, IndexError> {
        let (total, grace_seconds) = (self.state.total, self.state.grace_seconds);
        if page.is_none() && total > LIST_IN_MEMORY_MAX {
            // Beyond that it would end the host, and all that others ask of it: it is told in pieces.
            return Err(QueryError::TooManyAgents(U256::from(total)).into());
        }
        self.check_statuses()?;
        // Newer than any: nothing is kept for it.
        let list = List { number: (1 << 53) - 1, total, grace_seconds, now };
        let (mut rows, mut next) = (Vec::new(), None);
        match page {
            Some(CompliancePage { limit, cursor }) => {
                // One more than is shown, to know whether there is one.
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

    /// So many readable agents of a list, the stalest attestation first, from behind a place on, and their own places.
    fn items(
        &self,
        list: &List,
        after: AgentCursor,
        most: u64,
    ) -> Result<Vec<(AgentCursor, ComplianceListItem)>, IndexError> {
        let of_list = [Value::from(list.number), list.total.into()];
        let columns = "id, attested, record";
        let rows = "(attested, id) > (?3, ?4) AND flaws & 1 = 0";
        let records =
            select(columns, "INDEXED BY agents_by_attestation", rows) + " ORDER BY attested, id LIMIT ?5";
        let behind = [ordered(after.attested.unwrap_or(0)), after.id.into(), most.into()];
        let mut entries = Vec::new();
        for row in self.store.execute(&records, &[&of_list[..], &behind].concat())? {
            let mut row = Columns::of(row);
            let (id, _) = (row.number()?, row.blob()?);
            entries.push((id, Entry::unpack(&row.blob()?)?));
        }
        let ids: Vec<u64> = entries.iter().map(|(id, _)| *id).collect();
        let parents = "parent IN (SELECT unhex(printf('%016x', value)) FROM json_each(?3))";
        let parents = select("parent", "INDEXED BY agents_by_parent", parents);
        let counts = format!("SELECT parent, count(*) FROM ({parents}) GROUP BY parent");
        let mut children = BTreeMap::new();
        for row in self.store.execute(&counts, &[&of_list[..], &[ids_as_json(&ids)]].concat())? {
            let mut row = Columns::of(row);
            children.insert(u64::from_be_bytes(row.array()?), row.number()?);
        }
        let item = |(id, entry): (u64, Entry)| {
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

    /// Opens the whole list as of `now`; its first piece is of so many agents at most. `clock` is the host's, unix milliseconds.
    ///
    /// # Errors
    ///
    /// [`IndexError::Incomplete`] where the rows are of no one block, [`IndexError::Busy`] where too many lists are open, and
    /// the errors that the list in one piece would be.
    pub fn open_list(&self, now: Timestamp, clock: u64, most: u64) -> Result<Piece, IndexError> {
        if self.state.as_of().is_none() {
            return Err(IndexError::Incomplete { percent: self.state.percent() });
        }
        self.check_statuses()?;
        close_forgotten(self.store, clock / 1_000)?;
        if one_number(self.store, "SELECT count(*) FROM lists", &[])?.unwrap_or(0) >= OPEN_LISTS {
            return Err(IndexError::Busy);
        }
        // By the clock, so that no list of a store that was lost has the number of a later one.
        let statement = format!(
            "INSERT INTO lists (number, used, total, grace, seconds) \
             SELECT max(?1, coalesce(({NEWEST}) + 1, 0)), ?2, ?3, ?4, ?5 RETURNING number"
        );
        let (total, grace_seconds) = (self.state.total, self.state.grace_seconds);
        let grace = Value::Blob(grace_seconds.to_be_bytes::<32>().into());
        let parameters = [clock.into(), (clock / 1_000).into(), total.into(), grace, now.seconds().into()];
        let number = one_number(self.store, &statement, &parameters)?.ok_or_else(StoreError::corrupt)?;
        let list = List { number, total, grace_seconds, now };
        self.piece(&list, BEGIN, most)
    }

    /// The next piece of a list.
    ///
    /// # Errors
    ///
    /// [`IndexError::CursorExpired`] where the list has been closed, [`IndexError::Store`].
    pub fn next_piece(&self, cursor: ListCursor, clock: u64, most: u64) -> Result<Piece, IndexError> {
        let statement = "UPDATE lists SET used = ?2 WHERE number = ?1 RETURNING total, grace, seconds";
        let parameters = [cursor.list.into(), (clock / 1_000).into()];
        let Some(row) = self.store.execute(statement, &parameters)?.into_iter().next() else {
            return Err(IndexError::CursorExpired);
        };
        let mut row = Columns::of(row);
        let list = List {
            number: cursor.list,
            total: row.number()?,
            grace_seconds: U256::from_be_bytes(row.array::<32>()?),
            now: Timestamp::from_seconds(row.number()?),
        };
        self.piece(&list, cursor.after, most)
    }

    /// The piece of a list that begins behind a place.
    fn piece(&self, list: &List, after: AgentCursor, most: u64) -> Result<Piece, IndexError> {
        let rows = self.items(list, after, most)?;
        let next = rows.last().map(|(place, _)| ListCursor { list: list.number, after: *place });
        let next = next.filter(|_| rows.len() as u64 == most);
        let data = rows.into_iter().map(|(_, item)| item).collect();
        let mut unreadable = Vec::new();
        if next.is_none() {
            let flawed =
                select("id", "INDEXED BY agents_with_flaws", "flaws > 0 AND flaws & 1 > 0") + " ORDER BY id";
            for row in self.store.execute(&flawed, &[list.number.into(), list.total.into()])? {
                unreadable.push(AgentId::from(Columns::of(row).number()?));
            }
            self.store.execute("DELETE FROM lists WHERE number = ?1", &[list.number.into()])?;
            drop_unneeded(self.store)?;
        }
        let total = usize::try_from(list.total).unwrap_or(usize::MAX);
        let part = ComplianceList { total, limit: None, data, next: None, unreadable };
        Ok(Piece { text: cut(&part, after == BEGIN, next.is_none()), next })
    }
}

/// The JSON of a list without its beginning where its agents are not the first, and without its end where they are not the last.
fn cut(list: &ComplianceList, is_first: bool, is_last: bool) -> String {
    const DATA: &str = "\"data\":[";
    let mut text = json::text(list, list.size_hint());
    if !is_last {
        text.truncate(text.len().saturating_sub("]}".len()));
    }
    if !is_first && let Some(begin) = text.find(DATA) {
        // The comma goes before the agents, if there are any.
        text.replace_range(..begin + DATA.len(), if list.data.is_empty() { "" } else { "," });
    }
    text
}
