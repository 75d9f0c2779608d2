//! One blow at one place: the call that meets it, the restart, and what must be true afterwards.

use std::time::Duration;

use postern_tests::{Answer, Fault, FaultPoints, Strike, process::Process, wait_for};
use pretty_assertions::assert_eq;

use super::{
    rig::Rig,
    trial::{Hurt, Kind, Trial, state_of},
};

/// For a point to be reached after the call was answered. Only points are waited for that calls of the kind reach, so that it
/// is used up only where the blow before has changed the way.
const LATE: Duration = Duration::from_secs(5);
/// Longest wait for whatever a blow has to wait for.
const BLOW_LIMIT: Duration = Duration::from_secs(30);

/// What is killed when a point is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Blow {
    /// Whoever reaches it.
    Own,
    /// The exec worker, while whoever reached it stands there.
    Worker,
    /// Everything at once.
    All,
}

/// Whether it is the worker or a wrapper that reaches a point.
pub(crate) fn is_of_worker(point: &str) -> bool {
    point.starts_with("exec.")
}

/// Sends a trial's call once, with the owner at hand.
pub(crate) async fn first(rig: &Rig, trial: &Trial) -> Result<Answer, Fault> {
    tokio::select! {
        answer = rig.send(&trial.call) => answer,
        () = trial.attend(rig) => unreachable!("the owner stays"),
    }
}

/// Sends a call of this kind into a blow at a point, and checks everything. Tells whether the point was reached.
pub(crate) async fn strike(rig: &mut Rig, point: &str, kind: Kind, blow: Blow) -> bool {
    let trial = Trial::prepare(rig, kind).await;
    if kind == Kind::Approved {
        rig.door.owner().set_mode("ask").await;
    }
    let order = match blow {
        Blow::Own => Strike::Kill,
        Blow::Worker | Blow::All => Strike::Hold,
    };
    rig.faults.arm(point, order);
    let answer = meet(rig, &trial, point, blow).await;
    let reached = !rig.faults.disarm(point);
    rig.faults.release(point);
    let hurt = Hurt {
        worker: reached && (blow != Blow::Own || is_of_worker(point)),
    };
    if reached {
        rig.kills += u32::from(blow == Blow::Own);
        let door_is_gone = blow == Blow::All || (blow == Blow::Own && !is_of_worker(point));
        let context = format!("{point} {kind:?} {blow:?}");
        trial.check_whole(rig, &context);
        if door_is_gone {
            rig.restart().await;
        }
    }
    let context = format!("{point} {kind:?} {blow:?}: first {answer:?}");
    settle(rig, &trial, answer, hurt, &context).await;
    if kind == Kind::Approved {
        rig.door.owner().set_mode("full").await;
    }
    reached
}

