//! The name that an object has of the chain, the registry and the format of its rows. Alarms outlast a change
//! of these settings: an object of another name rests.

use edge_shared::{settings::WorkerSettings, unix_millis};
use registry_core::index::{
    SqlValue, Store as _, StoreError,
    protocol::IndexAnswer,
    takeover::{self, PartKey},
};
use worker::Response;

use crate::{
    alarm::{KEPT_MILLIS, RESTS_MILLIS},
    answer::HttpResult,
    object::{RegistryIndex, failed},
    sql::Sql,
};

impl RegistryIndex {
    /// Stores the object's name, by which an alarm knows whether it is still the settings'. Where that fails,
    /// the next request does.
    pub(crate) fn keep_name(&self, sql: &Sql, settings: &WorkerSettings) {
        if self.is_named.get() {
            return;
        }
        let name = SqlValue::Text(settings.index_name().unwrap_or_default());
        let statement = "INSERT OR IGNORE INTO meta (key, value) VALUES ('object', ?1)";
        let is_own = matches!(self.is_own(sql, settings), Ok(true));
        self.is_named.set(is_own || sql.execute(statement, &[name]).is_ok());
    }

    /// Whether the rows are of the chain and registry of the settings.
    pub(crate) fn is_own(&self, sql: &Sql, settings: &WorkerSettings) -> Result<bool, StoreError> {
        let own = settings.index_name();
        Ok(own.is_some() && sql.noted("object")? == own)
    }

    /// A part of the rows, which an object of the next format takes over. Nothing is written; the alarm looks
    /// after the rows from now on.
    pub(crate) async fn part(&self, key: PartKey) -> HttpResult {
        let (sql, now) = (self.raw_sql(), unix_millis());
        let part = takeover::part(&sql, key).map_err(failed)?;
        if !part.is_empty() {
            // What was not asked for long would be deleted by the next alarm.
            let until = sql.asked_at().map_err(failed)?.saturating_add(KEPT_MILLIS);
            self.set_alarm(now + if until > now + RESTS_MILLIS { RESTS_MILLIS } else { KEPT_MILLIS }).await?;
        }
        Response::from_json(&IndexAnswer::Part(part))
    }
}
