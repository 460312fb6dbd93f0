-- From version 7 to 8: the forwarder's nonces are looked up, and the oldest open event by its being due.
CREATE INDEX relays_forward_nonce ON relays (signer, forward_nonce);
DROP INDEX webhook_events_waiting;
-- created_at >= 0: not of use for anything but the oldest one.
CREATE INDEX webhook_events_waiting ON webhook_events (created_at) WHERE due_at IS NOT NULL AND created_at >= 0;
