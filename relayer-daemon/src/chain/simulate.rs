//! Simulation of `execute`: its result and its gas.
//!
//! `eth_simulateV1` has both. `eth_estimateGas` cannot be used, because the forwarder insists on all the gas
//! that was signed for. A node without `eth_simulateV1` is asked with `eth_call`, which leaves the gas
//! unknown.

use super::{Chain, Result, RpcError, SimulationResult};
use alloy::{
    primitives::{Address, Bytes, U64},
    sol_types::SolCall,
};
use registry_core::eth::abi::IForwarder;
use serde::Deserialize;
use serde_json::{Value, json};

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

impl Chain {
    /// Simulates `execute`; see [`super::ChainNode::simulate`].
    pub(super) async fn simulate_execute(
        &self,
        account: Address,
        calldata: &Bytes,
        gas_limit: u64,
    ) -> Result<SimulationResult> {
        let transaction = json!({
            "from": account, "to": self.forwarder, "data": calldata, "gas": U64::from(gas_limit),
        });
        if let Some(simulation) = self.simulate_v1(&transaction).await? {
            return Ok(simulation);
        }
        let answer: Bytes = self.rpc.read("eth_call", json!([transaction, "latest"])).await?;
        simulation(&answer, None).ok_or(RpcError::Malformed("eth_call"))
    }

    /// Tries `eth_simulateV1`; `None` where the node lacks it, or the forwarder refuses: `eth_call` says why.
    async fn simulate_v1(&self, transaction: &Value) -> Result<Option<SimulationResult>> {
        if self.simulate_v1.is_missing() {
            return Ok(None);
        }
        let params =
            json!([{ "blockStateCalls": [{ "calls": [transaction] }], "validation": false }, "latest"]);
        let blocks: Vec<BlockJson> = match self.rpc.read(self.simulate_v1.name(), params).await {
            Ok(blocks) => blocks,
            Err(RpcError::Node(error)) => {
                if self.simulate_v1.learn(&error) {
                    tracing::warn!(error = %error.message, "no eth_simulateV1: worst cases are reserved");
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

/// Reads the result from the data that `execute` returned.
fn simulation(answer: &Bytes, gas_used: Option<u64>) -> Option<SimulationResult> {
    let result = IForwarder::executeCall::abi_decode_returns(answer).ok()?;
    Some(if result.success {
        SimulationResult::Success { gas_used }
    } else {
        SimulationResult::InnerRevert(result.returnData)
    })
}
