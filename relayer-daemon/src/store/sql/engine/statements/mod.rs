//! The statements that differ between SQLite and Postgres: a file for each, of one shape.
//!
//! All others stand beside the code that runs them, in SQL of both: `$1` for a parameter, and `rowid` for the
//! order of insertion. Statements that differ in a few words stand here once.

#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

#[cfg(feature = "postgres")]
pub(in super::super) use self::postgres::POSTGRES;
pub(in super::super) use self::sqlite::{FLEET_ON_SQLITE, SQLITE};

/// The statements of a database. Their parameters are described where they are used.
pub(in super::super) struct Statements {
    /// The statements that lock rows; `None` where one transaction writes at a time.
    pub(in super::super) locks: Option<LockStatements>,
    /// The frequent writes of a fleet; `None` where only the general statements exist.
    pub(in super::super) frequent: Option<FrequentStatements>,
    pub(in super::super) insert_relay: &'static str,
    /// Selects the standing of a relay; of several where the database knows arrays.
    pub(in super::super) standing: &'static str,
    /// Charges a rate by the database's clock, or by $4, if the bucket, which is empty again at `full_at`,
    /// has room for one more.
    pub(in super::super) charge_rate: &'static str,
    /// Selects the epoch of a lease, and keeps the lease until the transaction ends.
    pub(in super::super) hold_lease: &'static str,
    /// Deletes daemons that are gone, except those that another transaction is deleting.
    pub(in super::super) delete_daemons: &'static str,
    /// Selects relays that are to be archived, and that no other transaction has locked.
    pub(in super::super) to_archive: &'static str,
    /// Selects nonces without a relay that are to be deleted, and that no other transaction has locked.
    pub(in super::super) old_gaps: &'static str,
    /// Selects the accounts with mined nonces that are not final.
    pub(in super::super) unsettled: &'static str,
    /// Selects the mined nonces of a block that was not compared with the chain yet.
    pub(in super::super) nonces_of_block: &'static str,
    /// Marks the nonces of blocks as found on the chain.
    pub(in super::super) checked: &'static str,
    /// Marks all blocks that are not final to be compared again.
    pub(in super::super) doubt: &'static str,
    /// Selects the relays of blocks that report their finality to a webhook.
    pub(in super::super) told_of_blocks: &'static str,
    /// Marks the nonces of blocks as safe or final.
    pub(in super::super) promote: &'static str,
    /// Makes events that are written after a migration come behind those that were copied.
    pub(in super::super) next_sequence: Option<&'static str>,
}

/// Statements that lock rows until the transaction ends; [`super::super::locks`] has their purposes.
pub(in super::super) struct LockStatements {
    pub(in super::super) lease: &'static str,
    pub(in super::super) leases_of: &'static str,
    pub(in super::super) leases_to_renew: &'static str,
    pub(in super::super) relay: &'static str,
    pub(in super::super) relays: &'static str,
    pub(in super::super) requests: &'static str,
    pub(in super::super) lease_and_requests: &'static str,
    pub(in super::super) relays_of: &'static str,
    pub(in super::super) free_relays: &'static str,
    /// Makes the row of an API key's gas that `key` locks.
    pub(in super::super) make_key: &'static str,
    pub(in super::super) key: &'static str,
    pub(in super::super) budget: &'static str,
}

/// The writes of a fleet that each relay needs, one message each. Each handles the usual case, or does
/// nothing; [`super::super::frequent`] runs them.
pub(in super::super) struct FrequentStatements {
    /// Writes a relay that is not known.
    pub(in super::super) accept: &'static str,
    /// Reserves a relay's cost: locks the relay, then the budget if it is as it was when the sums were read.
    pub(in super::super) reserve: &'static str,
    /// Writes all given transactions, or none.
    pub(in super::super) record: &'static str,
    /// Settles executed relays that are pending and have no API key, while a window is open. Returns these
    /// relays.
    pub(in super::super) settle: &'static str,
}

/// Inserts a new relay with the daemon that runs it.
const INSERT_FOR_HOLDER: &str = "
INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, created_at, client, holder)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";

