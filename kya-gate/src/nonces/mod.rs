//! The spent nonces: a signature is admitted at most once across all connections of this process, and of all
//! gates that share a Redis server.
//!
//! Where a store cannot tell whether a nonce was spent, the request is refused: a replay is never admitted.

mod memory;
mod redis;

use std::time::Duration;

use anyhow::Context as _;
use registry_core::{
    eth::timestamp::Timestamp,
    gate::{Attempt, Spending},
};
use tokio::time::sleep;

use crate::{metrics::Metrics, settings::NonceSettings};
pub use memory::Nonces;
pub use redis::{SharedNonces, inspect};

/// The store of spent nonces.
#[derive(Debug)]
pub enum NonceStore {
    /// The memory of this process.
    Memory(Nonces),
    /// A Redis server, shared with other gates.
    Redis(SharedNonces),
}

impl NonceStore {
    /// Opens the configured store at `now`. A store in memory waits for the next second, as it refuses
    /// signatures of this one. Errors: if Redis does not answer, or cannot hold nonces.
    pub async fn open(settings: &NonceSettings, metrics: Metrics, now: Timestamp) -> anyhow::Result<Self> {
        Ok(match settings {
            NonceSettings::Memory { capacity } => {
                sleep(Duration::from_millis(1_000 - now.as_millis() % 1_000)).await;
                Self::Memory(Nonces::new(*capacity, now.seconds()))
            }
            NonceSettings::Redis(settings) => {
                inspect(settings).await.context("nonces")?;
                let shared = SharedNonces::connect(settings, metrics).await;
                Self::Redis(shared.context("no nonces without Redis")?)
            }
        })
    }

    /// Spends the nonce of an attempt at the unix second `now`: of any number of calls with one nonce, a
    /// single one is [`Spending::Spent`].
    pub async fn spend(&self, attempt: &Attempt, now: u64) -> Spending {
        match self {
            Self::Memory(nonces) => nonces.spend(attempt, now),
            Self::Redis(nonces) => nonces.spend(attempt, now).await,
        }
    }

    /// Returns the result that spending the nonce of an attempt would have, as far as known; it is not spent.
    pub async fn look_up(&self, attempt: &Attempt) -> Spending {
        match self {
            Self::Memory(nonces) => nonces.look_up(attempt),
            Self::Redis(nonces) => nonces.look_up(attempt).await,
        }
    }

    /// Returns the number of nonces that this process remembers: none of those in Redis.
    pub fn count(&self) -> usize {
        match self {
            Self::Memory(nonces) => nonces.count(),
            Self::Redis(_) => 0,
        }
    }

    /// Checks that nonces can be spent at `now`. Errors: the reason, in words.
    pub fn probe(&self, now: Timestamp) -> Result<(), String> {
        match self {
            Self::Memory(nonces) if nonces.has_room(now.seconds()) => Ok(()),
            Self::Memory(_) => Err("nonces: as many are remembered as the settings allow".to_owned()),
            Self::Redis(nonces) => nonces.probe(),
        }
    }
}
