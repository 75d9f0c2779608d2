//! Kills at any moment, while several calls of every kind are under way.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use postern_tests::{Answer, Fault, Seed};
use pretty_assertions::assert_eq;

use super::{
    budget,
    rig::Rig,
    strike::{kill, settle},
    trial::{Hurt, Kind, Trial},
};

/// Calls under way at once: as many as a workspace may have.
const AT_ONCE: usize = 4;
/// Latest kill after they were sent.
const LATEST: Duration = Duration::from_millis(80);
/// What needs nobody's answer.
const KINDS: &[Kind] = &[
    Kind::New,
    Kind::Over,
    Kind::Patch,
    Kind::Delete,
    Kind::Exec,
    Kind::Input,
    Kind::Stop,
];

/// Who is killed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Victim {
    Door,
    Worker,
    All,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_any_moment_under_load_are_survived() {
    let mut seed = Seed::new();
    let begun = Instant::now();
    eprintln!("load: seed {}", seed.started());
    let mut rig = Rig::start().await;
    let mut waves = 0;
    while waves < budget().waves {
        waves += 1;
        let context = format!("seed {}, wave {waves}", seed.started());
        wave(&mut rig, &mut seed, &context).await;
    }
    let kills = rig.finish().await;
    eprintln!(
        "load: seed {}; waves: {waves}; kills: {kills}; seconds: {:.0}",
        seed.started(),
        begun.elapsed().as_secs_f64()
    );
}

async fn wave(rig: &mut Rig, seed: &mut Seed, context: &str) {
    let mut trials = Vec::new();
    for _ in 0..AT_ONCE {
        trials.push(Trial::prepare(rig, *seed.one_of(KINDS)).await);
    }
    let twice = *seed.one_of(&[true, false]);
    let victim = *seed.one_of(&[Victim::Door, Victim::Worker, Victim::All]);
    let moment = seed.moment(LATEST);
    let answers = {
        let kill = async {
            tokio::time::sleep(moment).await;
            strike(rig, victim)
        };
        let calls = join_all(trials.iter().map(|trial| send(rig, trial, twice)));
        let (answers, killed) = tokio::join!(calls, kill);
        rig.kills += u32::from(killed);
        answers
    };
    let context = format!("{context}: {victim:?} after {moment:?}");
    for trial in &trials {
        trial.check_whole(rig, &context);
    }
    if victim != Victim::Worker {
        rig.restart().await;
    }
    let hurt = Hurt {
        worker: victim != Victim::Door,
    };
    for (trial, answers) in trials.iter().zip(answers) {
        let context = format!("{context}, {:?}", trial.kind);
        let mut outcomes = answers.into_iter().filter(is_outcome);
        let first = outcomes.next();
        for other in outcomes {
            assert_eq!(
                Some(format!("{other:?}")),
                first.as_ref().map(|first| format!("{first:?}")),
                "{context}"
            );
        }
        let first = first.unwrap_or_else(|| Err(Fault::Lost("no outcome".to_owned())));
        settle(rig, trial, first, hurt, &context).await;
    }
}

fn is_outcome(answer: &Result<Answer, Fault>) -> bool {
    answer
        .as_ref()
        .is_ok_and(|answer| !matches!(answer.code(), "UNAVAILABLE" | "BUSY"))
}

/// One call, or the same one twice at once.
async fn send(rig: &Rig, trial: &Trial, twice: bool) -> Vec<Result<Answer, Fault>> {
    let calls = (0..if twice { 2 } else { 1 }).map(|_| rig.send(&trial.call));
    join_all(calls).await
}

/// Tells whether there was anybody to kill.
fn strike(rig: &Rig, victim: Victim) -> bool {
    let door = rig.door.program.pid();
    let falling = rig
        .world
        .processes()
        .into_iter()
        .filter(|process| match victim {
            Victim::Door => process.pid == door,
            Victim::Worker => process.has_argument("serve"),
            Victim::All => true,
        });
    kill(falling)
}
