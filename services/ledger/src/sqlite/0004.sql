-- Version 4. What a worker stands on, as JSON: workers of one ledger share it. Empty from earlier versions.
ALTER TABLE workers ADD COLUMN ground TEXT NOT NULL DEFAULT '';
