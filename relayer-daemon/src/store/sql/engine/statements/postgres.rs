//! The statements of Postgres. Locks are taken in the order of [`super::super::super::locks`].

use super::{FrequentStatements, INSERT_FOR_HOLDER, LockStatements, Statements, alike, standing};

/// The statements of a fleet.
pub(in super::super::super) const POSTGRES: Statements = Statements {
    locks: Some(LockStatements {
        lease: "SELECT epoch FROM account_leases WHERE account = $1 FOR UPDATE",
        leases_of: "SELECT account FROM account_leases WHERE holder = $1 ORDER BY account FOR UPDATE",
        leases_to_renew: "
SELECT account FROM account_leases WHERE holder = $1 OR (account = ANY ($2) AND (holder IS NULL OR expires_at <= $3))
ORDER BY account FOR NO KEY UPDATE",
        relay: "SELECT id FROM relays WHERE id = $1 FOR NO KEY UPDATE",
        relays: "SELECT id FROM relays WHERE id = ANY ($1) ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE",
        requests: "
SELECT id FROM relays
WHERE (signer, forward_nonce) IN (SELECT signer, forward_nonce FROM relays WHERE id = ANY ($1))
AND (state = 'pending' OR id = ANY ($1)) ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE",
        lease_and_requests: "
WITH held AS (SELECT 1 FROM account_leases WHERE account = $1 AND holder = $2 AND epoch = $3 FOR KEY SHARE)
SELECT id FROM held, relays
WHERE (signer, forward_nonce) IN (SELECT signer, forward_nonce FROM relays WHERE id = ANY ($4))
AND (state = 'pending' OR id = ANY ($4)) ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE OF relays",
        relays_of: "
SELECT id FROM relays WHERE state = 'pending'
AND id IN (SELECT relay FROM nonces WHERE account = ANY ($1) AND state = 'open')
ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE",
        free_relays: "SELECT id FROM relays WHERE id = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED",
        make_key: "INSERT INTO key_gas VALUES ($1, 0, 0) ON CONFLICT DO NOTHING",
        key: "SELECT used FROM key_gas WHERE api_key = $1 FOR NO KEY UPDATE",
        budget: "UPDATE budget SET version = version + 1",
    }),
    frequent: Some(FrequentStatements {
        // Parameters that are selected are text, unless they are cast.
        accept: "
INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, created_at, client, holder)
SELECT CAST($1 AS BYTEA), CAST($2 AS BYTEA), CAST($3 AS BYTEA), CAST($4 AS BIGINT), CAST($5 AS BYTEA),
    CAST($6 AS BIGINT), CAST($7 AS BYTEA), $8
WHERE NOT EXISTS (SELECT 1 FROM archive WHERE id = $1) ON CONFLICT DO NOTHING",
        reserve: "
WITH seen AS (
    SELECT version, opened_at, CAST(settled_wei AS NUMERIC) AS settled FROM budget
    WHERE opened_at <= $4 AND $4 - opened_at < $9
), own AS (
    SELECT id, signer, client, forward_nonce FROM relays
    WHERE id = $1 AND state = 'pending' AND holder = $2 FOR NO KEY UPDATE
), held AS (
    SELECT signer, client, CAST(reserved_wei AS NUMERIC) AS wei FROM relays
    WHERE state = 'pending' AND reserved_wei <> '0' AND id <> $1
), gaps AS (
    SELECT coalesce(sum((
        SELECT max(CAST(max_fee_wei AS NUMERIC)
            * (gas_limit + CASE WHEN gas_limit < 0 THEN 18446744073709551616 ELSE 0 END))
        FROM transactions WHERE account = gap.account AND nonce = gap.nonce)), 0)
        + (SELECT coalesce(sum(CAST(settled_wei AS NUMERIC)), 0) FROM spending WHERE party > $10) AS wei
    FROM nonces AS gap WHERE state = 'open' AND relay IS NULL
), used AS (
    SELECT party,
        coalesce((SELECT CAST(settled_wei AS NUMERIC) FROM spending WHERE spending.party = parties.party), 0)
        + coalesce((SELECT sum(wei) FROM held
            WHERE parties.party = ANY (relay_parties(held.signer, held.client))), 0) AS wei
    FROM (SELECT unnest(relay_parties(signer, client)) AS party FROM own) AS parties
), asked AS (
    SELECT CAST(CAST($3 AS TEXT) AS NUMERIC) AS wei, CAST(CAST($5 AS TEXT) AS NUMERIC) AS most
), fits AS (
    SELECT seen.*, gaps.wei + coalesce((SELECT sum(wei) FROM held), 0) AS reserved FROM seen, gaps, asked
    WHERE settled + gaps.wei + coalesce((SELECT sum(wei) FROM held), 0) + asked.wei <= asked.most
    AND NOT EXISTS (SELECT 1 FROM used WHERE used.wei > 0 AND used.wei + asked.wei
        > CAST((CAST($6 AS TEXT[]))[get_byte(party, 0) + 1] AS NUMERIC))
    AND NOT EXISTS (
        SELECT 1 FROM own JOIN relays AS other ON other.signer = own.signer
            AND other.forward_nonce = own.forward_nonce AND other.id <> own.id
            JOIN nonces ON nonces.relay = other.id
        WHERE other.state IN ('executed', 'reverted') AND mined_hash = other.tx_hash AND finality >= 0
        AND coalesce(other.error_code, '') <> 'FORWARDER_REFUSED')
), locked AS (
    UPDATE budget SET version = budget.version + 1 FROM own, fits WHERE budget.version = fits.version
    RETURNING fits.opened_at, fits.settled, fits.reserved
), done AS (
    UPDATE relays SET reserved_wei = $3, l1_fee_wei = $7, expected_gas = $8 FROM locked WHERE relays.id = $1
    RETURNING locked.opened_at, CAST(locked.settled AS TEXT) AS settled_wei,
        CAST(locked.reserved AS TEXT) AS reserved_wei
)
SELECT EXISTS (SELECT 1 FROM fits) AND EXISTS (SELECT 1 FROM own) AS fits, done.*
FROM (SELECT 1) AS one LEFT JOIN done ON TRUE",
        record: "
WITH given AS (
    SELECT * FROM unnest(CAST($4 AS BYTEA[]), CAST($5 AS BIGINT[]), CAST($6 AS BYTEA[]), CAST($7 AS BYTEA[]),
        CAST($8 AS TEXT[]), CAST($9 AS TEXT[]), CAST($10 AS TEXT[]), CAST($11 AS BIGINT[]))
    AS given (relay, nonce, hash, raw, purpose, max_fee, tip, gas)
), able AS (
    SELECT count(DISTINCT own.id) AS relays FROM given JOIN relays AS own ON own.id = given.relay
    WHERE own.state = 'pending' AND own.holder = $2
    AND EXISTS (SELECT 1 FROM account_leases WHERE account = $1 AND holder = $2 AND epoch = $3)
    AND NOT EXISTS (SELECT 1 FROM control WHERE name = 'cancelled' AND subject = own.id)
    AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = own.id AND state = 'open')
    AND NOT EXISTS (SELECT 1 FROM nonces WHERE account = $1 AND nonces.nonce = given.nonce)
    AND NOT EXISTS (
        SELECT 1 FROM relays AS other JOIN nonces ON nonces.relay = other.id
        WHERE other.signer = own.signer AND other.forward_nonce = own.forward_nonce AND other.id <> own.id
        AND ((other.state = 'pending' AND nonces.state = 'open')
            OR (other.state IN ('executed', 'reverted') AND mined_hash = other.tx_hash AND finality >= 0
                AND coalesce(other.error_code, '') <> 'FORWARDER_REFUSED')))
), written AS (
    INSERT INTO nonces (account, nonce, relay, state)
    SELECT CAST($1 AS BYTEA), nonce, relay, 'open' FROM given, able
    WHERE able.relays = (SELECT count(*) FROM given) RETURNING nonces.nonce
), signed AS (
    INSERT INTO transactions (hash, account, nonce, purpose, raw, max_fee_wei, tip_wei, gas_limit, created_at)
    SELECT hash, CAST($1 AS BYTEA), nonce, purpose, raw, max_fee, tip, gas, CAST($12 AS BIGINT)
    FROM given JOIN written USING (nonce)
)
SELECT count(*) AS written FROM written",
        // All of `held` is locked before the first relay: it is counted.
        settle: "
WITH given AS (
    SELECT * FROM unnest(CAST($1 AS BYTEA[]), CAST($2 AS BIGINT[]), CAST($3 AS BIGINT[]), CAST($4 AS BYTEA[]),
        CAST($5 AS BYTEA[]), CAST($6 AS BIGINT[]), CAST($7 AS BYTEA[]), CAST($8 AS TEXT[]), CAST($9 AS BIGINT[]),
        CAST($10 AS BYTEA[]))
    AS given (account, epoch, nonce, relay, tx_hash, block, block_hash, paid_wei, gas, agent)
    WHERE EXISTS (SELECT 1 FROM budget WHERE opened_at <= $12 AND $12 - opened_at < $13)
), held AS (
    SELECT account FROM account_leases WHERE holder = $11
    AND (account, epoch) IN (SELECT account, epoch FROM given) ORDER BY account FOR KEY SHARE
), own AS (
    SELECT id, signer, client FROM relays
    WHERE id IN (SELECT relay FROM given) AND state = 'pending' AND api_key IS NULL
    AND (SELECT count(*) FROM held) > 0
    ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE
), mined AS (
    UPDATE nonces SET state = 'mined', mined_hash = given.tx_hash, mined_block = given.block,
        mined_block_hash = given.block_hash, mined_at = $12, paid_wei = given.paid_wei, finality = 0
    FROM given, held, own
    WHERE held.account = given.account AND own.id = given.relay AND nonces.account = given.account
    AND nonces.nonce = given.nonce AND nonces.relay = given.relay AND nonces.state = 'open' AND nonces.paid_wei = '0'
    AND NOT EXISTS (SELECT 1 FROM nonces AS other WHERE other.relay = given.relay AND other.state = 'open'
        AND (other.account, other.nonce) <> (given.account, given.nonce))
    AND NOT EXISTS (SELECT 1 FROM spending
        WHERE party > $14 AND substr(party, 10) = given.account || int8send(given.nonce))
    RETURNING own.signer, own.client, given.relay, given.tx_hash, given.block, given.gas, given.agent, given.paid_wei
), ended AS (
    UPDATE relays SET state = 'executed', error_code = NULL, error_detail = NULL, error_retry = NULL,
        tx_hash = mined.tx_hash, block_number = mined.block, gas_used = mined.gas, agent_id = mined.agent,
        finished_at = $12, reserved_wei = '0'
    FROM mined WHERE relays.id = mined.relay
    RETURNING mined.relay, mined.signer, mined.client, CAST(mined.paid_wei AS NUMERIC) AS paid
), charged AS (
    UPDATE budget SET opened_at = coalesce(budget.opened_at, $12),
        settled_wei = CAST(CAST(budget.settled_wei AS NUMERIC) + paid.wei AS TEXT)
    FROM (SELECT sum(paid) AS wei FROM ended) AS paid WHERE paid.wei IS NOT NULL
    RETURNING budget.only_row
), spent AS (
    INSERT INTO spending
    SELECT party, CAST(sum(paid) AS TEXT)
    FROM (SELECT unnest(relay_parties(signer, client)) AS party, paid FROM ended, charged) AS parts
    GROUP BY party ORDER BY party
    ON CONFLICT (party) DO UPDATE
    SET settled_wei = CAST(CAST(spending.settled_wei AS NUMERIC) + CAST(excluded.settled_wei AS NUMERIC) AS TEXT)
)
SELECT relay FROM ended",
    }),
    insert_relay: INSERT_FOR_HOLDER,
    standing: standing!("holder", "id = ANY ($1)"),
    charge_rate: alike!(
        charge_rate,
        "coalesce($4, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT))"
    ),
    hold_lease: "SELECT epoch FROM account_leases WHERE account = $1 AND holder = $2 FOR KEY SHARE",
    delete_daemons: "
DELETE FROM daemons WHERE id IN (SELECT id FROM daemons WHERE expires_at <= $1 FOR UPDATE SKIP LOCKED)",
    to_archive: alike!(to_archive, " FOR UPDATE SKIP LOCKED"),
    old_gaps: alike!(old_gaps, " FOR UPDATE SKIP LOCKED"),
    unsettled: alike!(unsettled, "", ""),
    nonces_of_block: alike!(nonces_of_block, ""),
    checked: alike!(checked, "", "= ANY ($4)"),
    doubt: alike!(doubt, ""),
    told_of_blocks: alike!(told_of_blocks, "", "= ANY ($4)"),
    promote: alike!(promote, "", "= ANY ($4)"),
    next_sequence: Some(
        "SELECT setval(pg_get_serial_sequence('webhook_events', 'sequence'),
             greatest(1, (SELECT max(sequence) FROM webhook_events)))",
    ),
};
