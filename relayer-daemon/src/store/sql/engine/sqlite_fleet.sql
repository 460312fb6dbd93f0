-- What daemons share besides the journal, as in postgres.sql. For tests: a file has one daemon.
ALTER TABLE relays ADD COLUMN holder TEXT;
CREATE TABLE daemons (id TEXT PRIMARY KEY, expires_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE daemon_keys (
    daemon        TEXT NOT NULL REFERENCES daemons (id) ON DELETE CASCADE,
    account       BLOB NOT NULL,
    state         TEXT,
    PRIMARY KEY (daemon, account)
) WITHOUT ROWID;
CREATE TABLE account_leases (
    account       BLOB PRIMARY KEY,
    holder        TEXT,
    epoch         INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE rates (party TEXT PRIMARY KEY, full_at INTEGER NOT NULL) WITHOUT ROWID;
