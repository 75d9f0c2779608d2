//! Ledger service: durable receipts in a hash chain.
