//! SIGHUP reads the policy file again. Nothing else changes, and no request waits for it.

use std::sync::Arc;

use tokio::signal::unix::Signal;

use crate::{
    process::shutdown::{ShutdownSignal, stopped},
    relay::Relayer,
};

/// Reloads the policy at each signal, until shutdown.
pub(super) async fn run(mut reload: Signal, relayer: Arc<Relayer>, mut stop: ShutdownSignal) {
    loop {
        tokio::select! {
            signal = reload.recv() => if signal.is_none() { return },
            () = stopped(&mut stop) => return,
        }
        let policy = Arc::clone(&relayer.policy);
        let Ok(reloaded) = tokio::task::spawn_blocking(move || policy.reload()).await else { return };
        let result = match reloaded {
            Ok(policy) => {
                tracing::info!(%policy, "policy reloaded");
                "ok"
            }
            Err(error) => {
                tracing::error!(field = %error.field, rule = %error.rule, "policy not reloaded, the old one stays");
                "error"
            }
        };
        relayer.metrics.policy_reloads.with_label_values(&[result]).inc();
    }
}
