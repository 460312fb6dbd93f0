//! Copies of agents for open lists, kept as of the opening until each list is finished or abandoned.

use super::store::{Store, StoreError, of_ids};

/// TTL in seconds of a list that is not continued.
const FORGOTTEN_SECONDS: u64 = 60;
/// The newest list, including closed ones with copies: an older list reads those, too.
pub(super) const NEWEST: &str =
    "SELECT max(number) FROM (SELECT number FROM lists UNION ALL SELECT list FROM former_agents)";

/// Copies these agents for the newest open list before they are replaced.
pub(super) fn keep(store: &impl Store, ids: &[u64]) -> Result<(), StoreError> {
    let statement = format!(
        "INSERT OR IGNORE INTO former_agents (id, list, attested, parent, flaws, record) \
         SELECT id, ({NEWEST}), attested, parent, flaws, record FROM agents \
         WHERE EXISTS (SELECT * FROM lists) AND id"
    );
    of_ids(store, &statement, &[], ids).map(drop)
}

pub(super) fn close(store: &impl Store, list: u64) -> Result<(), StoreError> {
    store.execute("DELETE FROM lists WHERE number = ?1", &[list.into()])?;
    drop_unneeded(store)
}

/// Closes lists past their TTL; `now` is in unix seconds.
pub(super) fn close_forgotten(store: &impl Store, now: u64) -> Result<(), StoreError> {
    store.execute("DELETE FROM lists WHERE used < ?1", &[now.saturating_sub(FORGOTTEN_SECONDS).into()])?;
    drop_unneeded(store)
}

/// Deletes copies that no open list needs.
fn drop_unneeded(store: &impl Store) -> Result<(), StoreError> {
    let oldest = "SELECT min(number) FROM lists";
    store
        .execute(&format!("DELETE FROM former_agents WHERE list < coalesce(({oldest}), list + 1)"), &[])
        .map(drop)
}
