//! Documents from an index of the registry, byte for byte those that a scan at the same block gives.

use super::{document::Document, route::Route};
use crate::{
    eth::timestamp::Timestamp,
    index::{Index, IndexError, Store},
    registry::history::AgentHistory,
};

impl<S: Store> Index<'_, S> {
    /// Returns the answer of a route that is [indexed](Route::is_indexed), as of `now` or the index's block,
    /// whichever is later.
    ///
    /// # Errors
    ///
    /// [`IndexError::Incomplete`] where the rows are not all of one block, [`IndexError::Uncovered`] for a
    /// route that only the chain answers, and the errors that the chain's answer would be.
    pub fn document(&self, route: &Route, now: Timestamp) -> Result<Document, IndexError> {
        let now = self.not_before_its_block(now)?;
        Ok(match route {
            Route::DetailedStats => Document::of(self.detailed_stats(now)?, route),
            Route::Agents { page, status: Some(status) } => {
                Document::of(self.agents_of(*page, *status)?, route)
            }
            Route::Compliance(page) => Document::of(self.compliance(*page, now)?, route),
            Route::RevenueAggregate => Document::of(self.revenue()?, route),
            Route::Lineage(id) => Document::of(self.lineage(*id)?, route),
            Route::Listing(query) => Document::of(self.listing(query, now)?, route),
            Route::Liable { person, limit, cursor, basis } => {
                Document::of(self.liable(*person, *limit, *cursor, *basis, now)?, route)
            }
            Route::Changes { since, limit, liable } => {
                Document::of(self.changes_naming(*liable, *since, *limit)?, route)
            }
            _ => return Err(IndexError::Uncovered),
        })
    }
}

/// Returns the document of an agent's history, which is read from the index and the chain together.
pub fn history(history: AgentHistory) -> Document {
    let route = Route::History { id: history.agent_id, limit: history.limit, cursor: None };
    Document::of(history, &route)
}
