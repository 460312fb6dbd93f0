//! Rows of agents with consecutive numbers, collected in any order, and the sums of their revenue.

use crate::{
    chain::lens::Slice,
    registry::{
        revenue::RevenueAggregate,
        row::{Row, RowDetail},
    },
};

/// Maximum agents of an answer over the whole registry: their rows and the largest answer fit into 64 MiB.
pub const MAX_AGENTS: u64 = 100_000;

/// Agents with consecutive numbers, at 80 bytes each: their ids, unless a walk is over a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    first: u64,
    rows: Vec<Row>,
    /// In full detail: the rest of each row read so far.
    full: Vec<RowDetail>,
    /// The sums of all readable histories.
    pub(crate) revenue: RevenueAggregate,
}

impl Rows {
    pub(crate) fn starting_at(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    /// Iterates over all rows by ascending number.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Row)> + Clone {
        self.rows.iter().enumerate().map(|(index, row)| (self.first + index as u64, row))
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Row> {
        self.rows.get(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    /// Iterates over all rows by ascending number, in full detail.
    pub(crate) fn full(&self) -> impl Iterator<Item = (u64, Row, RowDetail)> {
        let rest = self.full.iter().cloned().chain(std::iter::repeat(RowDetail::default()));
        self.iter().zip(rest).map(|((id, row), full)| (id, *row, full))
    }

    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Drops agents beyond `last`.
    pub(crate) fn end_at(&mut self, last: u64) {
        let length = last.saturating_add(1).saturating_sub(self.first);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.rows.truncate(length);
        self.full.truncate(length);
    }

    /// Adds a slice that starts at `first`.
    pub(crate) fn fold(&mut self, first: u64, slice: Slice) {
        let start = self.index(first);
        let end = start.saturating_add(slice.rows.len());
        if self.rows.len() < end {
            self.rows.resize(end, Row::UNREAD);
        }
        for (place, row) in self.rows.iter_mut().skip(start).zip(slice.rows) {
            *place = row;
        }
        if !slice.full.is_empty() {
            if self.full.len() < end {
                self.full.resize(end, RowDetail::default());
            }
            for (place, full) in self.full.iter_mut().skip(start).zip(slice.full) {
                *place = full;
            }
        }
        self.revenue.total_reports = self.revenue.total_reports.saturating_add(slice.reports);
        for sum in slice.sums {
            // A registry's sums cannot overflow, but a malicious node's may.
            let add = |total: &mut crate::registry::revenue::Total| *total = total.saturating_add(sum.amount);
            if sum.is_category {
                add(self.revenue.by_category.entry(sum.text).or_default());
            } else {
                add(&mut self.revenue.total_amount);
                add(self.revenue.by_currency.entry(sum.text).or_default());
            }
        }
    }

    fn index(&self, id: u64) -> usize {
        usize::try_from(id.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let sums = self.revenue.by_currency.keys().chain(self.revenue.by_category.keys());
        self.rows.capacity() * size_of::<Row>() + sums.map(|text| text.len() + 96).sum::<usize>()
    }
}
