//! A method that some nodes lack: a node that says so is not asked again for a while.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use alloy::rpc::json_rpc::ErrorPayload;
use tokio::time::Instant;

/// Pause before the method is called again: the node may have been another machine behind the same URL, or
/// one that is upgraded.
const TRY_AGAIN: Duration = Duration::from_secs(600);
/// JSON-RPC's code for a method that does not exist.
const METHOD_NOT_FOUND: i64 = -32_601;

#[derive(Debug)]
pub(super) struct OptionalMethod {
    name: &'static str,
    again: Mutex<Option<Instant>>,
}

impl OptionalMethod {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, again: Mutex::new(None) }
    }

    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether the node said a while ago that it lacks the method, or the method rests.
    pub(super) fn is_missing(&self) -> bool {
        let again = *self.again.lock().unwrap_or_else(PoisonError::into_inner);
        again.is_some_and(|again| Instant::now() < again)
    }

    /// Learns from a node's error. Returns whether it says that the method is missing.
    pub(super) fn learn(&self, error: &ErrorPayload) -> bool {
        let is_missing = is_called_missing(self.name, error);
        if is_missing {
            self.rest(TRY_AGAIN);
        }
        is_missing
    }

    /// Keeps the method from being called for this time.
    pub(super) fn rest(&self, time: Duration) {
        *self.again.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + time);
    }
}

/// Returns whether a node says that it lacks a method: by JSON-RPC's code, or in words. Words about anything
/// else that does not exist, such as a block, say nothing about the method.
pub(super) fn is_called_missing(method: &str, error: &ErrorPayload) -> bool {
    const WORDS: [&str; 6] =
        ["not found", "does not exist", "not supported", "not whitelisted", "not available", "is disabled"];
    let message = error.message.to_ascii_lowercase();
    let name = method.trim_start_matches("eth_").to_ascii_lowercase();
    let names_it = message.contains("method") || message.contains(&name);
    error.code == METHOD_NOT_FOUND || (names_it && WORDS.iter().any(|words| message.contains(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(code: i64, message: &'static str) -> bool {
        let method = OptionalMethod::new("eth_getBlockReceipts");
        method.learn(&ErrorPayload { code, message: message.into(), data: None })
    }

    #[tokio::test(start_paused = true)]
    async fn a_method_is_missing_by_its_code_or_in_words_about_it_and_after_a_while_it_is_tried_again() {
        let method = OptionalMethod::new("eth_getBlockReceipts");
        assert!(!method.is_missing());
        method.learn(&ErrorPayload { code: METHOD_NOT_FOUND, message: "".into(), data: None });
        assert!(method.is_missing());
        tokio::time::advance(TRY_AGAIN).await;
        assert!(!method.is_missing());
        assert!(says(-32_601, "nope"));
        assert!(says(-32_000, "the method eth_getBlockReceipts does not exist/is not available"));
        assert!(says(-32_000, "eth_getBlockReceipts is not whitelisted"));
        assert!(!says(-32_000, "block not found"));
        assert!(!says(-32_005, "limit exceeded"));
    }
}
