//! An index's excerpt for some wallets: the agents that have or had them, and their ancestors. It replaces
//! the [scan](crate::api::scan) from which a verdict would read a wallet's past.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, hex};

use super::{
    IndexError, State, changes,
    indexed_agent::{IndexedAgent, PACKED_BYTES, flaw},
    seen_events::{self, SeenEvents, wallet_events},
    shard_range::place,
    store::{Columns, SqlValue, Store, StoreError, of_ids, one_number, query},
};
use crate::{
    eth::bytes::Input, liability::WalletEvents, registry::agent::Status, registry::kya::FORMER_SHOWN,
    registry::lineage::MAX_LEVELS,
};

/// Agents per wallet: those that a verdict shows, one more to detect further ones, and the live one.
pub(super) const OF_A_WALLET: u64 = FORMER_SHOWN as u64 + 2;

/// Returns whether every agent's record is readable, so that no other agent has or had a wallet.
pub(crate) fn is_whole(store: &impl Store) -> Result<bool, StoreError> {
    let statement =
        "SELECT count(*) FROM agents INDEXED BY agents_with_flaws WHERE flaws > 0 AND flaws & ?1 > 0";
    Ok(one_number(store, statement, &[SqlValue::Integer(flaw::RECORD)])? == Some(0))
}

/// An index's knowledge of some wallets at its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The number of agents.
    pub(crate) total: u64,
    /// Every agent's record is readable, so that no other agent has or had the wallets.
    pub(crate) is_whole: bool,
    /// The newest agents of each wallet and all their ancestors, by ascending id and without their scopes.
    pub(crate) agents: Vec<(u64, IndexedAgent)>,
    /// Known ends of these agents, in unix seconds.
    pub(crate) ends: BTreeMap<u64, u64>,
    /// The height after which events were listed without a gap, up to the index's block.
    pub(crate) listed_after: Option<u64>,
}

impl Excerpt {
    /// Reads the excerpt for these wallets from the index in `store` with the state `state`.
    ///
    /// # Errors
    ///
    /// [`IndexError::Incomplete`] if the rows are of different blocks, [`IndexError::Store`].
    pub fn of(store: &impl Store, state: &State, wallets: &[Address]) -> Result<Self, IndexError> {
        state.block()?;
        let agents = with_ancestors(store, newest_agents(store, wallets)?)?;
        let ended = agents.iter().filter(|(_, agent)| agent.status().is_some_and(Status::has_ended));
        let ends = changes::ended_at(store, &ended.map(|(id, _)| *id).collect::<Vec<_>>())?;
        let (agents, listed_after) = (agents.into_iter().collect(), state.listed_after());
        Ok(Self { total: state.total, is_whole: is_whole(store)?, agents, ends, listed_after })
    }

    /// Returns its size in memory.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + self.agents.len() * size_of::<(u64, IndexedAgent)>()
            + self.ends.len() * 2 * size_of::<u64>()
    }

    /// Returns an agent, without its scope and reports.
    pub(crate) fn get(&self, id: u64) -> Option<&IndexedAgent> {
        let place = self.agents.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.agents.get(place).map(|(_, agent)| agent)
    }

    /// Returns the known events by the liable wallet of an agent in the excerpt, at the index's block.
    pub fn wallet_events(&self, id: u64) -> Option<WalletEvents> {
        let events = self.get(id)?.events;
        Some(wallet_events(events.last, events.registered_in(), self.listed_after))
    }

    /// Encodes to hexadecimal digits.
    pub fn encode(&self) -> String {
        let mut packed = vec![u8::from(self.is_whole)];
        packed.extend(self.total.to_be_bytes());
        packed.extend(self.listed_after.unwrap_or(u64::MAX).to_be_bytes());
        for (id, agent) in &self.agents {
            packed.extend(id.to_be_bytes());
            packed.extend(agent.pack());
            packed.extend(agent.events.pack().unwrap_or_default());
            packed.extend(self.ends.get(id).copied().unwrap_or(0).to_be_bytes());
        }
        hex::encode(packed)
    }

    /// Decodes the output of [`encode`](Self::encode); `None` for anything else.
    pub fn decode(digits: &str) -> Option<Self> {
        let packed = hex::decode(digits).ok()?;
        let mut packed = Input(&packed);
        let ([is_whole], total, listed_after) = (packed.take()?, packed.u64()?, packed.u64()?);
        let (mut agents, mut ends) = (Vec::new(), BTreeMap::new());
        while !packed.0.is_empty() {
            let (id, record) = (packed.u64()?, packed.bytes(PACKED_BYTES)?);
            let events = packed.bytes(seen_events::PACKED_BYTES)?;
            let events = SeenEvents::unpack(Some(events.into())).ok()?;
            agents.push((id, IndexedAgent { events, ..IndexedAgent::unpack(record).ok()? }));
            let end = packed.u64()?;
            if end > 0 {
                ends.insert(id, end);
            }
        }
        let listed_after = Some(listed_after).filter(|after| *after < u64::MAX);
        Some(Self { total, is_whole: is_whole == 1, agents, ends, listed_after })
    }
}

/// Adds the agents' ancestors, up to the depth limit of a lineage.
pub(super) fn with_ancestors(
    store: &impl Store,
    agents: Vec<(u64, IndexedAgent)>,
) -> Result<BTreeMap<u64, IndexedAgent>, StoreError> {
    // One level of ancestors at a time, from the agents up. The first path to an agent is the shortest.
    let mut level = agents;
    let mut known: BTreeMap<u64, IndexedAgent> = BTreeMap::new();
    for depth in 1..=MAX_LEVELS {
        let parents: BTreeSet<u64> = level.iter().map(|(_, agent)| agent.row.parent).collect();
        known.extend(level);
        let is_unread = |id: &u64| *id != 0 && !known.contains_key(id);
        let unread: Vec<u64> = parents.into_iter().filter(is_unread).collect();
        if unread.is_empty() || depth == MAX_LEVELS {
            break;
        }
        let rows = of_ids(store, "SELECT id, record, events FROM agents WHERE id", &[], &unread)?;
        level = rows.into_iter().map(|mut row| agent(&mut row)).collect::<Result<_, _>>()?;
    }
    Ok(known)
}

fn newest_agents(store: &impl Store, wallets: &[Address]) -> Result<Vec<(u64, IndexedAgent)>, StoreError> {
    let statement = "SELECT agents.id, record, events FROM json_each(?1) AS asked CROSS JOIN agents INDEXED BY agents_by_place \
                     WHERE place = asked.value->>0 AND wallet = unhex(asked.value->>1) AND agents.id >= coalesce(\
                     (SELECT id FROM agents INDEXED BY agents_by_place WHERE place = asked.value->>0 \
                     AND wallet = unhex(asked.value->>1) ORDER BY id DESC LIMIT 1 OFFSET ?2), 0)";
    let wallets: Vec<String> =
        wallets.iter().map(|wallet| format!("[{},\"{}\"]", place(*wallet), hex::encode(wallet))).collect();
    let wallets = SqlValue::Text(format!("[{}]", wallets.join(",")));
    query(store, statement, &[wallets, (OF_A_WALLET - 1).into()], agent)
}

fn agent(row: &mut Columns) -> Result<(u64, IndexedAgent), StoreError> {
    IndexedAgent::read_with_events(row).map(|(id, agent)| (id, agent.without_scope()))
}
