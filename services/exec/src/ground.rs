//! What tells the workers of this one's project from those of another, for the ledger that they register with.

use postern_proto::ledger::v1::Ground;

use crate::Service;

impl Service {
    /// What this worker stands on.
    pub(crate) fn ground(&self) -> Ground {
        let (spool, root) = (&self.worker.spool, self.root());
        Ground {
            spool_id: spool.id().to_owned(),
            boot_id: spool.boot().to_owned(),
            root_device: root.device,
            root_inode: root.inode,
        }
    }
}
