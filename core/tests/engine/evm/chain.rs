//! A chain in this process: the compiled contracts in `revm`, and as much JSON-RPC as a run speaks.

use alloy_primitives::{Bytes, TxKind, hex, keccak256};
use alloy_sol_types::{Revert, SolError, SolInterface};
use revm::context::result::{ExecutionResult, HaltReason};
use revm::context::{BlockEnv, CfgEnv, ContextTr, Journal, TxEnv};
use revm::database::{CacheDB, EmptyDB};
use revm::state::{AccountInfo, Bytecode};
use revm::{Context, ExecuteCommitEvm, ExecuteEvm, MainBuilder, MainContext, MainnetEvm};

use super::model::{Op, actor};
use crate::common::{header, prelude::*, reply_of, requests, response};

type EvmDatabase = CacheDB<EmptyDB>;
type Evm = MainnetEvm<Context<BlockEnv, TxEnv, CfgEnv, EvmDatabase, Journal<EvmDatabase>, ()>>;

pub(crate) struct EvmChain {
    evm: Evm,
    pub(crate) registry: Address,
    forwarder: Address,
    pub(crate) now: u64,
    /// Maximum gas of an `eth_call`.
    pub(crate) gas_cap: u64,
    pub(crate) undeployed: Undeployed,
    /// Batches answered, and the bytes of the answers.
    pub(crate) round_trips: usize,
    pub(crate) reply_bytes: usize,
    number: u64,
}

impl EvmChain {
    /// Deploys registry and Multicall3; actor 0 owns the registry, which trusts actor 9 as its forwarder.
    pub(crate) fn deploy() -> Self {
        let mut database = EvmDatabase::new(EmptyDB::default());
        let code = Bytecode::new_raw(artifact("Multicall3", "deployedBytecode"));
        database.insert_account_info(CANONICAL_ADDRESS, AccountInfo::default().with_code(code));
        let mut evm = Context::mainnet().with_db(database).build_mainnet();
        evm.ctx.modify_cfg(|cfg| {
            cfg.disable_nonce_check = true;
            cfg.tx_gas_limit_cap = Some(u64::MAX);
        });
        let mut chain = Self {
            evm,
            registry: Address::ZERO,
            forwarder: actor(9),
            now: NOW,
            gas_cap: 50_000_000,
            undeployed: Undeployed::Override,
            round_trips: 0,
            reply_bytes: 0,
            number: 1,
        };
        let mut registry = artifact("AgentRegistry", "bytecode").to_vec();
        registry.extend(chain.forwarder.into_word());
        let tx = chain.transaction(actor(0), TxKind::Create, registry.into());
        chain.registry = chain.evm.transact_commit(tx).unwrap().created_address().expect("created");
        chain
    }

