//! What a confined command may try, and what it must still be able to do.

use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, symlink},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use pretty_assertions::assert_eq;

use postern_exec::{Config, sandbox::Level};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::TempDir;

use crate::harness::{Worker, attack_line, eventually, lives};

/// A worker, and around its project a home with secrets and a file that is nobody's business.
pub(crate) struct Scene {
    pub(crate) worker: Worker,
    pub(crate) home: PathBuf,
    pub(crate) outside: PathBuf,
    _folder: TempDir,
}

impl Scene {
    pub(crate) fn open() -> Self {
        Self::open_with(|_, _| {})
    }

    pub(crate) fn open_with(change: impl FnOnce(&mut Config, &std::path::Path)) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let top = folder.path().canonicalize().expect("real");
        let home = top.join("home");
        for store in [".ssh", ".aws", ".config/gcloud", ".config/app", "plain"] {
            fs::create_dir_all(home.join(store)).expect("store");
            fs::write(home.join(store).join("secret"), "MARK-secret\n").expect("secret");
        }
        fs::write(home.join(".netrc"), "MARK-secret\n").expect("secret");
        let script = home.join(".ssh/run");
        fs::copy("/bin/sh", &script).expect("program");
        let outside = top.join("outside");
        fs::create_dir(&outside).expect("outside");
        fs::write(outside.join("file"), "before\n").expect("file");
        let worker = Worker::open_with(|config| {
            config.sandbox.homes = vec![home.clone()];
            change(config, &top);
        });
        Self {
            worker,
            home,
            outside,
            _folder: folder,
        }
    }

    /// Runs an attack with `$home` and `$outside`; it tells `failed` when it did not get what it wanted.
    pub(crate) async fn attack(&self, attack: &str) -> String {
        let command = format!(
            "home='{}' outside='{}'; if ( {attack}\n) 2>&1; then echo GOT; else echo failed; fi",
            self.home.display(),
            self.outside.display()
        );
        self.worker.client.run(&command).await.output
    }

    /// Attacks that fail here, and that a command which is not confined, in a scene of its own, gets what it wants by.
    async fn demand_held(&self, prepare: impl Fn(&Self), attacks: &[&str]) {
        prepare(self);
        self.demand_failed(attacks).await;
        for attack in attacks {
            let free = Self::open_with(|config, _| config.sandbox.level = Level::Off);
            prepare(&free);
            let said = free.attack(attack).await;
            assert!(
                said.ends_with("GOT\n"),
                "no attack at all: {attack}: {said}"
            );
        }
    }

    async fn demand_failed(&self, attacks: &[&str]) {
        for attack in attacks {
            let said = self.attack(attack).await;
            assert!(said.ends_with("failed\n"), "{attack}: {said}");
            assert!(!said.contains("MARK-secret"), "{attack}: {said}");
        }
    }

    /// What is around the project, as it was.
    fn is_untouched(&self) -> bool {
        let names = |path: &std::path::Path| {
            let mut names: Vec<_> = fs::read_dir(path)
                .expect("folder")
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            names.sort_unstable();
            names
        };
        names(&self.outside) == ["file"]
            && names(&self.home) == [".aws", ".config", ".netrc", ".ssh", "plain"]
            && fs::read_to_string(self.outside.join("file")).is_ok_and(|text| text == "before\n")
    }
}

/// A process outside of every sandbox.
struct Bystander(Child);

impl Bystander {
    fn start(directory: &std::path::Path) -> Self {
        let child = Command::new("/bin/sleep")
            .arg("305")
            .current_dir(directory)
            .env("BYSTANDER", "MARK-secret")
            .stdin(Stdio::null())
            .spawn()
            .expect("sleep");
        Self(child)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("reaped");
    }
}

#[tokio::test]
async fn nothing_outside_the_project_is_changed() {
    let scene = Scene::open();
    scene
        .demand_held(
            |_| {},
            &[
                "echo after > $outside/file",
                "echo after >> $outside/file",
                ": > $outside/file",
                "truncate -s 0 $outside/file",
                "rm -f $outside/file",
                "mv $outside/file $outside/moved",
                "mv $outside/file .",
                "echo x > mine; mv mine $outside/",
                "echo x > mine; mv -f mine $outside/file",
                "echo x > mine; ln mine $outside/linked",
                "mkdir $outside/made",
                "rm -r $home/plain",
                "touch $outside/new",
                "ln -s /etc $outside/link",
                "mkfifo $outside/fifo",
                "cp /etc/hostname $home/.config/new",
                "f=/tmp/postern-sandbox-test-$$; echo x > $f && rm $f",
                "f=/var/tmp/postern-sandbox-test-$$; echo x > $f && rm $f",
            ],
        )
        .await;
    scene
        .demand_failed(&[
            "echo x > /dev/postern-sandbox-test-$$",
            "echo x > /dev/shm/postern-sandbox-test-$$",
        ])
        .await;
    assert!(scene.is_untouched());
}

