//! Follows the changes of verdicts that the read API streams, as server-sent events (HTML, section 9.2).
//!
//! ```text
//!   connecting --stream open--> catching up --block named--> following
//!        ^                          |                           |
//!        +------- backoff ----------+--- end, silence, failure -+   else verdicts hold for cache-seconds
//! ```
//!
//! A stream names a block once it has sent all changes up to it. Before that, changes from a time without a
//! stream may still come, and verdicts hold no longer than without a stream.
//!
//! A connection that does not resume from an event id may have missed changes. One after a refusal with `410`
//! has missed some, and a change that cannot be read counts as missed. Every cached verdict is then forgotten
//! at the next block. As the API's own cache may answer with one of them again, verdicts of earlier blocks
//! hold no longer than without a stream.

use std::{sync::Arc, time::Duration};

use alloy_primitives::Address;
use futures_util::StreamExt as _;
use registry_core::registry::kya::{Decision, Reason};
use reqwest::StatusCode;
use serde::Deserialize;
use tokio::{sync::watch, time::timeout};

use super::{AccountReader, VerdictSource, cache::Change};

/// The longest silence of a working stream, which names a block at least every ten seconds.
const SILENCE: Duration = Duration::from_secs(30);
/// The backoff after a failure: the first and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// The longest line of a stream, in bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// Follows the changes until `stop` turns true, if verdicts come from the read API.
pub async fn follow(accounts: Arc<AccountReader>, mut stop: watch::Receiver<bool>) {
    let following = async {
        let (mut last, mut backoff) = (None, BACKOFF.0);
        loop {
            let opened = accounts.follow_once(&mut last).await;
            accounts.metrics.following.set(0);
            if opened {
                backoff = BACKOFF.0;
            }
            // Also at the usual end of a stream, after five minutes: verdicts hold briefly meanwhile.
            accounts.cache.stopped_following();
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    };
    tokio::select! {
        () = following => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

impl AccountReader {
    /// Follows one stream to its end. Returns whether it was open.
    async fn follow_once(&self, last: &mut Option<String>) -> bool {
        let VerdictSource::Api(api) = &self.source else { return std::future::pending().await };
        let response = match timeout(SILENCE, api.changes(last.as_deref())).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::warn!(%error, "changes of verdicts are not followed");
                return false;
            }
            Err(_) => {
                tracing::warn!("changes of verdicts are not followed: no answer");
                return false;
            }
        };
        if !response.status().is_success() {
            tracing::warn!(status = response.status().as_u16(), "changes of verdicts are not followed");
            if response.status() == StatusCode::GONE {
                *last = None;
            }
            return false;
        }
        if let Err(error) = api.check_registry(&response) {
            tracing::warn!(%error, "changes of verdicts are not followed");
            return false;
        }
        tracing::info!("changes of verdicts are followed from the next block on");
        let mut without_gap = last.is_some();
        let (mut pieces, mut events) = (response.bytes_stream(), EventParser::default());
        while let Ok(Some(Ok(piece))) = timeout(SILENCE, pieces.next()).await {
            for event in events.take(&piece) {
                match (event.kind.as_str(), event.block) {
                    ("change", _) => match read_change(&event.data) {
                        Some((wallet, change)) => {
                            self.metrics.changes.with_label_values(&["change"]).inc();
                            self.cache.changed(wallet, change);
                        }
                        None => {
                            tracing::warn!("a change of a verdict cannot be read, and counts as missed");
                            (without_gap, *last) = (false, None);
                            self.cache.stopped_following();
                            self.metrics.following.set(0);
                        }
                    },
                    ("failure", _) => {
                        // The chain does not answer the API, which may miss changes.
                        self.metrics.changes.with_label_values(&["failure"]).inc();
                        self.cache.stopped_following();
                        self.metrics.following.set(0);
                    }
                    // The name of a block: all changes up to it were announced.
                    ("", Some(block)) => {
                        self.cache.follows(without_gap, block);
                        without_gap = true;
                        self.metrics.following.set(1);
                    }
                    // An event of a later API, which names no block.
                    _ => {}
                }
                // Until a block closes the gap, a stream from this event on would hide it.
                if without_gap && let Some(id) = event.id {
                    *last = Some(id);
                }
            }
            if events.is_too_long() {
                break;
            }
        }
        true
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangeData {
    wallet: Address,
    to: Option<ChangedStatus>,
    block_number: u64,
}

#[derive(Deserialize)]
struct ChangedStatus {
    status: String,
    decision: Decision,
}

fn read_change(data: &str) -> Option<(Address, Change)> {
    let change: ChangeData = serde_json::from_str(data).ok()?;
    let (decision, reason) = match &change.to {
        None => (Decision::Deny, Some(Reason::NotRegistered)),
        Some(ChangedStatus { decision: Decision::Deny, .. }) => (Decision::Deny, Some(Reason::NotRegistered)),
        Some(ChangedStatus { decision: Decision::Provision, .. }) => (Decision::Provision, None),
        Some(ChangedStatus { status, decision }) if status == "Suspended" => {
            (*decision, Some(Reason::Suspended))
        }
        Some(ChangedStatus { decision, .. }) => (*decision, Some(Reason::AttestationExpired)),
    };
    Some((change.wallet, Change { decision, reason, block: change.block_number }))
}

/// A parser of server-sent events in a stream of bytes.
#[derive(Debug, Default)]
struct EventParser {
    /// The line that has not ended.
    line: Vec<u8>,
    event: ServerSentEvent,
}

/// An event, or an id with the name of a block.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct ServerSentEvent {
    kind: String,
    data: String,
    id: Option<String>,
    /// The block that a comment names.
    block: Option<u64>,
}

impl EventParser {
    /// Parses a piece of the stream. Returns the events that end in it.
    fn take(&mut self, piece: &[u8]) -> Vec<ServerSentEvent> {
        let mut ended = Vec::new();
        for byte in piece {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
            ended.extend(self.line(line.trim_end_matches('\r')));
        }
        ended
    }

    fn line(&mut self, line: &str) -> Option<ServerSentEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (event != ServerSentEvent::default()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.kind),
            "id" => self.event.id = Some(value.to_owned()),
            "data" => self.event.data.push_str(value),
            // A comment.
            "" => self.event.block = value.strip_prefix("block ").and_then(|block| block.parse().ok()),
            _ => {}
        }
        None
    }

    /// Returns whether the current line is too long.
    fn is_too_long(&self) -> bool {
        self.line.len() > LONGEST_LINE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_the_stream_is_cut() {
        let stream =
            b": block 7\nid: 1-0\n\nevent: change\nid: 1-1\ndata: {}\n\nevent: failure\r\ndata: x\r\n\r\n";
        let event = |kind: &str, data: &str, id: Option<&str>| ServerSentEvent {
            kind: kind.to_owned(),
            data: data.to_owned(),
            id: id.map(str::to_owned),
            block: None,
        };
        let block = ServerSentEvent { block: Some(7), ..event("", "", Some("1-0")) };
        let expected = [block, event("change", "{}", Some("1-1")), event("failure", "x", None)];
        for cut in 1..stream.len() {
            let mut events = EventParser::default();
            let read: Vec<ServerSentEvent> =
                stream.chunks(cut).flat_map(|piece| events.take(piece)).collect();
            assert_eq!(read, expected, "cut every {cut} bytes");
        }
    }

    #[test]
    fn a_change_is_read_as_the_api_writes_it() {
        let line = |to: &str| {
            format!(
                r#"{{"cursor":"1-2","agentId":7,"wallet":"0x0000000000000000000000000000000000000001","from":null,"to":{to},"blockNumber":9,"time":"2026-11-22T13:51:07.000Z"}}"#
            )
        };
        let renewal = Decision::RequestRenewal;
        for (to, decision, reason) in [
            ("null", Decision::Deny, Some(Reason::NotRegistered)),
            (r#"{"status":"Active","decision":"provision","basis":"attested"}"#, Decision::Provision, None),
            (
                r#"{"status":"Active","decision":"request_renewal"}"#,
                renewal,
                Some(Reason::AttestationExpired),
            ),
            (r#"{"status":"Suspended","decision":"request_renewal"}"#, renewal, Some(Reason::Suspended)),
            (r#"{"status":"Revoked","decision":"deny"}"#, Decision::Deny, Some(Reason::NotRegistered)),
        ] {
            let (wallet, change) = read_change(&line(to)).unwrap();
            assert_eq!(wallet, Address::with_last_byte(1));
            assert_eq!((change.decision, change.reason, change.block), (decision, reason, 9), "{to}");
        }
        assert!(read_change("{}").is_none());
    }
}
