//! A snapshot of the registry in shards and segments: all facts that verdicts need, for hosts that give
//! verdicts without the index.
//!
//! A [`Manifest`] names the block, the registry's storage root and the version of each shard and segment. A
//! [`Shard`] holds everything that the verdicts on some wallets need: those with a Keccak-256 that begins
//! with certain bits. A segment is a [`Shard`] of more wallets, and holds those of them that have changed
//! since their shards were last made. Segments form levels, where each part of a segment is a sixteenth of
//! it; the widest, of all wallets, is in the manifest. A wallet's facts are in the widest segment that holds
//! it, or else in its shard. A wallet that is in none is not registered.
//!
//! A file of one version can be cached for as long as there is room: later changes are in a wider segment of
//! each manifest that still names that version. `docs/snapshot.md` describes the bytes.
//!
//! ```text
//!   index's rows --> make --> manifest: block, root, versions,     segment, shard: wallet --> facts,
//!                             what has changed last                sorted by wallet
//!                                |                                    |
//!   wallet --Keccak-256--> which files, which versions --> fetched --+--> facts of the widest --> verdict
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `wire` | bytes: reading within bounds, and the seal |
//! | `entry` | the name of a shard or segment: its range and version |
//! | `manifest` | the manifest, and the segments and the shard of a wallet |
//! | `shard` | one shard or segment, searched without decoding it |
//! | `facts` | facts about a wallet as a shard or segment stores them |
//! | `verdict` | the verdict made of these facts |
//! | `bundle` | several shards and segments in one answer |
//! | `make` | manifests, shards and segments from an index |

mod bundle;
mod entry;
mod facts;
mod make;
mod manifest;
mod shard;
mod verdict;
mod wire;

use alloy_primitives::Address;

pub use crate::index::{ShardRange, ShardVersion};
pub use bundle::{BUNDLE_BYTES_MAX, BUNDLE_MAX, Bundle, bundle_names, parse_bundle_names, read_bundle};
pub use entry::ShardEntry;
pub use facts::{Facts, Former, LiveAgent};
pub use make::{Shards, shard};
pub use manifest::{Manifest, prefix_digits_max};
pub use shard::Shard;

/// The registry of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The chain's id.
    pub chain_id: u64,
    /// The registry's address.
    pub registry: Address,
}

/// Reason why bytes are not a manifest, shard or segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes are not of this format, or of another version of it.
    #[error("not a snapshot of this format")]
    Format,
    /// The bytes end too early, or are not as they were written.
    #[error("a snapshot that is cut or changed")]
    Damaged,
    /// The bytes are of another registry, or of another shard or version.
    #[error("another snapshot than asked for")]
    Another,
}
