//! The leases in memory. Time is told to it, and is that for which the ledger was there.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use uuid::Uuid;

use super::{ENDED_KEPT, Past, Standing, WorkerRow};
use crate::Error;

/// What a worker runs and takes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Load {
    pub(crate) running: u32,
    pub(crate) capacity: u32,
    pub(crate) draining: bool,
}

/// A lease that runs.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) row: WorkerRow,
    pub(crate) load: Load,
    pub(crate) renewals: u64,
    /// When it was heard of.
    heard: Duration,
    /// Its end is being written down.
    ending: bool,
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Renewed {
    Standing(Standing),
    /// Its end was decided on and is being written down.
    Ending,
}

/// Everything that is known of workers.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Whether what the database has is in here.
    loaded: bool,
    now: Duration,
    leases: BTreeMap<Uuid, Lease>,
    /// Workers whose beginning is being written down, with what they stand on.
    pub(super) coming: HashMap<Uuid, WorkerRow>,
    past: HashMap<Uuid, Past>,
    /// The oldest first.
    order: VecDeque<Uuid>,
}

impl Book {
    /// Takes over what the database has; each lease begins anew.
    pub(super) fn load(&mut self, rows: Vec<WorkerRow>) {
        for row in rows {
            match row.past {
                Some(past) => self.remember(row.id, past),
                None => {
                    let load = Load {
                        capacity: row.capacity,
                        ..Load::default()
                    };
                    self.begin(row, load);
                }
            }
        }
        self.loaded = true;
    }

    /// A sign of life.
    pub(super) fn renew(&mut self, id: Uuid, load: Load) -> Result<Renewed, Error> {
        self.demand_loaded()?;
        let now = self.now;
        Ok(match self.leases.get_mut(&id) {
            Some(lease) if lease.ending => Renewed::Ending,
            Some(lease) => {
                lease.heard = now;
                lease.load = load;
                lease.renewals += 1;
                Renewed::Standing(Standing::Live)
            }
            None => Renewed::Standing(self.standing(id)),
        })
    }

    /// Whether a worker is registered just so.
    pub(super) fn is_as(&self, row: &WorkerRow) -> bool {
        self.leases.get(&row.id).is_some_and(|lease| {
            let had = &lease.row;
            had.address == row.address
                && had.capacity == row.capacity
                && had.lease_ms == row.lease_ms
                && had.ground == row.ground
        })
    }

    /// A worker is about to begin, unless another that is there stands on another ground.
    pub(super) fn announce(&mut self, row: &WorkerRow) -> Result<(), Error> {
        let there = self.leases.values().map(|lease| &lease.row);
        for other in there.chain(self.coming.values()) {
            if let (Some(own), Some(its)) = (&row.ground, &other.ground)
                && other.id != row.id
                && let Some(apart) = own.apart(its)
            {
                return Err(Error::OtherGround {
                    apart,
                    address: other.address.clone(),
                });
            }
        }
        self.coming.insert(row.id, row.clone());
        Ok(())
    }

    /// Begins a lease that is on disk.
    pub(super) fn begin(&mut self, row: WorkerRow, load: Load) -> Standing {
        if let Some(past) = self.past.get(&row.id) {
            return Standing::Past(*past);
        }
        let (id, heard) = (row.id, self.now);
        let lease = self.leases.entry(id).or_insert_with(|| Lease {
            row: row.clone(),
            load,
            renewals: 0,
            heard,
            ending: false,
        });
        lease.row = row;
        Standing::Live
    }

    /// Time passes. Tells whose lease is over.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<Uuid> {
        self.now += time;
        let now = self.now;
        let over = self.leases.iter().filter(|(_, lease)| {
            let length = u64::try_from(lease.row.lease_ms).unwrap_or(0);
            !lease.ending && now.saturating_sub(lease.heard) > Duration::from_millis(length)
        });
        over.map(|(id, _)| *id).collect()
    }

    /// Gives every lease its whole length: the ledger could not be renewed with.
    pub(super) fn begin_anew(&mut self) {
        for lease in self.leases.values_mut() {
            lease.heard = self.now;
        }
    }

    /// Decides on the end of a lease; the row to write down. `None` when it has ended or is about to.
    pub(super) fn end(&mut self, id: Uuid, past: Past) -> Result<Option<WorkerRow>, Error> {
        self.demand_loaded()?;
        Ok(self
            .leases
            .get_mut(&id)
            .filter(|lease| !lease.ending)
            .map(|lease| {
                lease.ending = true;
                WorkerRow {
                    past: Some(past),
                    ..lease.row.clone()
                }
            }))
    }

    /// The end is on disk.
    pub(super) fn ended(&mut self, id: Uuid, past: Past) {
        self.leases.remove(&id);
        self.remember(id, past);
    }

    /// The end could not be written down.
    pub(super) fn go_on(&mut self, id: Uuid) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.ending = false;
        }
    }

    /// Where a worker stands, as far as that is on disk.
    pub(super) fn standing(&self, id: Uuid) -> Standing {
        match (self.leases.get(&id), self.past.get(&id)) {
            (Some(_), _) => Standing::Live,
            (None, Some(past)) => Standing::Past(*past),
            (None, None) => Standing::Unknown,
        }
    }

    /// How many are live.
    pub(super) fn live(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn list(&self) -> Result<Vec<(Uuid, Lease)>, Error> {
        self.demand_loaded()?;
        let live = self.leases.iter().filter(|(_, lease)| !lease.ending);
        Ok(live.map(|(id, lease)| (*id, lease.clone())).collect())
    }

    fn remember(&mut self, id: Uuid, past: Past) {
        if self.past.insert(id, past).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > ENDED_KEPT {
            if let Some(oldest) = self.order.pop_front() {
                self.past.remove(&oldest);
            }
        }
    }

    const fn demand_loaded(&self) -> Result<(), Error> {
        if self.loaded {
            Ok(())
        } else {
            Err(Error::WorkersUnread)
        }
    }
}
