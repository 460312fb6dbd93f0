//! One agent as an index stores it, and its packed form: 98 bytes followed by its scope.

use super::{
    seen_events::{RowBefore, SeenEvents},
    shard_range::place,
    store::{Columns, SqlValue, StoreError, ordered},
};
use crate::{
    eth::bytes::Input,
    registry::agent::{AgentId, Status, UnknownStatus},
    registry::row::{Row, RowDetail},
};

/// Bytes of the packed form without the scope.
pub(super) const PACKED_BYTES: usize = 98;

/// Estimates the bytes of an agent in a shard: a live one with its scope, or one that has ended.
pub(super) fn shard_bytes(entry: &IndexedAgent) -> u64 {
    match entry.status().is_some_and(Status::has_ended) {
        true => 52,
        false => 108 + entry.full.scope.len() as u64,
    }
}

/// An agent as an index stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexedAgent {
    pub(crate) row: Row,
    pub(crate) full: RowDetail,
    pub(crate) events: SeenEvents,
}

/// Bits of an agent's flaws, which keep it out of some sums.
pub(super) mod flaw {
    pub(crate) const RECORD: i64 = 1;
    pub(crate) const HISTORY: i64 = 2;
    pub(crate) const STATUS: i64 = 4;
}

impl IndexedAgent {
    /// Normalizes a record that was read: sums in order, and no fields of an unreadable record.
    pub(crate) fn new(row: Row, mut full: RowDetail) -> Self {
        if !row.record_is_readable() {
            full = RowDetail { reports: full.reports, sums: full.sums, ..RowDetail::default() };
        }
        let mut entry = Self { row, full, events: SeenEvents::default() };
        entry.sort_sums();
        entry
    }

    /// Returns when the liable wallet last attested or reported revenue, and the height of the registration,
    /// as far as verdicts need them: zeros if the registration itself is the liable wallet's.
    pub(crate) fn told_events(&self) -> (u64, u64) {
        let is_registered = self.row.creator == self.full.haftungsperson;
        if is_registered { (0, 0) } else { (self.events.last, self.events.registered_in()) }
    }

    pub(super) fn sort_sums(&mut self) {
        self.full
            .sums
            .sort_by(|one, other| (one.is_category, &one.text).cmp(&(other.is_category, &other.text)));
    }

    /// Returns the agent without its scope, reports and sums.
    pub(super) fn without_scope(&self) -> Self {
        let haftungsperson = self.full.haftungsperson;
        Self { full: RowDetail { haftungsperson, ..RowDetail::default() }, ..*self }
    }

    /// Returns this row as the one before `entry`, which was read again.
    pub(super) fn as_before(&self, entry: &Self) -> RowBefore {
        let registration = |of: &Self| (of.row.creator, of.row.registered_at, of.full.haftungsperson);
        RowBefore {
            events: self.events,
            is_same_registration: registration(self) == registration(entry),
            is_same_record: self.has_record_of(entry),
        }
    }

    /// Returns whether both have the same record; seen events are not compared.
    pub(super) fn has_record_of(&self, other: &Self) -> bool {
        (&self.row, &self.full) == (&other.row, &other.full)
    }

    pub(super) fn flaws(&self) -> i64 {
        let readable = self.row.record_is_readable();
        let record = if readable { 0 } else { flaw::RECORD };
        let history = if self.row.history_is_readable { 0 } else { flaw::HISTORY };
        let status = if readable && self.status().is_none() { flaw::STATUS } else { 0 };
        record | history | status
    }

    /// Returns the status; `None` if the record is unreadable or the number is undefined.
    pub(crate) fn status(&self) -> Option<Status> {
        Status::from_number(self.row.status)
    }

    /// Returns the status of a readable record.
    pub(super) fn known_status(&self, id: u64) -> Result<Status, UnknownStatus> {
        self.status().ok_or(UnknownStatus { agent_id: AgentId::from(id).0, number: self.row.status })
    }

    /// Packs all but the scope, the events, and the sums, which have a table of their own.
    pub(super) fn pack(&self) -> Vec<u8> {
        let Self { row, full, .. } = self;
        let mut packed = vec![row.status, u8::from(!row.history_is_readable)];
        packed.extend(row.creator);
        for number in [row.registered_at, row.last_attestation, row.parent, row.generation] {
            packed.extend(number.to_be_bytes());
        }
        packed.extend(row.wallet);
        packed.extend(full.haftungsperson);
        packed.extend(full.reports.to_be_bytes());
        packed
    }

    /// Unpacks a packed form and the scope behind it.
    pub(super) fn unpack(packed: &[u8]) -> Result<Self, StoreError> {
        Self::of_packed(Input(packed)).ok_or(StoreError::Corrupt)
    }

    fn of_packed(mut packed: Input<'_>) -> Option<Self> {
        let [status, flags] = packed.take()?;
        let row = Row {
            status,
            history_is_readable: flags & 1 == 0,
            creator: packed.address()?,
            registered_at: packed.u64()?,
            last_attestation: packed.u64()?,
            parent: packed.u64()?,
            generation: packed.u64()?,
            wallet: packed.address()?,
        };
        let (haftungsperson, reports) = (packed.address()?, packed.u32()?);
        let scope = String::from_utf8(packed.0.to_vec()).ok()?;
        let full = RowDetail { haftungsperson, scope, reports, sums: Vec::new() };
        Some(Self { row, full, events: SeenEvents::default() })
    }

    /// Reads the columns `id` and `record`.
    pub(super) fn read(row: &mut Columns) -> Result<(u64, Self), StoreError> {
        Ok((row.number()?, Self::unpack(&row.blob()?)?))
    }

    /// Reads the columns `id`, `record` and `events`.
    pub(super) fn read_with_events(row: &mut Columns) -> Result<(u64, Self), StoreError> {
        let (id, agent) = Self::read(row)?;
        Ok((id, Self { events: SeenEvents::unpack(row.nullable_blob()?)?, ..agent }))
    }

    /// Returns the agent's row in the table, in the order of its columns.
    pub(super) fn columns(&self, id: u64) -> [SqlValue; 13] {
        let of_record = |value| if self.row.record_is_readable() { value } else { SqlValue::Null };
        [
            id.into(),
            SqlValue::Blob(self.row.wallet.to_vec()),
            SqlValue::Integer(self.row.status.into()),
            ordered(self.row.last_attestation),
            of_record(ordered(self.row.parent)),
            of_record(SqlValue::Blob(self.full.haftungsperson.to_vec())),
            of_record(SqlValue::Blob(self.row.creator.to_vec())),
            of_record(self.row.generation.into()),
            SqlValue::Integer(self.flaws()),
            of_record(place(self.row.wallet).into()),
            shard_bytes(self).into(),
            SqlValue::Blob([&self.pack(), self.full.scope.as_bytes()].concat()),
            self.events.pack().map_or(SqlValue::Null, |packed| SqlValue::Blob(packed.into())),
        ]
    }
}
