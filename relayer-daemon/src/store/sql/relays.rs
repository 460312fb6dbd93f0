//! Reads of relays, and changes of them that several operations share.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use alloy::primitives::{Address, B256};

use super::{
    Store,
    engine::{Db, Row, Value, column, each, first, single, text, values},
};
use crate::{
    outcome::{Failure, MinedTransaction, RelayOutcome},
    store::{DaemonId, NewRelay, RelayTerms, Result, StoreError},
};

impl Store {
    /// Returns how a relay ended; `None` if it is not known, `Some(None)` while it is pending.
    pub fn outcome(&self, id: B256) -> Result<Option<Option<RelayOutcome>>> {
        self.read_single(|db| stored_outcome(db, &id))
    }

    /// Returns a relay as it was accepted, to run it again.
    pub fn accepted(&self, id: B256) -> Result<Option<NewRelay>> {
        self.read_single(|db| accepted(db, &id))
    }

    /// Returns the time at which the oldest pending relay was accepted.
    pub fn oldest_pending(&self) -> Result<Option<u64>> {
        let query = "SELECT min(created_at) FROM relays WHERE state = 'pending'";
        Ok(self.read_single(|db| single(db, query, values![]))?.flatten())
    }

    /// Returns the relays that have not ended.
    pub fn pending(&self) -> Result<HashSet<B256>> {
        self.read_single(pending)
    }
}

/// Returns the relays that have not ended.
pub(super) fn pending(db: &Db) -> Result<HashSet<B256>> {
    Ok(each(db, "SELECT id FROM relays WHERE state = 'pending'", values![])?.into_iter().collect())
}

/// The fate of another request with a relay's signer and forwarder nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rival {
    /// It used the nonce, whether or not its call succeeded.
    Executed,
    /// It has a transaction in flight.
    InFlight,
}

/// Gives a pending relay to a daemon.
pub(super) fn take(db: &Db, daemon: &DaemonId, id: &B256) -> Result<()> {
    db.run("UPDATE relays SET holder = $2 WHERE id = $1 AND state = 'pending'", values![id, daemon])
}

pub(super) fn columns(relay: &NewRelay, daemon: Option<&DaemonId>, now: u64) -> [Value; 8] {
    [
        relay.id.into(),
        relay.signer.into(),
        relay.forward_nonce.into(),
        relay.deadline.into(),
        (&relay.calldata).into(),
        now.into(),
        relay.client.map(address).into(),
        daemon.into(),
    ]
}

/// Writes a pending relay; returns whether it was not there.
pub(super) fn insert(tx: &Db, relay: &NewRelay, daemon: Option<&DaemonId>, now: u64) -> Result<bool> {
    Ok(tx.execute(tx.statements().insert_relay, &columns(relay, daemon, now))? > 0)
}

/// Makes a relay pending again.
pub(super) fn reopen(tx: &Db, id: &B256) -> Result<()> {
    tx.run(
        "UPDATE relays SET state = 'pending', error_code = NULL, error_detail = NULL, error_retry = NULL,
             tx_hash = NULL, block_number = NULL, gas_used = NULL, agent_id = NULL, finished_at = NULL
         WHERE id = $1",
        values![id],
    )
}

/// Returns the hashes of a relay's transactions, oldest first, without those that are archived.
pub(super) fn hashes(db: &Db, id: &B256) -> Result<Vec<B256>> {
    let query = "SELECT hash FROM transactions JOIN nonces USING (account, nonce)
         WHERE relay = $1 ORDER BY transactions.rowid";
    each(db, query, values![id])
}

pub(super) fn accepted(db: &Db, id: &B256) -> Result<Option<NewRelay>> {
    first(db, "SELECT * FROM relays WHERE id = $1", values![id], new_relay)
}

/// The facts that decide whether a relay may reserve, and be given a nonce.
pub(super) struct RelayStanding {
    /// True if it has not ended.
    pub(super) is_pending: bool,
    /// The daemon that runs it; `None` also where the store has one daemon alone.
    pub(super) holder: Option<DaemonId>,
    /// `request.from`.
    pub(super) signer: Address,
    /// The client, where it is known.
    pub(super) client: Option<IpAddr>,
    /// True if it has a nonce that is not seen mined.
    pub(super) has_nonce: bool,
    /// True if the nonce that was asked about is one of these.
    pub(super) has_this_nonce: bool,
    /// The fate of another request with its signer and forwarder nonce, if that keeps the relay from being
    /// sent.
    pub(super) rival: Option<Rival>,
}

impl RelayStanding {
    /// Fails with [`StoreError::HeldElsewhere`] if this daemon of a fleet does not run the relay.
    pub(super) fn must_be_held_by(&self, daemon: Option<&DaemonId>) -> Result<()> {
        let is_held = daemon.is_none_or(|daemon| self.holder.as_ref() == Some(daemon));
        if is_held { Ok(()) } else { Err(StoreError::HeldElsewhere) }
    }
}

