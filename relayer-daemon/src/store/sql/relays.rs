//! Relays, from acceptance to their end.

use std::{collections::HashMap, net::IpAddr};

use alloy::primitives::{Address, B256, U256};

use super::{
    engine::{Db, Row, Value, all, column, first, text, unsigned, values},
    locks,
};
use crate::{
    outcome::{Failure, MinedTransaction, RelayOutcome},
    store::{Accepted, DaemonId, NewRelay, RelayTerms, StoreError},
};

/// What another request with a relay's signer and forwarder nonce has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rival {
    /// It used the nonce, whether or not its call succeeded.
    Executed,
    /// It has a transaction in flight.
    InFlight,
}

/// Accepts a relay, for a daemon of a fleet unless another one runs it already.
pub(super) fn accept(
    tx: &Db,
    relay: &NewRelay,
    daemon: Option<&DaemonId>,
    now: u64,
) -> Result<Accepted, StoreError> {
    let is_over = |outcome: &RelayOutcome| !outcome.is_repeatable() || outcome.is_cancelled();
    if let Some(outcome) = stored_outcome(tx, &relay.id)?.flatten().filter(is_over) {
        return Ok(Accepted::Finished(outcome));
    }
    if insert(tx, relay, daemon, now)? {
        return Ok(Accepted::Pending);
    }
    locks::relay(tx, &relay.id)?;
    if is_elsewhere(tx, &relay.id, daemon)? {
        return Ok(Accepted::Elsewhere);
    }
    // It may have ended meanwhile.
    let known = stored_outcome(tx, &relay.id)?.ok_or(StoreError::Missing("relay"))?;
    if let Some(outcome) = known.filter(is_over) {
        return Ok(Accepted::Finished(outcome));
    }
    reopen(tx, &relay.id)?;
    // The new sender is charged for it.
    tx.run(
        "UPDATE relays SET client = ?2, calldata = ?3, api_key = NULL, sponsored_gas = 0, is_told = FALSE
         WHERE id = ?1",
        values![relay.id.0, relay.client.map(address), relay.calldata.to_vec()],
    )?;
    daemon.map_or(Ok(()), |daemon| take(tx, daemon, &relay.id))?;
    Ok(Accepted::Pending)
}

/// Whether a relay is pending that another daemon of the fleet runs, or may take.
pub(super) fn is_elsewhere(db: &Db, id: &B256, daemon: Option<&DaemonId>) -> Result<bool, StoreError> {
    let Some(daemon) = daemon else { return Ok(false) };
    let query = "SELECT holder FROM relays WHERE id = ?1 AND state = 'pending'";
    let holder = first(db, query, values![id.0], |row| column::<Option<String>>(row, "holder"))?;
    Ok(holder.is_some_and(|holder| holder.as_deref() != Some(daemon.0.as_ref())))
}

/// Gives a pending relay to a daemon.
pub(super) fn take(db: &Db, daemon: &DaemonId, id: &B256) -> Result<(), StoreError> {
    let take = "UPDATE relays SET holder = ?2 WHERE id = ?1 AND state = 'pending'";
    db.run(take, values![id.0, daemon.0.as_ref()])
}

/// Writes a relay that this daemon of a fleet runs, if the store does not know it. Returns whether that is so.
pub(super) fn insert_new(tx: &Db, relay: &NewRelay, daemon: &DaemonId, now: u64) -> Result<bool, StoreError> {
    /// Postgres takes parameters that are selected for text.
    macro_rules! insert {
        ($values:literal) => {
            concat!(
                "INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, created_at, client, holder) SELECT ",
                $values,
                " WHERE NOT EXISTS (SELECT 1 FROM archive WHERE id = ?1) ON CONFLICT DO NOTHING"
            )
        };
    }
    let insert = tx.dialect(
        insert!("?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8"),
        insert!(
            "CAST(?1 AS BYTEA), CAST(?2 AS BYTEA), CAST(?3 AS BYTEA), CAST(?4 AS BIGINT), CAST(?5 AS BYTEA),
             CAST(?6 AS BIGINT), CAST(?7 AS BYTEA), ?8"
        ),
    );
    let inserted = tx.execute(insert, &[&columns(relay, now)[..], values![daemon.0.as_ref()]].concat())?;
    Ok(inserted > 0)
}

