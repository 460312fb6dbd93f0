//! The object's side of the registry's snapshot: manifests and shards from the rows.

use std::{cell::RefCell, rc::Rc};

use edge_shared::settings::WorkerSettings;
use registry_core::{
    api::route::CacheScope,
    index::{
        IndexError, State,
        protocol::{RETRY_HEADER, SNAPSHOT_HEADER},
    },
    snapshot::{ShardEntry, Shards, shard},
};
use worker::{Headers, Response};

use crate::{
    answer::{HttpResult, not_covered},
    sql::Sql,
};

/// Milliseconds after which a manifest has to be confirmed by the chain again, at most.
const MANIFEST_AGE_MILLIS: u64 = 10_000;

/// The age that a manifest may have when it is handed out: a quarter of a verdict's TTL is left to it, so
/// that it lasts for as long as Workers keep it.
pub(crate) fn max_age(settings: &WorkerSettings) -> u64 {
    MANIFEST_AGE_MILLIS.min(settings.millis_to_live(CacheScope::Kya) / 4)
}

/// The versions of shards and segments, and what has changed last, kept until agents are written: a registry
/// of a million agents has thousands.
#[derive(Default)]
pub(crate) struct Snapshots(RefCell<Option<(WrittenState, Rc<Shards>)>>);

/// What the state of an index says of its writes: when its change log began, and their number.
type WrittenState = (u64, u64);

impl Snapshots {
    /// The bytes of the manifest, or of a shard or segment; `None` for a version of it that the rows no
    /// longer have.
    pub(crate) fn answer(
        &self,
        sql: &Sql,
        settings: &WorkerSettings,
        state: &State,
        entry: Option<ShardEntry>,
    ) -> Result<Option<Vec<u8>>, IndexError> {
        let identity = settings.identity().ok_or(IndexError::Uncovered)?;
        if state.as_of().is_none() {
            // The SQL indexes may not be made yet.
            return Err(IndexError::Incomplete { percent: state.percent() });
        }
        match entry {
            Some(entry) => shard(sql, state, &identity, entry),
            None => {
                let manifest = self.shards(sql, state)?.manifest(state, identity)?;
                manifest.encode().map(Some).map_err(|_| IndexError::Uncovered)
            }
        }
    }

    fn shards(&self, sql: &Sql, state: &State) -> Result<Rc<Shards>, IndexError> {
        let written = (state.began(), state.writes);
        if let Some((of, shards)) = &*self.0.borrow()
            && *of == written
        {
            return Ok(Rc::clone(shards));
        }
        let shards = Rc::new(Shards::read(sql)?);
        self.0.replace(Some((written, Rc::clone(&shards))));
        Ok(shards)
    }
}

/// The answer where there is no manifest or shard: ask again after so many seconds, or never.
pub(crate) fn refuse(after: &str) -> HttpResult {
    let mut response = not_covered()?;
    response.headers_mut().set(RETRY_HEADER, after)?;
    Ok(response)
}

/// A manifest or shard as a response.
pub(crate) fn respond(bytes: Vec<u8>) -> HttpResult {
    let headers = Headers::new();
    headers.set(SNAPSHOT_HEADER, "1")?;
    Ok(Response::from_bytes(bytes)?.with_headers(headers))
}