/// Waits until the order for a point is taken.
async fn reached(faults: &FaultPoints, point: &str) {
    while !faults.is_hit(point) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The first try, and the blow that meets it.
async fn meet(rig: &mut Rig, trial: &Trial, point: &str, blow: Blow) -> Result<Answer, Fault> {
    let faults = rig.faults.clone();
    if blow == Blow::Own {
        let answer = first(rig, trial).await;
        // Some points come after the answer.
        let _late = tokio::time::timeout(LATE, reached(&faults, point)).await;
        return answer;
    }
    let (answer, kills) = {
        let asked = first(rig, trial);
        tokio::pin!(asked);
        let early = tokio::select! {
            answer = &mut asked => Some(answer),
            () = reached(&faults, point) => None,
        };
        let is_met = early.is_none()
            || tokio::time::timeout(LATE, reached(&faults, point))
                .await
                .is_ok();
        let kills = is_met && land(rig, point, blow);
        let answer = match early {
            Some(answer) => answer,
            None => asked.await,
        };
        (answer, kills)
    };
    rig.kills += u32::from(kills);
    answer
}

/// The blow, while whoever reached the point stands there. Tells whether there was anybody to kill.
fn land(rig: &Rig, point: &str, blow: Blow) -> bool {
    if blow == Blow::All {
        // Nobody is left to be let go.
        return kill_everything(rig);
    }
    let kills = kill_workers(rig);
    rig.faults.release(point);
    kills
}

/// Tells whether there was one.
fn kill_workers(rig: &Rig) -> bool {
    kill(rig.world.workers())
}

/// Tells whether anything ran.
fn kill_everything(rig: &Rig) -> bool {
    kill(rig.world.processes())
}

/// Kills what still runs of these; tells whether any did.
pub(crate) fn kill(processes: impl IntoIterator<Item = Process>) -> bool {
    let mut any = false;
    for process in processes.into_iter().filter(|process| process.state != 'Z') {
        process.kill();
        any = true;
    }
    any
}

/// Asks again, and once more, and checks answers, receipt and disk against each other.
pub(crate) async fn settle(
    rig: &mut Rig,
    trial: &Trial,
    first: Result<Answer, Fault>,
    hurt: Hurt,
    context: &str,
) {
    let again = trial.outcome(rig).await;
    let context = format!("{context}, again {again:?}");
    if let Ok(first) = first
        && !matches!(first.code(), "UNAVAILABLE" | "BUSY")
    {
        assert_eq!(first, again, "acknowledged, then another answer: {context}");
    }
    if hurt.worker {
        rig.worker_answers().await;
    }
    trial.check(rig, &again, hurt, &context).await;
    let receipt = rig.receipt(&trial.call).await;
    assert_eq!(receipt["state"], state_of(&again), "{context}");
    let outcome = match again.code() {
        "" => "ok",
        code => code,
    };
    assert_eq!(receipt["outcome"], outcome, "{context}");
    let replayed = trial.outcome(rig).await;
    assert_eq!(replayed, again, "{context}");
    trial.check(rig, &replayed, hurt, &context).await;
    trial.tidy(rig).await;
}

/// Kills the program at `stage`, and whoever reaches `point` while it finds out what became of the call. Tells whether the
/// point was reached.
pub(crate) async fn strike_twice(rig: &mut Rig, stage: &str, point: &str, kind: Kind) -> bool {
    let trial = Trial::prepare(rig, kind).await;
    rig.faults.arm(stage, Strike::Kill);
    let answer = first(rig, &trial).await;
    if rig.faults.disarm(stage) {
        // This kind of call does not come so far.
        let context = format!("{point} after {stage}");
        settle(rig, &trial, answer, Hurt::default(), &context).await;
        return false;
    }
    rig.kills += 1;
    trial.check_whole(rig, stage);
    rig.faults.arm(point, Strike::Kill);
    rig.restart().await;
    let early = first(rig, &trial).await;
    let reached = !rig.faults.disarm(point);
    let hurt = Hurt {
        worker: reached && is_of_worker(point),
    };
    if reached {
        rig.kills += 1;
        if !is_of_worker(point) {
            rig.restart().await;
        }
    }
    let context = format!("{point} after {stage} {kind:?}: {answer:?} {early:?}");
    settle(rig, &trial, early, hurt, &context).await;
    reached
}

/// Kills the worker under a call that is about to have its effect, and whoever reaches `point` because of it.
pub(crate) async fn strike_without_worker(rig: &mut Rig, point: &str, kind: Kind) -> bool {
    const STAGE: &str = "edge.effect.before";
    let trial = Trial::prepare(rig, kind).await;
    rig.faults.arm(STAGE, Strike::Hold);
    rig.faults.arm(point, Strike::Kill);
    let (answer, killed) = {
        let asked = first(rig, &trial);
        tokio::pin!(asked);
        tokio::select! {
            answer = &mut asked => (answer, false),
            () = rig.faults.hit(STAGE, BLOW_LIMIT) => {
                let killed = kill_workers(rig);
                gone(rig).await;
                rig.faults.release(STAGE);
                (asked.await, killed)
            }
        }
    };
    // An order that was not taken must not meet a later call.
    let _taken = rig.faults.disarm(STAGE);
    rig.kills += u32::from(killed);
    let reached = !rig.faults.disarm(point);
    if reached {
        rig.kills += 1;
        if !is_of_worker(point) {
            rig.restart().await;
        }
    }
    let context = format!("{point} without a worker, {kind:?}: {answer:?}");
    let hurt = Hurt {
        worker: killed || (reached && is_of_worker(point)),
    };
    settle(rig, &trial, answer, hurt, &context).await;
    reached
}

async fn gone(rig: &Rig) {
    wait_for("the end of the worker", BLOW_LIMIT, || async {
        rig.world
            .workers()
            .iter()
            .all(|worker| worker.state == 'Z')
            .then_some(())
    })
    .await;
}
