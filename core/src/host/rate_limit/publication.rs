//! What an instance remembers of the counts that it published.

/// What an instance has published about a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Publication {
    /// The count last written.
    pub(super) published: u32,
    /// When the count was written, unix milliseconds.
    pub(super) published_at: u64,
    /// Until this unix millisecond a sync task is under way, which will publish what is counted by then. A
    /// task that has not published anything by then was lost with its request.
    pub(super) under_way_until: u64,
}

impl Publication {
    /// The state at the beginning of a window: nothing is published or under way, but the pause between two
    /// writes holds across windows.
    pub(super) const fn in_a_new_window(self) -> Self {
        Self { published: 0, published_at: self.published_at, under_way_until: 0 }
    }
}
