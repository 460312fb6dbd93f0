//! An index's excerpt that arrives while the chain is being read: the host asks both concurrently.

use std::sync::{Arc, OnceLock};

use crate::index::Excerpt;

/// The excerpt of an index, which may arrive while a question is being resolved; clones share it. A question
/// resolves with or without it and never waits for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateExcerpt(Arc<ExcerptArrival>);

#[derive(Debug, Default, PartialEq, Eq)]
struct ExcerptArrival {
    excerpt: OnceLock<Option<Excerpt>>,
    /// Set if the chain was read before the excerpt arrived.
    is_late: OnceLock<()>,
}

impl LateExcerpt {
    /// Stores the excerpt, or `None` if the index has none. Later calls are ignored.
    pub fn arrive(&self, excerpt: Option<Excerpt>) {
        let _ = self.0.excerpt.set(excerpt);
    }

    /// Returns whether there is an excerpt.
    pub fn has_arrived(&self) -> bool {
        matches!(self.0.excerpt.get(), Some(Some(_)))
    }

    /// Returns the excerpt, if it has arrived; otherwise marks it as late.
    pub(super) fn get(&self) -> Option<&Excerpt> {
        let arrived = self.0.excerpt.get();
        if arrived.is_none() {
            let _ = self.0.is_late.set(());
        }
        arrived?.as_ref()
    }

    /// Returns whether an excerpt may still arrive.
    pub(super) fn is_awaited(&self) -> bool {
        self.0.excerpt.get().is_none()
    }

    /// Returns whether the chain was read before the excerpt arrived: without the agents that it names.
    pub(super) fn is_late(&self) -> bool {
        self.0.is_late.get().is_some()
    }
}

impl From<Excerpt> for LateExcerpt {
    fn from(excerpt: Excerpt) -> Self {
        let late = Self::default();
        late.arrive(Some(excerpt));
        late
    }
}
