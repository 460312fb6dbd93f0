//! What a verdict says of the past of a wallet, and of the agents above its agent.
//!
//! Revoking or terminating an agent frees its wallet: for the contract's getters it is as if it had never been registered, and
//! it may be registered again. Only who knows all agents can tell, so that it takes a [scan](crate::api::scan) of the registry, and
//! a verdict is one question of one round trip. Hence:
//!
//! - A verdict uses the scan that the host has at hand, which costs nothing more; without one it says `unknown`, and why, never
//!   that there was nothing.
//! - It never has a scan made by itself: then the cheapest question of the API would cost as much as the dearest. Who wants to
//!   know asks with `history=1`.
//! - A scan is older than the verdict. That does not make it wrong: ended agents stay ended, and wallets and parents never
//!   change. So it holds as long as the registry has no agent more than it ([`Row`]s are counted against the newest id), and none
//!   of those it shows alive has ended since; where that is not so, it is `SCAN_OUTDATED`, or with `history=1` read up to date.
//! - The status of ancestors does change. It is asked for along with the verdict, by the ids that the scan names.
//! - An [index](crate::index) goes before a scan. It costs nothing to ask either, and what it does not know yet is little: agents
//!   that are new since, and whether the live ones have ended. Both are read along with the verdict.

use serde::Serialize;

use crate::{
    eth::timestamp::Timestamp,
    registry::agent::{AgentId, Status},
    registry::row::Row,
};

/// Former agents that a verdict names at most: anybody may register any wallet, as often as they like.
pub const FORMER_SHOWN: usize = 20;

/// Whether an agent has, or had, a wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Registration {
    /// No agent ever had it.
    Never,
    /// A live agent has it.
    Current,
    /// Agents had it, and all of them have ended.
    Former,
    /// No live agent has it, and whether one had is not known.
    Unknown,
}

/// Something that may not be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Known<T> {
    /// It is known.
    Known(T),
    /// It is not; `unknownBecause` says why.
    Unknown(Unknown),
}

/// The word for what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// `unknown`
    #[default]
    Unknown,
}

/// Why something is not known. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UnknownBecause {
    /// The whole registry has not been read lately: ask with `history=1`.
    NotScanned,
    /// The registry has changed since it was read as a whole: ask with `history=1`.
    ScanOutdated,
    /// It is only told at the newest block.
    PastBlock,
    /// The registry has more agents than are read at once.
    TooManyAgents,
    /// An agent's record cannot be read: it may be one of this wallet's.
    UnreadableAgents,
    /// Evidence proves no past, and nothing about ancestors.
    NotProved,
}

/// An agent that had a wallet before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FormerAgent {
    /// The agent.
    pub agent_id: AgentId,
    /// How it ended: Revoked or Terminated.
    pub status: Status,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// When it ended; absent where nothing tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// An ancestor that is not Active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InactiveAncestor {
    /// The agent.
    pub agent_id: AgentId,
    /// Its status.
    pub status: Status,
}

/// All that is known of a wallet's past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Ended agents of the wallet, newest first.
    pub former: Result<Vec<FormerAgent>, UnknownBecause>,
    /// Ancestors of its agent that are not Active, the nearest first.
    pub ancestors: Result<Vec<InactiveAncestor>, UnknownBecause>,
}

impl Past {
    /// Nothing is known.
    pub const fn unknown(because: UnknownBecause) -> Self {
        Self { former: Err(because), ancestors: Err(because) }
    }
}

impl<T> From<Result<T, UnknownBecause>> for Known<T> {
    fn from(known: Result<T, UnknownBecause>) -> Self {
        known.map_or(Self::Unknown(Unknown::Unknown), Self::Known)
    }
}

impl FormerAgent {
    /// The agent of a row that has ended, at that second if it is known; `None` for one that is alive.
    pub(crate) fn of(id: AgentId, row: &Row, ended_at: Option<u64>) -> Option<Self> {
        let status = Status::from_number(row.status).filter(|status| status.has_ended())?;
        let registered_at = Timestamp::from_seconds(row.registered_at);
        Some(Self { agent_id: id, status, registered_at, ended_at: ended_at.map(Timestamp::from_seconds) })
    }
}
