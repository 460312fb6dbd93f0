//! A node in memory: one account's transactions, a forwarder, and everything that can go wrong with both.
//!
//! It mines what has the next nonce and pays the base fee, keeps what is ahead, forgets, reorganises, and
//! loses answers. At each transaction it is sent it checks what must hold before a byte leaves the daemon.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, LazyLock, Mutex, MutexGuard},
};

use alloy::{
    consensus::{Transaction as _, TxEnvelope},
    eips::eip2718::Decodable2718,
    primitives::{Address, B256, Bytes, Log as PrimitiveLog, U256},
    rpc::types::Log,
    signers::local::PrivateKeySigner,
    sol_types::{SolCall, SolEvent},
};
use registry_core::abi::{IForwarder::RequestExecuted, IForwarder::executeCall};
use relayer_daemon::{
    chain::{Node, Receipt, RpcError},
    classify::Verdict,
    fees::Market,
    store::Store,
};

pub const FORWARDER: Address = Address::repeat_byte(0xf0);
/// The account that pays.
pub static KEY: LazyLock<PrivateKeySigner> =
    LazyLock::new(|| PrivateKeySigner::from_bytes(&B256::repeat_byte(7)).unwrap());
pub const GWEI: u128 = 1_000_000_000;

/// What becomes of the next transaction that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The node takes it; the answer is lost.
    Answer,
    /// The node never sees it; the caller cannot tell.
    Transaction,
}

#[derive(Debug, Clone)]
struct Sent {
    hash: B256,
    nonce: u64,
    max_fee: u128,
    tip: u128,
    gas_limit: u64,
    /// The request it carries; `None` for a no-op.
    request: Option<(Address, U256)>,
}

#[derive(Debug, Clone)]
enum Entry {
    /// A transaction of our account that we signed.
    Ours(Box<Sent>, u128),
    /// A transaction of our account that somebody else signed.
    Foreign,
    /// Somebody else's call of the forwarder with a request of one of our clients.
    Bypass(Address, U256),
}

#[derive(Debug, Default)]
pub struct State {
    blocks: Vec<Vec<Entry>>,
    pool: BTreeMap<u64, Sent>,
    base_fee: u128,
    lost: VecDeque<Lost>,
    /// Every transaction ever sent, by nonce, in order.
    offered: HashMap<u64, Vec<Sent>>,
    fee_cap: u128,
    pub reorganised: bool,
}

#[derive(Debug)]
pub struct ModelNode {
    state: Mutex<State>,
    store: Arc<dyn Store>,
}

