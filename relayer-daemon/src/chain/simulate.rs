//! Simulation of `execute`: its result and its gas.
//!
//! `eth_simulateV1` has both. `eth_estimateGas` cannot be used, because the forwarder insists on all the gas
//! that was signed for. A node without `eth_simulateV1` is asked with `eth_call`, which leaves the gas
//! unknown.

use std::{sync::PoisonError, time::Duration};

use alloy::{
    primitives::{Address, Bytes, U64},
    rpc::json_rpc::ErrorPayload,
    sol_types::SolCall,
};
use registry_core::eth::abi::IForwarder;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Chain, RpcError, Simulation};

#[derive(Deserialize)]
struct BlockJson {
    calls: Vec<CallJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallJson {
    status: U64,
    gas_used: U64,
    return_data: Bytes,
}

/// How long a node that lacks the method is not asked again: it may have been another machine behind the
/// same URL, or one that is upgraded.
const TRY_AGAIN: Duration = Duration::from_secs(600);

impl Chain {
    fn simulate_v1_again(&self) -> Option<Instant> {
        *self.simulate_v1_again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_simulate_v1_at(&self, again: Instant) {
        *self.simulate_v1_again.lock().unwrap_or_else(PoisonError::into_inner) = Some(again);
    }

    /// See [`super::ChainNode::simulate`].
    pub(super) async fn simulate_execute(
        &self,
        account: Address,
        calldata: &Bytes,
        gas_limit: u64,
    ) -> Result<Simulation, RpcError> {
        let transaction = json!({
            "from": account, "to": self.forwarder, "data": calldata, "gas": U64::from(gas_limit),
        });
        if let Some(simulation) = self.simulate_v1(&transaction).await? {
            return Ok(simulation);
        }
        let answer: Bytes = self.rpc.read("eth_call", json!([transaction, "latest"])).await?;
        simulation(&answer, None).ok_or(RpcError::Malformed("eth_call"))
    }

    /// `None` where the node does not simulate, or the forwarder refuses; `eth_call` then has the reason.
    async fn simulate_v1(&self, transaction: &Value) -> Result<Option<Simulation>, RpcError> {
        if self.simulate_v1_again().is_some_and(|again| Instant::now() < again) {
            return Ok(None);
        }
        let params =
            json!([{ "blockStateCalls": [{ "calls": [transaction] }], "validation": false }, "latest"]);
        let blocks: Vec<BlockJson> = match self.rpc.read("eth_simulateV1", params).await {
            Ok(blocks) => blocks,
            Err(RpcError::Node(error)) => {
                if lacks_method(&error) {
                    tracing::warn!(error = %error.message, "no eth_simulateV1: worst cases are reserved");
                    self.try_simulate_v1_at(Instant::now() + TRY_AGAIN);
                }
                return Ok(None);
            }
            Err(RpcError::Malformed(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let call = blocks.first().and_then(|block| block.calls.first());
        let call = call.filter(|call| call.status == U64::from(1));
        Ok(call.and_then(|call| simulation(&call.return_data, u64::try_from(call.gas_used).ok())))
    }
}

/// The result in the data that `execute` returned.
fn simulation(answer: &Bytes, gas_used: Option<u64>) -> Option<Simulation> {
    let result = IForwarder::executeCall::abi_decode_returns(answer).ok()?;
    Some(if result.success {
        Simulation::Success { gas_used }
    } else {
        Simulation::InnerRevert(result.returnData)
    })
}

/// Whether a node says that it has no such method: by JSON-RPC's code, or in words. Words about anything else
/// that does not exist, such as a block, say nothing about the method.
fn lacks_method(error: &ErrorPayload) -> bool {
    const METHOD_NOT_FOUND: i64 = -32_601;
    const WORDS: [&str; 5] =
        ["not found", "does not exist", "not supported", "not whitelisted", "not available"];
    let message = error.message.to_ascii_lowercase();
    let names_it = message.contains("method") || message.contains("simulatev1");
    error.code == METHOD_NOT_FOUND || (names_it && WORDS.iter().any(|words| message.contains(words)))
}
