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

/// Maximum milliseconds after which the chain has to confirm a manifest again.
const MANIFEST_AGE_MILLIS: u64 = 10_000;

/// Returns the maximum age of a manifest when it is handed out: at most a quarter of a verdict's TTL, so that
/// it lasts for as long as Workers keep it.
pub(crate) fn max_age(settings: &WorkerSettings) -> u64 {
    MANIFEST_AGE_MILLIS.min(settings.millis_to_live(CacheScope::Kya) / 4)
}

/// The versions of shards and segments, and the latest changes, kept until agents are written: a registry of
/// a million agents has thousands of versions.
#[derive(Default)]
pub(crate) struct Snapshots(RefCell<Option<(WrittenState, Rc<Shards>)>>);

/// The writes of an index: the start of its change log, and the number of writes.
type WrittenState = (u64, u64);

impl Snapshots {
    /// Returns the bytes of the manifest, or of a shard or segment; `None` for a version of it that the rows
    /// no longer have.
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

/// Makes the response without a manifest or shard: ask again after these seconds, or never.
pub(crate) fn refuse(after: &str) -> HttpResult {
    let mut response = not_covered()?;
    response.headers_mut().set(RETRY_HEADER, after)?;
    Ok(response)
}

/// Makes the response for a manifest or shard.
pub(crate) fn respond(bytes: Vec<u8>) -> HttpResult {
    let headers = Headers::new();
    headers.set(SNAPSHOT_HEADER, "1")?;
    Ok(Response::from_bytes(bytes)?.with_headers(headers))
}
