//! Who holds a token: asked with each request of an agent, so answered from memory, whatever the store.
#![expect(clippy::expect_used, reason = "a benchmark fails by panicking")]

use criterion::{Criterion, criterion_group, criterion_main};
use postern_identity::{
    Database,
    host::{Config, Service},
};
use postern_kit::{Clock, task::Tasks, transport::local};
use postern_proto::identity::v1::{
    AuthenticateRequest, BootstrapRequest, host_identity_client::HostIdentityClient,
};
use postern_test_postgres::Cluster;
use tokio::runtime::Runtime;

fn authenticate(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("runtime");
    let directory = tempfile::tempdir().expect("directory");
    let postgres = Cluster::shared().database().parse().expect("a URL");
    let sqlite = Database::Sqlite(directory.path().join("identity.db"));
    for (name, database) in [("sqlite", sqlite), ("postgres", postgres)] {
        let client = runtime.block_on(async {
            let service = Service::open(Config { database }, Clock::system(), Tasks::new());
            let service = service.await.expect("opened");
            let mut readiness = service.readiness();
            let ready = readiness.wait_for(|is_ready| *is_ready).await;
            drop(ready.expect("the service lives"));
            HostIdentityClient::new(local(service.into_server()))
        });
        let mut asked = client.clone();
        let founding = runtime.block_on(asked.bootstrap(BootstrapRequest {}));
        let secret = founding.expect("bootstrapped").into_inner().admin_token;
        let secret = secret.expect("the first to ask");
        criterion.bench_function(&format!("authenticate/{name}"), |bencher| {
            bencher.to_async(&runtime).iter(|| {
                let (mut client, secret) = (client.clone(), secret.clone());
                async move {
                    let asked = client.authenticate(AuthenticateRequest { secret });
                    asked.await.expect("the admin")
                }
            });
        });
    }
}

criterion_group!(benches, authenticate);
criterion_main!(benches);
