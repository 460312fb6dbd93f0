//! The protocol between the read API's host and the object that keeps an index: [`IndexRequest`]s and
//! [`IndexAnswer`]s as JSON. A document is answered as its own bytes, with a [`DocumentHead`] in a header:
//! escaping a large one again would take time and memory.
//!
//! The two sides are deployed one after the other, in either order. Each request and each response names its
//! [version](PROTOCOL_VERSION) in a [header](VERSION_HEADER), and each side [checks](check_version) the
//! other's before it reads anything else.

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};

use super::{
    progress::{Progress, RowsBilled},
    store::{EARLIER_FORMATS, FORMAT, StoreFault},
    takeover::{PartKey, TakeoverPart},
};

/// The version of the protocol; each change of a message increments it.
pub const PROTOCOL_VERSION: u32 = 4;

/// The header of every request and response; its value is the sender's [version](PROTOCOL_VERSION).
pub const VERSION_HEADER: &str = "X-Index-Protocol";

/// The HTTP status with which an object refuses a request of another version, or of none.
pub const OTHER_VERSION_STATUS: u16 = 409;

/// The two sides have different versions of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("other version of the index's protocol: {theirs} there, {PROTOCOL_VERSION} here")]
pub struct OtherVersion {
    /// The version that the other side names.
    theirs: String,
}

/// Checks the [version header](VERSION_HEADER) of a request or a response.
///
/// # Errors
///
/// [`OtherVersion`] if it names another version or is missing.
pub fn check_version(header: Option<&str>) -> Result<(), OtherVersion> {
    match header {
        Some(theirs) if theirs.parse() == Ok(PROTOCOL_VERSION) => Ok(()),
        theirs => Err(OtherVersion { theirs: theirs.unwrap_or("none").to_owned() }),
    }
}

/// A request to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRequest {
    /// The [name](object_name) of the object that has to answer.
    pub object: String,
    /// The question.
    pub question: IndexQuestion,
}

/// A question to an object. Routes are in their canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexQuestion {
    /// The progress; the alarm is set again if it has stalled.
    Tick,
    /// The progress.
    Progress,
    /// The document of a route.
    Document {
        /// The route.
        route: String,
    },
    /// Changes as server-sent events.
    Events {
        /// The route to changes.
        route: String,
    },
    /// A piece of the whole list of `/agents/compliance`: the first, or the one at a cursor. The cursor of
    /// the next piece is in the `links` of its head.
    ListPiece {
        /// The cursor.
        cursor: Option<String>,
    },
    /// Closes a list that is not read to its end; answered with the progress.
    CloseList {
        /// The cursor of the piece that would have been next.
        cursor: String,
    },
    /// The excerpt of the index for some wallets.
    Excerpt {
        /// The wallets.
        wallets: Vec<String>,
        /// Permission for the object to ask the chain first.
        refresh: bool,
    },
    /// A part of an index of the earlier format, to an object of its [names](earlier_object_names).
    Takeover(PartKey),
    /// The manifest of the registry's snapshot, answered as its own bytes with the [`SNAPSHOT_HEADER`].
    Manifest,
    /// A shard, answered in the same way. The fields are those of a [`ShardRange`](super::ShardRange) and a
    /// [`ShardVersion`](super::ShardVersion).
    Shard {
        /// The first place of the range.
        start: u64,
        /// The length of the range's prefix.
        bits: u8,
        /// The block of the version.
        block: u64,
        /// The tag of the version.
        tag: u32,
    },
}

/// The header of a manifest or shard.
pub const SNAPSHOT_HEADER: &str = "X-Snapshot";

/// The header of an answer without a manifest or shard; its value is the seconds after which it is worth
/// asking again, or [`NEVER`].
pub const RETRY_HEADER: &str = "Retry-After";

/// The value of [`RETRY_HEADER`] if there will be no snapshot, because nothing proves the rows.
pub const NEVER: &str = "never";

/// The header of a document; its value is a [`DocumentHead`] in JSON.
pub const DOCUMENT_HEADER: &str = "X-Document-Head";

/// Metadata of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentHead {
    /// The entity tag; empty for events.
    pub etag: String,
    /// The `Link` header, or the cursor of a list's next piece.
    pub links: Option<String>,
    /// Time at which the chain was read, in unix milliseconds.
    pub read_at: u64,
    /// Number of the document's block.
    pub block: u64,
    /// RPC requests that this answer took.
    pub rpc_calls: u32,
}

/// An answer that is neither a document nor a part of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexAnswer {
    /// The progress, the fault of the store, and the rows billed. As the answer to a question for a document
    /// it means that the index is not complete.
    Progress(Progress, Option<StoreFault>, RowsBilled),
    /// The excerpt for the wallets, as [`Excerpt::encode`](super::Excerpt::encode) writes it.
    Excerpt(String),
    /// A part of an index of the earlier format.
    Part(TakeoverPart),
    /// The body of an error for the client.
    Failure(String),
    /// The index does not know.
    NotCovered,
}

