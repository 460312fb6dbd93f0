-- From version 4 to 5.
-- The account's state as the daemon has published it; NULL where it has published none.
ALTER TABLE daemon_keys ADD COLUMN state TEXT;