    /// Carries out an operation in a block of its own; the error is the revert's reason.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Wait(seconds) => {
                self.now += seconds;
                Ok(())
            }
            Op::Call(by, call) => self.transact(actor(*by), call.abi_encode()),
        }
    }

    /// Registers a root agent of this wallet.
    pub(crate) fn register(&mut self, wallet: Address) {
        self.apply(&Op::register(1, wallet, 0, "")).unwrap();
    }

    /// Calls the registry in a block of its own, directly and through the forwarder in turn; the error is the
    /// revert's reason. Events name the signer in both cases.
    fn transact(&mut self, by: Address, mut data: Vec<u8>) -> Result<(), String> {
        self.number += 1;
        let is_relayed = self.number.is_multiple_of(2);
        if is_relayed {
            // ERC-2771: from its trusted forwarder the registry takes the last 20 bytes for the sender.
            data.extend(by);
        }
        let sender = if is_relayed { self.forwarder } else { by };
        let tx = self.transaction(sender, TxKind::Call(self.registry), data.into());
        match self.evm.transact_commit(tx).unwrap() {
            ExecutionResult::Success { logs, .. } => {
                assert!(logs.iter().all(|log| log.topics().contains(&by.into_word())), "{by}: {logs:?}");
                Ok(())
            }
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

    /// Returns the newest block.
    pub(crate) fn as_of(&self) -> Value {
        let parent = block_hash(self.number - 1).to_string();
        json!({"blockNumber": self.number, "blockTimestamp": time(self.now), "parentHash": parent})
    }

    /// Answers a run's batch.
    pub(crate) fn post(&mut self, batch: &Batch) -> (u16, Vec<u8>) {
        let requests = requests(&batch.body);
        let answers = requests.iter().map(|request| self.answer(request)).collect();
        let reply = reply_of(&batch.body, answers);
        self.round_trips += 1;
        self.reply_bytes += reply.len();
        (200, reply)
    }

    /// Returns whether a call to `account`, without effect on the chain, successfully calls the registry.
    pub(crate) fn calls_registry(&mut self, account: Address) -> bool {
        let tx = self.transaction(Address::ZERO, TxKind::Call(account), Bytes::new());
        self.evm.transact(tx).unwrap().result.logs().iter().any(|log| log.address == self.registry)
    }

    /// Puts code at an unused address.
    pub(crate) fn put_code(&mut self, code: Vec<u8>) -> Address {
        let address = Address::left_padding_from(&keccak256(&code)[..8]);
        let account = AccountInfo::default().with_code(Bytecode::new_raw(code.into()));
        self.evm.ctx.db_mut().insert_account_info(address, account);
        address
    }

    fn answer(&mut self, request: &Value) -> Value {
        let outcome = match request["method"].as_str().unwrap() {
            "eth_getBlockByNumber" => {
                Ok(header(self.number, [self.number, self.number - 1].map(block_hash), self.now))
            }
            "eth_call" => self.eth_call(&request["params"]).map(|data| json!(data.to_string())),
            method => panic!("unexpected {method}"),
        };
        response(&request["id"], outcome)
    }

    /// Carries out an `eth_call` as nodes do: under the gas cap, with state overrides and creation code as
    /// far as this node takes them.
    fn eth_call(&mut self, params: &Value) -> Result<Bytes, Value> {
        let refusal = |message: &str| Err(json!({"code": -32602, "message": message}));
        let data: Bytes = hex::decode(params[0]["data"].as_str().unwrap()).unwrap().into();
        let mut kind = TxKind::Create;
        if let Some(to) = params[0]["to"].as_str() {
            kind = TxKind::Call(to.parse().unwrap());
        } else if self.undeployed != Undeployed::Creation {
            return refusal("contract creation is not supported");
        }
        if let Some(overrides) = params[2].as_object() {
            if self.undeployed != Undeployed::Override {
                return refusal("too many arguments, want at most 2");
            }
            for (address, account) in overrides {
                let (address, database) = (address.parse().unwrap(), self.evm.ctx.db_mut());
                assert!(database.load_account(address).unwrap().info.is_empty());
                let code = Bytecode::new_raw(hex::decode(account["code"].as_str().unwrap()).unwrap().into());
                database.insert_account_info(address, AccountInfo::default().with_code(code));
            }
        }
        let gas_limit = self.gas_cap;
        let tx = TxEnv { gas_limit, ..self.transaction(Address::ZERO, kind, data) };
        let outcome = self.evm.transact(tx);
        for address in params[2].as_object().into_iter().flat_map(|overrides| overrides.keys()) {
            self.evm.ctx.db_mut().insert_account_info(address.parse().unwrap(), AccountInfo::default());
        }
        match outcome.unwrap().result {
            ExecutionResult::Success { output, .. } => Ok(output.into_data()),
            ExecutionResult::Revert { output, .. } => {
                Err(json!({"code": 3, "message": "execution reverted", "data": output.to_string()}))
            }
            ExecutionResult::Halt { reason: HaltReason::OutOfGas(_), .. } => {
                Err(json!({"code": -32000, "message": "out of gas"}))
            }
            halt => Err(json!({"code": -32000, "message": format!("{halt:?}")})),
        }
    }

    fn transaction(&mut self, caller: Address, kind: TxKind, data: Bytes) -> TxEnv {
        let (number, timestamp) = (U256::from(self.number), U256::from(self.now));
        self.evm.ctx.modify_block(|block| {
            block.number = number;
            block.timestamp = timestamp;
            block.gas_limit = u64::MAX;
            block.basefee = 0;
        });
        TxEnv { caller, kind, data, gas_limit: 1_000_000_000, gas_price: 0, ..TxEnv::default() }
    }
}

/// Returns the empty database's hash of a block.
fn block_hash(number: u64) -> B256 {
    keccak256(number.to_string())
}

/// Returns a contract's code as the compiler wrote it.
pub(crate) fn artifact(contract: &str, kind: &str) -> Bytes {
    hex::decode(compiled(contract)[kind].as_str().unwrap()).unwrap().into()
}

/// Returns the compiler's output that the repository keeps.
pub(crate) fn compiled(contract: &str) -> Value {
    let path = format!("{}/../contracts/artifacts/{contract}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
