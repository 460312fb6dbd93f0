//! The lens's answer taken apart: rows and sums of consecutive agents.

use alloy_primitives::{Address, B256, U256};

use super::Detail;
use crate::{
    abi::{AgentRecord, RevenueReport},
    agent::Agent,
    revenue::{RevenueAggregate, Total},
    run::Marker,
};

const VERSION: u8 = 1;
/// The status of a row whose record is unreadable.
const UNREADABLE: u8 = 255;
/// The kind of an entry that is a scope, where others are sums.
const SCOPE: u8 = 2;
/// Bytes of a scope that are kept at most, as the lens has it.
const SCOPE_BYTES_MAX: usize = 256;
/// The status of a row that nobody has read yet; the lens never writes it.
const UNREAD: u8 = 253;

/// As much of an agent as answers about the whole registry need. Times are unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The contract's number; see [`Row::record_is_readable`].
    pub(crate) status: u8,
    pub(crate) history_is_readable: bool,
    pub(crate) creator: Address,
    pub(crate) wallet: Address,
    pub(crate) registered_at: u64,
    pub(crate) last_attestation: u64,
    pub(crate) parent: u64,
    pub(crate) generation: u64,
}

impl Row {
    pub(crate) const UNREAD: Self = Self { status: UNREAD, ..Self::UNREADABLE };
    pub(crate) const UNREADABLE: Self = Self {
        status: UNREADABLE,
        history_is_readable: false,
        creator: Address::ZERO,
        wallet: Address::ZERO,
        registered_at: 0,
        last_attestation: 0,
        parent: 0,
        generation: 0,
    };

    /// The row of a record whose history is readable; an unreadable one where a field does not fit, as the lens has it.
    pub(crate) fn of(record: &AgentRecord) -> Self {
        let fits = |value: U256, bytes: usize| value.byte_len() <= bytes;
        let parent = u64::try_from(record.parentAgentId).ok().filter(|_| fits(record.parentAgentId, 5));
        let generation = u64::try_from(record.generation).ok().filter(|_| fits(record.generation, 2));
        let (Some(parent), Some(generation)) = (parent, generation) else {
            return Self { history_is_readable: true, ..Self::UNREADABLE };
        };
        if !fits(U256::from(record.lastAttestation), 5) {
            return Self { history_is_readable: true, ..Self::UNREADABLE };
        }
        Self {
            status: record.status.min(254),
            history_is_readable: true,
            creator: record.creator,
            wallet: record.agentWallet,
            registered_at: record.registeredAt,
            last_attestation: record.lastAttestation,
            parent,
            generation,
        }
    }

    pub(crate) const fn record_is_readable(&self) -> bool {
        self.status != UNREADABLE && self.status != UNREAD
    }

    pub(crate) const fn is_unread(&self) -> bool {
        self.status == UNREAD
    }
}

impl From<&Agent> for Row {
    fn from(agent: &Agent) -> Self {
        let number = |value: U256| u64::try_from(value).unwrap_or(u64::MAX);
        Self {
            status: agent.status as u8,
            history_is_readable: true,
            creator: agent.creator,
            wallet: agent.agent_wallet,
            registered_at: agent.registered_at.seconds(),
            last_attestation: agent.last_attestation.seconds(),
            parent: number(agent.parent_agent_id.0),
            generation: number(agent.generation),
        }
    }
}

/// The amounts of one currency or category.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) is_category: bool,
    pub(crate) text: String,
    pub(crate) amount: Total,
}

/// What full detail adds to an agent's [`Row`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) wallet: Address,
    pub(crate) haftungsperson: Address,
    /// The beginning of its operational scope, at most [`SCOPE_BYTES_MAX`].
    pub(crate) scope: String,
    /// How many reports it made, if its history is readable.
    pub(crate) reports: u32,
    /// Its own revenue.
    pub(crate) sums: Vec<Sum>,
}

impl Full {
    /// Of a record, and of the reports of a readable history.
    pub(crate) fn of(record: &AgentRecord, reports: &[RevenueReport]) -> Self {
        let mut full = Self {
            wallet: record.agentWallet,
            haftungsperson: record.haftungsperson,
            scope: scope(&record.operationalScope),
            ..Self::default()
        };
        full.take_reports(reports);
        full
    }

