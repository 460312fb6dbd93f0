//! Holds the agent registry in a file, and answers KYA questions without a network: is this wallet a
//! registered agent, is it compliant, and who is liable for it?
//!
//! The read API hands out its registry in shards, and later changes in segments (`docs/snapshot.md`). A
//! [`LocalKya`] fetches the manifest and the shards and segments that are new, and reads single ones from
//! its file: a registry of a million agents takes 200 to 300 MB of disk and a few MiB of memory. It never
//! gives a verdict that is older than [`Options::max_age`]: that is [`Error::Stale`]. The API does not learn
//! which wallets are asked about.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use kya_local::{LocalKya, Options};
//!
//! let registry = "0x5FbDB2315678afecb367f032d93F642f64180aa3".parse()?;
//! let local = LocalKya::open(Options::new("https://kya.example", 8453, registry, "registry.kya"))?;
//! local.update().await?;
//! let verdict = local.kya("0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eb1".parse()?)?;
//! println!("{:?}, {:?} old", verdict.decision, local.age());
//! # Ok(())
//! # }
//! ```
//!
//! A daemon lets [`LocalKya::run`] keep it up to date. With [`SpotChecks`] that also compares verdicts with a
//! chain endpoint of the caller's own, so that the API need not be trusted.
//!
//! | file | what it holds |
//! |---|---|
//! | `local` | lookups, updates, and the loop of both |
//! | `service` | the API's client |
//! | `holding` | the shards and segments on disk, and which of them are the registry |
//! | `moment` | a moment by two clocks, one of which is never set back |
//! | `space`, `head` | allocation of the data file; the file beside it that names each shard's place |
//! | `spot_check` | verdicts compared with the chain's |
//! | `sample` | the wallets to compare |

mod error;
mod head;
mod holding;
mod local;
mod moment;
mod options;
mod sample;
mod service;
mod space;
mod spot_check;

pub use alloy_primitives::Address;
pub use error::Error;
pub use local::{Event, LocalKya, UpdateStats};
pub use options::{Options, SpotChecks};
pub use registry_core::registry::kya::{Decision, Kya, Reason};
pub use spot_check::{Contradiction, SpotCheck};
