//! The newest block, and the registry's own figures there.

use alloy_primitives::{Address, U256};

use crate::chain::{Halt, Header, QueryError, View, reader::Registry};

/// The newest block with the registry's number of agents and grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegistryHead {
    pub(super) header: Header,
    /// The number of agents.
    pub(super) total: u64,
    pub(super) grace_seconds: U256,
}

impl RegistryHead {
    pub(super) fn read(view: &View, registry: Address) -> Result<Self, Halt> {
        let registry = Registry { view, address: registry };
        let (total, grace, header) = (registry.total(), registry.grace_period(), view.header());
        let (total, grace_seconds) = (total?, grace?);
        let total = u64::try_from(total).map_err(|_| QueryError::TooManyAgents(total))?;
        Ok(Self { header: header?, total, grace_seconds })
    }
}
