//! The blocks that hold our transactions, from the first comparison with the chain until they are final.
//!
//! The highest block that was found on the chain stands for all below it that were: blocks name their
//! parents.

use alloy::primitives::{Address, B256};

use super::{
    assignments,
    engine::{Db, all, column, first, values},
    events, locks,
};
use crate::{
    outcome::{BlockHeads, Finality},
    store::{BlockId, MinedNonce, StoreError, events::EventKind},
};

/// What `nonces.finality` says, but for 0 and what it is set to by [`doubt`] and [`give_up`].
const fn finality(level: i64) -> Finality {
    match level {
        3 => Finality::Finalized,
        2 => Finality::Safe,
        _ => Finality::Latest,
    }
}

pub(super) fn unchecked_blocks(db: &Db, account: &Address, count: usize) -> Result<Vec<BlockId>, StoreError> {
    let query = "SELECT DISTINCT mined_block, mined_block_hash FROM nonces INDEXED BY nonces_unchecked
         WHERE account = ?1 AND state = 'mined' AND finality = 0 ORDER BY mined_block LIMIT ?2";
    all(db, query, values![account.0.0, count as i64], assignments::block)
}

pub(super) fn anchor(db: &Db, account: &Address) -> Result<Option<BlockId>, StoreError> {
    let query = "SELECT mined_block, mined_block_hash FROM nonces INDEXED BY nonces_checked
         WHERE account = ?1 AND state = 'mined' AND finality IN (1, 2) ORDER BY mined_block DESC LIMIT 1";
    first(db, query, values![account.0.0], assignments::block)
}

pub(super) fn nonces_of(
    db: &Db,
    account: &Address,
    block: &BlockId,
    count: usize,
) -> Result<Vec<MinedNonce>, StoreError> {
    let query = "SELECT * FROM nonces INDEXED BY nonces_unchecked WHERE account = ?1 AND state = 'mined' AND finality = 0
         AND mined_block = ?2 AND mined_block_hash = ?3 LIMIT ?4";
    let params = values![account.0.0, block.number.cast_signed(), block.hash.0, count as i64];
    all(db, query, params, |row| assignments::mined_nonce(db, account, row))
}

pub(super) fn checked(tx: &Db, account: &Address, blocks: &[BlockId]) -> Result<(), StoreError> {
    for block in blocks {
        tx.run(
"UPDATE nonces INDEXED BY nonces_unchecked SET finality = 1 WHERE account = ?1 AND state = 'mined' AND finality = 0
             AND mined_block = ?2 AND mined_block_hash = ?3",
values![account.0.0, block.number.cast_signed(), block.hash.0],
)?;
    }
    Ok(())
}

pub(super) fn doubt(tx: &Db, account: &Address) -> Result<(), StoreError> {
    tx.run(
"UPDATE nonces INDEXED BY nonces_checked SET finality = 0 WHERE account = ?1 AND state = 'mined' AND finality IN (1, 2)",
values![account.0.0],
)?;
    Ok(())
}

pub(super) fn give_up(tx: &Db, account: &Address, nonce: u64) -> Result<(), StoreError> {
    tx.run(
"UPDATE nonces SET finality = -1 WHERE account = ?1 AND nonce = ?2 AND state = 'mined' AND finality = 0",
values![account.0.0, nonce.cast_signed()],
)?;
    Ok(())
}

/// The levels that heads give, each with the highest block that has it.
const fn levels(heads: &BlockHeads) -> [(i64, u64); 2] {
    [(2, heads.safe), (3, heads.finalized)]
}

/// When a nonce must have been seen mined at the latest. Tags need no clock, which may have been set back
/// since.
const fn mined_by(heads: &BlockHeads, now: u64) -> i64 {
    match heads.seconds {
        0 => i64::MAX,
        seconds => now.saturating_sub(seconds).cast_signed(),
    }
}

pub(super) fn promotable(
    db: &Db,
    account: &Address,
    heads: &BlockHeads,
    now: u64,
    count: usize,
) -> Result<Vec<BlockId>, StoreError> {
    let [(safe_level, safe), (final_level, finalized)] = levels(heads);
    let query = "SELECT DISTINCT mined_block, mined_block_hash FROM nonces INDEXED BY nonces_checked
         WHERE account = ?1 AND state = 'mined' AND finality IN (1, 2) AND mined_block <= ?2 AND mined_at <= ?3
         AND (finality < ?4 OR (mined_block <= ?5 AND finality < ?6)) ORDER BY mined_block LIMIT ?7";
    let params = values![
        account.0.0,
        safe.max(finalized).cast_signed(),
        mined_by(heads, now),
        safe_level,
        finalized.cast_signed(),
        final_level,
        count as i64
    ];
    all(db, query, params, assignments::block)
}

pub(super) fn promote(
    tx: &Db,
    account: &Address,
    heads: &BlockHeads,
    blocks: &[BlockId],
    now: u64,
) -> Result<(), StoreError> {
    for block in blocks {
        for (level, _) in levels(heads).into_iter().filter(|(_, head)| block.number <= *head) {
            let params =
                values![account.0.0, block.number.cast_signed(), block.hash.0, level, mined_by(heads, now)];
            let told = "SELECT relays.id AS id FROM nonces INDEXED BY nonces_checked JOIN relays ON relays.id = nonces.relay
                 WHERE account = ?1 AND nonces.state = 'mined' AND finality IN (1, 2) AND mined_block = ?2
                 AND mined_block_hash = ?3 AND finality < ?4 AND mined_at <= ?5 AND is_told AND mined_hash = tx_hash";
            let kind = if level == 3 { EventKind::Finalized } else { EventKind::Safe };
            let told = all(tx, told, params, |row| Ok(column::<[u8; 32]>(row, "id")?.into()))?;
            locks::relays(tx, &told)?;
            for relay in told {
                events::note(tx, &relay, kind, now)?;
            }
            tx.run("UPDATE nonces INDEXED BY nonces_checked SET finality = ?4 WHERE account = ?1 AND state = 'mined' AND finality IN (1, 2)
                 AND mined_block = ?2 AND mined_block_hash = ?3 AND finality < ?4 AND mined_at <= ?5", params)?;
        }
    }
    Ok(())
}

/// How final the transaction is that ended a relay; `None` if none did.
pub(super) fn of_relay(db: &Db, id: &B256) -> Result<Option<Finality>, StoreError> {
    for query in [
        "SELECT finality FROM nonces JOIN relays ON nonces.relay = relays.id
         WHERE relays.id = ?1 AND mined_hash = tx_hash",
        "SELECT finality FROM archive WHERE id = ?1 AND tx_hash IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM relays WHERE id = ?1)",
    ] {
        if let Some(level) = first(db, query, values![id.0], |row| column(row, "finality"))? {
            return Ok(Some(finality(level)));
        }
    }
    Ok(None)
}
