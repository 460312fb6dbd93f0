//! Liveness for people (`/health`), and readiness for load balancers and monitors (`/readyz`).

use alloy_primitives::{Address, U256};
use serde::Serialize;

use crate::{
    api::{
        document::{Document, Shape},
        route::Route,
    },
    chain::{Halt, NodeFeatures, Query, QueryError, View},
    eth::abi::{
        IAgentRegistry::nextAgentIdCall,
        IMulticall3::{getChainIdCall, getCurrentBlockTimestampCall},
    },
    eth::json,
    eth::timestamp::Timestamp,
    index::{Progress, RowsBilled, StoreFault},
};

/// The answer of `/health`: the chain and the registry answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// Always `ok`.
    pub status: &'static str,
    /// The registry's address.
    #[serde(with = "json::Checksummed")]
    pub registry: Address,
    /// The RPC endpoint, scheme and host only.
    pub rpc: String,
}

/// A query for the chain's id, the age of its head and the registry's next id, in one round trip. The output
/// is the body of a 200; an error says why the service is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The registry's address.
    pub registry: Address,
    /// Multicall3's address.
    pub multicall3: Address,
    /// The host's clock.
    pub now: Timestamp,
    /// The host's own status.
    pub service: ServiceStatus,
}

/// Status of a host for monitors, beside the chain's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// The status of the registry's index; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<IndexStatus>,
    /// The current source of verdicts: `snapshot` or `chain`; absent where there is no index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kya_source: Option<&'static str>,
    /// Reason that the index gives no snapshot, until settings or node change; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_snapshot: Option<String>,
    /// Features of the node behind each RPC endpoint, in the order of `RPC_URL`.
    pub node: Vec<NodeFeatures>,
    /// Settings without effect, each with the reason; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Status of the registry's index, for monitors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IndexStatus {
    /// Its progress.
    #[serde(flatten)]
    pub progress: Progress,
    /// The fault of its store; absent while it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_fault: Option<StoreFault>,
    /// Rows of its store that were billed.
    pub rows: RowsBilled,
}

/// The answer of `/readyz`, where the service is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// Always true.
    pub ready: bool,
    /// The chain's id (EIP-155).
    #[serde(with = "json::Integer")]
    pub chain_id: U256,
    /// Age of the newest block by the host's clock; 0 where the clock is behind the chain.
    pub head_age_seconds: u64,
    /// The registry's address.
    #[serde(with = "json::Checksummed")]
    pub registry: Address,
    /// The service's own status.
    #[serde(flatten)]
    pub service: ServiceStatus,
}

impl Shape for Health {}
impl Shape for Ready {}

impl Query for Readiness {
    type Output = Document;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<Document, Halt> {
        let registry = view.call(self.registry, &nextAgentIdCall {});
        let chain_id = view.call(self.multicall3, &getChainIdCall {});
        let head = view.call(self.multicall3, &getCurrentBlockTimestampCall {});
        registry?;
        let (chain_id, head) = (chain_id?, head?);
        let head_age = U256::from(self.now.seconds()).saturating_sub(head);
        let head_age_seconds = u64::try_from(head_age).unwrap_or(u64::MAX);
        let ready = Ready {
            ready: true,
            chain_id,
            head_age_seconds,
            registry: self.registry,
            service: self.service.clone(),
        };
        Ok(Document::of(ready, &Route::Health))
    }

    fn is_one_round(&self) -> bool {
        true
    }
}
