//! What the owner may wish of the sandbox, and what cannot be held.

use std::{fs, path::Path};

use landlock::{AccessFs, Ruleset, RulesetAttr as _};
use pretty_assertions::assert_eq;

use postern_exec::{
    Config, Error, Service,
    sandbox::{Kernel, Level},
};
use postern_kit::{Clock, task::Tasks};
use postern_proto::exec::v1::HeartbeatRequest;
use postern_types::ErrorCode;

use crate::{
    harness::{Worker, code, config, receipt, start_request, this_program},
    sandbox::Scene,
};

async fn told(worker: &Worker) -> (String, Vec<String>) {
    let beat = worker
        .client
        .0
        .clone()
        .heartbeat(HeartbeatRequest::default())
        .await;
    let beat = beat.expect("heartbeat").into_inner();
    (beat.sandbox, beat.sandbox_missing)
}

fn refusal(change: impl FnOnce(&mut Config, &Path)) -> String {
    let folder = tempfile::tempdir().expect("folder");
    let top = folder.path().canonicalize().expect("real");
    fs::create_dir(top.join("project")).expect("project");
    let mut config = config(&top.join("project"), &top.join("spool"));
    change(&mut config, &top);
    let refused = Service::open(config, Clock::system(), Tasks::new()).expect_err("refused");
    assert!(matches!(refused, Error::Sandbox(_)), "{refused:?}");
    refused.to_string()
}

#[tokio::test]
async fn what_is_in_force_is_told() {
    let scene = Scene::open();
    let (sandbox, missing) = told(&scene.worker).await;
    assert_eq!(sandbox, "project");
    let kernel = Kernel::probe().missing();
    let names: Vec<&str> = kernel.iter().map(|missing| missing.name).collect();
    assert_eq!(missing, names);
    let required = Scene::open_with(|config, _| config.sandbox.level = Level::Required);
    assert_eq!(told(&required.worker).await.0, "required");
    assert!(
        required
            .attack("cat $home/.ssh/secret")
            .await
            .ends_with("failed\n")
    );
}

#[tokio::test]
async fn off_confines_nothing_and_says_so() {
    let scene = Scene::open_with(|config, _| config.sandbox.level = Level::Off);
    assert_eq!(told(&scene.worker).await.0, "off");
    let said = scene
        .attack("cat $home/.ssh/secret; echo after > $outside/file; echo ${TMPDIR-none}")
        .await;
    assert_eq!(said, "MARK-secret\nnone\nGOT\n");
    let written = fs::read_to_string(scene.outside.join("file"));
    assert_eq!(written.expect("file"), "after\n");
}