impl ModelNode {
    pub fn new(store: Arc<dyn Store>, fee_cap: u128) -> Self {
        Self { state: Mutex::new(State { base_fee: GWEI, fee_cap, ..State::default() }), store }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    pub fn mined(&self) -> u64 {
        let own = |entry: &&Entry| !matches!(entry, Entry::Bypass(..));
        self.blocks.iter().flatten().filter(own).count() as u64
    }

    pub fn forwarder_nonce(&self, signer: Address) -> U256 {
        let mut nonce = U256::ZERO;
        for entry in self.blocks.iter().flatten() {
            if Self::request(entry) == Some((signer, nonce)) {
                nonce += U256::from(1);
            }
        }
        nonce
    }

    /// How often a request was carried out, and by how many transactions of ours it was carried.
    pub fn executions(&self, signer: Address, nonce: U256) -> (usize, usize) {
        let wanted = Some((signer, nonce));
        let executed = usize::from(self.forwarder_nonce(signer) > nonce);
        let ours = |entry: &&Entry| matches!(entry, Entry::Ours(..)) && Self::request(entry) == wanted;
        (executed, self.blocks.iter().flatten().filter(ours).count())
    }

    /// What our account really paid on the chain as it stands, foreign transactions apart.
    pub fn paid(&self) -> u128 {
        let paid = |entry: &Entry| match entry {
            Entry::Ours(sent, price) => u128::from(Self::gas_used(sent)) * price,
            Entry::Foreign | Entry::Bypass(..) => 0,
        };
        self.blocks.iter().flatten().map(paid).sum()
    }

    /// Whether this transaction is on the chain as it stands, and carried out its request.
    pub fn carried_out(&self, hash: B256) -> bool {
        self.receipt(hash).is_some_and(|receipt| receipt.status)
    }

    /// A block with up to `room` of our transactions.
    pub fn mine(&mut self, room: usize) {
        let mut block = Vec::new();
        let mut next = self.mined();
        while block.len() < room {
            let Some(sent) = self.pool.get(&next).filter(|sent| sent.max_fee >= self.base_fee) else { break };
            let price = sent.max_fee.min(self.base_fee + sent.tip);
            block.push(Entry::Ours(Box::new(sent.clone()), price));
            self.pool.remove(&next);
            next += 1;
        }
        self.blocks.push(block);
    }

    pub fn drop_from_pool(&mut self, index: usize) {
        if let Some(nonce) = self.pool.keys().nth(index).copied() {
            self.pool.remove(&nonce);
        }
    }

    /// Undoes blocks; their transactions go back to the pool or are forgotten. The new branch is longer at
    /// once, as it is on a real chain.
    pub fn reorganise(&mut self, depth: usize, forget: bool) {
        let keep = self.blocks.len().saturating_sub(depth);
        let undone = self.blocks.split_off(keep);
        self.reorganised |= undone.iter().flatten().next().is_some();
        let blocks = undone.len() + 1;
        for entry in undone.into_iter().flatten() {
            if let (Entry::Ours(sent, _), false) = (entry, forget) {
                self.pool.entry(sent.nonce).or_insert(*sent);
            }
        }
        self.blocks.resize(self.blocks.len() + blocks, Vec::new());
    }

    /// Somebody else uses the key.
    pub fn foreign_transaction(&mut self) {
        let nonce = self.mined();
        self.pool.remove(&nonce);
        self.blocks.push(vec![Entry::Foreign]);
    }

    /// Somebody else executes a client's request.
    pub fn bypass(&mut self, signer: Address) {
        let nonce = self.forwarder_nonce(signer);
        self.blocks.push(vec![Entry::Bypass(signer, nonce)]);
    }

    pub fn set_base_fee(&mut self, wei: u128) {
        self.base_fee = wei;
    }

    pub fn base_fee(&self) -> u128 {
        self.base_fee
    }

    pub fn lose_next(&mut self, lost: Lost) {
        self.lost.push_back(lost);
    }

    pub fn heal(&mut self) {
        self.lost.clear();
        self.base_fee = GWEI;
    }

    fn request(entry: &Entry) -> Option<(Address, U256)> {
        match entry {
            Entry::Ours(sent, _) => sent.request,
            Entry::Bypass(signer, nonce) => Some((*signer, *nonce)),
            Entry::Foreign => None,
        }
    }

    fn gas_used(sent: &Sent) -> u64 {
        if sent.request.is_some() { sent.gas_limit / 2 } else { sent.gas_limit }
    }

    fn take(&mut self, sent: Sent) -> Verdict {
        if sent.nonce < self.mined() {
            return Verdict::NonceTooLow;
        }
        match self.pool.get(&sent.nonce) {
            Some(known) if known.hash == sent.hash => Verdict::Accepted,
            Some(known) if sent.max_fee * 10 < known.max_fee * 11 || sent.tip * 10 < known.tip * 11 => {
                Verdict::Underpriced
            }
            _ => {
                self.pool.insert(sent.nonce, sent);
                Verdict::Accepted
            }
        }
    }

    fn receipt(&self, hash: B256) -> Option<Receipt> {
        let mut nonces: HashMap<Address, U256> = HashMap::new();
        for (number, block) in self.blocks.iter().enumerate() {
            for entry in block {
                let valid = Self::request(entry).is_none_or(|(signer, nonce)| {
                    let next = nonces.entry(signer).or_default();
                    let valid = *next == nonce;
                    *next += U256::from(u8::from(valid));
                    valid
                });
                match entry {
                    Entry::Ours(sent, price) if sent.hash == hash => {
                        return Some(receipt(sent, *price, number as u64, valid));
                    }
                    _ => {}
                }
            }
        }
        None
    }
}

fn receipt(sent: &Sent, price: u128, block_number: u64, status: bool) -> Receipt {
    let event = sent.request.filter(|_| status).map(|(from, nonce)| RequestExecuted {
        from,
        nonce,
        success: true,
        returnData: Bytes::new(),
    });
    let log = |event: RequestExecuted| Log {
        inner: PrimitiveLog { address: FORWARDER, data: event.encode_log_data() },
        ..Log::default()
    };
    let gas_used = State::gas_used(sent);
    Receipt {
        hash: sent.hash,
        block_number,
        status,
        gas_used,
        paid_wei: u128::from(gas_used) * price,
        logs: event.map(log).into_iter().collect(),
    }
}

impl Node for ModelNode {
    async fn mined_nonce(&self) -> Result<u64, RpcError> {
        Ok(self.state().mined())
    }

