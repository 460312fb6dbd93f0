//! The statements of SQLite. They need `INDEXED BY`: its planner assumes few nonces of an account.

use super::{INSERT_FOR_HOLDER, Statements, alike, standing};

/// The statements of a daemon without a fleet.
pub(in super::super::super) const SQLITE: Statements = Statements {
    locks: None,
    frequent: None,
    insert_relay: "
INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, created_at, client)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
    standing: standing!("NULL", "id = $1"),
    charge_rate: alike!(charge_rate, "$4"),
    hold_lease: "SELECT epoch FROM account_leases WHERE account = $1 AND holder = $2",
    delete_daemons: "DELETE FROM daemons WHERE expires_at <= $1",
    to_archive: alike!(to_archive, ""),
    old_gaps: alike!(old_gaps, ""),
    unsettled: alike!(unsettled, " INDEXED BY nonces_unchecked", " INDEXED BY nonces_checked"),
    nonces_of_block: alike!(nonces_of_block, " INDEXED BY nonces_unchecked"),
    checked: alike!(checked, " INDEXED BY nonces_unchecked", "IN (SELECT unhex(value) FROM json_each($4))"),
    doubt: alike!(doubt, " INDEXED BY nonces_checked"),
    told_of_blocks: alike!(
        told_of_blocks,
        " INDEXED BY nonces_checked",
        "IN (SELECT unhex(value) FROM json_each($4))"
    ),
    promote: alike!(promote, " INDEXED BY nonces_checked", "IN (SELECT unhex(value) FROM json_each($4))"),
    next_sequence: None,
};

/// The statements of a fleet's tests, with the columns of a fleet.
pub(in super::super::super) const FLEET_ON_SQLITE: Statements =
    Statements { insert_relay: INSERT_FOR_HOLDER, standing: standing!("holder", "id = $1"), ..SQLITE };
