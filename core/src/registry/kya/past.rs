//! The part of a verdict that a wallet's history decides: its former agents, and the ancestors of its agent.
//!
//! Revoking or terminating an agent frees its wallet: the contract's getters then show it as never
//! registered, and it may be registered again. Only a [scan](crate::api::scan) or an [index](crate::index) of
//! the whole registry knows its former agents, while a verdict takes one round trip. Hence:
//!
//! - A verdict uses the scan that the host has cached, at no cost. Without one it says `unknown`, and why; it
//!   never claims that there were no former agents.
//! - A verdict alone never starts a scan: the cheapest request would cost as much as the most expensive.
//!   `history=1` starts one.
//! - A scan is older than the verdict, and usually still right: ended agents stay ended, wallets and parents
//!   never change. It holds while the registry has no more agents (the [`Row`]s are counted) and no agent
//!   that the scan shows alive has ended since. Otherwise the answer is `SCAN_OUTDATED`, or with `history=1`
//!   up to a thousand newer agents are read.
//! - The status of ancestors does change. It is read along with the verdict, by the ids in the scan.
//! - An index takes precedence over a scan. It lacks only newer agents and the later ends of live ones; both
//!   are read along with the verdict. A verdict never waits for it: if the index is late, being filled, or
//!   ahead of the endpoint that answers, the past is `INDEX_UNAVAILABLE`.

use serde::Serialize;

use crate::{
    eth::timestamp::Timestamp,
    registry::agent::{AgentId, Status},
    registry::row::Row,
};

/// The most former agents in a verdict. Any account may register any wallet, any number of times.
pub const FORMER_SHOWN: usize = 20;

/// The registration of a wallet, now or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Registration {
    /// No agent ever had the wallet.
    Never,
    /// A live agent has the wallet.
    Current,
    /// Agents had the wallet, and all of them have ended.
    Former,
    /// No live agent has the wallet, and it is not known whether one had it before.
    Unknown,
}

/// A value that may be unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Known<T> {
    /// The value.
    Known(T),
    /// Unknown; `unknownBecause` says why.
    Unknown(Unknown),
}

/// The word for an unknown value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// `unknown`
    #[default]
    Unknown,
}

/// The reason that something is unknown. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UnknownBecause {
    /// The whole registry has not been read recently: ask with `history=1`.
    NotScanned,
    /// The registry has changed since it was read as a whole: ask with `history=1`.
    ScanOutdated,
    /// The index did not answer in time, is being filled, or is too far from the verdict's block: ask again,
    /// or with `history=1`.
    IndexUnavailable,
    /// It is known only at the newest block.
    PastBlock,
    /// The registry has too many agents to scan, or the agent too many ancestors.
    TooManyAgents,
    /// An agent's record cannot be read, and the agent may have had this wallet.
    UnreadableAgents,
    /// Evidence proves neither former agents nor ancestors.
    NotProved,
}

/// An agent that had a wallet before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FormerAgent {
    /// The agent.
    pub agent_id: AgentId,
    /// Its final status: Revoked or Terminated.
    pub status: Status,
    /// Time of registration.
    pub registered_at: Timestamp,
    /// Time of its end; absent if unknown.
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

/// A wallet's past, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Ended agents of the wallet, newest first.
    pub former: Result<Vec<FormerAgent>, UnknownBecause>,
    /// Ancestors of its agent that are not Active, the nearest first.
    pub ancestors: Result<Vec<InactiveAncestor>, UnknownBecause>,
}

impl Past {
    /// Makes a past of which nothing is known.
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
    /// Returns the ended agent of a row, with the second of its end if known; `None` for a live agent.
    pub(crate) fn of(id: AgentId, row: &Row, ended_at: Option<u64>) -> Option<Self> {
        let status = Status::from_number(row.status).filter(|status| status.has_ended())?;
        let registered_at = Timestamp::from_seconds(row.registered_at);
        Some(Self { agent_id: id, status, registered_at, ended_at: ended_at.map(Timestamp::from_seconds) })
    }
}
