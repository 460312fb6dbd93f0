//! Scans of the whole registry. All answers about the registry are made from one scan, so that they agree
//! with one another, and all pages together cost no more than one of them.
//!
//! A verdict uses the scan, too, for a wallet's past: one that is in memory anyway, or with `history=1` one
//! that is made for it. [`registry_core::registry::kya`] gives the reasons.

use std::{cell::RefCell, rc::Rc};

use edge_shared::{settings::WorkerSettings, unix_millis};
use futures_util::FutureExt as _;
use registry_core::{
    api::error::{Error, LASTING_MILLIS},
    api::route::CacheScope,
    api::scan::{Scan, ScanQuery},
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, ReadOutcome, Renewal},
};

use super::single_flight::{Memory, ReadInProgress, SharedRead};

/// The largest scan that is kept: the rows of the most agents that a scan covers take 10 MiB.
const CAPACITY_BYTES: usize = 12 * 1024 * 1024;
/// The longest reply, of which there is one at a time.
const REPLY_BYTES: usize = 4 << 20;

thread_local! {
    static SCANS: RefCell<Cache<(), Result<Rc<KeptScan>, Error>>> = RefCell::new(Cache::new(CAPACITY_BYTES));
}

/// A scan, and its TTL.
#[derive(Debug)]
pub(super) struct KeptScan {
    pub(super) scan: Scan,
    pub(super) made_at: Timestamp,
    /// The TTL in seconds.
    pub(super) max_age: u32,
}

impl KeptScan {
    const fn max_age_millis(&self) -> u64 {
        self.max_age as u64 * 1_000
    }

    /// Returns the end of its TTL, unix milliseconds.
    pub(super) const fn until(&self) -> u64 {
        self.made_at.as_millis().saturating_add(self.max_age_millis())
    }
}

/// The read of the whole registry from the chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanRead;

impl SharedRead for ScanRead {
    type Key = ();
    type Value = Rc<KeptScan>;

    fn memory() -> &'static Memory<(), Rc<KeptScan>> {
        &SCANS
    }

    fn key(&self) {}

    /// Every call over many agents extends a run's deadline, up to three times as much.
    fn patience_seconds(&self, settings: &WorkerSettings) -> u32 {
        settings.rpc_deadline_seconds.saturating_mul(4)
    }

    async fn read(&self, reading: &ReadInProgress) -> Result<Rc<KeptScan>, Error> {
        let settings = reading.settings();
        let made_at = Timestamp::from_millis(unix_millis());
        let query = ScanQuery { registry: settings.registry, chain: settings.public_rpc.clone() };
        let scan = reading.ask(query, made_at, REPLY_BYTES).boxed_local().await?;
        Ok(Rc::new(KeptScan { scan, made_at, max_age: settings.time_to_live(CacheScope::Agent) }))
    }

    fn outcome(kept: &Rc<KeptScan>) -> ReadOutcome {
        let (bytes, made_at) = (kept.scan.size_bytes(), kept.made_at.as_millis());
        ReadOutcome::Value { bytes, made_at, millis: kept.max_age_millis(), renewal: Renewal::IfHot }
    }

    /// A scan takes a hundred calls: a failed one is not tried again for each request.
    fn error_millis(&self, _: &Error) -> u64 {
        LASTING_MILLIS
    }
}

/// Returns the scan in memory, if its TTL is not over.
pub(super) fn in_memory() -> Option<Scan> {
    let kept = SCANS.with_borrow(|scans| scans.peek(&(), unix_millis()))?;
    kept.ok().map(|kept| kept.scan.clone())
}
