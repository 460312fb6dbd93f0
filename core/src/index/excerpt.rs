//! What an index knows of some wallets: the agents that have or had them, and their ancestors. It replaces
//! the [scan](crate::api::scan) that a verdict would read a wallet's past from.

use std::collections::BTreeMap;

use alloy_primitives::{Address, hex};

use super::{
    IndexError, State, changes,
    indexed_agent::{IndexedAgent, PACKED_BYTES, flaw},
    store::{SqlValue, Store, first_row, one_number, query},
};
use crate::{
    registry::agent::Status, registry::kya::FORMER_SHOWN, registry::lineage::MAX_LEVELS, registry::row::Row,
};

/// Agents per wallet: those that a verdict shows, one more to detect further ones, and the live one.
const OF_A_WALLET: u64 = FORMER_SHOWN as u64 + 2;

/// What an index knows of some wallets at its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The number of agents.
    pub(crate) total: u64,
    /// Every agent's record is readable, so that no other agent has or had the wallets.
    pub(crate) is_whole: bool,
    /// The newest agents of each wallet and all their ancestors, by ascending id.
    pub(crate) rows: Vec<(u64, Row)>,
    /// When some of them ended, in unix seconds.
    pub(crate) ends: BTreeMap<u64, u64>,
}

impl Excerpt {
    /// Reads what the index in `store`, with the state `state`, knows of these wallets.
    ///
    /// # Errors
    ///
    /// [`IndexError::Incomplete`] if the rows are of different blocks, [`IndexError::Store`].
    pub fn of(store: &impl Store, state: &State, wallets: &[Address]) -> Result<Self, IndexError> {
        if state.as_of().is_none() {
            return Err(IndexError::Incomplete { percent: state.percent() });
        }
        let mut rows: Vec<(u64, Row)> = Vec::new();
        for wallet in wallets {
            let statement = "SELECT id, record FROM agents WHERE wallet = ?1 ORDER BY id DESC LIMIT ?2";
            let parameters = [SqlValue::Blob(wallet.to_vec()), OF_A_WALLET.into()];
            for (mut id, IndexedAgent { mut row, .. }) in
                query(store, statement, &parameters, IndexedAgent::read)?
            {
                for _ in 0..MAX_LEVELS {
                    rows.push((id, row));
                    let statement = "SELECT id, record FROM agents WHERE id = ?1";
                    let Some(mut parent) = first_row(store, statement, &[row.parent.into()])? else { break };
                    (id, IndexedAgent { row, .. }) = IndexedAgent::read(&mut parent)?;
                }
            }
        }
        rows.sort_unstable_by_key(|(id, _)| *id);
        rows.dedup_by_key(|(id, _)| *id);
        let mut ends = BTreeMap::new();
        for (id, row) in &rows {
            if Status::from_number(row.status).is_some_and(Status::has_ended)
                && let Some(seconds) = changes::ended_at(store, *id)?
            {
                ends.insert(*id, seconds);
            }
        }
        let statement = "SELECT count(*) FROM agents INDEXED BY agents_with_flaws \
                         WHERE flaws > 0 AND flaws & ?1 > 0";
        let flawed = one_number(store, statement, &[SqlValue::Integer(flaw::RECORD)])?;
        Ok(Self { total: state.total, is_whole: flawed == Some(0), rows, ends })
    }

    /// What it takes in memory.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.rows.len() * size_of::<(u64, Row)>() + self.ends.len() * 2 * size_of::<u64>()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Row> {
        let place = self.rows.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.rows.get(place).map(|(_, row)| row)
    }

    /// Encodes to hexadecimal digits.
    pub fn encode(&self) -> String {
        let mut packed = vec![u8::from(self.is_whole)];
        packed.extend(self.total.to_be_bytes());
        for (id, row) in &self.rows {
            packed.extend(id.to_be_bytes());
            packed.extend(IndexedAgent::of_row(*row).pack());
            packed.extend(self.ends.get(id).copied().unwrap_or(0).to_be_bytes());
        }
        hex::encode(packed)
    }

    /// Decodes the output of [`encode`](Self::encode); `None` for anything else.
    pub fn decode(digits: &str) -> Option<Self> {
        let packed = hex::decode(digits).ok()?;
        let (is_whole, rest) = packed.split_first()?;
        let (total, rest) = rest.split_first_chunk()?;
        let (mut rows, mut ends) = (Vec::new(), BTreeMap::new());
        for piece in rest.chunks(8 + PACKED_BYTES + 8) {
            let (id, piece) = piece.split_first_chunk()?;
            let (record, end) = piece.split_last_chunk()?;
            let (id, end) = (u64::from_be_bytes(*id), u64::from_be_bytes(*end));
            rows.push((id, IndexedAgent::unpack(record).ok()?.row));
            if end > 0 {
                ends.insert(id, end);
            }
        }
        Some(Self { total: u64::from_be_bytes(*total), is_whole: *is_whole == 1, rows, ends })
    }
}
