//! Nonces with all that was signed for them, as they are read.

use alloy::primitives::{Address, B256};

use super::{
    engine::{Db, Row, all, column, first, text, unsigned, values},
    relays,
};
use crate::{
    gas::fees::Fees,
    store::{BlockId, Inclusion, MinedNonce, NonceAssignment, SignedTransaction, StoreError},
};

pub(super) fn open_of(db: &Db, relay: &B256) -> Result<Vec<(Address, u64)>, StoreError> {
    let query = "SELECT account, nonce FROM nonces WHERE relay = ?1 AND state = 'open'";
    all(db, query, values![relay.0], |row| {
        Ok((column::<[u8; 20]>(row, "account")?.into(), unsigned(row, "nonce")?))
    })
}

pub(super) fn block(row: &Row) -> Result<BlockId, StoreError> {
    let hash = column::<[u8; 32]>(row, "mined_block_hash")?.into();
    Ok(BlockId { number: unsigned(row, "mined_block")?, hash })
}

pub(super) fn mined_nonce(db: &Db, account: &Address, row: &Row) -> Result<MinedNonce, StoreError> {
    Ok(MinedNonce {
        assignment: assignment(db, account, column(row, "nonce")?)?,
        inclusion: Inclusion { tx_hash: column::<[u8; 32]>(row, "mined_hash")?.into(), block: block(row)? },
    })
}

pub(super) fn assignment(db: &Db, account: &Address, nonce: i64) -> Result<NonceAssignment, StoreError> {
    let key = values![account.0.0, nonce];
    let query = "SELECT relays.* FROM nonces JOIN relays ON relays.id = nonces.relay WHERE account = ?1 AND nonce = ?2";
    let relay = first(db, query, key, relays::terms)?;
    let query = "SELECT * FROM transactions WHERE account = ?1 AND nonce = ?2 ORDER BY rowid";
    let transactions = all(db, query, key, signed_transaction)?;
    Ok(NonceAssignment { nonce: nonce.cast_unsigned(), relay, transactions })
}

fn signed_transaction(row: &Row) -> Result<SignedTransaction, StoreError> {
    Ok(SignedTransaction {
        hash: column::<[u8; 32]>(row, "hash")?.into(),
        raw: column::<Vec<u8>>(row, "raw")?.into(),
        fees: Fees { max_fee: text(row, "max_fee_wei")?, tip: text(row, "tip_wei")? },
        gas_limit: unsigned(row, "gas_limit")?,
        purpose: text(row, "purpose")?,
    })
}