    /// Adds up the reports of a readable history.
    pub(crate) fn take_reports(&mut self, reports: &[RevenueReport]) {
        self.reports = u32::try_from(reports.len()).unwrap_or(u32::MAX);
        self.sums = sums(RevenueAggregate::of(reports)).collect();
    }

    /// Adds a sum. Texts that only differ in what is no UTF-8 are one text.
    fn add(&mut self, sum: Sum) {
        let same = |known: &&mut Sum| known.is_category == sum.is_category && known.text == sum.text;
        match self.sums.iter_mut().find(same) {
            Some(known) => known.amount = known.amount.saturating_add(sum.amount),
            None => self.sums.push(sum),
        }
    }
}

/// The beginning of a scope, cut where a character ends.
fn scope(text: &str) -> String {
    text.get(..text.floor_char_boundary(SCOPE_BYTES_MAX)).unwrap_or_default().to_owned()
}

/// The sums in an aggregate, first by currency.
fn sums(revenue: RevenueAggregate) -> impl Iterator<Item = Sum> {
    let sum = |is_category| move |(text, amount)| Sum { is_category, text, amount };
    revenue.by_currency.into_iter().map(sum(false)).chain(revenue.by_category.into_iter().map(sum(true)))
}

/// What one call read: the rows of consecutive agents, and the sums of their readable histories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) marker: Marker,
    /// Of the first agents asked for: the rest did not fit the call's gas, or does not exist.
    pub(crate) rows: Vec<Row>,
    /// In full detail: the rest of each row, with the agent's own sums.
    pub(crate) full: Vec<Full>,
    pub(crate) reports: u64,
    pub(crate) sums: Vec<Sum>,
}

impl Slice {
    /// Adds what reports come to that were not added up by the lens.
    pub(crate) fn take_sums(&mut self, revenue: RevenueAggregate) {
        self.reports += revenue.total_reports;
        self.sums.extend(sums(revenue));
    }

    /// Reads an answer of `walk` from the agent `first` on; `None` where it is none.
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
        let count = u32::from_be_bytes(input.take()?);
        let reports = input.u64()?;
        let (mut rows, mut full) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let [status, flags] = input.take()?;
            let row = Row {
                status,
                history_is_readable: flags & 1 == 0,
                creator: Address::from(input.take::<20>()?),
                registered_at: input.u64()?,
                last_attestation: input.number::<5>()?,
                parent: input.number::<5>()?,
                generation: input.number::<2>()?,
                wallet: Address::from(input.take::<20>()?),
            };
            rows.push(row);
            if detail == Detail::Full {
                full.push(Full {
                    wallet: row.wallet,
                    haftungsperson: Address::from(input.take::<20>()?),
                    reports: u32::from_be_bytes(input.take()?),
                    ..Full::default()
                });
            }
        }
        let mut sums = Vec::new();
        // Scopes come in the order of the readable rows.
        let readable = |(place, row): (usize, &Row)| row.record_is_readable().then_some(place);
        let mut unscoped = rows.iter().enumerate().filter_map(readable);
        while !input.0.is_empty() {
            let [kind] = input.take()?;
            let length = u32::from_be_bytes(input.take()?);
            if kind == SCOPE {
                let text = String::from_utf8_lossy(input.bytes(usize::try_from(length).ok()?)?);
                full.get_mut(unscoped.next()?)?.scope = scope(&text);
                continue;
            }
            let amount = Total::from_be_bytes(input.take::<40>()?);
            let mut text = Input(input.bytes(usize::try_from(length).ok()?)?);
            let owner = if detail == Detail::Full { Some(text.u64()?) } else { None };
            // A contract's strings are bytes of any kind; they are read as the ABI decoder reads them.
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

/// What is left to read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u64(&mut self) -> Option<u64> {
        self.number::<8>()
    }

    /// A number of at most 8 bytes.
    fn number<const N: usize>(&mut self) -> Option<u64> {
        Some(self.take::<N>()?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut data: Vec<u8>, first: u64) {
            for detail in [Detail::Revenue, Detail::Full] {
                Slice::decode(&data, first, detail);
                data.insert(0, VERSION);
                Slice::decode(&data, first, detail);
            }
        }
    }

    #[test]
    fn a_row_is_as_small_as_a_scan_needs() {
        assert!(size_of::<Row>() <= 80);
    }
}
