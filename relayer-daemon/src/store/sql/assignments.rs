//! Reads of nonces, with all that was signed for them.

use alloy::primitives::{Address, B256};

use super::{
    engine::{Db, Row, all, column, first, text, values},
    relays,
};
use crate::{
    gas::fees::Fees,
    store::{BlockId, Inclusion, MinedNonce, NonceAssignment, Result, SignedTransaction},
};

pub(super) fn open_of(db: &Db, relay: &B256) -> Result<Vec<(Address, u64)>> {
    let query = "SELECT account, nonce FROM nonces WHERE relay = $1 AND state = 'open'";
    of(db, relay, query)
}

pub(super) fn given_up_of(db: &Db, relay: &B256) -> Result<Vec<(Address, u64)>> {
    let query = "SELECT account, nonce FROM nonces WHERE relay = $1 AND state = 'lost'";
    of(db, relay, query)
}

fn of(db: &Db, relay: &B256, query: &'static str) -> Result<Vec<(Address, u64)>> {
    all(db, query, values![relay], |row| Ok((column(row, "account")?, column(row, "nonce")?)))
}

pub(super) fn block(row: &Row) -> Result<BlockId> {
    Ok(BlockId { number: column(row, "mined_block")?, hash: column(row, "mined_block_hash")? })
}

pub(super) fn mined_nonce(db: &Db, account: &Address, row: &Row) -> Result<MinedNonce> {
    Ok(MinedNonce {
        assignment: assignment(db, account, column(row, "nonce")?)?,
        inclusion: Inclusion { tx_hash: column(row, "mined_hash")?, block: block(row)? },
    })
}

pub(super) fn assignment(db: &Db, account: &Address, nonce: u64) -> Result<NonceAssignment> {
    let key = values![account, nonce];
    let query = "SELECT relays.* FROM nonces JOIN relays ON relays.id = nonces.relay WHERE account = $1 AND nonce = $2";
    let relay = first(db, query, key, relays::terms)?;
    let query = "SELECT * FROM transactions WHERE account = $1 AND nonce = $2 ORDER BY rowid";
    let transactions = all(db, query, key, |row| {
        Ok(SignedTransaction {
            hash: column(row, "hash")?,
            raw: column(row, "raw")?,
            fees: Fees { max_fee: column(row, "max_fee_wei")?, tip: column(row, "tip_wei")? },
            gas_limit: column(row, "gas_limit")?,
            purpose: text(row, "purpose")?,
        })
    })?;
    Ok(NonceAssignment { nonce, relay, transactions })
}