fn columns(relay: &NewRelay, now: u64) -> [Value; 7] {
    [
        relay.id.0.into(),
        relay.signer.0.0.into(),
        relay.forward_nonce.to_be_bytes::<32>().into(),
        relay.deadline.cast_signed().into(),
        relay.calldata.to_vec().into(),
        now.cast_signed().into(),
        relay.client.map(address).into(),
    ]
}

/// Writes a pending relay; returns whether it was not there.
pub(super) fn insert(
    tx: &Db,
    relay: &NewRelay,
    daemon: Option<&DaemonId>,
    now: u64,
) -> Result<bool, StoreError> {
    let columns = columns(relay, now);
    let inserted = match daemon {
        None => tx.execute(
            "INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, created_at, client)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
            &columns,
        ),
        Some(daemon) => tx.execute(
            "INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, created_at, client, holder)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
            &[&columns[..], values![daemon.0.as_ref()]].concat(),
        ),
    }?;
    Ok(inserted > 0)
}

/// Makes a relay pending again.
pub(super) fn reopen(tx: &Db, id: &B256) -> Result<(), StoreError> {
    tx.run(
        "UPDATE relays SET state = 'pending', error_code = NULL, error_detail = NULL, error_retry = NULL,
             tx_hash = NULL, block_number = NULL, gas_used = NULL, agent_id = NULL, finished_at = NULL
         WHERE id = ?1",
        values![id.0],
    )?;
    Ok(())
}

/// Whether a relay has not ended yet; `None` if it is not stored.
pub(super) fn is_pending(db: &Db, id: &B256) -> Result<Option<bool>, StoreError> {
    let query = "SELECT state = 'pending' AS is_pending FROM relays WHERE id = ?1";
    first(db, query, values![id.0], |row| column(row, "is_pending"))
}

/// The hashes of a relay's transactions, oldest first, without those that are archived.
pub(super) fn hashes(db: &Db, id: &B256) -> Result<Vec<B256>, StoreError> {
    let query = "SELECT hash FROM transactions JOIN nonces USING (account, nonce)
         WHERE relay = ?1 ORDER BY transactions.rowid";
    all(db, query, values![id.0], |row| Ok(column::<[u8; 32]>(row, "hash")?.into()))
}

pub(super) fn accepted(db: &Db, id: &B256) -> Result<Option<NewRelay>, StoreError> {
    first(db, "SELECT * FROM relays WHERE id = ?1", values![id.0], new_relay)
}

/// What decides whether a relay may reserve, and be given a nonce.
pub(super) struct Standing {
    /// Whether it has not ended.
    pub(super) is_pending: bool,
    /// The daemon that runs it; `None` also where the store has one daemon alone.
    pub(super) holder: Option<String>,
    /// `request.from`.
    pub(super) signer: Address,
    /// The client, where it is known.
    pub(super) client: Option<IpAddr>,
    /// Whether it has a nonce that is not seen mined.
    pub(super) has_nonce: bool,
    /// Whether the nonce that was asked about is one of these.
    pub(super) has_this_nonce: bool,
    /// What another request with its signer and forwarder nonce has become, where that keeps it from being sent.
    pub(super) rival: Option<Rival>,
}

/// The standings of several relays, and the highest nonce of an account.
type Standings = (HashMap<B256, Standing>, Option<u64>);

impl Standing {
    /// # Errors
    /// [`StoreError::HeldElsewhere`] if it is not this daemon of a fleet that runs the relay.
    pub(super) fn must_be_held_by(&self, daemon: Option<&DaemonId>) -> Result<(), StoreError> {
        match daemon {
            Some(daemon) if self.holder.as_deref() != Some(daemon.0.as_ref()) => {
                Err(StoreError::HeldElsewhere)
            }
            _ => Ok(()),
        }
    }
}

