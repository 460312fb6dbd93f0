//! The object's alarm: when the next work is due.

use std::time::Duration;

use edge_shared::{settings::WorkerSettings, unix_millis};
use registry_core::index::{Phase, State};
use worker::{Result, console_warn};

use crate::{
    object::{RegistryIndex, cache_millis, failed},
    sql::Sql,
};

/// Milliseconds after which failed work is retried, and an alarm that has not fired is set again.
const RETRY_MILLIS: u64 = 5_000;

impl RegistryIndex {
    /// Sets the alarm for the next work, while the index is in use; later where the last work failed. Where
    /// that fails, the next request or the cron trigger sets it.
    pub(crate) async fn arm(&self, sql: &Sql, settings: &WorkerSettings, worked: bool) {
        if let Err(error) = self.try_arm(sql, settings, worked).await {
            console_warn!("no alarm is set: {error}");
        }
    }

    async fn try_arm(&self, sql: &Sql, settings: &WorkerSettings, worked: bool) -> Result<()> {
        if !self.is_in_use(sql, settings).map_err(failed)? {
            return Ok(());
        }
        let now = unix_millis();
        let storage = self.state.storage();
        let set = storage.get_alarm().await?.map(|at| u64::try_from(at).unwrap_or(0));
        let state = self.load(sql).map_err(failed)?;
        let at = match (self.faults.pause(), state.phase) {
            (Some(fault), _) => fault.until,
            _ if !worked => now + RETRY_MILLIS,
            // With a TTL of 0, each request reads.
            (None, Phase::Complete) if cache_millis(settings) == 0 => return Ok(()),
            (None, Phase::Complete) => refresh_at(&state, settings),
            (None, Phase::Filling { .. } | Phase::CatchingUp | Phase::Comparing { .. }) => now,
        };
        // One that is due and has not fired for a while is lost.
        if set.is_some_and(|set| set > now.saturating_sub(RETRY_MILLIS) && set <= at.max(now)) {
            return Ok(());
        }
        let offset = Duration::from_millis(at.saturating_sub(now));
        storage.set_alarm(offset).await?;
        self.rows.set(self.rows.get().plus_written(1));
        Ok(())
    }
}

/// When to refresh: before answers expire, and soon where an event is waited for.
fn refresh_at(state: &State, settings: &WorkerSettings) -> u64 {
    if let Some(at) = state.retry_at() {
        return at;
    }
    state.read_at.saturating_add(cache_millis(settings) / 4 * 3)
}

pub(crate) fn is_due(state: &State, settings: &WorkerSettings) -> bool {
    cache_millis(settings) == 0 || refresh_at(state, settings) <= unix_millis()
}
