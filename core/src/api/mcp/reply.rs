//! Answers, and the words that they share.

use serde_json::value::RawValue;

/// The revision without a handshake.
pub(super) const REVISION: &str = "2026-07-28";
/// The revisions that begin with `initialize`, the newest first.
pub(super) const EARLIER: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// The server, as it names itself.
pub(super) const SERVER: &str =
    concat!(r#"{"name":"agent-registry","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The JSON-RPC response; empty for 202.
    pub body: String,
}

impl Reply {
    /// A result with these members.
    pub(super) fn result(id: &RawValue, members: &str) -> Self {
        let separator = if members.is_empty() { "" } else { "," };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{{members}{separator}"resultType":"complete","_meta":{{"io.modelcontextprotocol/serverInfo":{SERVER}}}}}}}"#
        );
        Self { status: 200, body }
    }
}

/// A text as JSON.
pub(super) fn quoted(text: &str) -> String {
    // A string: serialization has nothing to fail on.
    serde_json::to_string(text).unwrap_or_default()
}

/// The revisions that this server speaks, as JSON.
pub(super) fn versions() -> String {
    format!(r#"["{REVISION}","{}"]"#, EARLIER.join(r#"",""#))
}
