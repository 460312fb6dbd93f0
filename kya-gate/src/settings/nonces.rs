//! Settings of the store of spent nonces.

use std::env;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// Variable with the URL of Redis: a URL with a password does not belong in a file.
const URL_VARIABLE: &str = "KYA_GATE_REDIS_URL";
/// Nonces in memory unless the file says otherwise: about 100 MB when full.
const DEFAULT_CAPACITY: usize = 1_000_000;

/// The store of spent nonces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NonceSettings {
    /// The gate's memory.
    Memory {
        /// The most nonces that are remembered.
        capacity: usize,
    },
    /// A Redis server, shared with other gates.
    Redis(RedisSettings),
}

/// A Redis server.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// Its URL, `redis://`, `rediss://` (TLS) or `unix://`; it may hold a password.
    pub url: String,
    /// The prefix of its keys.
    pub prefix: String,
}

impl std::fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisSettings").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RedisTable {
    url: Option<String>,
    prefix: Option<String>,
}

impl NonceSettings {
    pub(super) fn validated(capacity: Option<usize>, redis: Option<RedisTable>) -> anyhow::Result<Self> {
        let Some(RedisTable { url, prefix }) = redis else {
            let capacity = capacity.unwrap_or(DEFAULT_CAPACITY);
            ensure!(capacity > 0, "nonces: must be at least 1");
            return Ok(Self::Memory { capacity });
        };
        ensure!(capacity.is_none(), "nonces: means nothing where they are in Redis");
        let url = url.or_else(|| env::var(URL_VARIABLE).ok());
        let url = url.with_context(|| format!("redis.url: is needed, here or in {URL_VARIABLE}"))?;
        // The URL is not quoted: it may hold a password.
        let is_redis = ["redis://", "rediss://", "unix://"].iter().any(|scheme| url.starts_with(scheme));
        ensure!(is_redis && redis::parse_redis_url(&url).is_some(), "redis.url: must be a URL of Redis");
        Ok(Self::Redis(RedisSettings { url, prefix: prefix.unwrap_or_else(|| "kya-gate:".to_owned()) }))
    }
}