    async fn pending_nonce(&self) -> Result<u64, RpcError> {
        let state = self.state();
        let mined = state.mined();
        Ok((mined..).find(|nonce| !state.pool.contains_key(nonce)).unwrap_or(mined))
    }

    async fn market(&self) -> Result<Market, RpcError> {
        let state = self.state();
        Ok(Market {
            head: (state.blocks.len() as u64).saturating_sub(1),
            next_base_fee: state.base_fee,
            tip: GWEI / 10,
        })
    }

    async fn receipt(&self, hash: B256) -> Result<Option<Receipt>, RpcError> {
        Ok(self.state().receipt(hash))
    }

    async fn forwarder_nonce(&self, signer: Address) -> Result<U256, RpcError> {
        Ok(self.state().forwarder_nonce(signer))
    }

    async fn broadcast(&self, raw: &[u8]) -> (Verdict, String) {
        let envelope = TxEnvelope::decode_2718_exact(raw).unwrap();
        let request =
            executeCall::abi_decode(envelope.input()).ok().map(|call| (call.req.from, call.req.nonce));
        let sent = Sent {
            hash: *envelope.tx_hash(),
            nonce: envelope.nonce(),
            max_fee: envelope.max_fee_per_gas(),
            tip: envelope.max_priority_fee_per_gas().unwrap(),
            gas_limit: envelope.gas_limit(),
            request,
        };
        let journalled =
            self.store.open_nonces(KEY.address()).unwrap().into_iter().flat_map(|slot| slot.transactions);
        assert!(
            journalled.map(|transaction| transaction.hash).any(|hash| hash == sent.hash),
            "sent before journalled"
        );
        assert_eq!(envelope.value(), U256::ZERO);

        let mut state = self.state();
        assert!(sent.max_fee <= state.fee_cap, "above the cap");
        let offered = state.offered.entry(sent.nonce).or_default();
        if let Some(last) = offered.last().filter(|last| last.hash != sent.hash) {
            let raised = sent.max_fee * 10 >= last.max_fee * 11 && sent.tip * 10 >= last.tip * 11;
            assert!(raised, "replaced with less than 10 % more");
        }
        if !offered.iter().any(|earlier| earlier.hash == sent.hash) {
            offered.push(sent.clone());
        }
        let verdict = match state.lost.pop_front() {
            Some(Lost::Transaction) => Verdict::Unknown,
            Some(Lost::Answer) => {
                state.take(sent);
                Verdict::Unknown
            }
            None => state.take(sent),
        };
        (verdict, String::new())
    }
}
