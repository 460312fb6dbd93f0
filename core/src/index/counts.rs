//! Keys of the counts of agents, which are kept because counting for each answer would read the whole table.

use alloy_primitives::Address;

use super::store::SqlValue;

/// Property by which agents are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CountKind {
    Status,
    Generation,
    /// Active agents by the hour of their last attestation.
    AttestationHour,
    /// Number of reports instead of agents, under one empty key.
    Reports,
    /// Liable person and status, for [persons with many agents](super::large_persons) alone.
    Person,
    /// Status and id range, to find the start of a page deep in a list.
    StatusRange,
}

impl From<CountKind> for SqlValue {
    fn from(kind: CountKind) -> Self {
        Self::Integer(kind as i64)
    }
}

/// Seconds of a [`CountKind::AttestationHour`].
pub(super) const HOUR: u64 = 3_600;

/// Ids of a [`CountKind::StatusRange`].
pub(super) const RANGE: u64 = 1_024;

/// Encodes a key of [`CountKind::StatusRange`].
pub(super) fn status_range(status: u8, id: u64) -> Vec<u8> {
    [&[status][..], &(id / RANGE).to_be_bytes()].concat()
}

/// Encodes a key of [`CountKind::Person`].
pub(super) fn person_status(person: Address, status: u8) -> Vec<u8> {
    [person.as_slice(), &[status]].concat()
}
