//! The protocol between a Worker and an index's object: [`IndexRequest`]s and [`IndexAnswer`]s as JSON. A
//! document is answered as its own bytes, with a [`DocumentHead`] in a header: escaping a large one again
//! would take time and memory.

use registry_core::{
    api::health::RowsBilled,
    index::{Progress, StoreFault},
};
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// A request to an object.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct IndexRequest {
    /// The [`name`] of the object that it is for.
    pub(super) object: String,
    pub(super) question: IndexQuestion,
}

/// What an object is asked. Routes are in their canonical form.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum IndexQuestion {
    /// The progress; the alarm is set again if it has stalled.
    Tick,
    /// The progress.
    Progress,
    /// The document of a route.
    Document { route: String },
    /// Changes as server-sent events, of a route to changes.
    Events { route: String },
    /// A piece of the whole list of `/agents/compliance`: the first, or the one at a cursor. The cursor of
    /// the next piece is the `links` of its head.
    ListPiece { cursor: Option<String> },
    /// Closes a list that is not read to its end, before the piece at this cursor; answers with the progress.
    CloseList { cursor: String },
    /// What the index knows of these wallets; with `refresh` the object may ask the chain first.
    Excerpt { wallets: Vec<String>, refresh: bool },
    /// The manifest of the registry's snapshot, answered as its own bytes with [`SNAPSHOT_HEAD`].
    Manifest,
    /// A shard of this version, answered in the same way.
    Shard { start: u64, bits: u8, block: u64, tag: u32 },
}

/// The header of a manifest or shard.
pub(super) const SNAPSHOT_HEAD: &str = "X-Snapshot";

/// The header of a document; its value is a [`DocumentHead`] in JSON.
pub(super) const DOCUMENT_HEAD: &str = "X-Document-Head";

/// What goes with a document.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DocumentHead {
    /// The entity tag; empty for events.
    pub(super) etag: String,
    pub(super) links: Option<String>,
    /// When the chain was asked, unix milliseconds.
    pub(super) read_at: u64,
    /// The number of the block that it is as of.
    pub(super) block: u64,
    /// RPC requests that it took just now.
    pub(super) rpc_calls: u32,
}

/// An answer that is neither a document nor a part of the snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum IndexAnswer {
    /// How far the index is, the fault of its store, and the rows billed; to a question for a document, that
    /// it is not complete.
    Progress(Progress, Option<StoreFault>, RowsBilled),
    /// What the index knows of the wallets, encoded.
    Excerpt(String),
    /// The body of an error for the client.
    Failure(String),
    /// The index does not know.
    NotCovered,
}

/// An object's name: the chain and the registry. Endpoints and their keys may change: the object goes on with
/// its rows, as every reply says which chain it is of. `None` without a chain id, which the settings rule out
/// where there is an index.
pub(super) fn name(settings: &Settings) -> Option<String> {
    settings.chain_id.map(|chain_id| format!("{chain_id}/{}", settings.registry))
}
