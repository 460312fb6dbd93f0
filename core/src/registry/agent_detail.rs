//! The answer of `/agent/:id`: a record, its children, and where it stands.

use alloy_primitives::U256;
use serde::Serialize;

use crate::{
    eth::{
        as_of::AsOf,
        json::{self, is_false},
    },
    registry::{agent::Agent, compliance::Compliance},
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
    /// Where the agent stands now.
    pub compliance: Compliance,
    /// Present and true where children were cut.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// Why children are not shown; absent where all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The block asked about, at whose time compliance is judged; absent where none was named.
    #[serde(rename = "asOf", skip_serializing_if = "Option::is_none")]
    pub as_of: Option<AsOf>,
}
