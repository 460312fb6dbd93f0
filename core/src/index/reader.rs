//! An index to be asked: what its answers share.

use alloy_primitives::Address;

use super::{
    IndexError, State,
    entry::{Entry, flaw},
    store::{Columns, Store, StoreError, Value, one_number, ordered},
    tables::{self, HOUR, Kind},
};
use crate::{
    chain::QueryError,
    eth::timestamp::Timestamp,
    registry::{
        agent::{AgentId, AgentSummary, Status, UnknownStatus},
        agent_query::NUMBERED_MAX,
        row::Row,
    },
};

/// How much is read for one page at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Agents that are counted by the source alone.
    pub counted: u64,
    /// Agents that are held against other filters: where they lie all over the registry, each is a page of the file.
    pub candidates: u64,
    /// Agents whose scope is searched one by one.
    pub searched: u64,
}

impl Bounds {
    /// What keeps a page within milliseconds.
    pub const DEFAULT: Self = Self { counted: NUMBERED_MAX, candidates: 1_500, searched: 1_000 };
}

/// An index whose rows are of one block, to be asked.
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
    /// The index in `store`, whose state is `state`; `chain` is the RPC endpoint as shown to clients.
    pub const fn new(store: &'a S, state: &'a State, registry: Address, chain: &'a str) -> Self {
        Self { store, state, registry, chain, bounds: Bounds::DEFAULT }
    }

    /// The same, reading less or more for a page of a list.
    #[must_use]
    pub const fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Agents with one of these flaws, by id.
    pub(super) fn flawed(&self, flaws: i64) -> Result<Vec<AgentId>, StoreError> {
        let statement = "SELECT id FROM agents INDEXED BY agents_with_flaws \
                         WHERE flaws > 0 AND flaws & ?1 > 0 ORDER BY id";
        let rows = self.store.execute(statement, &[Value::Integer(flaws)])?;
        rows.into_iter().map(|row| Ok(AgentId::from(Columns::of(row).number()?))).collect()
    }

    /// Fails where a readable record has a status that is not defined, as a scan does.
    pub(super) fn check_statuses(&self) -> Result<(), IndexError> {
        let Some(AgentId(agent_id)) = self.flawed(flaw::STATUS)?.into_iter().next() else { return Ok(()) };
        let id = u64::try_from(agent_id).unwrap_or(u64::MAX);
        let number = tables::find(self.store, id)?.map_or(u8::MAX, |entry| entry.row.status);
        Err(QueryError::from(UnknownStatus { agent_id, number }).into())
    }

    /// Counts under each key of a kind.
    pub(super) fn counts(&self, kind: Kind) -> Result<Vec<(Vec<u8>, u64)>, StoreError> {
        let statement = "SELECT key, agents FROM counts WHERE kind = ?1 ORDER BY key";
        let read = |row| {
            let mut row = Columns::of(row);
            Ok((row.blob()?, row.number()?))
        };
        self.store.execute(statement, &[kind.into()])?.into_iter().map(read).collect()
    }

    /// Agents by status.
    pub(super) fn statuses(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        let read = |(key, agents): (Vec<u8>, u64)| {
            let status = key.first().copied().and_then(Status::from_number);
            Ok((status.ok_or_else(StoreError::corrupt)?, agents))
        };
        self.counts(Kind::Status)?.into_iter().map(read).collect()
    }

    /// The second from which on attestations are current.
    pub(super) fn oldest_current(&self, now: Timestamp) -> u64 {
        now.seconds().saturating_sub(self.state.grace())
    }

    /// An agent, in a list.
    pub(super) fn summary(&self, id: u64, entry: &Entry, now: Timestamp) -> Result<AgentSummary, IndexError> {
        let Row { creator, registered_at, last_attestation, parent, generation, .. } = entry.row;
        let status = entry.known_status(id).map_err(QueryError::from)?;
        Ok(AgentSummary {
            agent_id: id.into(),
            creator,
            haftungsperson: entry.full.haftungsperson,
            agent_wallet: entry.full.wallet,
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
        parameters: &[Value],
    ) -> Result<Vec<(u64, Entry)>, StoreError> {
        let read = |row| {
            let mut row = Columns::of(row);
            Ok((row.number()?, Entry::unpack(&row.blob()?)?))
        };
        self.store.execute(statement, parameters)?.into_iter().map(read).collect()
    }

    /// Active agents whose attestation is current: by hours, and agent by agent in the one that the grace period ends in.
    pub(super) fn compliant(&self, now: Timestamp) -> Result<u64, StoreError> {
        let oldest = self.oldest_current(now);
        let hour = oldest / HOUR;
        let later = one_number(
            self.store,
            "SELECT sum(agents) FROM counts WHERE kind = ?1 AND key > ?2",
            &[Kind::AttestationHour.into(), ordered(hour)],
        )?;
        let end = hour.saturating_add(1).saturating_mul(HOUR);
        // 0 is Active, as that index has it: no row of the table itself is read.
        let statement = "SELECT count(*) FROM agents INDEXED BY active_agents_by_attestation \
                         WHERE status = 0 AND attested >= ?1 AND attested < ?2";
        let within = one_number(self.store, statement, &[ordered(oldest), ordered(end)])?;
        Ok(later.unwrap_or(0) + within.unwrap_or(0))
    }

    /// How many children an agent has; an unreadable record names no parent.
    pub(super) fn children_of(&self, id: u64) -> Result<u64, StoreError> {
        let statement = "SELECT count(*) FROM agents INDEXED BY agents_by_parent WHERE parent = ?1";
        Ok(one_number(self.store, statement, &[ordered(id)])?.unwrap_or(0))
    }
}
