//! The object's alarm: when the next work is due, and when an object that is not used any more is deleted.

use std::time::Duration;

use edge_shared::{settings::WorkerSettings, unix_millis};
use registry_core::{api::route::CacheScope, index::State};
use worker::{Response, console_warn};

use crate::{
    answer::HttpResult,
    object::{RegistryIndex, failed},
    sql::Sql,
};

/// Milliseconds after which failed work is retried, and an alarm that has not fired is set again.
pub(crate) const RETRY_MILLIS: u64 = 5_000;
/// Milliseconds for which an object that is not asked keeps its rows, so that earlier settings and an earlier
/// release find them again: 30 days.
pub(crate) const KEPT_MILLIS: u64 = 30 * 86_400_000;
/// Milliseconds after which an object that rests looks again: an earlier release that is deployed again sets no
/// alarm, and so does no work, while one is ahead.
pub(crate) const RESTS_MILLIS: u64 = 3_600_000;

impl RegistryIndex {
    /// Sets the alarm for the next work while the index is in use; later where the last work failed, or other
    /// work holds the lease. An idle object looks again after [`KEPT_MILLIS`] whether it is still the
    /// settings'. Where that fails, the next request or the cron trigger sets the alarm.
    pub(crate) async fn arm(&self, sql: &Sql, settings: &WorkerSettings) {
        if let Err(error) = self.try_arm(sql, settings).await {
            console_warn!("no alarm is set: {error}");
        }
    }

    async fn try_arm(&self, sql: &Sql, settings: &WorkerSettings) -> worker::Result<()> {
        let state = self.load(sql).map_err(failed)?;
        let is_idle = !self.is_in_use(sql, settings).map_err(failed)?
            // With a TTL of 0, each request reads.
            || state.is_complete() && settings.millis_to_live(CacheScope::Agent) == 0;
        let at = match self.faults.pause() {
            Some(fault) if !is_idle => fault.until,
            None if !is_idle => self.due_at(&state, settings),
            _ => unix_millis() + KEPT_MILLIS,
        };
        self.set_alarm(at.max(self.lease.get().until)).await
    }

    /// Sets the alarm for this time, unix milliseconds, unless one is set that is earlier.
    pub(crate) async fn set_alarm(&self, at: u64) -> worker::Result<()> {
        let (now, storage) = (unix_millis(), self.state.storage());
        let set = storage.get_alarm().await?.map(|at| u64::try_from(at).unwrap_or(0));
        let at = at.max(now);
        // One that is due and has not fired for a while is lost.
        if set.is_some_and(|set| set > now.saturating_sub(RETRY_MILLIS) && set <= at) {
            return Ok(());
        }
        storage.set_alarm(Duration::from_millis(at - now)).await?;
        self.rows.set(self.rows.get().plus_written(1));
        Ok(())
    }

    /// Does no work on an object of other settings or of another release's format, and deletes it once it has
    /// not been asked for [`KEPT_MILLIS`].
    pub(crate) async fn rest(&self) -> HttpResult {
        let now = unix_millis();
        let asked_at = self.raw_sql().asked_at().map_err(failed)?;
        match asked_at.saturating_add(KEPT_MILLIS) {
            until if until <= now => self.delete().await?,
            until => self.set_alarm(until.min(now + RESTS_MILLIS)).await?,
        }
        Response::empty()
    }

    /// When the next work is due: at once while agents are read or lapses are left, soon where an event is
    /// waited for, else before answers expire; after the chain has failed, not before a pause is over.
    pub(crate) fn due_at(&self, state: &State, settings: &WorkerSettings) -> u64 {
        let before_expiry = state.read_at.saturating_add(settings.millis_to_live(CacheScope::Agent) / 4 * 3);
        let is_at_once = !state.is_complete() || state.has_more_lapses();
        let due = state.retry_at().unwrap_or(if is_at_once { 0 } else { before_expiry });
        due.max(self.paused_until.get())
    }
}
