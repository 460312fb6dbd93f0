//! Decodes the lens's packed answer: rows and sums of agents with consecutive numbers.

use alloy_primitives::B256;

use super::Detail;
use crate::{
    chain::marker::Marker,
    eth::bytes::Input,
    registry::{
        revenue::{RevenueAggregate, Total},
        row::{Row, RowDetail, Sum, UNREADABLE, scope, sums},
    },
};

const VERSION: u8 = 1;
/// Kind of an entry that is a scope; the others are sums.
const SCOPE: u8 = 2;

/// The result of one call: rows of a span's agents, and the sums of their readable histories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) marker: Marker,
    /// A prefix of the agents asked for: the rest exceeded the gas, or does not exist.
    pub(crate) rows: Vec<Row>,
    /// In full detail: the rest of each row, with the agent's own sums.
    pub(crate) full: Vec<RowDetail>,
    pub(crate) reports: u64,
    pub(crate) sums: Vec<Sum>,
}

impl Slice {
    /// Adds reports that the lens did not sum.
    pub(crate) fn take_sums(&mut self, revenue: RevenueAggregate) {
        self.reports += revenue.total_reports;
        self.sums.extend(sums(revenue));
    }

    /// Decodes an answer of `walk` that starts at the agent `first`; `None` if it is invalid.
    pub(crate) fn decode(data: &[u8], first: u64, detail: Detail) -> Option<Self> {
        let mut input = Input(data);
        let [version] = input.take()?;
        if version != VERSION {
            return None;
        }
        let parent = B256::from(input.take::<32>()?);
        let (chain_id, seconds) = (input.u64()?, input.u64()?);
        let marker =
            Marker { parent: Some(parent), chain_id: Some(chain_id), seconds: Some(seconds), number: None };
        let count = input.u32()?;
        let reports = input.u64()?;
        let (mut rows, mut full) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let [status, flags] = input.take()?;
            let row = Row {
                status: if status == UNREADABLE { UNREADABLE } else { Row::status_of(status) },
                history_is_readable: flags & 1 == 0,
                creator: input.address()?,
                registered_at: input.u64()?,
                last_attestation: input.number::<5>()?,
                parent: input.number::<5>()?,
                generation: input.number::<2>()?,
                wallet: input.address()?,
            };
            rows.push(row);
            if detail == Detail::Full {
                let (haftungsperson, reports) = (input.address()?, input.u32()?);
                full.push(RowDetail { haftungsperson, reports, ..RowDetail::default() });
            }
        }
        let mut sums = Vec::new();
        // Scopes come in the order of the readable rows.
        let readable = |(place, row): (usize, &Row)| row.record_is_readable().then_some(place);
        let mut unscoped = rows.iter().enumerate().filter_map(readable);
        while !input.0.is_empty() {
            let [kind] = input.take()?;
            let length = usize::try_from(input.u32()?).ok()?;
            if kind == SCOPE {
                let text = String::from_utf8_lossy(input.bytes(length)?);
                full.get_mut(unscoped.next()?)?.scope = scope(&text);
                continue;
            }
            let amount = Total::from_be_bytes(input.take::<40>()?);
            let mut text = Input(input.bytes(length)?);
            let owner = if detail == Detail::Full { Some(text.u64()?) } else { None };
            // A contract's strings may hold any bytes; they are decoded as the ABI decoder decodes them.
            let text = String::from_utf8_lossy(text.0).into_owned();
            let sum = Sum { is_category: kind != 0, text, amount };
            match owner {
                Some(id) => {
                    let place = usize::try_from(id.checked_sub(first)?).ok()?;
                    full.get_mut(place)?.add(sum);
                }
                None => sums.push(sum),
            }
        }
        if detail == Detail::Full && unscoped.next().is_some() {
            return None;
        }
        Some(Self { marker, rows, full, reports, sums })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_as_small_as_a_scan_needs() {
        assert!(size_of::<Row>() <= 80);
    }
}
