//! Checkpoints: blocks at which an index was read. The stored ones lead to the last canonical block after a
//! reorg.

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use super::store::{SqlValue, Store, StoreError, query};
use crate::{chain::Header, eth::as_of::IndexedAt, eth::timestamp::Timestamp};

/// A block at which an index was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its height.
    pub number: u64,
    /// Its hash.
    #[serde(with = "text")]
    pub hash: B256,
    /// Its timestamp, unix seconds.
    pub seconds: u64,
    /// The hash of the block before it.
    #[serde(with = "text")]
    pub parent: B256,
}

impl From<Checkpoint> for IndexedAt {
    fn from(block: Checkpoint) -> Self {
        Self { block_number: block.number, block_timestamp: Timestamp::from_seconds(block.seconds) }
    }
}

impl From<Header> for Checkpoint {
    fn from(header: Header) -> Self {
        let Header { number, hash, parent_hash: parent, timestamp: seconds } = header;
        Self { number, hash, seconds, parent }
    }
}

impl From<Checkpoint> for Header {
    fn from(block: Checkpoint) -> Self {
        let Checkpoint { number, hash, seconds: timestamp, parent: parent_hash } = block;
        Self { number, hash, parent_hash, timestamp }
    }
}

/// Serializes numbers and hashes as text.
pub(super) mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(in crate::index) fn serialize<S: Serializer>(
        value: &impl core::fmt::Display,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(in crate::index) fn deserialize<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<T, D::Error>
    where
        T: core::str::FromStr<Err: core::fmt::Display>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Checkpoints kept to find the last canonical one after a reorg.
const CHECKPOINTS: u64 = 64;

/// Reads the checkpoints at heights up to `number`, the highest first.
pub(super) fn checkpoints(store: &impl Store, number: u64) -> Result<Vec<Checkpoint>, StoreError> {
    let statement =
        "SELECT number, hash, seconds, parent FROM checkpoints WHERE number <= ?1 ORDER BY number DESC";
    query(store, statement, &[number.into()], |row| {
        let (number, hash, seconds) = (row.number()?, row.array()?.into(), row.number()?);
        Ok(Checkpoint { number, hash, seconds, parent: row.array()?.into() })
    })
}

/// Stores a checkpoint, and keeps older ones at heights up to `since`.
pub(super) fn keep_checkpoint(
    store: &impl Store,
    checkpoint: Checkpoint,
    since: Option<u64>,
) -> Result<(), StoreError> {
    match since {
        Some(since) => store.execute("DELETE FROM checkpoints WHERE number > ?1", &[since.into()])?,
        None => store.execute("DELETE FROM checkpoints", &[])?,
    };
    let Checkpoint { number, hash, seconds, parent } = checkpoint;
    let [hash, parent] = [hash, parent].map(|hash| SqlValue::Blob(hash.to_vec()));
    store.execute(
        "INSERT OR REPLACE INTO checkpoints (number, hash, seconds, parent) VALUES (?1, ?2, ?3, ?4)",
        &[number.into(), hash, seconds.into(), parent],
    )?;
    let outdated = "DELETE FROM checkpoints WHERE number NOT IN \
                    (SELECT number FROM checkpoints ORDER BY number DESC LIMIT ?1)";
    store.execute(outdated, &[CHECKPOINTS.into()]).map(drop)
}