/// A way that looks like the project's leads outside.
#[tokio::test]
async fn links_do_not_carry_a_write_outside() {
    let scene = Scene::open();
    let way = |scene: &Scene| {
        symlink(&scene.outside, scene.worker.project.join("way")).expect("link");
    };
    scene
        .demand_held(
            way,
            &[
                "echo after > way/file",
                "touch way/new",
                "ln -s $outside/file link; echo after > link",
                "ln $outside/file hard",
                "cd way; echo after > file",
                "exec 3< $outside/file; echo after > /proc/self/fd/3",
                "mkdir d; cd d; rmdir ../d; echo after > $outside/file",
            ],
        )
        .await;
    assert!(scene.is_untouched());
}

#[tokio::test]
async fn credentials_are_neither_read_nor_listed_nor_run() {
    let scene = Scene::open();
    scene
        .demand_held(
            |_| {},
            &[
                "cat $home/.ssh/secret",
                "cat $home/.netrc",
                "cat $home/.config/gcloud/secret",
                "ls $home/.ssh",
                "ls $home",
                "$home/.ssh/run -c 'echo ran'",
                "cd $home/.ssh; cat secret",
                "cd $home/.ssh; ls",
                "cp -r $home/.aws .",
                "ln -s $home/.ssh here; cat here/secret",
                "ln $home/.ssh/secret hard; cat hard",
                "mv $home/.ssh stolen; cat stolen/secret",
                "mv $home/.ssh/secret stolen; cat stolen",
                "cat /proc/self/root$home/.ssh/secret",
                "cd $home/.ssh; cat /proc/self/cwd/secret",
                "echo x > $home/.ssh/authorized_keys",
                "tar cf all.tar $home/.ssh",
            ],
        )
        .await;
    let beside = "cat $home/plain/secret $home/.config/app/secret; ls $home/plain";
    let said = scene.attack(beside).await;
    assert_eq!(said, "MARK-secret\nMARK-secret\nsecret\nGOT\n");
    assert!(scene.is_untouched());
}

/// Processes outside: their files, their memory, their lives.
#[tokio::test]
async fn a_process_outside_is_neither_looked_into_nor_signalled() {
    let scene = Scene::open();
    let mut bystander = Bystander::start(&scene.home.join(".ssh"));
    let (other, own) = (bystander.0.id(), std::process::id());
    for pid in [other, own] {
        let attacks = [
            format!("cat /proc/{pid}/root$home/.ssh/secret"),
            format!("cat /proc/{pid}/cwd/secret"),
            format!("tr '\\0' '\\n' < /proc/{pid}/environ"),
            format!("head -c 1 /proc/{pid}/mem"),
            format!("cat /proc/{pid}/maps"),
            format!("ls -l /proc/{pid}/fd/"),
            format!("cat /proc/{pid}/fd/0"),
            format!("kill -0 {pid}"),
            format!("kill -STOP {pid}"),
            format!("kill -KILL {pid}"),
        ];
        let attacks: Vec<&str> = attacks.iter().map(String::as_str).collect();
        scene.demand_failed(&attacks).await;
    }
    assert_eq!(bystander.0.try_wait().expect("wait"), None);
    assert!(lives(&other.to_string()));
}

/// The wrapper around the command, every thread of it.
#[tokio::test]
async fn the_wrapper_is_neither_looked_into_nor_signalled() {
    let scene = Scene::open();
    scene
        .demand_failed(&[
            "kill -STOP $PPID",
            "kill -KILL $PPID",
            "head -c 1 /proc/$PPID/mem",
            "cat /proc/$PPID/environ",
            "readlink /proc/$PPID/fd/3",
            "for t in /proc/$PPID/task/*; do head -c 1 $t/mem && break; done",
        ])
        .await;
    // The one that was confined as the command is would be within its reach; it goes once the shell runs.
    let threads = "i=0; while grep -qsx start /proc/$PPID/task/*/comm && [ $i -lt 500 ]; do i=$((i+1)); sleep 0.01; done; \
        grep -hE '^(Name|NoNewPrivs)' /proc/$PPID/task/*/status";
    let said = scene.worker.client.run(threads).await.output;
    assert!(
        said.contains("NoNewPrivs:\t0\n") && !said.contains("NoNewPrivs:\t1"),
        "{said}"
    );
    assert!(
        said.contains("launch\n") && !said.contains("start\n"),
        "{said}"
    );
}

