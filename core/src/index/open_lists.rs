//! Lists that are open: what their agents were when they were opened is kept until their readers are through, or gone.

use super::store::{Store, StoreError, of_ids};

/// Seconds after which a list is closed that nobody has gone on with.
const FORGOTTEN_SECONDS: u64 = 60;
/// The newest list, closed ones included for which something is still kept: an older one reads that, too.
pub(super) const NEWEST: &str =
    "SELECT max(number) FROM (SELECT number FROM lists UNION ALL SELECT list FROM former_agents)";

/// Keeps these agents for the newest open list as they are, before they are replaced.
pub(super) fn keep(store: &impl Store, ids: &[u64]) -> Result<(), StoreError> {
    let statement = format!(
        "INSERT OR IGNORE INTO former_agents (id, list, attested, parent, flaws, record) \
         SELECT id, ({NEWEST}), attested, parent, flaws, record FROM agents \
         WHERE EXISTS (SELECT * FROM lists) AND id"
    );
    of_ids(store, &statement, &[], ids).map(drop)
}

/// Closes the lists that nobody has gone on with; `now` is in unix seconds.
pub(super) fn close_forgotten(store: &impl Store, now: u64) -> Result<(), StoreError> {
    store.execute("DELETE FROM lists WHERE used < ?1", &[now.saturating_sub(FORGOTTEN_SECONDS).into()])?;
    drop_unneeded(store)
}

/// Drops what is kept for lists that are closed.
pub(super) fn drop_unneeded(store: &impl Store) -> Result<(), StoreError> {
    let oldest = "SELECT min(number) FROM lists";
    store
        .execute(&format!("DELETE FROM former_agents WHERE list < coalesce(({oldest}), list + 1)"), &[])
        .map(drop)
}
