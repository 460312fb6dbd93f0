//! The node of the model: one or two URLs with machines at different blocks that fail in every way.

use std::sync::atomic::AtomicU64;
use std::sync::{MutexGuard, PoisonError};

use alloy::consensus::transaction::SignerRecoverable as _;
use alloy::consensus::{Transaction as _, TxEnvelope};
use alloy::eips::eip2718::Decodable2718;
use registry_core::eth::abi::IForwarder::{self, executeCall};
use relayer_daemon::chain::{
    AccountView, BroadcastVerdict, ChainNode, ReceiptLookup, RpcError, SimulationResult,
};

use super::chain::{ModelView, SentTransaction};
use super::*;

/// Number of nonces from which on receipts come by the block.
const BLOCK_RECEIPTS_FROM: usize = 2;

/// The part of a send that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostSend {
    /// The node takes it; the answer is lost.
    Answer,
    /// The node never sees it; the caller cannot tell.
    Transaction,
}

#[derive(Debug, Default)]
pub struct ModelFaults {
    pub lost: VecDeque<LostSend>,
    /// Each answer comes from a machine that is up to this far behind.
    pub oldest_view: Duration,
    pub late_receipts: Duration,
    pub wrong_counts: VecDeque<u64>,
    pub failing_reads: usize,
    pub no_nonces: bool,
    pub latency: Duration,
    pub silent_endpoint: bool,
}

/// State that all lives of the daemon share.
#[derive(Debug)]
pub struct World {
    chain: Mutex<ModelChain>,
    faults: Mutex<ModelFaults>,
    random: AtomicU64,
    pub calls: AtomicUsize,
    /// Number of account views that were asked for.
    pub account_views: AtomicUsize,
    /// Shows that a transaction was stored before it was sent.
    store: Arc<Store>,
    pub accounts: Vec<Address>,
    /// True if a failover has lost commits: some of what was written is not there.
    pub lost_commits: AtomicBool,
}

impl World {
    pub fn new(chain: ModelChain, seed: u64, store: Arc<Store>, accounts: Vec<Address>) -> Arc<Self> {
        let random = AtomicU64::new(seed | 1);
        Arc::new(Self {
            chain: Mutex::new(chain),
            faults: Mutex::default(),
            random,
            calls: AtomicUsize::new(0),
            account_views: AtomicUsize::new(0),
            store,
            accounts,
            lost_commits: AtomicBool::new(false),
        })
    }

    /// Returns the chain, also after a check of it has failed: the end of the history reports that.
    pub fn chain(&self) -> MutexGuard<'_, ModelChain> {
        self.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn faults(&self) -> MutexGuard<'_, ModelFaults> {
        self.faults.lock().unwrap()
    }

    /// Returns a number below `bound`, from a sequence that the seed decides (xorshift).
    fn random(&self, bound: u64) -> u64 {
        let mut next = self.random.load(Ordering::Relaxed);
        next ^= next << 13;
        next ^= next >> 7;
        next ^= next << 17;
        self.random.store(next, Ordering::Relaxed);
        next % bound.max(1)
    }

    fn latency(&self) -> Duration {
        self.faults().latency + Duration::from_millis(self.random(20))
    }

    /// Returns the view of the machine that happens to answer, at least `late` behind.
    fn view_behind(&self, late: Duration) -> ModelView {
        let oldest = self.faults().oldest_view;
        let age = Duration::from_millis(self.random(oldest.as_millis() as u64 + 1));
        self.chain().view(age + late)
    }

    fn view(&self) -> ModelView {
        self.view_behind(Duration::ZERO)
    }

    pub fn balance(&self, account: Address) -> u128 {
        let chain = self.chain();
        if chain.empty.contains(&account) {
            0
        } else {
            chain.balances.get(&account).copied().unwrap_or(u128::MAX)
        }
    }

    /// Returns the account that signed this transaction, by what is stored for it.
    fn journalled_by(&self, nonce: u64, hash: B256) -> Option<Address> {
        let signed = |account: Address| self.store.assignment(account, nonce).unwrap().transactions;
        let mut accounts = self.accounts.iter().copied();
        accounts.find(|account| signed(*account).iter().any(|known| known.hash == hash))
    }

    fn receipt(&self, hash: B256) -> Option<Receipt> {
        let late = self.faults().late_receipts;
        self.view_behind(late).receipt(hash)
    }
}

/// The node as one life of the daemon sees it. Once that life is over, nothing it does has an effect.
#[derive(Debug, Clone)]
pub struct ModelNode {
    pub world: Arc<World>,
    pub dead: Arc<AtomicBool>,
    pub daemon: Option<DaemonId>,
    pub paused: watch::Receiver<bool>,
}

impl ModelNode {
    /// Lets a call take a moment, and wait while the daemon stands still. Returns whether it stood still.
    async fn call(&self) -> bool {
        tokio::time::sleep(self.world.latency()).await;
        let was_paused = *self.paused.borrow();
        // Without its sender nothing pauses any more.
        let _ = self.paused.clone().wait_for(|paused| !paused).await;
        if self.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        was_paused
    }

    /// Answers after a moment; some answers do not come.
    async fn answer<T>(&self, answer: impl FnOnce(&World) -> T) -> Result<T, RpcError> {
        self.world.calls.fetch_add(1, Ordering::Relaxed);
        self.call().await;
        {
            let mut faults = self.world.faults();
            if faults.failing_reads > 0 {
                faults.failing_reads -= 1;
                return Err(RpcError::Timeout);
            }
        }
        Ok(answer(&self.world))
    }

