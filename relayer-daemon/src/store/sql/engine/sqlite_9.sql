-- From version 8 to 9, and the end of a new file's schema: the operator's orders.
-- What the operator has ordered and is in force: paused, cordoned (subject: an account), cancelled (subject: a relay),
-- and the number of the last order to reload. Times are unix seconds.
CREATE TABLE control (
    name          TEXT NOT NULL,
    subject       BLOB NOT NULL,
    since         INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    PRIMARY KEY (name, subject)
);
-- Each order, with the user that gave it and its result.
CREATE TABLE operations (
    sequence      INTEGER PRIMARY KEY AUTOINCREMENT,
    at            INTEGER NOT NULL,
    operator      TEXT NOT NULL,
    command       TEXT NOT NULL,
    argument      TEXT NOT NULL,
    result        TEXT NOT NULL
);
CREATE INDEX operations_at ON operations (at);
-- What each daemon says of itself; reported_at in milliseconds.
CREATE TABLE daemon_reports (
    daemon        TEXT PRIMARY KEY,
    host          TEXT NOT NULL,
    policy        TEXT NOT NULL,
    settings      TEXT NOT NULL,
    reload        INTEGER NOT NULL,
    fault         TEXT,
    reported_at   INTEGER NOT NULL
);
