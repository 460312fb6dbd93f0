//! SQLite's words. `INDEXED BY`: its planner takes an account's nonces for few.

use super::{INSERT_FOR_HOLDER, Statements, standing};

/// The statements of a daemon that is alone.
pub(in super::super::super) const SQLITE: Statements = Statements {
    locks: None,
    frequent: None,
    insert_relay: "
INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, created_at, client)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
    standing: standing!("NULL", "id = $1"),
    charge_rate: "
INSERT INTO rates VALUES ($1, $2 + $4) ON CONFLICT (party) DO UPDATE
SET full_at = CASE WHEN rates.full_at > excluded.full_at - $2 THEN rates.full_at + $2 ELSE excluded.full_at END
WHERE rates.full_at - excluded.full_at + 2 * $2 <= $3 RETURNING party",
    hold_lease: "SELECT epoch FROM account_leases WHERE account = $1 AND holder = $2",
    delete_daemons: "DELETE FROM daemons WHERE expires_at <= $1",
    to_archive: "
SELECT id FROM relays WHERE finished_at < $1
AND EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id)
AND NOT EXISTS (
    SELECT 1 FROM nonces AS own WHERE own.relay = relays.id AND (own.state = 'open'
    OR own.nonce > (SELECT max(nonce) FROM nonces WHERE account = own.account) - $2))
ORDER BY finished_at LIMIT $3",
    old_gaps: "
SELECT account, nonce FROM nonces AS gap WHERE relay IS NULL AND state <> 'open'
AND nonce <= (SELECT max(nonce) FROM nonces WHERE account = gap.account) - $2
AND NOT EXISTS (SELECT 1 FROM transactions
    WHERE account = gap.account AND nonce = gap.nonce AND (created_at >= $1 OR gap.mined_at >= $1))
LIMIT $3",
    nonces_of_block: "
SELECT * FROM nonces INDEXED BY nonces_unchecked WHERE account = $1 AND state = 'mined' AND finality = 0
AND mined_block = $2 AND mined_block_hash = $3 LIMIT $4",
    checked: "
UPDATE nonces INDEXED BY nonces_unchecked SET finality = 1 WHERE account = $1 AND state = 'mined' AND finality = 0
AND mined_block = $2 AND mined_block_hash = $3",
    doubt: "
UPDATE nonces INDEXED BY nonces_checked SET finality = 0
WHERE account = $1 AND state = 'mined' AND finality IN (1, 2)",
    told_of_level: "
SELECT relays.id AS id FROM nonces INDEXED BY nonces_checked JOIN relays ON relays.id = nonces.relay
WHERE account = $1 AND nonces.state = 'mined' AND finality IN (1, 2) AND mined_block = $2
AND mined_block_hash = $3 AND finality < $4 AND mined_at <= $5 AND is_told AND mined_hash = tx_hash",
    promote: "
UPDATE nonces INDEXED BY nonces_checked SET finality = $4
WHERE account = $1 AND state = 'mined' AND finality IN (1, 2)
AND mined_block = $2 AND mined_block_hash = $3 AND finality < $4 AND mined_at <= $5",
    next_sequence: None,
};

/// The statements of a fleet's tests, with the columns of a fleet.
pub(in super::super::super) const FLEET_ON_SQLITE: Statements =
    Statements { insert_relay: INSERT_FOR_HOLDER, standing: standing!("holder", "id = $1"), ..SQLITE };
