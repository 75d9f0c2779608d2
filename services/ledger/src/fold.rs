//! What either store makes of what it reads: receipts from their events, and the numbers and digests in rows.

use postern_types::{ReceiptEvent, Sha256};

use crate::{
    Error,
    receipt::{Blobs, Receipt},
};

/// Receipts from their events, which come one receipt after the other.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    receipts: Vec<Receipt>,
}

impl Fold {
    /// Takes in the next event: its canonical JSON, its hash, and what stands beside it.
    pub(crate) fn push(&mut self, body: &str, hash: &[u8], blobs: Blobs) -> Result<(), Error> {
        let event: ReceiptEvent = serde_json::from_str(body)
            .map_err(|error| Error::Corrupt(format!("an event's content: {error}")))?;
        let hash = digest(hash)?;
        match self.receipts.last_mut() {
            Some(receipt) if receipt.id == event.receipt_id => receipt.apply(&event, hash, blobs),
            Some(_) | None => {
                self.receipts.push(Receipt::first(&event, hash, blobs)?);
                Ok(())
            }
        }
    }

    /// The receipts, in the order in which they came.
    pub(crate) fn finish(self) -> Vec<Receipt> {
        self.receipts
    }
}

/// A digest as a database keeps it.
pub(crate) fn digest(bytes: &[u8]) -> Result<Sha256, Error> {
    let bytes = bytes
        .try_into()
        .map_err(|_| Error::Corrupt("an event's hash".to_owned()))?;
    Ok(Sha256::from_bytes(bytes))
}

/// A count or place as a database keeps it, which knows no unsigned numbers.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The same towards the database.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
