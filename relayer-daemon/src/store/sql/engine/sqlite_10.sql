-- From version 9 to 10: a relay has one nonce in flight. A reorganisation may bring another one back (is_second).
ALTER TABLE nonces ADD COLUMN is_second INTEGER NOT NULL DEFAULT FALSE;
UPDATE nonces SET is_second = TRUE WHERE state = 'open' AND EXISTS (
    SELECT 1 FROM nonces AS other WHERE other.relay = nonces.relay AND other.state = 'open'
    AND (other.account, other.nonce) < (nonces.account, nonces.nonce));
CREATE UNIQUE INDEX nonces_in_flight ON nonces (relay) WHERE state = 'open' AND NOT is_second;
