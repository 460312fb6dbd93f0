-- From version 2 to 3, as sqlite_9.sql.
-- What the operator has ordered and is in force: paused, cordoned (subject: an account), cancelled (subject: a relay),
-- and the number of the last order to reload. Times are unix seconds.
CREATE TABLE control (
    name          TEXT NOT NULL,
    subject       BYTEA NOT NULL,
    since         BIGINT NOT NULL,
    number        BIGINT NOT NULL,
    PRIMARY KEY (name, subject)
);
-- Each order, with the user that gave it and its result.
CREATE TABLE operations (
    sequence      BIGSERIAL PRIMARY KEY,
    at            BIGINT NOT NULL,
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
    reload        BIGINT NOT NULL,
    fault         TEXT,
    reported_at   BIGINT NOT NULL
);
