//! A chain in this process: the compiled contracts in `revm`, and as much JSON-RPC as a run speaks.

use alloy_primitives::{Address, B256, Bytes, TxKind, U256, hex, keccak256};
use alloy_sol_types::{Revert, SolCall, SolError};
use registry_core::{
    abi::IAgentRegistry::{
        attestComplianceCall, reactivateAgentCall, registerAgentCall, reportRevenueCall, revokeAgentCall,
        suspendAgentCall, terminateSelfCall,
    },
    multicall::CANONICAL_ADDRESS,
    run::Batch,
};
use revm::{
    Context, ExecuteCommitEvm, ExecuteEvm, MainBuilder, MainContext, MainnetEvm,
    context::{BlockEnv, CfgEnv, Journal, TxEnv, result::ExecutionResult},
    database::{CacheDB, EmptyDB},
    state::{AccountInfo, Bytecode},
};
use serde_json::{Value, json};

use crate::model::{CATEGORIES, CURRENCIES, Op, actor, wallet};

type Database = CacheDB<EmptyDB>;
type Evm = MainnetEvm<Context<BlockEnv, TxEnv, CfgEnv, Database, Journal<Database>, ()>>;

pub(crate) struct Chain {
    evm: Evm,
    pub(crate) registry: Address,
    pub(crate) now: u64,
    number: u64,
}

impl Chain {
    /// Registry, forwarder and Multicall3; actor 0 owns the registry.
    pub(crate) fn deploy() -> Self {
        let mut database = Database::new(EmptyDB::default());
        let code = Bytecode::new_raw(artifact("Multicall3", "deployedBytecode"));
        database.insert_account_info(CANONICAL_ADDRESS, AccountInfo::default().with_code(code));
        let mut evm = Context::mainnet().with_db(database).build_mainnet();
        evm.ctx.modify_cfg(|cfg| {
            cfg.disable_nonce_check = true;
            cfg.tx_gas_limit_cap = Some(u64::MAX);
        });
        let mut chain = Self { evm, registry: Address::ZERO, now: 1_800_000_000, number: 1 };
        let forwarder = chain.create(artifact("Forwarder", "bytecode"));
        let mut registry = artifact("AgentRegistry", "bytecode").to_vec();
        registry.extend(forwarder.into_word());
        chain.registry = chain.create(registry.into());
        chain
    }

    /// Carries out an operation in a block of its own; what it reverted with.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), String> {
        let id = U256::from(op.id());
        let data = match op {
            Op::Wait(seconds) => {
                self.now += seconds;
                return Ok(());
            }
            Op::Register { wallet: index, parent, self_modifying, scope, .. } => registerAgentCall {
                haftungsperson: actor(4),
                agentWallet: wallet(*index),
                constitutionHash: keccak256(scope),
                capabilityHash: B256::ZERO,
                operationalScope: scope.clone(),
                parentAgentId: U256::from(*parent),
                selfModifying: *self_modifying,
            }
            .abi_encode(),
            Op::Attest { .. } => attestComplianceCall { agentId: id }.abi_encode(),
            Op::Report { amount, currency, category, .. } => reportRevenueCall {
                agentId: id,
                amount: U256::from(*amount),
                currency: CURRENCIES[*currency].into(),
                category: CATEGORIES[*category].into(),
                periodStart: 5,
                periodEnd: 7,
            }
            .abi_encode(),
            Op::Suspend { .. } => suspendAgentCall { agentId: id, reason: "r".into() }.abi_encode(),
            Op::Revoke { .. } => revokeAgentCall { agentId: id, reason: "r".into() }.abi_encode(),
            Op::Reactivate { .. } => reactivateAgentCall { agentId: id }.abi_encode(),
            Op::Terminate { .. } => terminateSelfCall { agentId: id }.abi_encode(),
        };
        self.number += 1;
        let tx = self.transaction(actor(op.by()), TxKind::Call(self.registry), data.into());
        match self.evm.transact_commit(tx).unwrap() {
            ExecutionResult::Success { .. } => Ok(()),
            ExecutionResult::Revert { output, .. } => Err(Revert::abi_decode(&output).unwrap().reason),
            halt => panic!("{halt:?}"),
        }
    }

    /// Reads a contract: return data, or revert data.
    pub(crate) fn call(&mut self, to: Address, data: &[u8]) -> Result<Bytes, Bytes> {
        let tx = self.transaction(Address::ZERO, TxKind::Call(to), data.to_vec().into());
        match self.evm.transact(tx).unwrap().result {
            ExecutionResult::Success { output, .. } => Ok(output.into_data()),
            ExecutionResult::Revert { output, .. } => Err(output),
            halt => panic!("{halt:?}"),
        }
    }

    /// Answers a run's batch.
    pub(crate) fn post(&mut self, batch: &Batch) -> (u16, Vec<u8>) {
        let body: Value = serde_json::from_str(&batch.body).unwrap();
        let reply = match body.as_array() {
            Some(requests) => requests.iter().map(|request| self.answer(request)).collect(),
            None => self.answer(&body),
        };
        (200, reply.to_string().into_bytes())
    }

    fn answer(&mut self, request: &Value) -> Value {
        let result = match request["method"].as_str().unwrap() {
            "eth_getBlockByNumber" => json!({
                "number": format!("{:#x}", self.number),
                "hash": block_hash(self.number).to_string(),
                "parentHash": block_hash(self.number - 1).to_string(),
            }),
            "eth_call" => {
                let call = &request["params"][0];
                let data = hex::decode(call["data"].as_str().unwrap()).unwrap();
                json!(self.call(call["to"].as_str().unwrap().parse().unwrap(), &data).unwrap().to_string())
            }
            method => panic!("unexpected {method}"),
        };
        json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
    }

    fn create(&mut self, code: Bytes) -> Address {
        let tx = self.transaction(actor(0), TxKind::Create, code);
        self.evm.transact_commit(tx).unwrap().created_address().expect("created")
    }

    fn transaction(&mut self, caller: Address, kind: TxKind, data: Bytes) -> TxEnv {
        let (number, timestamp) = (U256::from(self.number), U256::from(self.now));
        self.evm.ctx.modify_block(|block| {
            block.number = number;
            block.timestamp = timestamp;
            block.gas_limit = u64::MAX;
            block.basefee = 0;
        });
        TxEnv { caller, kind, data, gas_limit: 500_000_000, gas_price: 0, ..TxEnv::default() }
    }
}

/// What the empty database says a block's hash is.
fn block_hash(number: u64) -> B256 {
    keccak256(number.to_string())
}

/// A contract's code as the compiler wrote it.
fn artifact(contract: &str, kind: &str) -> Bytes {
    let path = format!("{}/../contracts/out/{contract}.sol/{contract}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{path}: {error}; compile the contracts first: cargo xtask build"));
    let artifact: Value = serde_json::from_str(&text).unwrap();
    hex::decode(artifact[kind]["object"].as_str().unwrap()).unwrap().into()
}
