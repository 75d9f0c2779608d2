-- Version 3: every writing statement asks whether something is missed.
CREATE INDEX lost_open ON lost (sequence) WHERE accepted_ms IS NULL;
