//! The model of the chain: blocks of our accounts' transactions, a mempool, a forwarder, and its past.
//!
//! It mines transactions that have the next nonce and pay the base fee, keeps those ahead, drops some, and
//! reorganises. For each transaction sent it checks what must hold before a byte leaves the daemon.

use alloy::primitives::Log as PrimitiveLog;
use alloy::rpc::types::Log;
use alloy::sol_types::SolEvent;
use registry_core::eth::abi::IForwarder::RequestExecuted;
use relayer_daemon::chain::BroadcastVerdict::{
    self, Accepted, InsufficientFunds, NonceTooLow, Rejected, Underpriced,
};
use relayer_daemon::store::BlockId;

use super::*;

pub const FORWARDER: Address = Address::repeat_byte(0xf0);
pub const GWEI: u128 = 1_000_000_000;
pub const TIP: u128 = GWEI / 10;
/// The greatest age of the market that a replacement answers.
const OLDEST_MARKET: Duration = Duration::from_secs(20);
/// The age at which a block is safe.
pub const SAFE_AFTER: Duration = Duration::from_secs(600);
/// The age at which a block is final: no reorg undoes it then.
pub const FINAL_AFTER: Duration = Duration::from_secs(1_200);

#[derive(Debug, Clone)]
pub struct SentTransaction {
    pub account: Address,
    pub hash: B256,
    pub nonce: u64,
    pub max_fee: u128,
    pub tip: u128,
    pub gas_limit: u64,
    /// The request it carries; `None` for a no-op.
    pub request: Option<(Address, U256)>,
    /// True if it reverted as a whole when it was mined, as with too little gas: the request stays valid.
    pub reverts: bool,
}

#[derive(Debug, Clone)]
pub enum ModelTransaction {
    /// A transaction of an account of ours that we signed, and its price per gas.
    Ours(Box<SentTransaction>, u128),
    Foreign(Address),
    /// A foreign call of the forwarder with a request of one of our clients.
    Bypass(Address, U256),
}

pub type Blocks = Arc<Vec<Arc<ModelBlock>>>;

#[derive(Debug)]
pub struct ModelBlock {
    pub hash: B256,
    pub entries: Vec<ModelTransaction>,
}

#[derive(Debug, Clone, Default)]
pub struct ModelView(pub Blocks);

impl ModelView {
    fn entries(&self) -> impl Iterator<Item = &ModelTransaction> {
        self.0.iter().flat_map(|block| block.entries.iter())
    }

    pub fn block_hash(&self, number: u64) -> Option<B256> {
        self.0.get(usize::try_from(number).unwrap()).map(|block| block.hash)
    }

    pub fn head(&self) -> u64 {
        (self.0.len() as u64).saturating_sub(1)
    }

    pub fn has_foreign(&self) -> bool {
        self.entries().any(|entry| matches!(entry, ModelTransaction::Foreign(_)))
    }

    pub fn mined(&self, account: Address) -> u64 {
        let of_account = |entry: &&ModelTransaction| match entry {
            ModelTransaction::Ours(sent, _) => sent.account == account,
            ModelTransaction::Foreign(by) => *by == account,
            ModelTransaction::Bypass(..) => false,
        };
        self.entries().filter(of_account).count() as u64
    }

    pub fn forwarder_nonce(&self, signer: Address) -> U256 {
        let mut nonce = U256::ZERO;
        for entry in self.entries() {
            if request(entry) == Some((signer, nonce)) {
                nonce += U256::from(1);
            }
        }
        nonce
    }

    pub fn carried(&self, signer: Address, nonce: U256) -> usize {
        let ours = |entry: &&ModelTransaction| matches!(entry, ModelTransaction::Ours(..));
        self.entries().filter(ours).filter(|entry| request(entry) == Some((signer, nonce))).count()
    }

    /// Returns what our accounts paid, wei, without foreign transactions.
    pub fn paid(&self) -> u128 {
        let paid = |entry: &ModelTransaction| match entry {
            ModelTransaction::Ours(sent, price) => u128::from(gas_used(sent)) * price,
            ModelTransaction::Foreign(_) | ModelTransaction::Bypass(..) => 0,
        };
        self.entries().map(paid).sum()
    }

    /// Returns whether this transaction is on the chain and carried out its request.
    pub fn carried_out(&self, hash: B256) -> bool {
        // A no-op succeeds too, but reports nothing.
        self.receipt(hash).is_some_and(|receipt| receipt.status && !receipt.logs.is_empty())
    }

    pub fn receipt(&self, hash: B256) -> Option<Receipt> {
        let mut nonces: HashMap<Address, U256> = HashMap::new();
        for (number, block) in self.0.iter().enumerate() {
            for entry in &block.entries {
                let valid = request(entry).is_none_or(|(signer, nonce)| {
                    let next = nonces.entry(signer).or_default();
                    let valid = *next == nonce;
                    *next += U256::from(u8::from(valid));
                    valid
                });
                match entry {
                    ModelTransaction::Ours(sent, price) if sent.hash == hash => {
                        let block = BlockId { number: number as u64, hash: block.hash };
                        return Some(receipt(sent, *price, block, valid && !sent.reverts));
                    }
                    _ => {}
                }
            }
        }
        None
    }
}