/// Returns the standing of a relay, and whether it has this nonce; `None` if it is not stored.
pub(super) fn standing(db: &Db, id: &B256, nonce: Option<(&Address, u64)>) -> Result<Option<RelayStanding>> {
    let (account, nonce) = nonce.unzip();
    Ok(standings(db, &[*id], account, nonce)?.0.remove(id))
}

/// Returns the standings of those relays that are stored, and, if any is, the account's highest nonce.
pub(super) fn standings(
    db: &Db,
    ids: &[B256],
    account: Option<&Address>,
    nonce: Option<u64>,
) -> Result<(HashMap<B256, RelayStanding>, Option<u64>)> {
    let knows_lists = db.statements().locks.is_some();
    let groups: Vec<Value> =
        if knows_lists { vec![Value::ids(ids)] } else { ids.iter().map(Value::from).collect() };
    let (mut standings, mut highest) = (HashMap::new(), None);
    for group in groups {
        for row in &db.query(db.statements().standing, values![group, account, nonce])? {
            let (signer, client) = sender_of(row)?;
            let rival = column::<Option<bool>>(row, "is_rival_pending")?;
            let standing = RelayStanding {
                is_pending: column(row, "is_pending")?,
                holder: column(row, "holder")?,
                signer,
                client,
                has_nonce: column(row, "has_nonce")?,
                has_this_nonce: column(row, "has_this_nonce")?,
                rival: rival.map(|is_pending| if is_pending { Rival::InFlight } else { Rival::Executed }),
            };
            highest = column(row, "highest")?;
            standings.insert(column(row, "id")?, standing);
        }
    }
    Ok((standings, highest))
}

/// Reads the sender's view of a relay from a row with the relay's columns.
pub(super) fn terms(row: &Row) -> Result<RelayTerms> {
    Ok(RelayTerms {
        id: column(row, "id")?,
        signer: column(row, "signer")?,
        forward_nonce: column(row, "forward_nonce")?,
        deadline: column(row, "deadline")?,
        l1_fee_wei: column(row, "l1_fee_wei")?,
        expected_gas: column(row, "expected_gas")?,
        without_key: sender_of(row)?.1.is_some(),
    })
}

/// Reads a relay as it was accepted from a row with the relay's columns.
pub(super) fn new_relay(row: &Row) -> Result<NewRelay> {
    let (signer, client) = sender_of(row)?;
    Ok(NewRelay {
        id: column(row, "id")?,
        signer,
        forward_nonce: column(row, "forward_nonce")?,
        deadline: column(row, "deadline")?,
        calldata: column(row, "calldata")?,
        client,
    })
}

/// Returns a relay's signer, and its client if that is known; `None` for an unknown relay.
pub(super) fn sender(db: &Db, id: &B256) -> Result<Option<(Address, Option<IpAddr>)>> {
    first(db, "SELECT signer, client FROM relays WHERE id = $1", values![id], sender_of)
}

/// Reads a relay's signer, and its client if that is known, from a row.
pub(super) fn sender_of(row: &Row) -> Result<(Address, Option<IpAddr>)> {
    let client = column::<Option<[u8; 16]>>(row, "client")?;
    Ok((column(row, "signer")?, client.map(|bytes| IpAddr::V6(bytes.into()).to_canonical())))
}

/// Returns the stored form of an address; IPv4 is mapped into IPv6.
pub(super) const fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns a relay's outcome: `None` if it is not known, `Some(None)` while it is pending.
pub(super) fn stored_outcome(db: &Db, id: &B256) -> Result<Option<Option<RelayOutcome>>> {
    first(db, OUTCOME, values![id], outcome)
}

/// Selects a relay's outcome. A relay that is also archived was accepted again: its archived outcome is old.
pub(super) const OUTCOME: &str =
    "SELECT state, error_code, error_detail, error_retry, tx_hash, block_number, gas_used, agent_id
             FROM relays WHERE id = $1
         UNION ALL SELECT state, error_code, error_detail, error_retry, tx_hash, block_number, gas_used, agent_id
             FROM archive WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM relays WHERE id = $1)";

/// Reads the outcome from a row of [`OUTCOME`]; `None` while the relay is pending.
pub(super) fn outcome(row: &Row) -> Result<Option<RelayOutcome>> {
    let mined = || -> Result<_> {
        Ok(MinedTransaction {
            tx_hash: column(row, "tx_hash")?,
            block_number: column(row, "block_number")?,
            gas_used: column(row, "gas_used")?,
        })
    };
    let failure = || -> Result<_> {
        Ok(Failure {
            code: text(row, "error_code")?,
            detail: column(row, "error_detail")?,
            retry_after: column(row, "error_retry")?,
        })
    };
    Ok(Some(match column::<String>(row, "state")?.as_str() {
        "pending" => return Ok(None),
        "executed" => RelayOutcome::Executed { mined: mined()?, agent_id: column(row, "agent_id")? },
        "reverted" => RelayOutcome::Reverted { mined: mined()?, failure: failure()? },
        "dropped" => RelayOutcome::Dropped { failure: failure()? },
        _ => return Err(StoreError::Corrupt("state")),
    }))
}
