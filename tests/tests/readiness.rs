//! What health says of a service whose project or spool cannot be used any more, and can be again.

use std::{
    ffi::OsString, fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::PathBuf,
    time::Duration,
};

use postern_tests::{Alone, Health, World};
use pretty_assertions::assert_eq;

/// For a service to listen.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes written at a time to fill the disk.
const CHUNK: usize = 64 * 1024;

#[tokio::test]
async fn what_works_in_a_project_is_ready_while_that_is_where_it_was() {
    for role in ["filesystem", "exec"] {
        // Programs of a world start in its project: the probes' is another.
        let (world, probes) = (World::new(), World::new());
        let service = Alone::start(&world, role, "127.0.0.1:0", &[]).await;
        let address = service.address();
        assert_eq!(Health::of(&probes, address).await, Health::Serving);
        let (project, away) = (world.project(), world.outside().join("away"));
        fs::rename(&project, &away).expect("renamed");
        Health::NotServing.becomes(&probes, address).await;
        fs::rename(&away, &project).expect("renamed");
        Health::Serving.becomes(&probes, address).await;

        // Another one in its place is not the project.
        fs::rename(&project, &away).expect("renamed");
        fs::create_dir(&project).expect("a directory");
        Health::NotServing.becomes(&probes, address).await;
        fs::remove_dir(&project).expect("removed");
        fs::rename(&away, &project).expect("renamed");
        Health::Serving.becomes(&probes, address).await;
    }
}

#[tokio::test]
async fn a_project_that_cannot_be_read_is_not_ready() {
    let world = World::new();
    let address = format!("unix:{}", world.outside().join("socket").display());
    // Not even root may read everything then.
    let below = [
        "setpriv",
        "--bounding-set",
        "-dac_override,-dac_read_search",
    ];
    let project = world.project();
    let arguments: [OsString; 7] = [
        "serve".into(),
        "filesystem".into(),
        "--json".into(),
        "--listen".into(),
        address.clone().into(),
        "--project".into(),
        project.clone().into(),
    ];
    let mut service = world.start_below(&below, &arguments);
    service.event("listening", LIMIT).await;
    assert_eq!(Health::of(&world, &address).await, Health::Serving);
    let mode = |bits| fs::set_permissions(&project, fs::Permissions::from_mode(bits));
    for (bits, health) in [
        (0o000, Health::NotServing),
        (0o700, Health::Serving),
        // Its names can be read, and nothing of what is in it.
        (0o400, Health::NotServing),
        (0o700, Health::Serving),
    ] {
        mode(bits).expect("changed");
        health.becomes(&world, &address).await;
    }
}

#[tokio::test]
async fn a_worker_whose_spool_is_full_is_not_ready() {
    let world = World::new();
    let spool = world.outside().join("spool");
    fs::create_dir(&spool).expect("a directory");
    let script = "mount -t tmpfs -o size=4m,mode=700 none \"$1\" && shift && exec \"$@\"";
    let mut below: Vec<OsString> = ["unshare", "--mount", "sh", "-c", script, "sh"]
        .map(OsString::from)
        .to_vec();
    below.push(spool.clone().into());
    let address = format!("unix:{}", world.outside().join("socket").display());
    let arguments: [OsString; 9] = [
        "serve".into(),
        "exec".into(),
        "--json".into(),
        "--listen".into(),
        address.clone().into(),
        "--project".into(),
        world.project().into(),
        "--spool".into(),
        spool.clone().into(),
    ];
    let mut worker = world.start_below(&below, &arguments);
    worker.event("listening", LIMIT).await;
    assert_eq!(Health::of(&world, &address).await, Health::Serving);
    let below = spool.strip_prefix("/").expect("absolute");
    let filler = PathBuf::from(format!("/proc/{}/root", worker.pid()))
        .join(below)
        .join("filler");
    let mut file = fs::File::create(&filler).expect("writable");
    while file.write(&[1; CHUNK]).is_ok() {}
    Health::NotServing.becomes(&world, &address).await;
    fs::remove_file(&filler).expect("removed");
    drop(file);
    Health::Serving.becomes(&world, &address).await;
}
