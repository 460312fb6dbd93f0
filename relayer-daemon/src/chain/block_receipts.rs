//! Receipts of many transactions at once, out of the blocks that hold them.
//!
//! Where many transactions of ours wait, one block has most often mined them all: its receipts are one call
//! (`eth_getBlockReceipts`). Providers charge for it what one to twelve single receipts cost, so the operator
//! says from how many on it is used, and a block before the newest is read only if that one had as many.
//!
//! ```text
//! newest block ──▶ found as many as make it worth the call, and as many left? ──▶ the block before, ...
//!             └──▶ found none ──▶ the block before, once: a block may have been made since
//!             └──▶ else the rest is asked for one by one
//! ```
//!
//! A receipt found so is as good as a single one of the same endpoint. One that is not found proves nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use alloy::primitives::{Address, B256, U64};
use serde_json::{json, value::RawValue};
use tokio::time::{Instant, timeout};

use super::{
    Receipt, Result, Rpc, RpcError,
    optional_method::OptionalMethod,
    receipt::{block_of, maybe_ours},
    rpc::block_number,
    single_flight::SingleFlight,
};

/// Blocks without any of the transactions that are read before the rest is asked for one by one.
const MISSES: usize = 2;
/// Time for which a block's receipts serve the other accounts that have transactions in it, too.
const KEPT: Duration = Duration::from_secs(2);

/// Timeout of the read of a block: single receipts wait for it.
const LONGEST: Duration = Duration::from_secs(3);
/// Pause after a block that took too long or did not come.
const REST: Duration = Duration::from_secs(60);

/// The reader of whole blocks.
#[derive(Debug)]
pub(super) struct BlockReceipts {
    /// Number of nonces from which on blocks are read; 0: never.
    from: usize,
    method: OptionalMethod,
    reads: SingleFlight<Option<u64>, Result<Arc<OurReceipts>>>,
    kept: Mutex<Vec<(Instant, Arc<OurReceipts>)>>,
}

/// The receipts of a block that may be ours.
#[derive(Debug)]
struct OurReceipts {
    /// The block's number, where any of its receipts tells it.
    block: Option<u64>,
    receipts: HashMap<B256, Receipt>,
}

impl BlockReceipts {
    /// Creates a reader that reads blocks from this number of nonces on; 0: never.
    pub(super) fn new(from: usize) -> Self {
        Self {
            from: if from == 0 { usize::MAX } else { from },
            method: OptionalMethod::new("eth_getBlockReceipts"),
            reads: SingleFlight::default(),
            kept: Mutex::default(),
        }
    }

    /// Finds receipts; see [`super::ChainNode::receipts_by_block`].
    pub(super) async fn find(
        &self,
        rpc: &Rpc,
        forwarder: Address,
        nonces: &[Vec<B256>],
    ) -> HashMap<B256, Receipt> {
        let mut wanted = ReceiptSearch::new(nonces);
        for block in self.kept() {
            wanted.take(&block.receipts);
        }
        let (mut block, mut misses) = (None, 0);
        while wanted.left() >= self.from && !self.method.is_missing() {
            let read = timeout(LONGEST, self.read(rpc, forwarder, block)).await;
            let read = match read.unwrap_or(Err(RpcError::Timeout)) {
                Ok(read) => read,
                Err(error) => {
                    self.learn(&error);
                    break;
                }
            };
            match wanted.take(&read.receipts) {
                0 => misses += 1,
                found if found < self.from => break,
                _ => {}
            }
            if misses == MISSES {
                break;
            }
            let number = match read.block {
                Some(number) => Some(number),
                // An empty block does not tell its number.
                None => newest(rpc).await,
            };
            block = number.and_then(|number| number.checked_sub(1));
            if block.is_none() {
                break;
            }
        }
        wanted.found
    }

    /// Reads the receipts of the block with this number, or of the newest one.
    async fn read(&self, rpc: &Rpc, forwarder: Address, block: Option<u64>) -> Result<Arc<OurReceipts>> {
        let (rpc, method) = (rpc.clone(), self.method.name());
        let ask = async move {
            let which = block.map_or_else(|| json!("latest"), |number| json!(U64::from(number)));
            let receipts: Option<Vec<Box<RawValue>>> = rpc.read(method, json!([which])).await?;
            Ok(Arc::new(OurReceipts::of(&receipts.unwrap_or_default(), forwarder)))
        };
        let read = self.reads.get(block, ask).await?;
        self.keep(Arc::clone(&read));
        Ok(read)
    }

    fn learn(&self, error: &RpcError) {
        match error {
            RpcError::Node(error) if self.method.learn(error) => {
                tracing::warn!(error = %error.message, "no eth_getBlockReceipts: receipts are read one by one");
            }
            RpcError::Node(error) => tracing::debug!(error = %error.message, "a block's receipts not read"),
            error => {
                tracing::warn!(%error, "a block's receipts not read: for a minute they are read one by one");
                self.method.rest(REST);
            }
        }
    }

    fn keep(&self, block: Arc<OurReceipts>) {
        let mut kept = self.lock();
        kept.retain(|(at, other)| at.elapsed() < KEPT && !Arc::ptr_eq(other, &block));
        kept.push((Instant::now(), block));
    }

    /// Returns the blocks that were read a moment ago.
    fn kept(&self) -> Vec<Arc<OurReceipts>> {
        let mut kept = self.lock();
        kept.retain(|(at, _)| at.elapsed() < KEPT);
        kept.iter().map(|(_, block)| Arc::clone(block)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Arc<OurReceipts>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the number of the newest block.
async fn newest(rpc: &Rpc) -> Option<u64> {
    rpc.read::<U64>("eth_blockNumber", json!([])).await.ok().and_then(block_number)
}

impl OurReceipts {
    fn of(receipts: &[Box<RawValue>], forwarder: Address) -> Self {
        let block = receipts.iter().find_map(|receipt| block_of(receipt));
        let ours = receipts.iter().filter_map(|receipt| maybe_ours(receipt, forwarder));
        let receipts: HashMap<B256, Receipt> = ours.map(|receipt| (receipt.hash, receipt)).collect();
        Self { block, receipts }
    }
}

/// A search for the receipts of nonces, each given by its transactions.
struct ReceiptSearch<'a> {
    left: Vec<&'a Vec<B256>>,
    found: HashMap<B256, Receipt>,
}

impl<'a> ReceiptSearch<'a> {
    fn new(nonces: &'a [Vec<B256>]) -> Self {
        Self { left: nonces.iter().collect(), found: HashMap::new() }
    }

    fn left(&self) -> usize {
        self.left.len()
    }

    /// Takes the receipts of wanted transactions; returns the number of their nonces.
    fn take(&mut self, receipts: &HashMap<B256, Receipt>) -> usize {
        let (before, found) = (self.left.len(), &mut self.found);
        self.left.retain(|hashes| {
            let receipt = hashes.iter().find_map(|hash| receipts.get(hash));
            receipt.map(|receipt| found.insert(receipt.hash, receipt.clone()));
            receipt.is_none()
        });
        before.saturating_sub(self.left.len())
    }
}
