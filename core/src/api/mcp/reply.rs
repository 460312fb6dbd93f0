//! Answers to messages, and the texts that they share.

use serde_json::value::RawValue;

/// The revision without a handshake.
pub(super) const REVISION: &str = "2026-07-28";
/// The revisions that begin with `initialize`, the newest first.
pub(super) const EARLIER: [&str; 4] = ["2025-11-25", "2025-06-18", BATCHING, "2024-11-05"];
/// The last revision with batches, which is also assumed for requests that name no revision.
pub(super) const BATCHING: &str = "2025-03-26";

/// The server, as it names itself.
pub(super) const SERVER: &str =
    concat!(r#"{"name":"agent-registry","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

/// The way in which a client states its revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// In each request (2026-07-28 and later).
    Stateless,
    /// In a handshake (2025-11-25 and earlier).
    Handshake,
}

/// An answer to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The JSON-RPC response; empty for 202.
    pub body: String,
}

impl Reply {
    /// Makes a result with these members. Earlier clients get no others: they refuse them in a `ping`.
    pub(super) fn result(era: Era, id: &RawValue, members: &str) -> Self {
        let of_revision = match era {
            Era::Handshake => String::new(),
            Era::Stateless => format!(
                r#","resultType":"complete","_meta":{{"io.modelcontextprotocol/serverInfo":{SERVER}}}"#
            ),
        };
        Self {
            status: 200,
            body: format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{members}{of_revision}}}}}"#),
        }
    }

    /// Joins the answers to the messages of a batch, in their order; 202 if all are notifications.
    pub fn of_batch(replies: Vec<Self>) -> Self {
        let bodies: Vec<String> =
            replies.into_iter().map(|reply| reply.body).filter(|body| !body.is_empty()).collect();
        if bodies.is_empty() {
            return Self { status: 202, body: String::new() };
        }
        Self { status: 200, body: format!("[{}]", bodies.join(",")) }
    }
}

/// Serializes a text as JSON.
pub(super) fn quoted(text: &str) -> String {
    // Serialization of a string cannot fail.
    serde_json::to_string(text).unwrap_or_default()
}

/// Returns the revisions that this server speaks, as JSON.
pub(super) fn versions() -> String {
    format!(r#"["{REVISION}","{}"]"#, EARLIER.join(r#"",""#))
}
