//! The shutdown signal.

use tokio::sync::watch;

/// Turns `true` once, when the daemon shuts down.
pub type ShutdownSignal = watch::Receiver<bool>;

/// Waits for the signal; a dropped sender counts as one.
pub async fn stopped(stop: &mut ShutdownSignal) {
    // The guard that `wait_for` returns is not `Send`: it must be dropped at once.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Runs `work` and returns its result; `None` at the signal, which cancels it.
pub async fn unless_stopped<T>(stop: &mut ShutdownSignal, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stopped(stop) => None,
        done = work => Some(done),
    }
}
