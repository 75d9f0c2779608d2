-- Version 2 of the host's identity: launches can be revoked.

ALTER TABLE launches ADD COLUMN revoked_at INTEGER;
