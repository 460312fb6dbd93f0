//! Limits on time.

use core::{pin::pin, time::Duration};

use futures_util::future::{Either, select};
use worker::Delay;

/// Returns the output of a future, or `None` if that takes longer than so many milliseconds.
pub async fn within<T>(millis: u64, future: impl Future<Output = T>) -> Option<T> {
    match select(pin!(future), pin!(pause(millis))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// Waits for so many milliseconds.
pub async fn pause(millis: u64) {
    Delay::from(Duration::from_millis(millis)).await;
}
