//! Every fault point of the program, each with a call that reaches it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use postern_tests::{Seed, Strike, World, wait_for};
use serde_json::json;

use super::{
    budget,
    rig::Rig,
    strike::{Blow, first, is_of_worker, strike, strike_twice, strike_without_worker},
    trial::{COMMANDS, FILES, Kind, Trial},
    undo,
};

/// For what comes after an answer to have come.
const AFTERWARDS: Duration = Duration::from_secs(30);
/// Where the program is killed first, so that it has to find out what became of a call.
const STAGES: &[&str] = &[
    "edge.effect.before",
    "edge.effect.after",
    "edge.begin.after",
];
/// Fresh starts until one is not killed.
const STARTS: usize = 4;

/// What the lanes share: which points were taken by one of them, and which were reached.
#[derive(Default)]
struct Board {
    taken: Mutex<BTreeSet<String>>,
    reached: Mutex<BTreeSet<String>>,
}

impl Board {
    /// Whether a point is this lane's now.
    fn take(&self, point: &str) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.insert(point.to_owned())
    }

    fn give_back(&self, point: &str) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(point);
    }

    fn reach(&self, point: &str) {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.insert(point.to_owned());
    }

    fn is_reached(&self, point: &str) -> bool {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.contains(point)
    }
}

/// The program's own list.
async fn table() -> BTreeSet<String> {
    let (world, _faults) = World::with_fault_points();
    let listed = world.run(&["fault-points"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let points: BTreeSet<String> = listed.stdout.lines().map(str::to_owned).collect();
    assert!(points.len() > 50, "a table: {points:?}");
    points
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_point_is_survived() {
    let begun = Instant::now();
    let table = table().await;
    let board = Board::default();
    let until = begun + budget().points;
    let (files, more_files, commands, starts, undos) = tokio::join!(
        lane(
            &board,
            &table,
            &[Kind::Over, Kind::Delete, Kind::Ask],
            until
        ),
        lane(
            &board,
            &table,
            &[Kind::New, Kind::Patch, Kind::Approved],
            until
        ),
        lane(&board, &table, COMMANDS, until),
        first_starts(&board, &table),
        undos(&board, &table),
    );
    let kills = files + more_files + commands + starts + undos;
    let reached = board
        .reached
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let missed: Vec<_> = table.difference(&reached).collect();
    eprintln!(
        "points: {} of {}; kills: {kills}; seconds: {:.0}",
        reached.len(),
        table.len(),
        begun.elapsed().as_secs_f64()
    );
    assert!(missed.is_empty(), "never reached: {missed:?}");
}

/// Everything that one world can do.
async fn lane(board: &Board, table: &BTreeSet<String>, kinds: &[Kind], until: Instant) -> u32 {
    let mut rig = Rig::start().await;
    let map = learn(&mut rig, kinds).await;
    // The worker's points first: no other lane can take them.
    let mut points: Vec<_> = map.iter().collect();
    points.sort_by_key(|(point, _)| !is_of_worker(point));
    for (point, kinds) in points {
        if board.take(point) && !once(&mut rig, board, point, kinds).await {
            board.give_back(point);
        }
    }
    again_and_abandoned(&mut rig, board, table, kinds).await;
    restarts(&mut rig, board, table).await;
    if budget().is_long {
        everything(&mut rig, &map, until).await;
    }
    rig.finish().await
}

/// A blow at a point, with the first kind of call that reaches it.
async fn once(rig: &mut Rig, board: &Board, point: &str, kinds: &[Kind]) -> bool {
    for kind in kinds {
        if strike(rig, point, *kind, Blow::Own).await {
            board.reach(point);
            return true;
        }
    }
    false
}

/// Every point with every kind of call and every blow, in an order of chance, as long as there is time.
async fn everything(rig: &mut Rig, map: &BTreeMap<String, Vec<Kind>>, until: Instant) {
    let mut all = Vec::new();
    for (point, kinds) in map {
        for kind in kinds {
            for blow in [Blow::Own, Blow::Worker, Blow::All] {
                if blow != Blow::Worker || COMMANDS.contains(kind) {
                    all.push((point, *kind, blow));
                }
            }
        }
    }
    let mut seed = Seed::new();
    seed.shuffle(&mut all);
    for (point, kind, blow) in all {
        if Instant::now() >= until {
            return;
        }
        strike(rig, point, kind, blow).await;
    }
}

/// Which points a call of each kind reaches when nothing goes wrong.
async fn learn(rig: &mut Rig, kinds: &[Kind]) -> BTreeMap<String, Vec<Kind>> {
    let mut map: BTreeMap<String, Vec<Kind>> = BTreeMap::new();
    for kind in kinds {
        let trial = Trial::prepare(rig, *kind).await;
        if *kind == Kind::Approved {
            rig.door.owner().set_mode("ask").await;
        }
        rig.faults.forget_seen();
        let answer = first(rig, &trial).await.expect("nothing goes wrong");
        assert!(!answer.is_error, "{kind:?}: {answer:?}");
        for late in trial.late_points() {
            wait_for(late, AFTERWARDS, || async {
                rig.faults.seen().contains(*late).then_some(())
            })
            .await;
        }
        for point in rig.faults.seen() {
            map.entry(point).or_default().push(*kind);
        }
        rig.door.owner().set_mode("full").await;
        trial.tidy(rig).await;
    }
    map
}

/// Points that are reached only when something has gone wrong before.
async fn again_and_abandoned(
    rig: &mut Rig,
    board: &Board,
    table: &BTreeSet<String>,
    kinds: &[Kind],
) {
    let after_a_crash = |point: &str| {
        [
            "edge.inspect",
            "files.inspect",
            "exec.inspect",
            "exec.tombstone",
        ]
        .iter()
        .any(|start| point.starts_with(start))
    };
    for point in table.iter().filter(|point| after_a_crash(point)) {
        for (stage, kind) in STAGES
            .iter()
            .flat_map(|stage| kinds.iter().map(move |kind| (stage, kind)))
        {
            if board.is_reached(point) {
                break;
            }
            let fits = match point.split('.').next() {
                Some("files") => FILES.contains(kind),
                Some("exec") => COMMANDS.contains(kind),
                _ => true,
            };
            let asks = matches!(kind, Kind::Ask | Kind::Approved);
            if fits && !asks && strike_twice(rig, stage, point, *kind).await {
                board.reach(point);
            }
        }
    }
    for point in table
        .iter()
        .filter(|point| point.starts_with("edge.abandon"))
    {
        for kind in kinds.iter().filter(|kind| COMMANDS.contains(kind)) {
            if board.is_reached(point) {
                break;
            }
            if strike_without_worker(rig, point, *kind).await {
                board.reach(point);
            }
        }
    }
}

/// Points of a start on a data directory that is there already.
async fn restarts(rig: &mut Rig, board: &Board, table: &BTreeSet<String>) {
    rig.kill_all().await;
    rig.faults.forget_seen();
    rig.restart().await;
    let seen = rig.faults.seen();
    for point in table.intersection(&seen) {
        if !board.take(point) {
            continue;
        }
        rig.kill_all().await;
        rig.faults.arm(point, Strike::Kill);
        rig.restart().await;
        if !rig.faults.disarm(point) {
            board.reach(point);
        }
        let trial = Trial::prepare(rig, Kind::New).await;
        let answer = trial.outcome(rig).await;
        assert!(!answer.is_error, "{point}: {answer:?}");
    }
}

/// Points of an undo: killed there, it is gone on with, or was never begun.
async fn undos(board: &Board, table: &BTreeSet<String>) -> u32 {
    let mut rig = Rig::start().await;
    for point in table.iter().filter(|point| undo::is_of_undo(point)) {
        if undo::strike(&mut rig, point).await {
            board.reach(point);
        }
    }
    rig.finish().await
}

/// Points of the first start of all: killed there, the next one makes a door all the same.
async fn first_starts(board: &Board, table: &BTreeSet<String>) -> u32 {
    let mut kills = 0;
    let of_a_start = |point: &str| {
        [
            "start.",
            "identity.bootstrap",
            "identity.launch",
            "identity.pin",
        ]
        .iter()
        .any(|start| point.starts_with(start))
    };
    for point in table.iter().filter(|point| of_a_start(point)) {
        let (world, faults) = World::with_fault_points();
        faults.arm(point, Strike::Kill);
        let mut door = None;
        for _ in 0..STARTS {
            door = world.try_up("full").await;
            if door.is_some() {
                break;
            }
            kills += 1;
        }
        let door = door.unwrap_or_else(|| panic!("no start after {point}"));
        assert!(!faults.disarm(point), "{point} was not reached");
        board.reach(point);
        let arguments = json!({"path": "a.txt", "content": "a", "expectedSha256": null});
        let answer = door.agent().call("workspace_write", arguments).await;
        assert!(!answer.is_error, "{point}: {answer:?}");
        let hidden = std::fs::read_dir(world.data()).expect("a data directory");
        let drafts: Vec<_> = hidden
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.ends_with(".new"))
            .collect();
        assert!(drafts.is_empty(), "{point} left {drafts:?}");
        assert_eq!(door.stop().await.code, Some(0), "{point}");
    }
    kills
}

#[test]
fn points_of_the_worker_are_told_apart() {
    assert!(is_of_worker("exec.claim.before") && !is_of_worker("edge.begin.before"));
}
