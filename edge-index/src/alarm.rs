//! The object's alarm: when the next work is due.

use std::time::Duration;

use edge_shared::{settings::WorkerSettings, unix_millis};
use registry_core::index::State;
use worker::{Result, console_warn};

use crate::{
    object::{RegistryIndex, cache_millis, failed},
    sql::Sql,
};

/// Milliseconds after which failed work is retried, and an alarm that has not fired is set again.
pub(crate) const RETRY_MILLIS: u64 = 5_000;

impl RegistryIndex {
    /// Sets the alarm for the next work, while the index is in use; later where the last work failed, or
    /// other work holds the lease. Where that fails, the next request or the cron trigger sets it.
    pub(crate) async fn arm(&self, sql: &Sql, settings: &WorkerSettings) {
        if let Err(error) = self.try_arm(sql, settings).await {
            console_warn!("no alarm is set: {error}");
        }
    }

    async fn try_arm(&self, sql: &Sql, settings: &WorkerSettings) -> Result<()> {
        if !self.is_in_use(sql, settings).map_err(failed)? {
            return Ok(());
        }
        let now = unix_millis();
        let storage = self.state.storage();
        let set = storage.get_alarm().await?.map(|at| u64::try_from(at).unwrap_or(0));
        let state = self.load(sql).map_err(failed)?;
        let at = match self.faults.pause() {
            Some(fault) => fault.until,
            // With a TTL of 0, each request reads.
            None if state.is_complete() && cache_millis(settings) == 0 => return Ok(()),
            None => self.due_at(&state, settings),
        };
        let at = at.max(now).max(self.lease.get().until);
        // One that is due and has not fired for a while is lost.
        if set.is_some_and(|set| set > now.saturating_sub(RETRY_MILLIS) && set <= at) {
            return Ok(());
        }
        let offset = Duration::from_millis(at.saturating_sub(now));
        storage.set_alarm(offset).await?;
        self.rows.set(self.rows.get().plus_written(1));
        Ok(())
    }

    /// When the next work is due: at once while agents are read or lapses are left, soon where an event is
    /// waited for, else before answers expire; after the chain has failed, not before a pause is over.
    pub(crate) fn due_at(&self, state: &State, settings: &WorkerSettings) -> u64 {
        let before_expiry = state.read_at.saturating_add(cache_millis(settings) / 4 * 3);
        let is_at_once = !state.is_complete() || state.has_more_lapses();
        let due = state.retry_at().unwrap_or(if is_at_once { 0 } else { before_expiry });
        due.max(self.paused_until.get())
    }
}
