//! Finality: each block that holds a transaction of ours is compared with the chain's until it is final.
//!
//! A block names its parent, so one block stands for all below it: the highest one that was found on the
//! chain, the anchor, is looked at in each round, the others once each. If the anchor is gone, all are
//! compared again. The chain's tags `safe` and `finalized` say how far what was found can be trusted.
//!
//! Machines of two branches may answer behind one URL: one confirms a block that is gone, another the anchor
//! above it. So each block is compared once more right before it becomes safe, and before it becomes final.

use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::{GROUP, Sender, SenderError};
use crate::{
    chain::ChainNode,
    outcome::BlockHeads,
    store::{BlockId, Store},
};

/// Blocks compared between two looks at the anchor.
const CHUNK: usize = 64;

impl<N: ChainNode> Sender<N> {
    /// Compares new blocks and the anchor with the chain, and examines what is not there any more. With the
    /// chain's `heads`, read before, what was found becomes safe and final.
    pub(super) async fn watch_blocks(&self, heads: Option<BlockHeads>) -> Result<(), SenderError> {
        let (account, payer) = (self.account(), self.payer());
        loop {
            let blocks = self.parts.store.run(move |store| store.unchecked_blocks(account, CHUNK)).await?;
            let (found, gone) = self.compare(&blocks).await;
            // After the new ones: both are of one branch, or the anchor is gone.
            if !self.anchor_stands().await? {
                return Ok(());
            }
            let all = found.len() == blocks.len();
            if !found.is_empty() {
                self.parts.store.run(move |store| store.checked(payer, &found)).await?;
            }
            for block in gone {
                self.examine_block(block).await?;
            }
            if !all || blocks.len() < CHUNK {
                break;
            }
        }
        match heads {
            Some(heads) => self.promote_blocks(heads).await,
            None => Ok(()),
        }
    }

    /// Makes safe and final what is on the chain at or below these heads. If another block is in the place of
    /// one of them, all are compared again in the next round.
    async fn promote_blocks(&self, heads: BlockHeads) -> Result<(), SenderError> {
        let (account, payer, now) = (self.account(), self.payer(), self.parts.clock.now());
        loop {
            let promotable = move |store: &Store| store.promotable(account, &heads, now, CHUNK);
            let blocks = self.parts.store.run(promotable).await?;
            let (found, gone) = self.compare(&blocks).await;
            let all = found.len() == blocks.len();
            if !found.is_empty() {
                self.parts.store.run(move |store| store.promote(payer, &heads, &found, now)).await?;
            }
            if let Some(block) = gone.first() {
                tracing::warn!(block = block.number, "this block is not on the chain any more");
                self.parts.store.run(move |store| store.doubt(payer)).await?;
            }
            if !all || blocks.len() < CHUNK {
                return Ok(());
            }
        }
    }

    /// Returns whether any block is not final yet.
    pub(super) async fn awaits_finality(&self) -> Result<bool, SenderError> {
        let account = self.account();
        let read = move |store: &Store| {
            Ok(store.anchor(account)?.is_some() || !store.unchecked_blocks(account, 1)?.is_empty())
        };
        Ok(self.parts.store.run(read).await?)
    }

    /// Returns the blocks that are on the chain, and those that another one has displaced. A node that has
    /// none at this height, or does not answer, tells nothing.
    async fn compare(&self, blocks: &[BlockId]) -> (Vec<BlockId>, Vec<BlockId>) {
        let asked: Vec<_> =
            blocks.iter().map(|block| self.parts.node.block_hash(block.number).boxed()).collect();
        let answers: Vec<_> = stream::iter(asked).buffered(GROUP).collect().await;
        let (mut found, mut gone) = (Vec::new(), Vec::new());
        for (block, answer) in blocks.iter().copied().zip(answers) {
            match answer {
                Ok(Some(hash)) if hash == block.hash => {
                    self.state().suspects.remove(&block);
                    found.push(block);
                }
                Ok(Some(_)) => gone.push(block),
                Ok(None) => {}
                Err(error) => tracing::debug!(block = block.number, %error, "block not compared"),
            }
        }
        (found, gone)
    }

    /// Returns whether the anchor is on the chain. If another block is in its place, all blocks are compared
    /// again in the next round.
    async fn anchor_stands(&self) -> Result<bool, SenderError> {
        let (account, payer) = (self.account(), self.payer());
        let Some(anchor) = self.parts.store.run(move |store| store.anchor(account)).await? else {
            return Ok(true);
        };
        match self.parts.node.block_hash(anchor.number).await? {
            Some(hash) if hash == anchor.hash => Ok(true),
            None => Ok(false),
            Some(_) => {
                tracing::warn!(block = anchor.number, "this block is not on the chain any more");
                self.parts.store.run(move |store| store.doubt(payer)).await?;
                Ok(false)
            }
        }
    }
}
