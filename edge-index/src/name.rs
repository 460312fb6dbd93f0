//! The name that an object has of the chain, the registry and the format of its rows. Alarms outlast a change
//! of these settings: an object of another name rests.

use std::rc::Rc;

use edge_shared::settings::WorkerSettings;
use registry_core::index::{
    SqlValue, Store as _, StoreError,
    protocol::IndexAnswer,
    takeover::{self, PartKey},
};
use worker::{Response, Result};

use crate::{
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
    pub(crate) fn is_own(
        &self,
        sql: &Sql,
        settings: &WorkerSettings,
    ) -> core::result::Result<bool, StoreError> {
        let stored = sql.execute("SELECT value FROM meta WHERE key = 'object'", &[])?;
        let own = settings.index_name().map(|name| vec![vec![SqlValue::Text(name)]]);
        Ok(Some(stored) == own)
    }

    /// A part of the rows, which an object of the next format takes over. Nothing is written.
    pub(crate) fn part(&self, key: PartKey) -> Result<Response> {
        let sql = Sql::new(&self.state.storage(), Rc::clone(&self.rows));
        let part = takeover::part(&sql, key).map_err(failed)?;
        Response::from_json(&IndexAnswer::Part(part))
    }
}
