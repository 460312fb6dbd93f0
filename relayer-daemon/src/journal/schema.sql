-- Everything the daemon must remember across a kill -9. Wei are decimal text: they do not fit in 64 bits.

CREATE TABLE IF NOT EXISTS identity (
    only_row      INTEGER PRIMARY KEY CHECK (only_row = 1),
    chain_id      INTEGER NOT NULL,
    genesis       BLOB NOT NULL,
    relayer       BLOB NOT NULL,
    forwarder     BLOB NOT NULL
);

-- A relay, from its acceptance on. `outcome` is NULL while it is pending; else JSON.
CREATE TABLE IF NOT EXISTS relays (
    id            BLOB PRIMARY KEY,
    signer        BLOB NOT NULL,
    forward_nonce BLOB NOT NULL,
    deadline      INTEGER NOT NULL,
    calldata      BLOB NOT NULL,
    l1_fee_wei    TEXT NOT NULL DEFAULT '0',
    reserved_wei  TEXT NOT NULL DEFAULT '0',
    outcome       TEXT,
    created_at    INTEGER NOT NULL,
    finished_at   INTEGER
);
CREATE INDEX IF NOT EXISTS relays_pending ON relays (created_at) WHERE outcome IS NULL;
-- Read for each reservation: only relays that hold one, not those that queue behind their signer's others.
CREATE INDEX IF NOT EXISTS relays_reserved ON relays (reserved_wei)
    WHERE outcome IS NULL AND reserved_wei <> '0';

-- A nonce of the relayer's account that was given away. open: not seen mined; mined: by one of our hashes;
-- lost: by somebody else's transaction.
CREATE TABLE IF NOT EXISTS nonces (
    nonce         INTEGER PRIMARY KEY,
    relay         BLOB REFERENCES relays (id),
    state         TEXT NOT NULL CHECK (state IN ('open', 'mined', 'lost')),
    mined_hash    BLOB,
    mined_block   INTEGER,
    mined_at      INTEGER,
    paid_wei      TEXT NOT NULL DEFAULT '0'
);
CREATE INDEX IF NOT EXISTS nonces_relay ON nonces (relay);

-- Every transaction ever signed for a nonce, in order of signing.
CREATE TABLE IF NOT EXISTS transactions (
    hash          BLOB PRIMARY KEY,
    nonce         INTEGER NOT NULL REFERENCES nonces (nonce),
    purpose       TEXT NOT NULL,
    raw           BLOB NOT NULL,
    max_fee_wei   TEXT NOT NULL,
    tip_wei       TEXT NOT NULL,
    gas_limit     INTEGER NOT NULL,
    created_at    INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS transactions_nonce ON transactions (nonce);

-- The budget's window; no row, or NULL, while nothing was used.
CREATE TABLE IF NOT EXISTS budget (
    only_row      INTEGER PRIMARY KEY CHECK (only_row = 1),
    opened_at     INTEGER,
    settled_wei   TEXT NOT NULL
);
