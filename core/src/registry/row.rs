//! Compact records, as the lens packs and the index stores them: a whole registry fits into memory.

use alloy_primitives::{Address, U256};

use crate::{
    eth::abi::{AgentRecord, RevenueReport},
    registry::{
        agent::Agent,
        revenue::{RevenueAggregate, Total},
    },
};

/// The status of an unreadable record.
pub(crate) const UNREADABLE: u8 = 255;
/// The most bytes of a scope that are kept, as in the lens.
const SCOPE_BYTES_MAX: usize = 256;
/// The status of a record that is not read yet, which no record has; see [`Row::status_of`].
const UNREAD: u8 = 253;
/// The status of a record with a number that is not defined. Which number it is does not matter.
const UNDEFINED: u8 = 254;

/// The part of an agent's record that answers about the whole registry need. Times are unix seconds.
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

    /// Returns the row of a record with a readable history. As in the lens, it is unreadable if a field does
    /// not fit.
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
            status: Self::status_of(record.status),
            history_is_readable: true,
            creator: record.creator,
            wallet: record.agentWallet,
            registered_at: record.registeredAt,
            last_attestation: record.lastAttestation,
            parent,
            generation,
        }
    }

    /// Returns the status of a readable record with this number in the contract.
    pub(crate) const fn status_of(number: u8) -> u8 {
        if number < UNREAD { number } else { UNDEFINED }
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

/// The part of an agent's record that full detail adds to [`Row`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowDetail {
    pub(crate) haftungsperson: Address,
    /// The beginning of its operational scope, at most [`SCOPE_BYTES_MAX`] bytes.
    pub(crate) scope: String,
    /// The number of its reports; 0 if its history is unreadable.
    pub(crate) reports: u32,
    /// The sums of its revenue.
    pub(crate) sums: Vec<Sum>,
}

impl RowDetail {
    /// Returns the detail of a record and of the reports of a readable history.
    pub(crate) fn of(record: &AgentRecord, reports: &[RevenueReport]) -> Self {
        let mut full = Self {
            haftungsperson: record.haftungsperson,
            scope: scope(&record.operationalScope),
            ..Self::default()
        };
        full.take_reports(reports);
        full
    }

    /// Sets number and sums of the reports of a readable history.
    pub(crate) fn take_reports(&mut self, reports: &[RevenueReport]) {
        self.reports = u32::try_from(reports.len()).unwrap_or(u32::MAX);
        self.sums = sums(RevenueAggregate::of(reports)).collect();
    }

    /// Adds a sum. Texts that differ only in invalid UTF-8 are one text.
    pub(crate) fn add(&mut self, sum: Sum) {
        let same = |known: &&mut Sum| known.is_category == sum.is_category && known.text == sum.text;
        match self.sums.iter_mut().find(same) {
            Some(known) => known.amount = known.amount.saturating_add(sum.amount),
            None => self.sums.push(sum),
        }
    }
}

/// Returns the beginning of a scope, cut at a character boundary.
pub(crate) fn scope(text: &str) -> String {
    text.get(..text.floor_char_boundary(SCOPE_BYTES_MAX)).unwrap_or_default().to_owned()
}

/// Returns the sums of an aggregate, those by currency first.
pub(crate) fn sums(revenue: RevenueAggregate) -> impl Iterator<Item = Sum> {
    let sum = |is_category| move |(text, amount)| Sum { is_category, text, amount };
    revenue.by_currency.into_iter().map(sum(false)).chain(revenue.by_category.into_iter().map(sum(true)))
}
