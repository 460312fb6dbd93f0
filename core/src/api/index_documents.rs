//! Documents from an index of the registry, byte for byte those that a scan at the same block gives.

use super::{document::Document, route::Route, scan::Scan};
use crate::{
    eth::timestamp::Timestamp,
    index::{Index, IndexError, Store},
    registry::{changes::Since, history::AgentHistory},
};

/// Whether an endpoint's answer can be made from an index.
pub const fn covers(endpoint: &Route) -> bool {
    Scan::covers(endpoint) || matches!(endpoint, Route::Lineage(_)) || is_only_source(endpoint)
}

/// Whether an endpoint's answer can be made from an index alone.
pub const fn is_only_source(endpoint: &Route) -> bool {
    matches!(
        endpoint,
        Route::Liable { .. } | Route::Listing(_) | Route::Changes { .. } | Route::History { .. }
    )
}

impl<S: Store> Index<'_, S> {
    /// The answer of an endpoint that is [covered](covers), as of `now`.
    ///
    /// # Errors
    ///
    /// [`IndexError::Incomplete`] where the rows are of no one block, [`IndexError::Uncovered`] where only the chain can tell,
    /// and the errors that the chain's answer would be.
    pub fn document(&self, endpoint: &Route, now: Timestamp) -> Result<Document, IndexError> {
        if self.state.as_of().is_none() {
            return Err(IndexError::Incomplete { percent: self.state.percent() });
        }
        match endpoint {
            Route::DetailedStats => Ok(Document::of(self.detailed_stats(now)?, endpoint)),
            Route::Agents { page, status: Some(status) } => {
                Ok(Document::of(self.agents_of(*page, *status)?, endpoint))
            }
            Route::Compliance(page) => {
                let list = self.compliance(*page, now)?;
                let next = list.next;
                Ok(Document::with_next(list, endpoint, next))
            }
            Route::RevenueAggregate => Ok(Document::of(self.revenue()?, endpoint)),
            Route::Lineage(id) => Ok(Document::of(self.lineage(*id)?, endpoint)),
            Route::Listing(query) => {
                let list = self.listing(query, now)?;
                let next = list.next;
                Ok(Document::with_next(list, endpoint, next))
            }
            Route::Liable { person, limit, cursor } => {
                let liable = self.liable(*person, *limit, *cursor, now)?;
                let next = liable.next;
                Ok(Document::with_next(liable, endpoint, next))
            }
            Route::Changes { since, limit } => {
                let list = self.changes(*since, *limit)?;
                let next = Route::Changes { since: Since::Cursor(list.next), limit: *limit };
                let links = Some(format!("<{}>; rel=\"next\"", next.canonical()));
                Ok(Document { links, ..Document::unlinked(list) })
            }
            _ => Err(IndexError::Uncovered),
        }
    }
}

/// The document that says what happened to an agent.
pub fn history(history: AgentHistory) -> Document {
    let AgentHistory { agent_id: id, limit, next, .. } = history;
    let at = |cursor| Route::History { id, limit, cursor }.canonical();
    let mut links = format!("<{}>; rel=\"first\"", at(None));
    if next.is_some() {
        links += &format!(", <{}>; rel=\"next\"", at(next));
    }
    Document { links: Some(links), ..Document::unlinked(history) }
}
