//! The generated service's methods: decode, ask, encode.

use std::time::Duration;

use postern_kit::transport::Address;
use postern_proto::ledger::v1::{self as proto, workers_server};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{Ground, LEASE_MS, Lease, Load, Past, Standing};
use crate::{Error, Service};

/// Workers that one renewal may ask about.
const OTHERS: usize = 256;
/// Longest id of a spool or a boot, in bytes; either is a UUID.
const ID_BYTES: usize = 64;
/// Longest address, in bytes: a Unix socket's path, or a name of the DNS with its port.
const ADDRESS_BYTES: usize = 300;

/// The adapter between the generated server and the leases.
#[derive(Debug)]
pub(crate) struct WorkersGrpc(pub(crate) Service);

#[tonic::async_trait]
impl workers_server::Workers for WorkersGrpc {
    async fn register(
        &self,
        request: Request<proto::RegisterWorkerRequest>,
    ) -> Result<Response<proto::RegisterWorkerResponse>, Status> {
        let request = request.into_inner();
        let (id, load) = (worker_id(&request.worker_id)?, load(request.load));
        let lease = lease(request.lease_ms)?;
        let address = address(request.address)?;
        let ground = request.ground.map(ground).transpose()?;
        let workers = self.0.workers()?;
        let standing = workers.register(id, address, load, lease, ground).await?;
        Ok(Response::new(proto::RegisterWorkerResponse {
            standing: number(standing),
        }))
    }

    async fn renew(
        &self,
        request: Request<proto::RenewWorkerRequest>,
    ) -> Result<Response<proto::RenewWorkerResponse>, Status> {
        let request = request.into_inner();
        if request.others.len() > OTHERS {
            return Err(invalid(
                "others",
                "at most 256 workers are asked about at once",
            ));
        }
        let others: Result<Vec<_>, _> = request.others.iter().map(|id| worker_id(id)).collect();
        let (id, load) = (worker_id(&request.worker_id)?, load(request.load));
        let (standing, others) = self.0.workers()?.renew(id, load, &others?)?;
        Ok(Response::new(proto::RenewWorkerResponse {
            standing: number(standing),
            others: others.into_iter().map(number).collect(),
        }))
    }

    async fn leave(
        &self,
        request: Request<proto::LeaveWorkerRequest>,
    ) -> Result<Response<proto::LeaveWorkerResponse>, Status> {
        let standing = self
            .0
            .workers()?
            .leave(worker_id(&request.get_ref().worker_id)?)
            .await?;
        Ok(Response::new(proto::LeaveWorkerResponse {
            standing: number(standing),
        }))
    }

    async fn workers(
        &self,
        _request: Request<proto::ListWorkersRequest>,
    ) -> Result<Response<proto::ListWorkersResponse>, Status> {
        let workers = self.0.workers()?.list()?.into_iter();
        Ok(Response::new(proto::ListWorkersResponse {
            workers: workers.map(|(id, lease)| live(id, lease)).collect(),
        }))
    }
}

fn live(id: Uuid, lease: Lease) -> proto::LiveWorker {
    proto::LiveWorker {
        worker_id: id.to_string(),
        address: lease.row.address,
        ground: lease.row.ground.map(|ground| proto::Ground {
            spool_id: ground.spool,
            boot_id: ground.boot,
            root_device: ground.device,
            root_inode: ground.inode,
        }),
        load: Some(proto::Load {
            running: lease.load.running,
            capacity: lease.load.capacity,
            draining: lease.load.draining,
        }),
        renewals: lease.renewals,
        registered_at_ms: lease.row.registered_ms,
    }
}

fn number(standing: Standing) -> i32 {
    let standing = match standing {
        Standing::Live => proto::Standing::Live,
        Standing::Past(Past::Left) => proto::Standing::Left,
        Standing::Past(Past::Lapsed) => proto::Standing::Lapsed,
        Standing::Unknown => proto::Standing::Unknown,
    };
    standing.into()
}

fn worker_id(text: &str) -> Result<Uuid, Status> {
    let rule = "a worker's id is a UUID in lower case";
    Uuid::try_parse(text)
        .ok()
        .filter(|id| id.to_string() == text)
        .ok_or_else(|| invalid("worker_id", rule))
}

fn load(load: Option<proto::Load>) -> Load {
    let load = load.unwrap_or_default();
    Load {
        running: load.running,
        capacity: load.capacity,
        draining: load.draining,
    }
}

fn lease(milliseconds: u64) -> Result<Duration, Status> {
    if LEASE_MS.contains(&milliseconds) {
        Ok(Duration::from_millis(milliseconds))
    } else {
        Err(invalid(
            "lease_ms",
            "a lease is 100 to 3600000 milliseconds",
        ))
    }
}

fn address(text: String) -> Result<String, Status> {
    if text.len() > ADDRESS_BYTES || text.parse::<Address>().is_err() {
        let rule = "an address is host:port or unix:/path, of at most 300 bytes";
        Err(invalid("address", rule))
    } else {
        Ok(text)
    }
}

fn ground(ground: proto::Ground) -> Result<Ground, Status> {
    for (field, id) in [
        ("ground.spool_id", &ground.spool_id),
        ("ground.boot_id", &ground.boot_id),
    ] {
        if id.is_empty() || id.len() > ID_BYTES || id.contains('\0') {
            return Err(invalid(field, "an id is 1 to 64 bytes without a NUL"));
        }
    }
    Ok(Ground {
        spool: ground.spool_id,
        boot: ground.boot_id,
        device: ground.root_device,
        inode: ground.root_inode,
    })
}

fn invalid(field: &'static str, rule: &'static str) -> Status {
    Error::Invalid { field, rule }.into()
}
