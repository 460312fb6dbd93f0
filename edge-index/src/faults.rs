//! The last failure of an object's store, and the pause after it.

use std::cell::RefCell;

use edge_shared::unix_millis;
use registry_core::index::{StoreError, StoreFault};
use worker::console_error;

/// The last failure of the store, until work succeeds.
#[derive(Default)]
pub(crate) struct Faults(RefCell<Option<StoreBackoff>>);

#[derive(Clone)]
pub(crate) struct StoreBackoff {
    pub(crate) error: StoreError,
    /// Time at which the work is tried again, in unix milliseconds.
    pub(crate) until: u64,
}

impl Faults {
    /// Notes a failure, and logs it. Returns false during the pause after another failure, which it does not
    /// prolong.
    pub(crate) fn note(&self, error: &StoreError) -> bool {
        if self.pause().is_some() {
            return false;
        }
        let pause = error.retry_millis();
        *self.0.borrow_mut() = Some(StoreBackoff { error: error.clone(), until: unix_millis() + pause });
        match error {
            StoreError::Corrupt => console_error!("{error}: it is deleted, and filled anew"),
            _ => console_error!("{error}: tried again in {} s", pause / 1_000),
        }
        true
    }

    /// Returns the failure while it is too early to work again.
    pub(crate) fn pause(&self) -> Option<StoreBackoff> {
        self.0.borrow().clone().filter(|fault| unix_millis() < fault.until)
    }

    pub(crate) fn kind(&self) -> Option<StoreFault> {
        self.0.borrow().as_ref().map(|fault| fault.error.fault())
    }

    /// Clears the failure after work that succeeded.
    pub(crate) fn end(&self) {
        *self.0.borrow_mut() = None;
    }
}