/// Limits are set by process id: a wrapper without descriptors no longer finds what it is to end, and a worker without
/// processor time is ended by the kernel.
#[tokio::test]
async fn the_limits_of_other_processes_are_out_of_reach() {
    let attacks = [
        "prlimit --pid $PPID --nofile=0",
        "prlimit --pid $PPID --cpu=1",
        "prlimit --pid $(cut -d' ' -f4 /proc/$PPID/stat) --nofile=0:0",
    ];
    let scene = Scene::open();
    scene.demand_failed(&attacks).await;
    let own = scene.worker.client.run("ulimit -n 64 && ulimit -n").await;
    assert_eq!(
        own.output, "64\n",
        "its own limits are a command's own affair"
    );
    // The same without a sandbox, so that it is the sandbox that held.
    let free = Scene::open_with(|config, _| config.sandbox.level = Level::Off);
    let said = free.attack("prlimit --pid $PPID --core=0").await;
    assert!(said.ends_with("GOT\n"), "{said}");
}

/// A terminal that is nobody's command's: its other end, and its name.
fn owners_terminal() -> (OwnedFd, String) {
    let owners = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("terminal");
    grantpt(&owners).expect("granted");
    unlockpt(&owners).expect("unlocked");
    let name = ptsname(&owners, Vec::new()).expect("name");
    (owners, name.into_string().expect("text"))
}

/// Whoever could read another's terminal would read what its owner types there.
#[tokio::test]
async fn the_terminal_of_another_is_neither_read_nor_written() {
    let scene = Scene::open();
    let (_owners, name) = owners_terminal();
    scene
        .demand_failed(&[&format!("echo x > {name}"), &format!("head -c 1 < {name}")])
        .await;
    scene
        .demand_held(|_| {}, &[&format!("exec 3<> {name}")])
        .await;
}

#[tokio::test]
async fn namespaces_mounts_and_devices_open_nothing() {
    let scene = Scene::open();
    scene
        .demand_failed(&[
            "unshare --user --map-root-user cat $home/.ssh/secret",
            "unshare --user cat $home/.ssh/secret",
            "unshare --mount true",
            "mount -t tmpfs none .",
            "mkdir m; mount --bind $home m; cat m/.ssh/secret",
            "mkdir m2; chroot / cat $home/.ssh/secret",
            "mknod disk b 8 0",
            "mknod memory c 1 1",
            "head -c 1 /dev/mem",
            "head -c 1 /proc/kcore",
            "echo 1 > /proc/sys/kernel/sysrq",
        ])
        .await;
}

/// What leads a privileged user around any sandbox is taken from its commands, and cannot come back.
#[tokio::test]
async fn no_dangerous_capability_is_left() {
    let scene = Scene::open();
    let said = scene
        .worker
        .client
        .run("grep -E 'CapEff|CapPrm|CapInh|CapBnd|NoNewPrivs' /proc/self/status")
        .await
        .output;
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE; raw sockets are not among them.
    let kept: u64 = [0, 1, 3, 4, 5, 6, 7, 10].map(|bit| 1 << bit).iter().sum();
    for line in said.lines() {
        let (name, value) = line.split_once(":\t").expect("field");
        let value = u64::from_str_radix(value, 16).expect("number");
        match name {
            "NoNewPrivs" => assert_eq!(value, 1),
            _ => assert_eq!(value & !kept, 0, "{line}"),
        }
    }
    assert_eq!(said.lines().count(), 5);
}

#[tokio::test]
async fn what_a_command_leaves_running_stays_confined() {
    let scene = Scene::open();
    let attack = format!(
        "setsid sh -c 'while [ ! -e go ]; do sleep 0.01; done; cat {home}/.ssh/secret > stolen; echo after > {outside}/file; echo done > finished' >/dev/null 2>&1 &",
        home = scene.home.display(),
        outside = scene.outside.display()
    );
    let id = scene.worker.client.start(&attack).await;
    assert!(scene.worker.client.finish(&id).await.state.survivors >= 1);
    let project = &scene.worker.project;
    fs::write(project.join("go"), "").expect("go");
    eventually("the survivor has tried", || {
        project.join("finished").exists()
    })
    .await;
    assert_eq!(
        fs::read_to_string(project.join("stolen")).expect("made"),
        ""
    );
    assert!(scene.is_untouched());
    scene.worker.client.stop(&id).await;
}