fn request(entry: &ModelTransaction) -> Option<(Address, U256)> {
    match entry {
        ModelTransaction::Ours(sent, _) => sent.request.filter(|_| !sent.reverts),
        ModelTransaction::Bypass(signer, nonce) => Some((*signer, *nonce)),
        ModelTransaction::Foreign(_) => None,
    }
}

fn gas_used(sent: &SentTransaction) -> u64 {
    if sent.request.is_some() { sent.gas_limit / 2 } else { sent.gas_limit }
}

fn receipt(sent: &SentTransaction, price: u128, block: BlockId, status: bool) -> Receipt {
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
    let gas_used = gas_used(sent);
    Receipt {
        hash: sent.hash,
        block,
        status,
        gas_used,
        gas_price: Some(price),
        l1_fee_wei: 0,
        logs: event.map(log).into_iter().collect(),
    }
}

#[derive(Debug, Default)]
pub struct ModelChain {
    blocks: Blocks,
    made: u64,
    /// Earlier chains, oldest first, each with the moment since when it held.
    history: VecDeque<(Instant, Blocks)>,
    pool: BTreeMap<(Address, u64), SentTransaction>,
    base_fee: u128,
    /// Earlier base fees, each with the moment when it ended.
    base_fees: VecDeque<(Instant, u128)>,
    fee_cap: u128,
    budget_is_limited: bool,
    pub unwilling: bool,
    /// Number of next relays that revert as a whole when they are mined.
    pub reverts: usize,
    pub rejects: bool,
    pub ignored: BTreeSet<Address>,
    pub empty: BTreeSet<Address>,
    /// Balances of accounts that cannot pay for everything, wei.
    pub balances: BTreeMap<Address, u128>,
    /// Every transaction ever sent, by account and nonce, in order.
    offered: HashMap<(Address, u64), Vec<SentTransaction>>,
    pub reorganised: bool,
    pub sends: usize,
}

impl ModelChain {
    pub fn new(fee_cap: u128, budget: u128) -> Self {
        let budget_is_limited = budget < u128::MAX;
        let mut chain = Self { base_fee: GWEI, fee_cap, budget_is_limited, ..Self::default() };
        chain.mine(0);
        chain
    }

    /// Returns the chain as shown by a machine that is `age` behind.
    pub fn view(&self, age: Duration) -> ModelView {
        let then = Instant::now().checked_sub(age);
        let was = self.history.iter().rev().find(|(since, _)| then.is_some_and(|then| *since <= then));
        let oldest = || self.history.front().map(|(_, blocks)| Arc::clone(blocks));
        ModelView(was.map(|(_, blocks)| Arc::clone(blocks)).or_else(oldest).unwrap_or_default())
    }

    pub fn now(&self) -> ModelView {
        ModelView(Arc::clone(&self.blocks))
    }

    pub fn pool(&self) -> usize {
        self.pool.len()
    }

    pub fn pending(&self, account: Address, mined: u64) -> u64 {
        (mined..).find(|nonce| !self.pool.contains_key(&(account, *nonce))).unwrap_or(mined)
    }

    /// Returns the tags of a machine with this head.
    pub fn heads(&self, head: u64) -> BlockHeads {
        let tagged = |age| Some(self.view(age).head().min(head));
        BlockHeads::new(head, tagged(SAFE_AFTER), tagged(FINAL_AFTER))
    }

    pub fn market(&self, head: u64) -> Market {
        Market { head, next_base_fee: self.base_fee, tip: TIP }
    }

    fn push(&mut self, entries: Vec<ModelTransaction>) {
        let block = self.block(entries);
        self.change(|blocks| blocks.push(block));
    }

