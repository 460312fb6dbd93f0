//! Answers from the index: the Worker `edge-index` has a Durable Object per chain and registry, which keeps
//! the whole registry in SQLite, where the setting `INDEX` says so.
//!
//! ```text
//!   request --> memory of the instance --> the object --> its SQLite, where that is fresh enough
//!                                             |  older than the TTL: a refresh first, 1 to 4 round trips
//!                                             |  being filled: a scan, or 503 and the progress
//!                                             |  an agent's history: its events, at the rows' block
//! ```
//!
//! A request names its chain, its registry and the version of the [protocol](registry_core::index::protocol).
//! An object of other settings or of another version refuses it, and the chain is asked, as where there is no
//! object. Each call has a timeout, after which the object counts as unavailable, or, if it tells its progress,
//! as slow: then it is asked only questions that it alone can answer, with the timeout of a slow node, and the
//! chain is asked the rest.

use core::pin::pin;
use std::cell::Cell;

use edge_shared::{binding, index::IndexObject, settings::WorkerSettings, time::within, unix_millis};
use registry_core::{
    api::document::Document,
    api::error::Error,
    api::health::IndexStatus,
    api::route::{CHANGES_LIMIT_MAX, Route},
    chain::MAX_AGENTS,
    eth::timestamp::Timestamp,
    index::{
        Excerpt, Progress,
        protocol::{
            DOCUMENT_HEADER, DocumentHead, IndexAnswer, IndexQuestion, NEVER, RETRY_HEADER, SNAPSHOT_HEADER,
        },
    },
    registry::changes::Since,
    snapshot::{ShardEntry, ShardRange, ShardVersion},
};
use worker::{Env, Result as WorkerResult};

/// Milliseconds for which a failed question to the index is not repeated.
pub(crate) const UNINDEXED_MILLIS: u64 = 1_000;
/// Timeout of a question about the object's progress, in milliseconds: it needs no chain.
const PROGRESS_MILLIS: u64 = 1_000;
/// Milliseconds for which an object that timed out is not asked: the chain answers at once.
const SILENCE_MILLIS: u64 = 10_000;

thread_local! {
    /// Unix milliseconds until which the object is asked nothing.
    static SILENT_UNTIL: Cell<u64> = const { Cell::new(0) };
    /// Unix milliseconds until which the object is asked only questions that the chain cannot answer.
    static SLOW_UNTIL: Cell<u64> = const { Cell::new(0) };
}

/// Returns whether the object has just timed out, and did not tell its progress either.
fn is_silent() -> bool {
    unix_millis() < SILENT_UNTIL.get()
}

/// Returns whether the object has just timed out, but told its progress.
fn is_slow() -> bool {
    unix_millis() < SLOW_UNTIL.get()
}

/// A document from an object.
#[derive(Debug)]
pub(crate) struct IndexResponse {
    pub(crate) document: Document,
    /// Time at which the chain was asked for it.
    pub(crate) read_at: Timestamp,
    /// The number of the block that it is as of.
    pub(crate) block: u64,
    /// RPC requests that it took just now.
    pub(crate) rpc_calls: u32,
}

/// Time at which an object that has no snapshot is to be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskAgain {
    Soon,
    /// Seconds from now.
    After(u64),
    /// Never, as nothing proves its rows.
    Never,
}

/// Client of the index's object of this chain and registry.
#[derive(Debug)]
pub(crate) struct IndexClient {
    object: IndexObject,
    /// Timeout of a document, in milliseconds.
    document_millis: u64,
    /// Milliseconds in addition, where only the object can answer.
    slow_millis: u64,
}

impl IndexClient {
    /// Returns the client, where the settings and the bindings provide an index.
    pub(crate) fn of(settings: &WorkerSettings, env: &Env) -> Option<Self> {
        // A third of a request's deadline: the rest is left for the chain, which is asked next.
        let deadline_millis = u64::from(settings.rpc_deadline_seconds) * 1_000;
        let (document_millis, slow_millis) = (deadline_millis / 3, deadline_millis);
        IndexObject::of(settings, env).map(|object| Self { object, document_millis, slow_millis })
    }

    /// Reads the document of a route.
    ///
    /// # Errors
    ///
    /// [`Error::IndexUnavailable`] where the object fails, or only the chain can tell. [`Error::Indexing`]
    /// where the registry is being read for the first time, and a scan is no way out: the registry is too
    /// large for one, or the index is the only source. [`Error::Relayed`] for the object's own error.
    pub(crate) async fn document(&self, route: &Route) -> Result<IndexResponse, Error> {
        let scan_would_do = |total| total <= MAX_AGENTS && !route.needs_index();
        let question = IndexQuestion::Document { route: route.canonical() };
        self.read(question, route.needs_index(), scan_would_do).await
    }

    /// Reads the changes since a cursor, as server-sent events. Errors: those of
    /// [`document`](Self::document); the index is the only source.
    pub(crate) async fn events(&self, since: Since) -> Result<IndexResponse, Error> {
        let route = Route::Changes { since, limit: CHANGES_LIMIT_MAX, liable: None }.canonical();
        self.read(IndexQuestion::Events { route }, true, |_| false).await
    }

