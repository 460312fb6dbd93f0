//! The owner of a store.

use alloy::primitives::B256;

use super::{
    Store,
    engine::{Db, column, first, values},
};
use crate::store::{Identity, Result, StoreError};

/// Stored for an unknown block 0.
const UNKNOWN: B256 = B256::ZERO;

impl Store {
    /// Checks that `identity` owns this store, or nothing does yet. Fails with [`StoreError::Foreign`].
    pub fn verify(&self, identity: &Identity) -> Result<()> {
        self.read(|db| self::verify(db, identity))
    }

    /// Makes `identity` the owner of this store for good. Fails with [`StoreError::Foreign`].
    pub fn bind(&self, identity: &Identity) -> Result<()> {
        let identity = *identity;
        self.write(move |db| self::bind(db, &identity))
    }

    /// Returns the owner of this journal, if it has one.
    pub fn identity(&self) -> Result<Option<Identity>> {
        self.read(owner)
    }
}

fn verify(db: &Db, identity: &Identity) -> Result<()> {
    owner(db)?.map_or(Ok(()), |owner| must_be(&owner, identity))
}

fn bind(tx: &Db, identity: &Identity) -> Result<()> {
    let Identity { chain_id, genesis, forwarder } = identity;
    let genesis = genesis.unwrap_or(UNKNOWN);
    if let Some(owner) = owner(tx)? {
        must_be(&owner, identity)?;
        if owner.genesis.is_none() {
            tx.run("UPDATE identity SET genesis = $1", values![genesis])?;
        }
        return Ok(());
    }
    let bound = tx.execute(
        "INSERT INTO identity (only_row, chain_id, genesis, forwarder) VALUES (1, $1, $2, $3) ON CONFLICT DO NOTHING",
        values![*chain_id, genesis, forwarder],
    )?;
    // Another daemon may have come first.
    if bound > 0 { Ok(()) } else { verify(tx, identity) }
}

fn owner(db: &Db) -> Result<Option<Identity>> {
    first(db, "SELECT * FROM identity", values![], |row| {
        Ok(Identity {
            chain_id: column(row, "chain_id")?,
            genesis: Some(column(row, "genesis")?).filter(|genesis| *genesis != UNKNOWN),
            forwarder: column(row, "forwarder")?,
        })
    })
}

fn must_be(owner: &Identity, expected: &Identity) -> Result<()> {
    let differs = [
        (owner.chain_id != expected.chain_id, "chain id"),
        (
            owner.genesis.zip(expected.genesis).is_some_and(|(owner, expected)| owner != expected),
            "chain (its block 0 differs)",
        ),
        (owner.forwarder != expected.forwarder, "forwarder"),
    ];
    match differs.into_iter().find(|(differs, _)| *differs) {
        Some((_, what)) => Err(StoreError::Foreign(what)),
        None => Ok(()),
    }
}
