//! The slot of a stream of changes: an instance, and each client of it, have a limit of open streams.

use std::cell::RefCell;

use edge_shared::unix_millis;
use registry_core::{
    api::error::Error,
    host::{leases::Leases, rate_limit::ClientKey},
};

use crate::settings::Settings;

thread_local! {
    static SLOTS: RefCell<Leases<ClientKey>> = RefCell::default();
}

/// An open slot, which is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    number: u64,
    /// Longest silence of a live stream, in milliseconds.
    silence_millis: u64,
}

impl StreamSlot {
    /// Opens a slot. Errors: [`Error::TooManyStreams`].
    pub(crate) fn open(settings: &Settings, client: ClientKey) -> Result<Self, Error> {
        // A poll of the index has two deadlines.
        let (poll, deadline) = (settings.shared.follow_seconds(), settings.shared.rpc_deadline_seconds);
        let silence = u64::from(poll) + u64::from(deadline) * 2;
        let (now, silence_millis) = (unix_millis(), (silence + 10) * 1_000);
        let until = now.saturating_add(silence_millis);
        let number = SLOTS.with_borrow_mut(|slots| slots.open(settings.streams, client, 1, now, until));
        Ok(Self { number: number.ok_or(Error::TooManyStreams)?, silence_millis })
    }

    /// Postpones its expiry: the stream lives.
    pub(crate) fn extend(&self) {
        let until = unix_millis().saturating_add(self.silence_millis);
        SLOTS.with_borrow_mut(|slots| slots.extend(self.number, until));
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        SLOTS.with_borrow_mut(|slots| slots.close(self.number));
    }
}