    fn block(&mut self, entries: Vec<ModelTransaction>) -> Arc<ModelBlock> {
        self.made += 1;
        Arc::new(ModelBlock { hash: B256::from(U256::from(self.made)), entries })
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<Arc<ModelBlock>>)) {
        let mut blocks = self.blocks.to_vec();
        change(&mut blocks);
        self.blocks = Arc::new(blocks);
        let now = Instant::now();
        self.history.push_back((now, Arc::clone(&self.blocks)));
        // One older than any view is enough.
        while self.history.get(1).is_some_and(|(since, _)| now - *since > FINAL_AFTER) {
            self.history.pop_front();
        }
    }

    /// Mines a block with up to `room` of our transactions.
    pub fn mine(&mut self, room: usize) {
        let room = if self.unwilling { 0 } else { room };
        let mut block = Vec::new();
        let accounts: BTreeSet<Address> = self.pool.keys().map(|(account, _)| *account).collect();
        for account in accounts {
            if self.ignored.contains(&account) || self.empty.contains(&account) {
                continue;
            }
            let mut next = self.now().mined(account);
            while block.len() < room {
                let sent = self.pool.get(&(account, next)).filter(|sent| sent.max_fee >= self.base_fee);
                let Some(mut sent) = sent.cloned() else { break };
                let price = sent.max_fee.min(self.base_fee + sent.tip);
                if sent.request.is_some() && self.reverts > 0 {
                    self.reverts -= 1;
                    sent.reverts = true;
                }
                block.push(ModelTransaction::Ours(Box::new(sent), price));
                self.pool.remove(&(account, next));
                next += 1;
            }
        }
        self.push(block);
    }

    pub fn drop_from_pool(&mut self, index: usize) {
        if let Some(place) = self.pool.keys().nth(index).copied() {
            self.pool.remove(&place);
        }
    }

    /// Undoes blocks; their transactions go back to the mempool or are dropped.
    pub fn reorganise(&mut self, depth: usize, forget: bool) {
        let settled = self.view(FINAL_AFTER).0.len().min(self.blocks.len());
        let keep = self.blocks.len().saturating_sub(depth).max(settled);
        let undone = self.blocks[keep..].to_vec();
        self.reorganised |= undone.iter().any(|block| !block.entries.is_empty());
        for entry in undone.iter().flat_map(|block| block.entries.iter()) {
            if let (ModelTransaction::Ours(sent, _), false) = (entry, forget) {
                let place = (sent.account, sent.nonce);
                self.pool
                    .entry(place)
                    .or_insert_with(|| SentTransaction { reverts: false, ..(**sent).clone() });
            }
        }
        let branch: Vec<_> = (0..=undone.len()).map(|_| self.block(Vec::new())).collect();
        self.change(|blocks| {
            blocks.truncate(keep);
            blocks.extend(branch);
        });
    }

    pub fn foreign_transaction(&mut self, account: Address) {
        let nonce = self.now().mined(account);
        self.pool.remove(&(account, nonce));
        self.push(vec![ModelTransaction::Foreign(account)]);
    }

    pub fn bypass(&mut self, signer: Address) {
        let nonce = self.now().forwarder_nonce(signer);
        self.push(vec![ModelTransaction::Bypass(signer, nonce)]);
    }

    pub fn set_base_fee(&mut self, wei: u128) {
        self.base_fees.push_back((Instant::now(), self.base_fee));
        self.base_fee = wei;
    }

    /// Returns the highest price of the last seconds, which a replacement may answer.
    fn recent_price(&self) -> u128 {
        let recent = self.base_fees.iter().filter(|(until, _)| until.elapsed() <= OLDEST_MARKET);
        recent.map(|(_, fee)| *fee).chain([self.base_fee]).max().unwrap_or_default() + TIP
    }

    /// Checks what must hold for every transaction before it is sent.
    pub fn inspect(&mut self, sent: &SentTransaction, is_late: bool) {
        self.sends += 1;
        if is_late {
            return;
        }
        let price = self.recent_price();
        assert!(sent.max_fee <= self.fee_cap, "above the cap");
        let place = (sent.account, sent.nonce);
        let offered = self.offered.entry(place).or_default();
        let is_held = self.pool.get(&place).is_some_and(|held| held.hash == sent.hash);
        if self.rejects && sent.request.is_some() && !is_held {
            // What no node takes need not be outbid.
            offered.clear();
            return;
        }
        if offered.iter().any(|earlier| earlier.hash == sent.hash) {
            return;
        }
        if let Some(last) = offered.last() {
            // What fills a gap may be cheaper than what was there before, where no node has that any more, or
            // it cannot be outbid.
            let can_be_outbid = last.max_fee * 11 <= self.fee_cap * 10 && !self.budget_is_limited;
            let fills_gap = sent.request.is_none() && !(can_be_outbid && self.pool.contains_key(&place));
            let raised = sent.max_fee * 10 >= last.max_fee * 11 && sent.tip * 10 >= last.tip * 11;
            assert!(raised || fills_gap, "replaced with less than 10 % more");
            // A no-op may be dearer; the same call may not.
            let is_no_op = sent.request.is_none();
            assert!(is_no_op || sent.max_fee <= 4 * price, "above four times the market");
            assert!(is_no_op || price > last.max_fee, "bid up for nothing");
        }
        offered.push(sent.clone());
    }

    pub fn take(&mut self, sent: SentTransaction) -> BroadcastVerdict {
        if sent.nonce < self.now().mined(sent.account) {
            return NonceTooLow;
        }
        let place = (sent.account, sent.nonce);
        match self.pool.get(&place) {
            Some(known) if known.hash == sent.hash => Accepted,
            _ if self.empty.contains(&sent.account) => InsufficientFunds,
            _ if self.rejects && sent.request.is_some() => Rejected,
            Some(known) if sent.max_fee * 10 < known.max_fee * 11 || sent.tip * 10 < known.tip * 11 => {
                Underpriced
            }
            _ => {
                self.pool.insert(place, sent);
                Accepted
            }
        }
    }
}
