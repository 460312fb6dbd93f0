//! The budget of reply bytes in flight. Each reply has a limit, but nothing else bounds the sum of replies
//! that arrive at once: a read waits until there is room for its limit.

use std::cell::RefCell;

use edge_shared::{time::pause, unix_millis};
use registry_core::{
    api::error::Error,
    chain::RunError,
    host::leases::{LeaseLimits, Leases},
    host::shared_reads::{FIRST_PAUSE_MILLIS, next_pause},
};

/// Room for two histories of an agent at once, or a thousand verdicts. A reply takes some three times its
/// size while it is read.
const BYTES: usize = 16 << 20;
const LIMITS: LeaseLimits = LeaseLimits { per_holder: BYTES, per_instance: BYTES };

thread_local! {
    static IN_FLIGHT: RefCell<Leases<()>> = RefCell::default();
}

/// Bytes of the budget, which are given back when this is dropped.
pub(super) struct ReplyBytes(u64);

impl ReplyBytes {
    /// Waits for so many bytes. They are given back after `lease_millis`, unless that is extended: a read
    /// that was lost with its request is not dropped. Errors: [`RunError::OutOfTime`] after so many seconds.
    pub(super) async fn take(bytes: usize, seconds: u32, lease_millis: u64) -> Result<Self, Error> {
        let (began, mut millis) = (unix_millis(), FIRST_PAUSE_MILLIS);
        loop {
            let now = unix_millis();
            let until = now.saturating_add(lease_millis);
            let number = IN_FLIGHT.with_borrow_mut(|leases| leases.open(LIMITS, (), bytes, now, until));
            if let Some(number) = number {
                return Ok(Self(number));
            }
            if now.saturating_sub(began) >= u64::from(seconds) * 1_000 {
                return Err(RunError::OutOfTime { seconds }.into());
            }
            pause(millis).await;
            millis = next_pause(millis);
        }
    }

    /// Postpones when they are given back, to that unix millisecond.
    pub(super) fn extend(&self, until: u64) {
        IN_FLIGHT.with_borrow_mut(|leases| leases.extend(self.0, until));
    }
}

impl Drop for ReplyBytes {
    fn drop(&mut self) {
        IN_FLIGHT.with_borrow_mut(|leases| leases.close(self.0));
    }
}
