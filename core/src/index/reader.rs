//! An index to answer from, with the parts that all answers share.

use alloy_primitives::Address;

use super::{
    IndexError, State,
    counts::{CountKind, HOUR},
    indexed_agent::{IndexedAgent, flaw},
    large_persons::FEW_AGENTS,
    store::{SqlValue, Store, StoreError, one_number, ordered, query},
    tables,
};
use crate::{
    chain::QueryError,
    eth::timestamp::Timestamp,
    registry::{
        agent::{AgentId, Status, UnknownStatus},
        agent_item::AgentSummary,
        agent_query::NUMBERED_MAX,
        liability::{Liability, ParentBasis},
        row::Row,
    },
};

/// Bounds of the cost of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Agents counted by the source alone.
    pub counted: u64,
    /// Agents checked against other filters: if they are scattered, each takes a page of the file.
    pub candidates: u64,
    /// Agents with a scope searched one by one.
    pub searched: u64,
}

impl Bounds {
    /// Bounds that keep a page within milliseconds.
    pub const DEFAULT: Self = Self { counted: NUMBERED_MAX, candidates: FEW_AGENTS, searched: 1_000 };
}

/// An index with all rows of one block.
#[derive(Debug)]
pub struct Index<'a, S> {
    pub(super) store: &'a S,
    pub(crate) state: &'a State,
    pub(super) registry: Address,
    /// The RPC endpoint as shown to clients.
    pub(super) chain: &'a str,
    pub(super) bounds: Bounds,
}

impl<'a, S: Store> Index<'a, S> {
    /// Opens the index in `store` with the state `state`; `chain` is the RPC endpoint as shown to clients.
    pub const fn new(store: &'a S, state: &'a State, registry: Address, chain: &'a str) -> Self {
        Self { store, state, registry, chain, bounds: Bounds::DEFAULT }
    }

    /// Replaces the bounds of a page's cost.
    #[must_use]
    pub const fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Reads the ids of agents with one of these flaws, in their order.
    pub(super) fn flawed(&self, flaws: i64) -> Result<Vec<AgentId>, StoreError> {
        let statement = "SELECT id FROM agents INDEXED BY agents_with_flaws \
                         WHERE flaws > 0 AND flaws & ?1 > 0 ORDER BY id";
        query(self.store, statement, &[SqlValue::Integer(flaws)], |row| Ok(row.number()?.into()))
    }

    /// Fails if a readable record has an undefined status, as a scan does.
    pub(super) fn check_statuses(&self) -> Result<(), IndexError> {
        let Some(AgentId(agent_id)) = self.flawed(flaw::STATUS)?.into_iter().next() else { return Ok(()) };
        let id = u64::try_from(agent_id).unwrap_or(u64::MAX);
        let number = tables::find(self.store, id)?.map_or(u8::MAX, |entry| entry.row.status);
        Err(QueryError::from(UnknownStatus { agent_id, number }).into())
    }

    /// Reads the counts of a kind by key.
    pub(super) fn counts(&self, kind: CountKind) -> Result<Vec<(Vec<u8>, u64)>, StoreError> {
        let statement = "SELECT key, agents FROM counts WHERE kind = ?1 ORDER BY key";
        query(self.store, statement, &[kind.into()], |row| Ok((row.blob()?, row.number()?)))
    }

    pub(super) fn statuses(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        let read = |(key, agents): (Vec<u8>, u64)| {
            let status = key.first().copied().and_then(Status::from_number);
            Ok((status.ok_or_else(StoreError::corrupt)?, agents))
        };
        self.counts(CountKind::Status)?.into_iter().map(read).collect()
    }

    /// Returns `now`, or the time of the rows' block if that is later.
    pub(crate) fn not_before_its_block(&self, now: Timestamp) -> Result<Timestamp, IndexError> {
        Ok(now.max(Timestamp::from_seconds(self.state.block()?.seconds)))
    }

    /// Returns the second from which on attestations are current.
    pub(super) fn oldest_current(&self, now: Timestamp) -> u64 {
        now.seconds().saturating_sub(self.state.grace())
    }

    /// Returns the liability for an agent that was read with its events. Lists do not read parents.
    pub(super) fn liability(&self, entry: &IndexedAgent) -> Liability {
        let parent = (entry.row.parent != 0).then_some(ParentBasis::Unknown);
        let block_time = self.state.as_of().map_or(0, |at| at.seconds);
        Liability::of_wallets(entry.row.creator, entry.full.haftungsperson, parent)
            .with_events(self.state.wallet_events(entry), block_time)
    }

    /// Returns an agent as a list shows it; `entry` was read with its events.
    pub(super) fn summary(
        &self,
        id: u64,
        entry: &IndexedAgent,
        now: Timestamp,
    ) -> Result<AgentSummary, IndexError> {
        let Row { creator, registered_at, last_attestation, parent, generation, .. } = entry.row;
        let status = entry.known_status(id).map_err(QueryError::from)?;
        Ok(AgentSummary {
            agent_id: id.into(),
            creator,
            haftungsperson: entry.full.haftungsperson,
            liability: self.liability(entry),
            agent_wallet: entry.row.wallet,
            operational_scope: entry.full.scope.clone(),
            parent_agent_id: parent.into(),
            generation,
            registered_at: Timestamp::from_seconds(registered_at),
            last_attestation: Timestamp::from_seconds(last_attestation),
            status,
            is_compliant: status == Status::Active && last_attestation >= self.oldest_current(now),
        })
    }

    pub(super) fn entries(
        &self,
        statement: &str,
        parameters: &[SqlValue],
    ) -> Result<Vec<(u64, IndexedAgent)>, StoreError> {
        query(self.store, statement, parameters, IndexedAgent::read)
    }

    /// Counts Active agents with a current attestation: by the hour, and one by one within the hour in which
    /// the grace period ends.
    pub(super) fn compliant(&self, now: Timestamp) -> Result<u64, StoreError> {
        let oldest = self.oldest_current(now);
        let hour = oldest / HOUR;
        let later = one_number(
            self.store,
            "SELECT sum(agents) FROM counts WHERE kind = ?1 AND key > ?2",
            &[CountKind::AttestationHour.into(), ordered(hour)],
        )?;
        let end = hour.saturating_add(1).saturating_mul(HOUR);
        // 0 is Active. The SQL index covers this statement: the table itself is not read.
        let statement = "SELECT count(*) FROM agents INDEXED BY agents_by_attestation \
                         WHERE status = 0 AND attested >= ?1 AND attested < ?2";
        let within = one_number(self.store, statement, &[ordered(oldest), ordered(end)])?;
        Ok(later.unwrap_or(0) + within.unwrap_or(0))
    }
}
