//! An index's excerpt that arrives while the chain is being asked: the host asks both side by side.

use std::sync::{Arc, OnceLock};

use crate::index::Excerpt;

/// The excerpt of an index, which may arrive after the question has been asked; its clones are the same one.
/// A question resolves with what there is by then: it never waits for the excerpt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateExcerpt(Arc<Arrival>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Arrival {
    excerpt: OnceLock<Option<Excerpt>>,
    /// Set where the chain was asked before it arrived.
    is_late: OnceLock<()>,
}

impl LateExcerpt {
    /// The excerpt has arrived; `None` where the index has none. What arrives later is ignored.
    pub fn arrive(&self, excerpt: Option<Excerpt>) {
        let _ = self.0.excerpt.set(excerpt);
    }

    /// Whether there is an excerpt.
    pub fn has_arrived(&self) -> bool {
        matches!(self.0.excerpt.get(), Some(Some(_)))
    }

    /// The excerpt, if it has arrived.
    pub(super) fn get(&self) -> Option<&Excerpt> {
        let arrived = self.0.excerpt.get();
        if arrived.is_none() {
            let _ = self.0.is_late.set(());
        }
        arrived?.as_ref()
    }

    /// Whether an excerpt may still arrive.
    pub(super) fn is_awaited(&self) -> bool {
        self.0.excerpt.get().is_none()
    }

    /// Whether the chain was asked before it arrived, so that nothing was read along that it names.
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
