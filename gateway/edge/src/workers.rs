//! Exec workers of a ledger, as one exec service.
//!
//! The edge speaks to this as to any exec worker: it is the generated server in the same process. A new command goes to the least
//! loaded worker, and to the next one only while it is certain that it did not start. What concerns a command goes to the worker
//! that has it; what the shared spool tells is told by any worker when that one is gone.
//!
//! Nothing here is a record: which worker has a command is told by the spool when it is not remembered.

mod owners;
mod registry;
mod routes;

use std::{fmt, sync::Arc};

use postern_kit::transport::{Address, MESSAGE_LIMIT, Transport, local};
use postern_proto::exec::v1::exec_server::ExecServer;

use owners::Owners;
use registry::Registry;

/// How a worker at an address is reached; `None` for an address that cannot be used.
pub type Connect = Arc<dyn Fn(&Address) -> Option<Transport> + Send + Sync>;

/// Where the edge's own project is, by which it knows workers of another one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ground {
    /// Boot of the edge's machine.
    pub boot_id: String,
    /// Device of the project's root.
    pub root_device: u64,
    /// Its inode.
    pub root_inode: u64,
}

/// The exec workers that are registered with a ledger, as one exec service.
#[must_use]
pub fn workers_of(ledger: Transport, connect: Connect, own: Ground) -> Transport {
    let routes = Routes {
        registry: Arc::new(Registry::new(ledger, connect, own)),
        owners: Arc::new(Owners::default()),
    };
    let server = ExecServer::new(routes)
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT);
    local(server)
}

/// The exec service over the workers.
#[derive(Clone)]
struct Routes {
    registry: Arc<Registry>,
    owners: Arc<Owners>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Routes")
    }
}
