-- The journal that the daemons of a fleet share: the tables of sqlite.sql, and below them those of the fleet. rowid is
-- what SQLite has of itself. Wei are decimal text: they do not fit in 64 bits. Hashes, addresses and 256-bit numbers
-- are big-endian bytes.

CREATE TABLE identity (
    only_row      BIGINT PRIMARY KEY CHECK (only_row = 1),
    chain_id      BIGINT NOT NULL,
    genesis       BYTEA NOT NULL,
    forwarder     BYTEA NOT NULL
);

-- A relay, from its acceptance on, and how it ended: error_* for reverted and dropped ones, tx_hash to agent_id for
-- mined ones. client: an IPv6 address, or an IPv4 address mapped into IPv6; NULL a day after the end. expected_gas: NULL while nothing is reserved.
-- api_key: the name of the key that sponsors it; sponsored_gas: the most it may use; is_told: whether a webhook is told
-- of its changes.
CREATE TABLE relays (
    id            BYTEA PRIMARY KEY,
    signer        BYTEA NOT NULL,
    forward_nonce BYTEA NOT NULL,
    deadline      BIGINT NOT NULL,
    calldata      BYTEA NOT NULL,
    l1_fee_wei    TEXT NOT NULL DEFAULT '0',
    reserved_wei  TEXT NOT NULL DEFAULT '0',
    state         TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'executed', 'reverted', 'dropped')),
    error_code    TEXT,
    error_detail  TEXT,
    error_retry   BIGINT,
    tx_hash       BYTEA,
    block_number  BIGINT,
    gas_used      BIGINT,
    agent_id      BYTEA,
    created_at    BIGINT NOT NULL,
    finished_at   BIGINT,
    client        BYTEA,
    expected_gas  BIGINT,
    api_key       TEXT,
    sponsored_gas BIGINT NOT NULL DEFAULT 0,
    is_told       BOOLEAN NOT NULL DEFAULT FALSE,
    -- The daemon that brings it to its end while it is pending; NULL: any may take it.
    holder        TEXT,
    rowid         BIGSERIAL
);
CREATE INDEX relays_pending ON relays (created_at) WHERE state = 'pending';
-- Read for each reservation: only relays that hold one, not those queued behind their signer's others.
CREATE INDEX relays_reserved ON relays (reserved_wei) WHERE state = 'pending' AND reserved_wei <> '0';
CREATE INDEX relays_signer ON relays (signer) WHERE state = 'pending';
CREATE INDEX relays_sponsored ON relays (api_key) WHERE state = 'pending' AND api_key IS NOT NULL;
CREATE INDEX relays_finished ON relays (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX relays_clients ON relays (finished_at) WHERE client IS NOT NULL;
CREATE INDEX relays_dropped ON relays (finished_at) WHERE state = 'dropped';

-- An assigned nonce of a paying account. open: not seen mined; mined: by one of our hashes; lost: by a foreign
-- transaction. finality of a mined one: -1 its block is gone and its fate unknown, 0 its block is not compared with
-- the chain yet, 1 it is on the chain, 2 safe, 3 final.
CREATE TABLE nonces (
    account       BYTEA NOT NULL,
    nonce         BIGINT NOT NULL,
    relay         BYTEA REFERENCES relays (id),
    state         TEXT NOT NULL CHECK (state IN ('open', 'mined', 'lost')),
    mined_hash    BYTEA,
    mined_block   BIGINT,
    mined_block_hash BYTEA,
    mined_at      BIGINT,
    finality      BIGINT NOT NULL DEFAULT 0,
    paid_wei      TEXT NOT NULL DEFAULT '0',
    PRIMARY KEY (account, nonce)
);
CREATE INDEX nonces_relay ON nonces (relay);
CREATE INDEX nonces_open ON nonces (account, nonce) WHERE state = 'open';
CREATE INDEX nonces_unchecked ON nonces (account, mined_block) WHERE state = 'mined' AND finality = 0;
CREATE INDEX nonces_checked ON nonces (account, mined_block) WHERE state = 'mined' AND finality IN (1, 2);
CREATE INDEX nonces_lost ON nonces (account, nonce) WHERE state = 'lost';

-- Every transaction ever signed for a nonce, in order of signing.
CREATE TABLE transactions (
    hash          BYTEA PRIMARY KEY,
    account       BYTEA NOT NULL,
    nonce         BIGINT NOT NULL,
    purpose       TEXT NOT NULL,
    raw           BYTEA NOT NULL,
    max_fee_wei   TEXT NOT NULL,
    tip_wei       TEXT NOT NULL,
    gas_limit     BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    rowid         BIGSERIAL,
    FOREIGN KEY (account, nonce) REFERENCES nonces (account, nonce)
);
CREATE INDEX transactions_nonce ON transactions (account, nonce);

-- The budget's window; no row, or NULL, while nothing was used.
CREATE TABLE budget (
    only_row      BIGINT PRIMARY KEY CHECK (only_row = 1),
    opened_at     BIGINT,
    settled_wei   TEXT NOT NULL
);
-- What each party (a byte for its kind, then its address) paid in the window; empty while nothing was paid in it.
CREATE TABLE spending (party BYTEA PRIMARY KEY, settled_wei TEXT NOT NULL);

-- The gas that the relays of an API key used in its window of 24 hours, which opens with its first use.
CREATE TABLE key_gas (api_key TEXT PRIMARY KEY, opened_at BIGINT NOT NULL, used BIGINT NOT NULL);

-- A change of a relay's state that its key's webhook is told. due_at: only the oldest open event of a relay has
-- one. ended_at: when it was delivered or given up; NULL while it is open.
CREATE TABLE webhook_events (
    sequence      BIGSERIAL PRIMARY KEY,
    id            TEXT NOT NULL,
    api_key       TEXT NOT NULL,
    relay         BYTEA NOT NULL,
    body          TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    attempts      BIGINT NOT NULL DEFAULT 0,
    due_at        BIGINT,
    ended_at      BIGINT,
    was_delivered BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX webhook_events_due ON webhook_events (api_key, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_events_open ON webhook_events (relay, sequence) WHERE ended_at IS NULL;
CREATE INDEX webhook_events_waiting ON webhook_events (created_at) WHERE ended_at IS NULL;
CREATE INDEX webhook_events_key ON webhook_events (api_key, created_at);
CREATE INDEX webhook_events_age ON webhook_events (created_at);

-- A relay that ended long ago: its outcome, and the hashes of its transactions, oldest first, 32 bytes each.
CREATE TABLE archive (
    id            BYTEA PRIMARY KEY,
    state         TEXT NOT NULL,
    error_code    TEXT,
    error_detail  TEXT,
    error_retry   BIGINT,
    tx_hash       BYTEA,
    block_number  BIGINT,
    gas_used      BIGINT,
    agent_id      BYTEA,
    finished_at   BIGINT NOT NULL,
    finality      BIGINT NOT NULL DEFAULT 0,
    hashes        BYTEA NOT NULL
);
CREATE INDEX archive_finished ON archive (finished_at);
-- For each account the highest nonce with an archived relay.
CREATE TABLE archived_nonces (account BYTEA PRIMARY KEY, highest BIGINT NOT NULL);

-- The daemons of the fleet, each with the accounts it has keys of. Times of the fleet's tables are milliseconds by the
-- database's clock.
CREATE TABLE daemons (id TEXT PRIMARY KEY, expires_at BIGINT NOT NULL);
CREATE TABLE daemon_keys (
    daemon        TEXT NOT NULL REFERENCES daemons (id) ON DELETE CASCADE,
    account       BYTEA NOT NULL,
    PRIMARY KEY (daemon, account)
);
-- The daemon that alone may use an account's nonces until expires_at. epoch grows with each new holder: a write about
-- a nonce carries it, and fails if it is old.
CREATE TABLE leases (
    account       BYTEA PRIMARY KEY,
    holder        TEXT,
    epoch         BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL
);
-- Rate limits over the fleet: when a party's bucket is empty of requests again.
CREATE TABLE rates (party TEXT PRIMARY KEY, full_at BIGINT NOT NULL);
