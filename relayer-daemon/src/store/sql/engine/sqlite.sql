-- What the daemon must remember across a kill -9. Wei are decimal text: they do not fit in 64 bits.
-- Hashes, addresses and 256-bit numbers are big-endian blobs.

CREATE TABLE identity (
    only_row      INTEGER PRIMARY KEY CHECK (only_row = 1),
    chain_id      INTEGER NOT NULL,
    genesis       BLOB NOT NULL,
    forwarder     BLOB NOT NULL
);

-- A relay, from its acceptance on, and how it ended: error_* for reverted and dropped ones, tx_hash to agent_id for
-- mined ones. client: an IPv6 address, or an IPv4 address mapped into IPv6; NULL a day after the end. expected_gas: NULL while nothing is reserved.
-- api_key: the name of the key that sponsors it; sponsored_gas: the most it may use; is_told: whether a webhook is told
-- of its changes.
CREATE TABLE relays (
    id            BLOB PRIMARY KEY,
    signer        BLOB NOT NULL,
    forward_nonce BLOB NOT NULL,
    deadline      INTEGER NOT NULL,
    calldata      BLOB NOT NULL,
    l1_fee_wei    TEXT NOT NULL DEFAULT '0',
    reserved_wei  TEXT NOT NULL DEFAULT '0',
    state         TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'executed', 'reverted', 'dropped')),
    error_code    TEXT,
    error_detail  TEXT,
    error_retry   INTEGER,
    tx_hash       BLOB,
    block_number  INTEGER,
    gas_used      INTEGER,
    agent_id      BLOB,
    created_at    INTEGER NOT NULL,
    finished_at   INTEGER,
    client        BLOB,
    expected_gas  INTEGER,
    api_key       TEXT,
    sponsored_gas INTEGER NOT NULL DEFAULT 0,
    is_told       INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX relays_pending ON relays (created_at) WHERE state = 'pending';
-- Read for each reservation: only relays that hold one, not those queued behind their signer's others.
CREATE INDEX relays_reserved ON relays (reserved_wei) WHERE state = 'pending' AND reserved_wei <> '0';
CREATE INDEX relays_forward_nonce ON relays (signer, forward_nonce);
CREATE INDEX relays_sponsored ON relays (api_key) WHERE state = 'pending' AND api_key IS NOT NULL;
CREATE INDEX relays_finished ON relays (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX relays_clients ON relays (finished_at) WHERE client IS NOT NULL;
CREATE INDEX relays_dropped ON relays (finished_at) WHERE state = 'dropped';

-- An assigned nonce of a paying account. open: not seen mined; mined: by one of our hashes; lost: by a foreign
-- transaction. finality of a mined one: -1 its block is gone and its fate unknown, 0 its block is not compared with
-- the chain yet, 1 it is on the chain, 2 safe, 3 final.
CREATE TABLE nonces (
    account       BLOB NOT NULL,
    nonce         INTEGER NOT NULL,
    relay         BLOB REFERENCES relays (id),
    state         TEXT NOT NULL CHECK (state IN ('open', 'mined', 'lost')),
    mined_hash    BLOB,
    mined_block   INTEGER,
    mined_block_hash BLOB,
    mined_at      INTEGER,
    finality      INTEGER NOT NULL DEFAULT 0,
    paid_wei      TEXT NOT NULL DEFAULT '0',
    -- In flight beside another nonce of its relay, since a reorganisation.
    is_second     INTEGER NOT NULL DEFAULT FALSE,
    PRIMARY KEY (account, nonce)
) WITHOUT ROWID;
CREATE UNIQUE INDEX nonces_in_flight ON nonces (relay) WHERE state = 'open' AND NOT is_second;
CREATE INDEX nonces_relay ON nonces (relay);
CREATE INDEX nonces_open ON nonces (account, nonce) WHERE state = 'open';
CREATE INDEX nonces_unchecked ON nonces (account, mined_block) WHERE state = 'mined' AND finality = 0;
CREATE INDEX nonces_checked ON nonces (account, mined_block) WHERE state = 'mined' AND finality IN (1, 2);
CREATE INDEX nonces_lost ON nonces (account, nonce) WHERE state = 'lost';

-- Every transaction ever signed for a nonce, in order of signing.
CREATE TABLE transactions (
    hash          BLOB PRIMARY KEY,
    account       BLOB NOT NULL,
    nonce         INTEGER NOT NULL,
    purpose       TEXT NOT NULL,
    raw           BLOB NOT NULL,
    max_fee_wei   TEXT NOT NULL,
    tip_wei       TEXT NOT NULL,
    gas_limit     INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    FOREIGN KEY (account, nonce) REFERENCES nonces (account, nonce)
);
CREATE INDEX transactions_nonce ON transactions (account, nonce);

-- The budget's window; no row, or NULL, while nothing was used.
CREATE TABLE budget (
    only_row      INTEGER PRIMARY KEY CHECK (only_row = 1),
    opened_at     INTEGER,
    settled_wei   TEXT NOT NULL
);
-- What each party (a byte for its kind, then its address) paid in the window; empty while nothing was paid in it.
CREATE TABLE spending (party BLOB PRIMARY KEY, settled_wei TEXT NOT NULL) WITHOUT ROWID;

-- The gas that the relays of an API key used in its window of 24 hours, which opens with its first use.
CREATE TABLE key_gas (api_key TEXT PRIMARY KEY, opened_at INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;

-- A change of a relay's state that its key's webhook is told. due_at: only the oldest open event of a relay has
-- one. ended_at: when it was delivered or given up; NULL while it is open.
CREATE TABLE webhook_events (
    sequence      INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT NOT NULL,
    api_key       TEXT NOT NULL,
    relay         BLOB NOT NULL,
    body          TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    attempts      INTEGER NOT NULL DEFAULT 0,
    due_at        INTEGER,
    ended_at      INTEGER,
    was_delivered INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX webhook_events_due ON webhook_events (api_key, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_events_open ON webhook_events (relay, sequence) WHERE ended_at IS NULL;
-- created_at >= 0: not of use for anything but the oldest one.
CREATE INDEX webhook_events_waiting ON webhook_events (created_at) WHERE due_at IS NOT NULL AND created_at >= 0;
CREATE INDEX webhook_events_key ON webhook_events (api_key, created_at);
CREATE INDEX webhook_events_age ON webhook_events (created_at);

-- A relay that ended long ago: its outcome, and the hashes of its transactions, oldest first, 32 bytes each.
CREATE TABLE archive (
    id            BLOB PRIMARY KEY,
    state         TEXT NOT NULL,
    error_code    TEXT,
    error_detail  TEXT,
    error_retry   INTEGER,
    tx_hash       BLOB,
    block_number  INTEGER,
    gas_used      INTEGER,
    agent_id      BLOB,
    finished_at   INTEGER NOT NULL,
    finality      INTEGER NOT NULL DEFAULT 0,
    hashes        BLOB NOT NULL
);
CREATE INDEX archive_finished ON archive (finished_at);
-- For each account the highest nonce with an archived relay.
CREATE TABLE archived_nonces (account BLOB PRIMARY KEY, highest INTEGER NOT NULL) WITHOUT ROWID;
