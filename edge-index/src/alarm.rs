//! The object's alarm: it starts the next work when due, and deletes an object that is no longer used.

use std::time::Duration;

use edge_shared::{settings::WorkerSettings, unix_millis};
use registry_core::{
    api::route::CacheScope,
    index::{
        State,
        alarm::{AlarmRequest, KEPT_MILLIS, RESTS_MILLIS},
    },
};
use worker::{Response, console_warn};

use crate::{
    answer::HttpResult,
    object::{RegistryIndex, failed},
    sql::Sql,
};

impl RegistryIndex {
    /// Sets the alarm for the next work while the index is in use; later if the last work failed, or other
    /// work holds the lease. An idle object checks after [`KEPT_MILLIS`] whether the settings still name it.
    /// If no alarm can be set, the next request or the cron trigger sets it.
    pub(crate) async fn arm(&self, sql: &Sql, settings: &WorkerSettings) {
        if let Err(error) = self.try_arm(sql, settings).await {
            console_warn!("no alarm is set: {error}");
        }
    }

    async fn try_arm(&self, sql: &Sql, settings: &WorkerSettings) -> worker::Result<()> {
        let state = self.load(sql).map_err(failed)?;
        let is_idle = !self.is_in_use(sql, settings).map_err(failed)?
            // With a TTL of 0, each request reads the chain.
            || state.is_complete() && settings.millis_to_live(CacheScope::Agent) == 0;
        let at = match self.faults.pause() {
            Some(fault) if !is_idle => fault.until,
            None if !is_idle => self.due_at(&state, settings),
            _ => unix_millis() + KEPT_MILLIS,
        };
        self.set_alarm(AlarmRequest::By(at.max(self.lease.get().until))).await
    }

    /// Sets the alarm as requested, unless the pending one may stay.
    pub(crate) async fn set_alarm(&self, request: AlarmRequest) -> worker::Result<()> {
        let (now, storage) = (unix_millis(), self.state.storage());
        let pending = storage.get_alarm().await?.map(|at| u64::try_from(at).unwrap_or(0));
        let Some(at) = request.at(pending, now) else { return Ok(()) };
        storage.set_alarm(Duration::from_millis(at.saturating_sub(now))).await?;
        self.rows.set(self.rows.get().plus_written(1));
        Ok(())
    }

    /// Does no work on an object of other settings or of another release's format, and deletes it after
    /// [`KEPT_MILLIS`] without a request.
    pub(crate) async fn rest(&self) -> HttpResult {
        let now = unix_millis();
        let asked_at = self.raw_sql().asked_at().map_err(failed)?;
        match asked_at.saturating_add(KEPT_MILLIS) {
            until if until <= now => self.delete().await?,
            until => self.set_alarm(AlarmRequest::By(until.min(now + RESTS_MILLIS))).await?,
        }
        Response::empty()
    }

    /// Returns when the next work is due: at once while agents are read or lapses are left, soon during the
    /// wait for an event, else before answers expire; after a failure of the chain, after a pause.
    pub(crate) fn due_at(&self, state: &State, settings: &WorkerSettings) -> u64 {
        let before_expiry = state.read_at.saturating_add(settings.millis_to_live(CacheScope::Agent) / 4 * 3);
        let is_at_once = !state.is_complete() || state.has_more_lapses();
        let due = state.retry_at().unwrap_or(if is_at_once { 0 } else { before_expiry });
        due.max(self.paused_until.get())
    }
}