    fn count(world: &World, right: u64) -> u64 {
        world.faults().wrong_counts.pop_front().unwrap_or(right)
    }
}

impl ChainNode for ModelNode {
    async fn mined_nonce(&self, account: Address) -> Result<u64, RpcError> {
        self.answer(|world| Self::count(world, world.view().mined(account))).await
    }

    async fn pending_nonce(&self, account: Address) -> Result<u64, RpcError> {
        if self.world.faults().no_nonces {
            return self.answer(|_| ()).await.and(Err(RpcError::Timeout));
        }
        self.answer(|world| {
            let mined = world.view().mined(account);
            Self::count(world, world.chain().pending(account, mined))
        })
        .await
    }

    async fn market(&self) -> Result<Market, RpcError> {
        self.answer(|world| {
            let head = world.view().head();
            world.chain().market(head)
        })
        .await
    }

    async fn balance(&self, account: Address) -> Result<u128, RpcError> {
        self.answer(|world| world.balance(account)).await
    }

    async fn receipt(&self, hash: B256) -> Result<Option<Receipt>, RpcError> {
        self.answer(|world| world.receipt(hash)).await
    }

    async fn receipts_by_block(&self, nonces: &[Vec<B256>]) -> HashMap<B256, Receipt> {
        if nonces.len() < BLOCK_RECEIPTS_FROM {
            return HashMap::new();
        }
        let mined = |world: &World| {
            let receipts = nonces.iter().flatten().filter_map(|hash| world.receipt(*hash));
            receipts.map(|receipt| (receipt.hash, receipt)).collect()
        };
        self.answer(mined).await.unwrap_or_default()
    }

    async fn receipt_everywhere(&self, hash: B256) -> ReceiptLookup {
        match self.answer(|world| world.receipt(hash).or_else(|| world.receipt(hash))).await {
            Ok(Some(receipt)) => ReceiptLookup::Found(receipt),
            Ok(None) if !self.world.faults().silent_endpoint => ReceiptLookup::Absent,
            Ok(None) | Err(_) => ReceiptLookup::Unclear,
        }
    }

    async fn block_hash(&self, number: u64) -> Result<Option<B256>, RpcError> {
        self.answer(|world| world.view().block_hash(number)).await
    }

    async fn heads(&self) -> Result<BlockHeads, RpcError> {
        self.answer(|world| {
            let head = world.view().head();
            world.chain().heads(head)
        })
        .await
    }

    async fn account_view(&self, account: Address, signer: Option<Address>) -> Result<AccountView, RpcError> {
        self.world.account_views.fetch_add(1, Ordering::Relaxed);
        self.answer(|world| {
            let view = world.view();
            AccountView {
                block_number: view.head(),
                mined_nonce: view.mined(account),
                forwarder_nonce: signer.map(|signer| view.forwarder_nonce(signer)),
            }
        })
        .await
    }

    async fn forwarder_nonce(&self, signer: Address) -> Result<U256, RpcError> {
        self.answer(|world| world.view().forwarder_nonce(signer)).await
    }

    async fn verify(&self, execute: &IForwarder::executeCall) -> Result<bool, RpcError> {
        let (from, nonce) = (execute.req.from, execute.req.nonce);
        self.answer(|world| world.view().forwarder_nonce(from) == nonce).await
    }

    async fn simulate(&self, _: Address, _: &Bytes, gas_limit: u64) -> Result<SimulationResult, RpcError> {
        self.answer(|_| SimulationResult::Success { gas_used: Some(gas_limit / 2) }).await
    }

    async fn l1_fee(&self, _: Bytes) -> Result<u128, RpcError> {
        self.answer(|_| 0).await
    }

    async fn broadcast(&self, raw: &[u8]) -> (BroadcastVerdict, String) {
        let envelope = TxEnvelope::decode_2718_exact(raw).unwrap();
        let request =
            executeCall::abi_decode(envelope.input()).ok().map(|call| (call.req.from, call.req.nonce));
        let was_paused = self.call().await;
        let hash = *envelope.tx_hash();
        let has_lost = self.world.lost_commits.load(Ordering::Relaxed);
        let account = match self.world.journalled_by(envelope.nonce(), hash) {
            None if has_lost => envelope.recover_signer().unwrap(),
            account => account.expect("sent before journalled"),
        };
        if !was_paused && !has_lost {
            let holder_now = |_| self.world.store.fleet().unwrap().holders.remove(&account);
            let holder = self.daemon.as_ref().and_then(holder_now);
            assert_eq!(holder, self.daemon, "sent without a lease of {account}");
        }
        let sent = SentTransaction {
            account,
            hash,
            nonce: envelope.nonce(),
            max_fee: envelope.max_fee_per_gas(),
            tip: envelope.max_priority_fee_per_gas().unwrap(),
            gas_limit: envelope.gas_limit(),
            request,
            reverts: false,
        };
        assert_eq!(envelope.value(), U256::ZERO);

        let lost = self.world.faults().lost.pop_front();
        let mut chain = self.world.chain();
        chain.inspect(&sent, was_paused || has_lost);
        let verdict = match lost {
            Some(LostSend::Transaction) => BroadcastVerdict::Unknown,
            Some(LostSend::Answer) => {
                chain.take(sent);
                BroadcastVerdict::Unknown
            }
            None => chain.take(sent),
        };
        (verdict, String::new())
    }

    async fn finish_broadcasts(&self, _: Duration) -> usize {
        0
    }
}
