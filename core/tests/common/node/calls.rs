//! `eth_call` as a [`Node`] answers it: to Multicall3, to the registry itself, or of the lens.

use alloy_primitives::{Bytes, hex};
use alloy_sol_types::{SolCall, SolInterface, SolValue};
use registry_core::chain::lens::{DEPLOYLESS_CODE, LENS_ADDRESS, LENS_CODE};
use registry_core::eth::abi::{IMulticall3, IMulticall3::Call3, IMulticall3::IMulticall3Calls};
use registry_core::eth::abi::{IRegistryLens::walkCall, RevenueReport};

use crate::common::prelude::*;

impl Node {
    pub(super) fn call(&self, params: &Value, data: &[u8], number: u64) -> Result<Vec<u8>, Value> {
        let refusal = |message: &str| Err(json!({"code": -32602, "message": message}));
        let undeployed = self.quirks.undeployed;
        let is_lens = params[0]["to"].as_str().is_none_or(|to| to.parse() == Ok(LENS_ADDRESS));
        if undeployed == Undeployed::InvalidOpcode && is_lens {
            let message = "Error: VM Exception while processing transaction: invalid opcode";
            return Err(json!({"code": -32603, "message": message}));
        }
        if undeployed == Undeployed::Reverted && is_lens {
            return Err(json!({"code": 3, "message": "execution reverted"}));
        }
        let Some(to) = params[0]["to"].as_str() else {
            if undeployed != Undeployed::Creation {
                return refusal("missing value for required argument: to");
            }
            let arguments = &data[DEPLOYLESS_CODE.len() / 2..];
            let (code, call) = <(Bytes, Bytes)>::abi_decode_params(arguments).unwrap();
            assert_eq!(hex::encode(code), LENS_CODE);
            return self.walk(&call, number);
        };
        let to: Address = to.parse().unwrap();
        if to == LENS_ADDRESS {
            assert_eq!(params[2][to.to_string().to_lowercase()]["code"], format!("0x{LENS_CODE}"));
            return match undeployed {
                Undeployed::Override => self.walk(data, number),
                Undeployed::Ignored => Ok(Vec::new()),
                _ => refusal("too many arguments, want at most 2"),
            };
        }
        if to == self.address {
            let result = self.registry_at(number).call(data).map_err(
                |data| json!({"code": 3, "message": "execution reverted", "data": hex::encode_prefixed(data)}),
            );
            let runs_out = self.quirks.gas_for_calls == Some(0) || self.is_heavy(data);
            return if runs_out { Err(out_of_gas()) } else { result };
        }
        self.aggregate(data, number)
    }

    fn is_heavy(&self, data: &[u8]) -> bool {
        self.quirks.heavy.iter().any(|heavy| heavy == data)
    }

    /// Returns the lens's answer.
    fn walk(&self, data: &[u8], number: u64) -> Result<Vec<u8>, Value> {
        let call = walkCall::abi_decode(data).unwrap();
        assert_eq!(call.registry, self.address);
        let registry = self.registry_at(number);
        let detail = call.detail.to::<u8>();
        let reads = if detail > 0 { 2 } else { 1 };
        let gas = self.quirks.gas_for_calls.map_or(usize::MAX, |calls| calls / reads);
        if gas == 0 {
            return Err(out_of_gas());
        }
        let (first, count) = (call.first.to::<u64>(), call.count.to::<usize>().min(gas));
        let listed: Vec<u64> =
            data[196..].chunks(8).map(|id| u64::from_be_bytes(id.try_into().unwrap())).collect();
        let consecutive = first..=registry.agents.len() as u64;
        let ids = if listed.is_empty() { consecutive.take(count).collect() } else { listed.clone() };
        // There is no such agent.
        let unreadable = AgentRecord { status: 255, ..record(0, 0) };
        let agents = ids.iter().take(count).map(|id| registry.agents.get(*id as usize - 1));
        let agents: Vec<&AgentRecord> = agents.map(|agent| agent.unwrap_or(&unreadable)).collect();
        let place = |id: U256| match listed.iter().position(|listed| U256::from(*listed) == id) {
            Some(place) => first + place as u64,
            None => id.to(),
        };
        let ids: Vec<U256> = agents.iter().map(|agent| agent.agentId).collect();
        let reports = registry.reports.iter().filter(|report| detail > 0 && ids.contains(&report.agentId));
        let reports: Vec<&RevenueReport> = reports.collect();
        let mut answer = vec![1];
        let seen = if self.quirks.sees_other_blocks { 20_000_000 + number / 50 } else { number };
        answer.extend(self.hash(seen.saturating_sub(1)));
        answer.extend(self.chain_id.to_be_bytes());
        answer.extend(self.seconds(number).to_be_bytes());
        answer.extend((agents.len() as u32).to_be_bytes());
        answer.extend((reports.len() as u64).to_be_bytes());
        for agent in &agents {
            answer.extend([agent.status, 0]);
            answer.extend(agent.creator);
            answer.extend(agent.registeredAt.to_be_bytes());
            answer.extend(&agent.lastAttestation.to_be_bytes()[3..]);
            answer.extend(&agent.parentAgentId.to::<u64>().to_be_bytes()[3..]);
            answer.extend(&agent.generation.to::<u64>().to_be_bytes()[6..]);
            answer.extend(agent.agentWallet);
            if detail == 2 {
                answer.extend(agent.haftungsperson);
                let own = reports.iter().filter(|report| report.agentId == agent.agentId).count();
                answer.extend((own as u32).to_be_bytes());
            }
        }
        for agent in agents.iter().filter(|agent| detail == 2 && agent.status != 255) {
            let scope = agent.operationalScope.as_bytes();
            let scope = &scope[..scope.len().min(256)];
            answer.push(2);
            answer.extend((scope.len() as u32).to_be_bytes());
            answer.extend(scope);
        }
        for report in reports {
            for (kind, text) in [(0, &report.currency), (1, &report.category)] {
                let owner = place(report.agentId).to_be_bytes();
                let prefix = if detail == 2 { owner.as_slice() } else { &[] };
                answer.push(kind);
                answer.extend(((prefix.len() + text.len()) as u32).to_be_bytes());
                answer.extend([0; 8]);
                answer.extend(report.amount.to_be_bytes::<32>());
                answer.extend(prefix);
                answer.extend(text.as_bytes());
            }
        }
        Ok(answer)
    }

