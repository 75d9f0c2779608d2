//! The index entries of a batch, which either store writes beside its events.

use std::{collections::HashMap, sync::Arc};

use postern_types::{Id, ReceiptId};

use crate::{
    fold::signed,
    receipt::Call,
    store::{Entry, Row, Standing},
};

/// The index entries that a batch leaves, one a receipt.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) new: Vec<(ReceiptId, i64, Arc<Call>, Standing)>,
    pub(crate) changed: Vec<(ReceiptId, Standing)>,
    /// Where a receipt is among the new (true) or the changed ones.
    places: HashMap<ReceiptId, (bool, usize)>,
    /// Sessions by workspace, with the time of their first event in the batch and the sequence and time of their last.
    pub(crate) sessions: HashMap<(i64, Id), (i64, i64, i64)>,
}

impl Entries {
    /// Takes in the next event of the batch.
    pub(crate) fn add(&mut self, row: &Row) {
        let sequence = signed(row.sequence);
        let session = (row.workspace, row.session.clone());
        let active = self
            .sessions
            .entry(session)
            .or_insert((row.at_ms, sequence, row.at_ms));
        (active.1, active.2) = (sequence, row.at_ms);
        let (receipt, workspace) = (row.receipt, row.workspace);
        match (&row.entry, self.places.get(&receipt)) {
            (Entry::New(call, standing), _) => {
                self.places.insert(receipt, (true, self.new.len()));
                let call = Arc::clone(call);
                self.new.push((receipt, workspace, call, *standing));
            }
            (Entry::Changed(standing), Some((true, place))) => self.new[*place].3 = *standing,
            (Entry::Changed(standing), Some((false, place))) => self.changed[*place].1 = *standing,
            (Entry::Changed(standing), None) => {
                self.places.insert(receipt, (false, self.changed.len()));
                self.changed.push((receipt, *standing));
            }
        }
    }
}