/// A kernel without Landlock: `project` works on and tells the truth, `required` does not start.
#[tokio::test]
async fn a_kernel_without_landlock_is_told_or_refused() {
    let scene = Scene::open_with(|config, _| config.sandbox.kernel = Kernel { abi: 0 });
    let (sandbox, missing) = told(&scene.worker).await;
    assert_eq!((sandbox.as_str(), missing.len()), ("off", 6));
    assert_eq!(scene.worker.client.run("echo runs").await.output, "runs\n");
    for abi in [0, 5] {
        let text = refusal(|config, _| {
            config.sandbox.level = Level::Required;
            config.sandbox.kernel = Kernel { abi };
        });
        for part in [
            &*format!("version {abi}"),
            "Linux 6.12",
            "signals",
            "--sandbox project",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

/// An older kernel holds less; what it holds is held.
#[tokio::test]
async fn an_older_kernel_holds_what_it_can() {
    let scene = Scene::open_with(|config, _| config.sandbox.kernel = Kernel { abi: 3 });
    let (sandbox, missing) = told(&scene.worker).await;
    assert_eq!(sandbox, "project");
    assert_eq!(
        missing,
        ["devices", "signals", "abstract-sockets", "path-sockets"]
    );
    for attack in ["cat $home/.ssh/secret", ": > $outside/file"] {
        assert!(scene.attack(attack).await.ends_with("failed\n"), "{attack}");
    }
}

/// Sandboxes that Linux nests at most.
const NESTED: usize = 16;

/// Takes as many sandboxes as there may be; each forbids only what no test does.
pub(crate) fn nest() {
    for _ in 0..NESTED {
        let ruleset = Ruleset::default().handle_access(AccessFs::MakeBlock);
        let ruleset = ruleset.and_then(Ruleset::create).expect("ruleset");
        ruleset.restrict_self().expect("taken");
    }
}

/// No command runs where its sandbox cannot be taken.
#[tokio::test]
async fn a_sandbox_that_cannot_be_taken_runs_nothing() {
    let scene =
        Scene::open_with(|config, _| config.wrapper = this_program("nested_wrapper_process"));
    runs_nothing(&scene).await;
}

/// Where the kernel promised more than it does, no command runs half confined. A kernel that does all that is known here has
/// nothing more to promise.
#[tokio::test]
async fn a_sandbox_that_is_not_whole_runs_nothing() {
    if Kernel::probe().missing().is_empty() {
        return;
    }
    let scene = Scene::open_with(|config, _| config.sandbox.kernel = Kernel { abi: u32::MAX });
    runs_nothing(&scene).await;
}

async fn runs_nothing(scene: &Scene) {
    let refused = scene
        .worker
        .client
        .try_start(start_request(&receipt(), "touch ran"))
        .await
        .expect_err("refused");
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert!(refused.message.contains("sandbox"), "{}", refused.message);
    assert!(!scene.worker.project.join("ran").exists());
}

/// Data that lies in the project stays hidden there, before and after it exists.
#[tokio::test]
async fn what_is_hidden_inside_the_project_stays_hidden() {
    let scene = Scene::open_with(|config, _| {
        fs::create_dir_all(config.project.join("data")).expect("data");
        fs::create_dir_all(config.project.join("src")).expect("src");
        fs::write(config.project.join("data/token"), "MARK-secret\n").expect("token");
        config.spool = config.project.join("data/spool");
        config.sandbox.hide = vec![config.project.join("data"), config.project.join("later")];
    });
    fs::create_dir(scene.worker.project.join("later")).expect("later");
    fs::write(scene.worker.project.join("later/token"), "MARK-secret\n").expect("token");
    for attack in [
        "cat data/token",
        "cat later/token",
        "ls data",
        "mv data src/; cat src/data/token",
        "mv later src/; cat src/later/token",
        "mv data/token src/",
        "ln data/token src/hard; cat src/hard",
        "echo x > data/token",
        "rm -r data",
    ] {
        let said = scene.attack(attack).await;
        assert!(
            said.ends_with("failed\n") && !said.contains("MARK"),
            "{attack}: {said}"
        );
    }
    let said = scene.attack("echo x > src/new; cat src/new").await;
    assert_eq!(said, "x\nGOT\n", "what is beside it can be worked on");
    assert!(scene.worker.project.join("data/token").exists());
}

/// Output of other conversations lies in the spool.
#[tokio::test]
async fn the_spool_is_hidden() {
    let scene = Scene::open();
    let id = scene.worker.client.start("echo MARK-secret").await;
    scene.worker.client.finish(&id).await;
    let spool = scene.worker.spool.display().to_string();
    for attack in [format!("grep -r MARK {spool}"), format!("ls {spool}")] {
        let said = scene.attack(&attack).await;
        assert!(said.ends_with("failed\n"), "{attack}: {said}");
    }
}

/// A project in a folder that is hidden: it is there, what is around it is not.
#[tokio::test]
async fn a_project_in_a_hidden_folder_can_be_worked_on() {
    let scene = Scene::open_with(|config, top| {
        config.project = top.join("home/.config/gcloud/work");
        fs::create_dir(&config.project).expect("project");
    });
    let said = scene.attack("echo x > new; cat new; ls").await;
    assert_eq!(said, "x\nnew\nGOT\n");
    let said = scene.attack("cat ../secret").await;
    assert!(said.ends_with("failed\n"), "{said}");
}

#[tokio::test]
async fn the_owner_opens_and_hides_more() {
    let scene = Scene::open_with(|config, top| {
        config.sandbox.write = vec![top.join("outside")];
        config.sandbox.hide = vec![top.join("home/plain")];
        config.sandbox.show = vec![top.join("home/.aws")];
    });
    let said = scene
        .attack("cat $home/.aws/secret; echo after > $outside/file; mv $outside/file $outside/moved; cat $outside/moved")
        .await;
    assert_eq!(said, "MARK-secret\nafter\nGOT\n");
    for attack in [
        "cat $home/plain/secret",
        "cat $home/.ssh/secret",
        "touch $home/.aws/new",
    ] {
        let said = scene.attack(attack).await;
        assert!(said.ends_with("failed\n"), "{attack}: {said}");
    }
}

/// Terminals of a command's own making are one folder with everybody's: they come when the owner says so.
#[tokio::test]
async fn terminals_come_with_the_owners_word() {
    let attack = "script -qec 'stty size; echo inside' /dev/null";
    let scene = Scene::open();
    let said = scene.attack(attack).await;
    assert!(
        said.ends_with("failed\n") && !said.contains("inside"),
        "{said}"
    );
    let scene = Scene::open_with(|config, _| config.sandbox.write = vec!["/dev/pts".into()]);
    let said = scene.attack(attack).await;
    assert!(said.contains("inside") && said.ends_with("GOT\n"), "{said}");
}

#[test]
fn wishes_that_cannot_be_held_are_refused() {
    let text = refusal(|config, top| {
        config.sandbox.hide = vec![top.join("project")];
    });
    assert!(text.contains("the project itself is hidden"), "{text}");
    let text = refusal(|config, top| {
        config.sandbox.homes = vec![top.to_owned()];
        config.sandbox.write = vec![top.join(".ssh/sub")];
    });
    assert!(text.contains("lies in what is hidden"), "{text}");
    let text = refusal(|config, top| config.sandbox.write = vec![top.join("nowhere")]);
    assert!(text.contains("does not exist"), "{text}");
    let text = refusal(|config, top| config.sandbox.show = vec![top.join("plain")]);
    assert!(text.contains("cannot be shown"), "{text}");
    let text = refusal(|config, top| config.sandbox.temporary = top.join("nowhere"));
    assert!(text.contains("TMPDIR"), "{text}");
}

/// The links of a home: what a store's name leads to is hidden as well.
#[tokio::test]
async fn a_store_that_is_a_link_is_hidden_where_it_leads() {
    let scene = Scene::open_with(|config, top| {
        let home = top.join("home");
        fs::rename(home.join(".aws"), top.join("outside/kept")).expect("moved");
        std::os::unix::fs::symlink(top.join("outside/kept"), home.join(".aws")).expect("link");
        config.sandbox.homes = vec![home];
    });
    for attack in ["cat $home/.aws/secret", "cat $outside/kept/secret"] {
        let said = scene.attack(attack).await;
        assert!(said.ends_with("failed\n"), "{attack}: {said}");
    }
}

/// A command is no owner: one session's processes cannot end another's.
#[tokio::test]
async fn commands_do_not_reach_each_other() {
    let scene = Scene::open();
    let id = scene.worker.client.start("echo $$; cat").await;
    let pid = scene
        .worker
        .client
        .output_until(&id, |text| text.ends_with('\n'))
        .await;
    for attack in [
        format!("kill -KILL {}", pid.trim()),
        format!("head -c 1 /proc/{}/mem", pid.trim()),
    ] {
        let said = scene.attack(&attack).await;
        assert!(said.ends_with("failed\n"), "{attack}: {said}");
    }
    assert_eq!(
        code(scene.worker.client.try_poll("other", &id, 0, 0).await),
        ErrorCode::UnknownCommand
    );
    scene.worker.client.stop(&id).await;
}