/// Selects the standings of relays; $2 and $3 are an account and a nonce. A rival in a block that is gone
/// (-1) does not count, nor does one that the forwarder refused, which has left the forwarder nonce unused.
macro_rules! standing {
    ($holder:literal, $relays:literal) => {
        concat!(
            "SELECT id, state = 'pending' AS is_pending, signer, client, ",
            $holder,
            " AS holder,
             (SELECT max(nonce) FROM nonces WHERE account = $2) AS highest,
             EXISTS (SELECT 1 FROM nonces WHERE relay = own.id AND state = 'open') AS has_nonce,
             EXISTS (SELECT 1 FROM nonces WHERE account = $2 AND nonce = $3 AND relay = own.id AND state = 'open')
                 AS has_this_nonce,
             (SELECT other.state = 'pending' FROM relays AS other JOIN nonces ON nonces.relay = other.id
              WHERE other.signer = own.signer AND other.forward_nonce = own.forward_nonce AND other.id <> own.id
              AND ((other.state = 'pending' AND nonces.state = 'open')
                  OR (other.state IN ('executed', 'reverted') AND mined_hash = other.tx_hash AND finality >= 0
                      AND coalesce(other.error_code, '') <> 'FORWARDER_REFUSED'))
              ORDER BY 1 LIMIT 1) AS is_rival_pending
         FROM relays AS own WHERE ",
            $relays
        )
    };
}
use standing;

/// The statements that differ in a few words: the time, what locks rows, or the index that SQLite is to use.
macro_rules! alike {
    (charge_rate, $now:literal) => {
        concat!(
            "INSERT INTO rates VALUES ($1, $2 + ",
            $now,
            ") ON CONFLICT (party) DO UPDATE
             SET full_at = CASE WHEN rates.full_at > excluded.full_at - $2
                 THEN rates.full_at + $2 ELSE excluded.full_at END
             WHERE rates.full_at - excluded.full_at + 2 * $2 <= $3 RETURNING party"
        )
    };
    (to_archive, $lock:literal) => {
        concat!(
            "SELECT id FROM relays WHERE finished_at < $1
             AND EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id)
             AND NOT EXISTS (
                 SELECT 1 FROM nonces AS own WHERE own.relay = relays.id AND (own.state = 'open'
                 OR own.nonce > (SELECT max(nonce) FROM nonces WHERE account = own.account) - $2))
             ORDER BY finished_at LIMIT $3",
            $lock
        )
    };
    (old_gaps, $lock:literal) => {
        concat!(
            "SELECT account, nonce FROM nonces AS gap WHERE relay IS NULL AND state <> 'open'
             AND nonce <= (SELECT max(nonce) FROM nonces WHERE account = gap.account) - $2
             AND NOT EXISTS (SELECT 1 FROM transactions WHERE account = gap.account AND nonce = gap.nonce
                 AND (created_at >= $1 OR gap.mined_at >= $1))
             LIMIT $3",
            $lock
        )
    };
    (unsettled, $unchecked:literal, $checked:literal) => {
        concat!(
            "SELECT account FROM nonces",
            $unchecked,
            " WHERE state = 'mined' AND finality = 0 UNION SELECT account FROM nonces",
            $checked,
            " WHERE state = 'mined' AND finality IN (1, 2)"
        )
    };
    (nonces_of_block, $index:literal) => {
        concat!(
            "SELECT * FROM nonces",
            $index,
            " WHERE account = $1 AND state = 'mined' AND finality = 0
             AND mined_block = $2 AND mined_block_hash = $3 LIMIT $4"
        )
    };
    (checked, $index:literal, $given:literal) => {
        concat!(
            "UPDATE nonces",
            $index,
            " SET finality = 1 WHERE account = $1 AND state = 'mined' AND finality = 0
             AND mined_block BETWEEN $2 AND $3 AND mined_block_hash ",
            $given
        )
    };
    (doubt, $index:literal) => {
        concat!(
            "UPDATE nonces",
            $index,
            " SET finality = 0 WHERE account = $1 AND state = 'mined' AND finality IN (1, 2)"
        )
    };
    (told_of_blocks, $index:literal, $given:literal) => {
        concat!(
            "SELECT relays.id AS id, finality, mined_block FROM nonces",
            $index,
            " JOIN relays ON relays.id = nonces.relay
             WHERE account = $1 AND nonces.state = 'mined' AND finality IN (1, 2)
             AND mined_block BETWEEN $2 AND $3 AND mined_block_hash ",
            $given,
            " AND mined_at <= $5 AND is_told AND mined_hash = tx_hash ORDER BY mined_block, nonce"
        )
    };
    (promote, $index:literal, $given:literal) => {
        concat!(
            "UPDATE nonces",
            $index,
            " SET finality = CASE WHEN mined_block <= $7 THEN 3 ELSE 2 END
             WHERE account = $1 AND state = 'mined' AND finality IN (1, 2)
             AND mined_block BETWEEN $2 AND $3 AND mined_block_hash ",
            $given,
            " AND mined_at <= $5 AND (mined_block <= $7 OR (mined_block <= $6 AND finality = 1))"
        )
    };
}
use alike;
