//! The answer of `/agent/:id`: a record, its children, and its compliance.

use alloy_primitives::U256;
use serde::Serialize;

use crate::{
    eth::{
        as_of::AsOf,
        json::{self, is_false},
    },
    registry::{agent::Agent, compliance::Compliance, liability::Liability},
};

/// The answer of `/agent/:id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentDetail {
    /// The full record.
    pub agent: Agent,
    /// Ids of the direct children, in order of registration.
    #[serde(with = "json::Integers")]
    pub children: Vec<U256>,
    /// The agent's liable wallet, and what ties it to the agent.
    pub liability: Liability,
    /// The agent's compliance now.
    pub compliance: Compliance,
    /// Present and true where children are left out.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// Why children are left out; absent where none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The block of the answer, whose time decides compliance; present where the request named a block.
    #[serde(rename = "asOf", skip_serializing_if = "Option::is_none")]
    pub as_of: Option<AsOf>,
}
