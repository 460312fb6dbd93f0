//! Options of a [`LocalKya`](crate::LocalKya): its API, its file, and the freshness of its verdicts.

use std::{path::PathBuf, time::Duration};

use alloy_primitives::Address;
use registry_core::{evidence::Layout, snapshot::Identity};

/// The API and registry to hold, the file to hold them in, and the freshness of verdicts.
#[derive(Clone, Debug)]
pub struct Options {
    /// The read API, for example `https://kya.example`.
    pub api: String,
    /// The chain's id, and the registry's address. Bytes of another registry are refused.
    pub identity: Identity,
    /// The file. Beside it is a small one, with `.head` at the end of its name.
    pub file: PathBuf,
    /// The greatest age of a verdict; by default 60 seconds. Its age counts from when the API last found the
    /// registry's storage root on the chain to be this one, and never from later than its receipt.
    pub max_age: Duration,
    /// The greatest age of the verdict's block, by its own time; by default `None`, because a chain may make
    /// blocks for transactions alone. Where blocks come regularly, set it: then an API that repeats an old
    /// block with a new time is not believed.
    pub max_block_age: Option<Duration>,
    /// The time between two updates of [`run`](crate::LocalKya::run): 20 seconds.
    pub update_every: Duration,
    /// Comparisons with a chain endpoint of the caller's own.
    pub spot_checks: Option<SpotChecks>,
}

impl Options {
    /// Creates options with the defaults that the fields name.
    ///
    /// ```
    /// use kya_local::Options;
    ///
    /// let registry = "0x5FbDB2315678afecb367f032d93F642f64180aa3".parse().unwrap();
    /// let options = Options::new("https://kya.example", 8453, registry, "registry.kya");
    /// assert_eq!(options.max_age.as_secs(), 60);
    /// ```
    pub fn new(api: impl Into<String>, chain_id: u64, registry: Address, file: impl Into<PathBuf>) -> Self {
        Self {
            api: api.into(),
            identity: Identity { chain_id, registry },
            file: file.into(),
            max_age: Duration::from_secs(60),
            max_block_age: None,
            update_every: Duration::from_secs(20),
            spot_checks: None,
        }
    }
}

/// Comparisons of verdicts with the chain's, by an endpoint that the caller trusts.
#[derive(Clone, Debug)]
pub struct SpotChecks {
    /// JSON-RPC endpoints, separated by commas. They have to answer `eth_getProof` for blocks of the last
    /// minute.
    pub rpc: String,
    /// The time between two checks of [`run`](crate::LocalKya::run).
    pub every: Duration,
    /// The storage layout, where the registry's code is not this project's.
    pub layout: Option<Layout>,
}