/// The usual work of a command.
#[tokio::test]
async fn the_project_its_terminal_and_its_temporary_directory_are_at_hand() {
    let scene = Scene::open();
    let work = "set -e
git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && git log --format=%s
mkdir -p a/b && echo x > a/b/f && mv a/b/f a/g && ln a/g a/h && ln -s g a/i && rm -r a/b && cat a/i
cat <<END
heredoc
END
t=$(mktemp); echo temporary > $t; mv $t a/from; cat a/from
case $t in $TMPDIR/*) echo private;; esac
ls -l / >/dev/null 2>&1 || echo 'not listed'
head -c 4 /dev/zero > /dev/null; head -c 4 /dev/urandom > /dev/full 2>/dev/null || echo full
mkfifo p; (echo through > p &) ; cat p
[ -t 0 ] && stty -F /dev/tty speed > /dev/null && echo terminal; read line < /dev/tty; echo got $line
seq 300000 | sort -R -S 100K > sorted; wc -l < sorted";
    let id = scene.worker.client.start(work).await;
    scene
        .worker
        .client
        .output_until(&id, |text| text.ends_with("terminal\n"))
        .await;
    scene.worker.client.input(&id, "typed\n").await;
    let done = scene.worker.client.finish(&id).await;
    let expected = "one\nx\nheredoc\ntemporary\nprivate\nnot listed\nfull\nthrough\nterminal\ngot typed\n300000\n";
    assert_eq!(done.output, expected);
    assert_eq!(done.state.exit_code, Some(0));
}

#[tokio::test]
async fn the_temporary_directory_is_private_and_goes_with_the_last_process() {
    let scene = Scene::open();
    let id = scene
        .worker
        .client
        .start("touch $TMPDIR/kept; mkdir -m 0 $TMPDIR/closed; setsid sleep 306 >/dev/null 2>&1 & stat -c %a $TMPDIR; echo $TMPDIR")
        .await;
    let done = scene.worker.client.finish(&id).await;
    let (mode, path) = done.output.split_once('\n').expect("two lines");
    let path = PathBuf::from(path.trim());
    assert_eq!(mode, "700");
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o700);
    assert!(path.join("kept").exists(), "a survivor may use it");
    let other = scene
        .attack(&format!("cat {0}/kept || ls {0}", path.display()))
        .await;
    assert!(other.ends_with("failed\n"), "another command's: {other}");
    scene.worker.client.stop(&id).await;
    eventually("it is removed", || !path.exists()).await;
    let unused = scene.worker.client.run("echo $TMPDIR").await.output;
    eventually("it is removed", || !PathBuf::from(unused.trim()).exists()).await;
}

#[tokio::test]
async fn an_abstract_socket_outside_is_not_reached() {
    use std::os::{linux::net::SocketAddrExt as _, unix::net};
    let scene = Scene::open();
    let name = format!("postern-test-{}", uuid::Uuid::new_v4());
    let address = net::SocketAddr::from_abstract_name(&name).expect("address");
    let _listener = net::UnixListener::bind_addr(&address).expect("listener");
    let attack = attack_line("abstract", &name);
    let said = scene.worker.client.run(&attack).await.output;
    assert!(said.contains("attack: refused\n"), "{said}");
    let free = Worker::open_free();
    let said = free.client.run(&attack).await.output;
    assert!(said.contains("attack: connected\n"), "{said}");
}

/// The old way to type for somebody else: into a terminal that is not one's own, and into one's own for the shell above.
#[tokio::test]
async fn nothing_is_typed_into_another_terminal() {
    let (_owners, name) = owners_terminal();
    // TIOCSTI on the command's own terminal types for the command alone; no other can be opened.
    let attack = format!(
        "perl -e 'open(F, \"+<\", \"{name}\") or exit 1; print \"opened\\n\"; ioctl(F, 0x5412, \"x\") or exit 1'"
    );
    let scene = Scene::open();
    let said = scene.attack(&attack).await;
    assert!(said.ends_with("failed\n"), "{said}");
    assert!(!said.contains("opened"), "{said}");
    // The kernel may refuse the typing itself; the way there is open to a command that is not confined.
    let free = Scene::open_with(|config, _| config.sandbox.level = Level::Off);
    let said = free.attack(&attack).await;
    assert!(said.contains("opened"), "no attack at all: {said}");
}
