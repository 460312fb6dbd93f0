-- From version 3 to 4, as sqlite_10.sql: writes lock rows. Daemons of the versions before rely on one lock for all of
-- them: they refuse to start from now on, and find no leases if they run.
UPDATE format SET least = 4;
ALTER TABLE leases RENAME TO account_leases;
INSERT INTO budget VALUES (1, NULL, '0') ON CONFLICT DO NOTHING;
-- A relay has one nonce in flight. A reorganisation may bring another one back (is_second).
ALTER TABLE nonces ADD COLUMN is_second BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE nonces SET is_second = TRUE WHERE state = 'open' AND EXISTS (
    SELECT 1 FROM nonces AS other WHERE other.relay = nonces.relay AND other.state = 'open'
    AND (other.account, other.nonce) < (nonces.account, nonces.nonce));
CREATE UNIQUE INDEX nonces_in_flight ON nonces (relay) WHERE state = 'open' AND NOT is_second;
-- Grows with each reservation: one that was decided beside another is decided again.
ALTER TABLE budget ADD COLUMN version BIGINT NOT NULL DEFAULT 0;
-- The parties that a request is charged to, as in `spending`: a byte for the kind, then the address.
CREATE FUNCTION relay_parties(signer BYTEA, client BYTEA) RETURNS BYTEA[] IMMUTABLE LANGUAGE SQL AS $$
    SELECT array_remove(ARRAY[
        decode('00', 'hex') || signer,
        decode('01', 'hex') || client,
        decode('02', 'hex') || CASE
            WHEN substring(client FROM 1 FOR 12) = decode('00000000000000000000ffff', 'hex')
            THEN substring(client FROM 1 FOR 15) || decode('00', 'hex')
            ELSE substring(client FROM 1 FOR 6) || decode('00000000000000000000', 'hex') END,
        CASE WHEN client IS NOT NULL THEN decode('03', 'hex') END
    ], NULL)
$$;