/// The standings of some relays. Of an executed rival with a block that is gone (-1) nothing is known.
macro_rules! standing {
    ($holder:literal, $highest:literal, $relays:literal) => {
        concat!(
            "SELECT id, state = 'pending' AS is_pending, signer, client, ",
            $holder,
            " AS holder, ",
            $highest,
            " AS highest,
             EXISTS (SELECT 1 FROM nonces WHERE relay = own.id AND state = 'open') AS has_nonce,
             EXISTS (SELECT 1 FROM nonces WHERE account = ?2 AND nonce = ?3 AND relay = own.id AND state = 'open')
                 AS has_this_nonce,
             (SELECT other.state = 'pending' FROM relays AS other JOIN nonces ON nonces.relay = other.id
              WHERE other.signer = own.signer AND other.forward_nonce = own.forward_nonce AND other.id <> own.id
              AND ((other.state = 'pending' AND nonces.state = 'open')
                  OR (other.state IN ('executed', 'reverted') AND mined_hash = other.tx_hash AND finality >= 0))
              ORDER BY 1 LIMIT 1) AS is_rival_pending
         FROM relays AS own WHERE ",
            $relays
        )
    };
}

/// The standing of a relay, and whether it has this nonce; `None` if it is not stored.
pub(super) fn standing(
    db: &Db,
    id: &B256,
    nonce: Option<(&Address, u64)>,
    in_fleet: bool,
) -> Result<Option<Standing>, StoreError> {
    let query = if in_fleet {
        standing!("holder", "NULL", "id = ?1")
    } else {
        standing!("CAST(NULL AS TEXT)", "NULL", "id = ?1")
    };
    let (account, nonce) = nonce.map(|(account, nonce)| (account.0.0, nonce.cast_signed())).unzip();
    first(db, query, values![id.0, account, nonce], read_standing)
}

/// The standings of several relays in one question, and the highest nonce of an account; `None` where the database
/// knows no lists.
pub(super) fn standings(db: &Db, account: &Address, ids: &[B256]) -> Result<Option<Standings>, StoreError> {
    if !db.has_row_locks() {
        return Ok(None);
    }
    let query = standing!("holder", "(SELECT max(nonce) FROM nonces WHERE account = ?2)", "id = ANY (?1)");
    let (mut standings, mut highest) = (HashMap::new(), None);
    for row in &db.query(query, values![Value::ids(ids), account.0.0, Value::Null])? {
        highest = column::<Option<i64>>(row, "highest")?.map(i64::cast_unsigned);
        standings.insert(column::<[u8; 32]>(row, "id")?.into(), read_standing(row)?);
    }
    Ok(Some((standings, highest)))
}

fn read_standing(row: &Row) -> Result<Standing, StoreError> {
    let (signer, client) = sender_of(row)?;
    let rival = column::<Option<bool>>(row, "is_rival_pending")?;
    Ok(Standing {
        is_pending: column(row, "is_pending")?,
        holder: column(row, "holder")?,
        signer,
        client,
        has_nonce: column(row, "has_nonce")?,
        has_this_nonce: column(row, "has_this_nonce")?,
        rival: rival.map(|is_pending| if is_pending { Rival::InFlight } else { Rival::Executed }),
    })
}

pub(super) fn unsent(db: &Db) -> Result<Vec<NewRelay>, StoreError> {
    let query = "SELECT * FROM relays WHERE state = 'pending'
         AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id AND state = 'open')
         ORDER BY created_at, rowid";
    all(db, query, values![], new_relay)
}

pub(super) fn oldest_pending(db: &Db) -> Result<Option<u64>, StoreError> {
    let query = "SELECT min(created_at) AS oldest FROM relays WHERE state = 'pending'";
    let oldest = first(db, query, values![], |row| column::<Option<i64>>(row, "oldest"))?;
    Ok(oldest.flatten().map(i64::cast_unsigned))
}

