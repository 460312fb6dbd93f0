//! The name of an object, made of the chain, the registry and the format of its rows. Alarms outlast a change
//! of these settings: an object with another name rests.

use edge_shared::{settings::WorkerSettings, unix_millis};
use registry_core::index::{
    SqlValue, Store as _, StoreError,
    alarm::AlarmRequest,
    protocol::IndexAnswer,
    takeover::{self, PartKey},
};
use worker::Response;

use crate::{
    answer::HttpResult,
    object::{RegistryIndex, failed},
    sql::Sql,
};

impl RegistryIndex {
    /// Stores the object's name, which an alarm compares with that of the settings. If it fails, the next
    /// request stores the name.
    pub(crate) fn keep_name(&self, sql: &Sql, settings: &WorkerSettings) {
        if self.is_named.get() {
            return;
        }
        let name = SqlValue::Text(settings.index_name().unwrap_or_default());
        let statement = "INSERT OR IGNORE INTO meta (key, value) VALUES ('object', ?1)";
        let is_own = matches!(self.is_own(sql, settings), Ok(true));
        self.is_named.set(is_own || sql.execute(statement, &[name]).is_ok());
    }

    /// Returns whether the rows are of the chain and registry of the settings.
    pub(crate) fn is_own(&self, sql: &Sql, settings: &WorkerSettings) -> Result<bool, StoreError> {
        let own = settings.index_name();
        Ok(own.is_some() && sql.noted("object")? == own)
    }

    /// Answers with a part of the rows, which an object of the next format takes over. No row is written; the
    /// alarm decides from now on when the rows are deleted.
    pub(crate) async fn part(&self, key: PartKey) -> HttpResult {
        let (sql, now) = (self.raw_sql(), unix_millis());
        let part = takeover::part(&sql, key).map_err(failed)?;
        if !part.is_empty() {
            let asked_at = sql.asked_at().map_err(failed)?;
            self.set_alarm(AlarmRequest::of_takeover(asked_at, now)).await?;
        }
        Response::from_json(&IndexAnswer::Part(part))
    }
}