    /// Reads a piece of the whole list of `/agents/compliance`: the first, or the one at a cursor, which is
    /// the `links` of the piece before. Errors: those of [`document`](Self::document); the index is the only
    /// source.
    pub(crate) async fn list_piece(&self, cursor: Option<String>) -> Result<IndexResponse, Error> {
        self.read(IndexQuestion::ListPiece { cursor }, true, |_| false).await
    }

    /// Closes a list that is not read to its end, before the piece at a cursor.
    pub(crate) async fn close_list(&self, cursor: String) {
        // If that fails, the object closes the list once another one needs its place.
        let _ = within(self.document_millis, self.object.ask(IndexQuestion::CloseList { cursor })).await;
    }

    /// Reads the progress of the index; `None` where the object does not answer.
    pub(crate) async fn progress(&self) -> Option<IndexStatus> {
        match within(PROGRESS_MILLIS, self.object.ask(IndexQuestion::Progress)).await? {
            Ok(IndexAnswer::Progress(progress, store_fault, rows)) => {
                Some(IndexStatus { progress, store_fault, rows })
            }
            _ => None,
        }
    }

    /// Reads the index's excerpt on the wallets of a route; `None` where it has none, or no recent one. With
    /// `history=1` the object may refresh first, unless it is slow and a scan can answer.
    pub(crate) async fn excerpt(&self, route: &Route) -> Option<Excerpt> {
        let wallets: Vec<String> = route.wallets().iter().map(|wallet| format!("{wallet:#x}")).collect();
        if wallets.is_empty() || route.block().is_some() || is_silent() {
            return None;
        }
        let is_large =
            async || self.progress().await.is_some_and(|status| status.progress.total > MAX_AGENTS);
        let is_history = matches!(route, Route::Kya { history: true, .. });
        let refresh = is_history && (!is_slow() || is_large().await);
        match self.object.ask(IndexQuestion::Excerpt { wallets, refresh }).await {
            Ok(IndexAnswer::Excerpt(digits)) => Excerpt::decode(&digits),
            _ => None,
        }
    }

    /// Reads the manifest of the registry's snapshot, or the shard of this entry. Errors: the object does not
    /// have it, or not this version; the error says when to ask again.
    pub(crate) async fn snapshot(&self, entry: Option<ShardEntry>) -> Result<Vec<u8>, AskAgain> {
        let question = match entry {
            None => IndexQuestion::Manifest,
            Some(ShardEntry { range: ShardRange { start, bits }, version: ShardVersion { block, tag } }) => {
                IndexQuestion::Shard { start, bits, block, tag }
            }
        };
        if is_silent() {
            return Err(AskAgain::Soon);
        }
        let response = self.object.post(question).await.map_err(|_| AskAgain::Soon)?;
        let header = |name: &str| response.headers().get(name).ok().flatten();
        if header(SNAPSHOT_HEADER).is_none() {
            let after = header(RETRY_HEADER).unwrap_or_default();
            return Err(match after.parse() {
                Ok(seconds) => AskAgain::After(seconds),
                Err(_) if after == NEVER => AskAgain::Never,
                Err(_) => AskAgain::Soon,
            });
        }
        binding::bytes(&response).await.map_err(|_| AskAgain::Soon)
    }

    /// Asks for a document. `is_only_source`: the chain is not asked next. `scan_would_do` returns whether a
    /// scan could answer instead for this number of agents.
    async fn read(
        &self,
        question: IndexQuestion,
        is_only_source: bool,
        scan_would_do: impl Fn(u64) -> bool,
    ) -> Result<IndexResponse, Error> {
        if is_silent() || (is_slow() && !is_only_source) {
            return Err(Error::IndexUnavailable);
        }
        let mut receiving = pin!(self.receive(question));
        let mut received = within(self.document_millis, receiving.as_mut()).await;
        if received.is_none() {
            let is_working = self.progress().await.is_some();
            if is_working && is_only_source {
                received = within(self.slow_millis, receiving).await;
            } else {
                let until = if is_working { &SLOW_UNTIL } else { &SILENT_UNTIL };
                until.set(unix_millis() + SILENCE_MILLIS);
            }
        }
        match received.ok_or(Error::IndexUnavailable)? {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(IndexAnswer::Progress(Progress { percent, total, .. }, ..))) if !scan_would_do(total) => {
                Err(Error::Indexing { percent })
            }
            Ok(Err(IndexAnswer::Failure(body))) => {
                Err(Error::relayed(&body).unwrap_or(Error::IndexUnavailable))
            }
            _ => Err(Error::IndexUnavailable),
        }
    }

    async fn receive(&self, question: IndexQuestion) -> WorkerResult<Result<IndexResponse, IndexAnswer>> {
        let response = self.object.post(question).await?;
        let body = binding::text(&response).await?;
        let Some(head) = response.headers().get(DOCUMENT_HEADER)? else {
            return Ok(Err(serde_json::from_str(&body)?));
        };
        let DocumentHead { etag, links, read_at, block, rpc_calls } = serde_json::from_str(&head)?;
        let document = Document { body, etag, links, ..Document::default() };
        Ok(Ok(IndexResponse { document, read_at: Timestamp::from_millis(read_at), block, rpc_calls }))
    }
}
