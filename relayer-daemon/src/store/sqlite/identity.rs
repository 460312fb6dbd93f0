//! Whose file it is.

use rusqlite::{Connection, params};

use super::{column, unsigned};
use crate::store::{Identity, StoreError};

/// See [`crate::store::Store::verify`].
pub(super) fn verify(db: &Connection, identity: &Identity) -> Result<(), StoreError> {
    owner(db)?.map_or(Ok(()), |owner| must_be(&owner, identity))
}

/// See [`crate::store::Store::bind`].
pub(super) fn bind(tx: &Connection, identity: &Identity) -> Result<(), StoreError> {
    if let Some(owner) = owner(tx)? {
        return must_be(&owner, identity);
    }
    let Identity { chain_id, genesis, forwarder } = identity;
    tx.execute(
        "INSERT INTO identity (only_row, chain_id, genesis, forwarder) VALUES (1, ?1, ?2, ?3)",
        params![chain_id.cast_signed(), genesis.0, forwarder.0.0],
    )?;
    Ok(())
}

fn owner(db: &Connection) -> Result<Option<Identity>, StoreError> {
    let mut statement = db.prepare("SELECT * FROM identity")?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Identity {
        chain_id: unsigned(row, "chain_id")?,
        genesis: column::<[u8; 32]>(row, "genesis")?.into(),
        forwarder: column::<[u8; 20]>(row, "forwarder")?.into(),
    }))
}

fn must_be(owner: &Identity, expected: &Identity) -> Result<(), StoreError> {
    let differs = [
        (owner.chain_id != expected.chain_id, "chain id"),
        (owner.genesis != expected.genesis, "chain (its block 0 differs)"),
        (owner.forwarder != expected.forwarder, "forwarder"),
    ];
    match differs.into_iter().find(|(differs, _)| *differs) {
        Some((_, what)) => Err(StoreError::Foreign(what)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{SqliteStore, Store as _};
    use alloy::primitives::{Address, B256};

    const IDENTITY: Identity =
        Identity { chain_id: 31_337, genesis: B256::repeat_byte(1), forwarder: Address::repeat_byte(3) };

    #[test]
    fn a_store_belongs_to_one_chain_and_forwarder() {
        let store = SqliteStore::in_memory().unwrap();
        store.verify(&IDENTITY).unwrap();
        let other = Identity { genesis: B256::ZERO, ..IDENTITY };
        store.verify(&other).expect("nobody's store is anybody's");
        store.bind(&IDENTITY).unwrap();
        store.bind(&IDENTITY).unwrap();
        for (other, what) in [
            (Identity { chain_id: 1, ..IDENTITY }, "chain id"),
            (other, "chain (its block 0 differs)"),
            (Identity { forwarder: Address::ZERO, ..IDENTITY }, "forwarder"),
        ] {
            for refused in [store.bind(&other), store.verify(&other)] {
                assert!(matches!(refused, Err(StoreError::Foreign(found)) if found == what));
            }
        }
    }

    #[test]
    fn an_owner_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.sqlite");
        SqliteStore::open(&path).unwrap().bind(&IDENTITY).unwrap();
        let again = SqliteStore::open(&path).unwrap();
        assert!(again.bind(&Identity { chain_id: 1, ..IDENTITY }).is_err());
    }
}
