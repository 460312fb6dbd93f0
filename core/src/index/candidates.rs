//! The candidates of a page of a [list](super::listing): their source, and the statement that reads them.

use super::{
    postings::{MEMBERS, Property},
    store::{SqlValue, ordered},
};
use crate::registry::{
    agent_query::Sort,
    cursor::{AgentCursor, SortKey},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterSubject {
    Person,
    Creator,
    Parent,
    Generation,
    Status,
    Compliance,
    Text,
}

/// A part of a statement, with a `?` for each value.
#[derive(Clone, Debug)]
pub(super) struct SqlClause {
    pub(super) sql: &'static str,
    pub(super) values: Vec<SqlValue>,
}

/// The condition of one posting list.
pub(super) const LIST: &str = "postings.kind = ? AND postings.key = ?";

#[derive(Clone, Debug)]
pub(super) struct CandidateSource {
    /// The table of their ids, and the SQL index to use.
    pub(super) from: &'static str,
    /// Candidates are read from that index status by status, and merged.
    pub(super) merges_statuses: bool,
    /// The join that adds the agents' rows.
    pub(super) join: &'static str,
    /// The column of their ids.
    pub(super) id: &'static str,
    /// The condition that all candidates meet.
    pub(super) clause: SqlClause,
    /// The order in which they are read without sorting.
    pub(super) order: Option<SortKey>,
    /// The conditions that the source implies. An agent that meets any has a readable record.
    pub(super) covers: &'static [FilterSubject],
}

impl CandidateSource {
    pub(super) const fn of_agents(
        from: &'static str,
        clause: SqlClause,
        order: SortKey,
        covers: &'static [FilterSubject],
    ) -> Self {
        Self { from, merges_statuses: false, join: "", id: "agents.id", clause, order: Some(order), covers }
    }

    pub(super) fn of_list(property: Property, key: &[u8], covers: &'static [FilterSubject]) -> Self {
        let values = vec![property.into(), SqlValue::Blob(key.into())];
        Self {
            from: MEMBERS,
            merges_statuses: false,
            join: " CROSS JOIN agents ON agents.id = member.value",
            id: "member.value",
            clause: SqlClause { sql: LIST, values },
            order: Some(SortKey::Id),
            covers,
        }
    }
}

/// A statement being assembled.
#[derive(Default)]
pub(super) struct SqlStatement {
    pub(super) sql: String,
    pub(super) values: Vec<SqlValue>,
}

impl SqlStatement {
    pub(super) fn push(&mut self, sql: &str, values: impl IntoIterator<Item = SqlValue>) -> &mut Self {
        self.sql.push_str(sql);
        self.values.extend(values);
        self
    }
}

/// One page to read.
pub(super) struct CandidateScan<'a> {
    pub(super) source: CandidateSource,
    /// The conditions that the source does not imply.
    pub(super) others: Vec<SqlClause>,
    /// The words to search each candidate's scope for.
    pub(super) searched: Option<&'a str>,
    pub(super) sort: Sort,
    /// The number of candidates; `None` if there are too many to read all.
    pub(super) size: Option<u64>,
    /// The position to start behind.
    pub(super) after: Option<AgentCursor>,
    /// The last position to read, inclusive.
    pub(super) until: Option<AgentCursor>,
    /// The first id of the last row that is read of a posting list.
    pub(super) last_row: Option<u64>,
}

impl CandidateScan<'_> {
    /// Returns whether candidates have to be checked.
    pub(super) fn has_others(&self) -> bool {
        self.searched.is_some() || !self.others.is_empty()
    }

    /// Selects candidates in the list's order: with all conditions (`whole`), or only the source's.
    pub(super) fn select(&self, columns: &str, whole: bool) -> SqlStatement {
        let CandidateSource { from, join, merges_statuses, .. } = self.source;
        let needs_rows = self.sort.key == SortKey::Attestation || (whole && self.has_others());
        let join = if needs_rows { join } else { "" };
        let mut statement = SqlStatement::default();
        statement.push(&format!("SELECT {columns} FROM "), []);
        if merges_statuses {
            for status in 0..=3 {
                let before = if status == 0 { "(" } else { " UNION ALL " };
                statement.push(&format!("{before}SELECT id, attested, record FROM {from} "), []);
                self.bound(&mut statement, whole);
                statement.push(&format!(" AND agents.status = {status}"), []);
            }
            self.order(&mut statement, "");
            statement.push(") AS agents", []);
        } else {
            statement.push(&format!("{from}{join}"), []);
            self.bound(&mut statement, whole);
            self.order(&mut statement, "agents.");
        }
        statement
    }

    /// Appends the conditions and bounds of [`select`](Self::select).
    fn bound(&self, statement: &mut SqlStatement, whole: bool) {
        statement.push(" WHERE ", []).push(self.source.clause.sql, self.source.clause.values.clone());
        let up_to = if self.sort.is_descending { ">=" } else { "<=" };
        if let Some(first) = self.last_row {
            statement.push(&format!(" AND postings.first {up_to} ?"), [first.into()]);
        }
        for (cursor, comparison) in [(self.after, self.behind()), (self.until.filter(|_| whole), up_to)] {
            let Some(AgentCursor { attested, id }) = cursor else { continue };
            match self.sort.key {
                SortKey::Id => {
                    // The full-text index accepts only integer bounds of its ids, and reads to its end
                    // without one. A store in JavaScript binds floating-point numbers only.
                    let bound = format!(" AND {} {comparison} CAST(? AS INTEGER)", self.source.id);
                    statement.push(&bound, [id.into()]);
                    if self.source.from == MEMBERS {
                        self.bound_rows(statement, comparison, id);
                    }
                }
                SortKey::Attestation => {
                    let values = [ordered(attested.unwrap_or(0)), id.into()];
                    statement.push(&format!(" AND (agents.attested, agents.id) {comparison} (?, ?)"), values);
                }
            }
        }
        if whole {
            for clause in &self.others {
                statement.push(" AND ", []).push(clause.sql, clause.values.clone());
            }
        }
    }

    /// Leaves out the rows of a posting list that are wholly beyond a bound of the ids.
    pub(super) fn bound_rows(&self, statement: &mut SqlStatement, comparison: &str, id: u64) {
        if comparison.starts_with('<') {
            statement.push(" AND postings.first <= ?", [id.into()]);
        } else {
            let row = format!("SELECT max(first) FROM postings WHERE {LIST} AND first <= ?");
            let values = [&self.source.clause.values[..], &[id.into()]].concat();
            statement.push(&format!(" AND postings.first >= coalesce(({row}), 0)"), values);
        }
    }

    pub(super) const fn behind(&self) -> &'static str {
        if self.sort.is_descending { "<" } else { ">" }
    }

    pub(super) const fn direction(&self) -> &'static str {
        if self.sort.is_descending { " DESC" } else { "" }
    }

    fn order(&self, statement: &mut SqlStatement, table: &str) {
        let direction = self.direction();
        let order = match self.sort.key {
            SortKey::Id if self.source.from == MEMBERS => {
                format!(" ORDER BY postings.first{direction}, member.value{direction}")
            }
            SortKey::Id => format!(" ORDER BY {}{direction}", self.source.id),
            SortKey::Attestation => format!(" ORDER BY {table}attested{direction}, {table}id{direction}"),
        };
        statement.push(&order, []);
    }
}