/// The sender's view of a relay, from a row that has the relay's columns.
pub(super) fn terms(row: &Row) -> Result<RelayTerms, StoreError> {
    let relay = new_relay(row)?;
    Ok(RelayTerms {
        id: relay.id,
        signer: relay.signer,
        forward_nonce: relay.forward_nonce,
        deadline: relay.deadline,
        l1_fee_wei: text(row, "l1_fee_wei")?,
        expected_gas: column::<Option<i64>>(row, "expected_gas")?.map(i64::cast_unsigned),
    })
}

fn new_relay(row: &Row) -> Result<NewRelay, StoreError> {
    Ok(NewRelay {
        id: column::<[u8; 32]>(row, "id")?.into(),
        signer: column::<[u8; 20]>(row, "signer")?.into(),
        forward_nonce: U256::from_be_bytes(column::<[u8; 32]>(row, "forward_nonce")?),
        deadline: unsigned(row, "deadline")?,
        calldata: column::<Vec<u8>>(row, "calldata")?.into(),
        client: sender_of(row)?.1,
    })
}

/// A relay's signer, and its client where that is known; `None` for an unknown relay.
pub(super) fn sender(db: &Db, id: &B256) -> Result<Option<(Address, Option<IpAddr>)>, StoreError> {
    first(db, "SELECT signer, client FROM relays WHERE id = ?1", values![id.0], sender_of)
}

/// The same from a row.
pub(super) fn sender_of(row: &Row) -> Result<(Address, Option<IpAddr>), StoreError> {
    let client = column::<Option<[u8; 16]>>(row, "client")?;
    let client = client.map(|bytes| IpAddr::V6(bytes.into()).to_canonical());
    Ok((column::<[u8; 20]>(row, "signer")?.into(), client))
}

/// The stored form of an address; IPv4 is mapped into IPv6.
pub(super) const fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// `None`: unknown relay; `Some(None)`: pending.
pub(super) fn stored_outcome(db: &Db, id: &B256) -> Result<Option<Option<RelayOutcome>>, StoreError> {
    first(db, OUTCOME, values![id.0], outcome)
}

/// A relay's outcome. Of one that is also archived the last word is not there.
pub(super) const OUTCOME: &str =
    "SELECT state, error_code, error_detail, error_retry, tx_hash, block_number, gas_used, agent_id
             FROM relays WHERE id = ?1
         UNION ALL SELECT state, error_code, error_detail, error_retry, tx_hash, block_number, gas_used, agent_id
             FROM archive WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM relays WHERE id = ?1)";

/// `None` while it is pending.
pub(super) fn outcome(row: &Row) -> Result<Option<RelayOutcome>, StoreError> {
    let state: String = column(row, "state")?;
    Ok(Some(match state.as_str() {
        "pending" => return Ok(None),
        "executed" => {
            let agent_id = column::<Option<[u8; 32]>>(row, "agent_id")?.map(U256::from_be_bytes);
            RelayOutcome::Executed { mined: mined(row)?, agent_id }
        }
        "reverted" => RelayOutcome::Reverted { mined: mined(row)?, failure: failure(row)? },
        "dropped" => RelayOutcome::Dropped { failure: failure(row)? },
        _ => return Err(StoreError::Corrupt("state")),
    }))
}

fn mined(row: &Row) -> Result<MinedTransaction, StoreError> {
    Ok(MinedTransaction {
        tx_hash: column::<[u8; 32]>(row, "tx_hash")?.into(),
        block_number: unsigned(row, "block_number")?,
        gas_used: unsigned(row, "gas_used")?,
    })
}

fn failure(row: &Row) -> Result<Failure, StoreError> {
    Ok(Failure {
        code: text(row, "error_code")?,
        detail: column(row, "error_detail")?,
        retry_after: column::<Option<i64>>(row, "error_retry")?.map(i64::cast_unsigned),
    })
}
