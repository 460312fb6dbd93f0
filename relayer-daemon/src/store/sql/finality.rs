//! The blocks that hold our transactions, from the first comparison with the chain until they are final.
//!
//! The highest block that was found on the chain stands for all lower ones that were found: blocks name their
//! parents.

use std::collections::BTreeSet;

use alloy::primitives::{Address, B256};

use super::{
    Store, assignments,
    engine::{Db, Value, all, column, each, first, single, values},
    events, given_up, locks,
};
use crate::{
    outcome::{BlockHeads, Finality},
    store::{BlockId, MinedNonce, Payer, Result, events::EventKind},
};

impl Store {
    /// Returns the accounts with mined nonces that are not final, or with nonces given up within a day.
    pub fn unsettled_accounts(&self, now: u64) -> Result<BTreeSet<Address>> {
        self.read(|db| {
            let mut accounts: BTreeSet<Address> =
                each(db, db.statements().unsettled, values![])?.into_iter().collect();
            accounts.extend(given_up::accounts(db, now)?);
            Ok(accounts)
        })
    }

    /// Returns the blocks of mined nonces not compared with the chain yet, lowest first, at most `count`.
    pub fn unchecked_blocks(&self, account: Address, count: usize) -> Result<Vec<BlockId>> {
        let query = "SELECT DISTINCT mined_block, mined_block_hash FROM nonces
             WHERE account = $1 AND state = 'mined' AND finality = 0 ORDER BY mined_block LIMIT $2";
        self.read_single(|db| all(db, query, values![account, count as u64], assignments::block))
    }

    /// Returns the highest block that is not final and was found on the chain. While it is on the chain, so
    /// are all those below it that were found there.
    pub fn anchor(&self, account: Address) -> Result<Option<BlockId>> {
        let query = "SELECT mined_block, mined_block_hash FROM nonces
             WHERE account = $1 AND state = 'mined' AND finality IN (1, 2) ORDER BY mined_block DESC LIMIT 1";
        self.read_single(|db| first(db, query, values![account], assignments::block))
    }

    /// Returns the mined nonces of a block that was not found on the chain, at most `count`.
    pub fn nonces_of(&self, account: Address, block: &BlockId, count: usize) -> Result<Vec<MinedNonce>> {
        let chosen = values![account, block.number, block.hash, count as u64];
        self.read(|db| {
            let query = db.statements().nonces_of_block;
            all(db, query, chosen, |row| assignments::mined_nonce(db, &account, row))
        })
    }

    /// Writes that these blocks were found on the chain.
    pub fn checked(&self, payer: impl Into<Payer>, blocks: &[BlockId]) -> Result<()> {
        let (payer, [first, last, hashes]) = (payer.into(), given(blocks));
        self.write_for(payer, move |db| {
            db.run(db.statements().checked, values![payer.account, first, last, hashes])
        })
    }

    /// Marks all blocks that are not final to be compared with the chain once more.
    pub fn doubt(&self, payer: impl Into<Payer>) -> Result<()> {
        let payer = payer.into();
        self.write_for(payer, move |db| db.run(db.statements().doubt, values![payer.account]))
    }

    /// Stops comparing a mined nonce's block: it is gone, and what became of the nonce cannot be known.
    pub fn give_up(&self, payer: impl Into<Payer>, nonce: u64) -> Result<()> {
        let payer = payer.into();
        let sql = "UPDATE nonces SET finality = -1 WHERE account = $1 AND nonce = $2 AND state = 'mined' AND finality = 0";
        self.write_for(payer, move |db| db.run(sql, values![payer.account, nonce]))
    }

    /// Returns the blocks that these heads make safe or final and that were found on the chain, lowest first,
    /// at most `count`.
    pub fn promotable(
        &self,
        account: Address,
        heads: &BlockHeads,
        now: u64,
        count: usize,
    ) -> Result<Vec<BlockId>> {
        let [(safe_level, safe), (final_level, finalized)] = levels(heads);
        let query = "SELECT DISTINCT mined_block, mined_block_hash FROM nonces
             WHERE account = $1 AND state = 'mined' AND finality IN (1, 2) AND mined_block <= $2 AND mined_at <= $3
             AND (finality < $4 OR (mined_block <= $5 AND finality < $6)) ORDER BY mined_block LIMIT $7";
        let (highest, by) = (safe.max(finalized), mined_by(heads, now));
        let chosen = values![account, highest, by, safe_level, finalized, final_level, count as u64];
        self.read_single(|db| all(db, query, chosen, assignments::block))
    }

    /// Marks these blocks as safe or final, as the heads say.
    pub fn promote(
        &self,
        payer: impl Into<Payer>,
        heads: &BlockHeads,
        blocks: &[BlockId],
        now: u64,
    ) -> Result<()> {
        let (payer, heads, [first, last, hashes]) = (payer.into(), *heads, given(blocks));
        self.write_for(payer, move |db| {
            let by = mined_by(&heads, now);
            let chosen = values![payer.account, first.clone(), last.clone(), hashes.clone(), by];
            let told: Vec<(B256, i64, u64)> = all(db, db.statements().told_of_blocks, chosen, |row| {
                Ok((column(row, "id")?, column(row, "finality")?, column(row, "mined_block")?))
            })?;
            if !told.is_empty() {
                locks::relays(db, &told.iter().map(|(relay, ..)| *relay).collect::<Vec<_>>())?;
            }
            for (relay, finality, block) in &told {
                for (level, head) in levels(&heads) {
                    let kind = if level == 3 { EventKind::Finalized } else { EventKind::Safe };
                    if *finality < level && *block <= head {
                        events::note(db, relay, kind, now)?;
                    }
                }
            }
            let promoted = values![payer.account, first, last, hashes, by, heads.safe, heads.finalized];
            db.run(db.statements().promote, promoted)
        })
    }
}

/// Returns the lowest and the highest number of these blocks, and their hashes.
fn given(blocks: &[BlockId]) -> [Value; 3] {
    let numbers = blocks.iter().map(|block| block.number);
    let (first, last) = (numbers.clone().min().unwrap_or(0), numbers.max().unwrap_or(0));
    let hashes: Vec<B256> = blocks.iter().map(|block| block.hash).collect();
    [first.into(), last.into(), Value::ids(&hashes)]
}

/// Returns the levels of `nonces.finality` that heads give, each with the highest block that has it.
const fn levels(heads: &BlockHeads) -> [(i64, u64); 2] {
    [(2, heads.safe), (3, heads.finalized)]
}

/// Returns the latest time at which a nonce must have been seen mined. Tags need no clock, which may have
/// been set back since.
const fn mined_by(heads: &BlockHeads, now: u64) -> i64 {
    match heads.seconds {
        0 => i64::MAX,
        seconds => now.saturating_sub(seconds).cast_signed(),
    }
}

/// Returns the finality of the transaction that ended a relay; `None` if none did.
pub(super) fn of_relay(db: &Db, id: &B256) -> Result<Option<Finality>> {
    for query in [
        "SELECT finality FROM nonces JOIN relays ON nonces.relay = relays.id
         WHERE relays.id = $1 AND mined_hash = tx_hash",
        "SELECT finality FROM archive WHERE id = $1 AND tx_hash IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM relays WHERE id = $1)",
    ] {
        match single::<i64>(db, query, values![id])? {
            Some(3) => return Ok(Some(Finality::Finalized)),
            Some(2) => return Ok(Some(Finality::Safe)),
            Some(_) => return Ok(Some(Finality::Latest)),
            None => {}
        }
    }
    Ok(None)
}