/// Returns the name of a registry's object, with the format of its tables. Endpoints and their keys may
/// change: the object keeps its rows, because every reply of a node names its chain.
pub fn object_name(chain_id: u64, registry: Address) -> String {
    format!("{chain_id}/{registry}/{FORMAT}")
}

/// Returns the names of the objects with tables of earlier formats, the latest first. The oldest format is
/// not part of its object's name.
pub fn earlier_object_names(chain_id: u64, registry: Address) -> [String; 4] {
    EARLIER_FORMATS.map(|format| match format {
        "11" => format!("{chain_id}/{registry}"),
        _ => format!("{chain_id}/{registry}/{format}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::State;

    #[test]
    fn only_the_same_version_is_accepted() {
        let own = PROTOCOL_VERSION.to_string();
        assert_eq!(check_version(Some(&own)), Ok(()));
        let next = (PROTOCOL_VERSION + 1).to_string();
        for (header, named) in
            [(Some(&*next), &*next), (Some("0"), "0"), (Some(""), ""), (Some("x"), "x"), (None, "none")]
        {
            let refused = check_version(header).map_err(|error| error.to_string());
            let message = format!("other version of the index's protocol: {named} there, {own} here");
            assert_eq!(refused, Err(message), "{header:?}");
        }
    }

    /// Pins the messages of this version: a change here requires a new [`PROTOCOL_VERSION`].
    #[test]
    fn the_version_stands_for_what_is_sent() {
        let route = || "/api/v1/changes".to_owned();
        let excerpt = IndexQuestion::Excerpt { wallets: vec!["0x1".into()], refresh: true };
        let shard = IndexQuestion::Shard { start: 1, bits: 8, block: 9, tag: 7 };
        let questions = [
            (IndexQuestion::Tick, r#""Tick""#),
            (IndexQuestion::Progress, r#""Progress""#),
            (IndexQuestion::Document { route: route() }, r#"{"Document":{"route":"/api/v1/changes"}}"#),
            (IndexQuestion::Events { route: route() }, r#"{"Events":{"route":"/api/v1/changes"}}"#),
            (IndexQuestion::ListPiece { cursor: None }, r#"{"ListPiece":{"cursor":null}}"#),
            (IndexQuestion::CloseList { cursor: "1-2".into() }, r#"{"CloseList":{"cursor":"1-2"}}"#),
            (excerpt, r#"{"Excerpt":{"wallets":["0x1"],"refresh":true}}"#),
            (IndexQuestion::Takeover(PartKey::Ends(3)), r#"{"Takeover":{"Ends":3}}"#),
            (IndexQuestion::Manifest, r#""Manifest""#),
            (shard, r#"{"Shard":{"start":1,"bits":8,"block":9,"tag":7}}"#),
        ];
        for (question, expected) in questions {
            let sent = serde_json::to_string(&question).unwrap();
            assert_eq!(sent, expected);
            assert_eq!(serde_json::from_str::<IndexQuestion>(&sent).unwrap(), question);
        }
        let object = object_name(5, Address::ZERO);
        let request = IndexRequest { object, question: IndexQuestion::Tick };
        let head = DocumentHead { etag: "e".into(), links: None, read_at: 1, block: 2, rpc_calls: 3 };
        let progress = IndexAnswer::Progress((&State::default()).into(), None, RowsBilled::default());
        let sent = (&request, &head, &progress);
        let excerpt = IndexAnswer::Excerpt("e".into());
        let answers = (excerpt, IndexAnswer::Part(TakeoverPart::default()), IndexAnswer::Failure("f".into()));
        let answers = (answers, IndexAnswer::NotCovered);
        let expected = r#"{"object":"5/0x0000000000000000000000000000000000000000/15","question":"Tick"},{"etag":"e","links":null,"read_at":1,"block":2,"rpc_calls":3},{"Progress":[{"percent":0,"total":0,"basis":"events","unannouncedChanges":0,"refreshesWithoutEvents":0,"comparisons":0,"isComparing":false,"sweptAgents":500},null,{"read":0,"written":0,"since":0}]}"#;
        assert_eq!(serde_json::to_string(&sent).unwrap(), format!("[{expected}]"));
        let part = r#"{"Part":{"content":"","next":null}}"#;
        let expected = format!(r#"[[{{"Excerpt":"e"}},{part},{{"Failure":"f"}}],"NotCovered"]"#);
        assert_eq!(serde_json::to_string(&answers).unwrap(), expected);
    }
}
