//! The word to stop, as every task hears it.

use tokio::sync::watch;

/// Turns `true` once, when the daemon is to stop.
pub type ShutdownSignal = watch::Receiver<bool>;

/// Waits for that. A sender that is gone means the same.
pub async fn stopped(stop: &mut ShutdownSignal) {
    // The guard that `wait_for` returns must not live on: it cannot cross threads.
    let _ = stop.wait_for(|stop| *stop).await;
}