    /// Answers Multicall3's own functions, which are about the block.
    fn block_call(&self, data: &[u8], number: u64) -> Result<Vec<u8>, Vec<u8>> {
        // Another chain's block, of which this chain has many.
        let seen = if self.quirks.sees_other_blocks { 20_000_000 + number / 50 } else { number };
        match IMulticall3Calls::abi_decode(data) {
            Ok(IMulticall3Calls::getLastBlockHash(_)) => Ok(self.hash(seen.saturating_sub(1)).abi_encode()),
            Ok(IMulticall3Calls::getBlockNumber(_)) => Ok(U256::from(seen).abi_encode()),
            Ok(IMulticall3Calls::getChainId(_)) => Ok(U256::from(self.chain_id).abi_encode()),
            Ok(IMulticall3Calls::getCurrentBlockTimestamp(_)) => {
                Ok(U256::from(self.seconds(number)).abi_encode())
            }
            _ => Err(Vec::new()),
        }
    }

    fn aggregate(&self, data: &[u8], number: u64) -> Result<Vec<u8>, Value> {
        let Ok(IMulticall3Calls::aggregate3(aggregate)) = IMulticall3Calls::abi_decode(data) else {
            panic!("not an aggregate3 call");
        };
        let registry_calls = aggregate.calls.iter().filter(|call| call.target == self.address).count();
        if self.quirks.gas_for_calls.is_some_and(|limit| registry_calls > limit) {
            return Err(out_of_gas());
        }
        let registry = self.registry_at(number);
        let results: Vec<IMulticall3::Result> =
            aggregate.calls.iter().map(|call| self.execute(call, number, &registry)).collect();
        Ok(IMulticall3::aggregate3Call::abi_encode_returns(&results))
    }

    fn execute(&self, call: &Call3, number: u64, registry: &PlainRegistry) -> IMulticall3::Result {
        let outcome = match call.target {
            to if to == self.address && self.is_heavy(&call.callData) => Err(Vec::new()),
            to if to == self.address => registry.call(&call.callData),
            CANONICAL_ADDRESS if self.quirks.no_tag => Err(Vec::new()),
            CANONICAL_ADDRESS => self.block_call(&call.callData, number),
            // No code there.
            _ => Ok(Vec::new()),
        };
        IMulticall3::Result {
            success: outcome.is_ok(),
            returnData: Bytes::from(outcome.unwrap_or_else(|data| data)),
        }
    }
}

fn out_of_gas() -> Value {
    json!({"code": -32000, "message": "out of gas"})
}

/// Returns the number of agents that a request walks over, or of calls that it makes.
pub(super) fn work_in(request: &Value, agents: u64) -> u64 {
    let data = request["params"][0]["data"].as_str().unwrap_or_default();
    let data = hex::decode(data).unwrap_or_default();
    let agents = walkCall::abi_decode(&data).map(|walk| agents.min(walk.count.to()));
    let calls = || IMulticall3::aggregate3Call::abi_decode(&data).map(|it| it.calls.len() as u64 - 4);
    agents.or_else(|_| calls()).unwrap_or(0)
}
