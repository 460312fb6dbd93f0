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
    /// The agent's liable wallet and the basis of its liability.
    pub liability: Liability,
    /// The agent's compliance now.
    pub compliance: Compliance,
    /// Present and true if children are left out.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// The reason that children are left out; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The block of the answer, which sets the time for compliance; present if the request named a block.
    #[serde(rename = "asOf", skip_serializing_if = "Option::is_none")]
    pub as_of: Option<AsOf>,
}
