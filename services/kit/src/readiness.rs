//! Whether what a service needs outside its process is there, looked at again and again.

use std::{fmt::Display, sync::Arc, time::Duration};

use tokio::{sync::watch, task::spawn_blocking, time::timeout};

use crate::task::Tasks;

/// Time between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Time that a look may take. What hangs, as a network's file system does, is of no use to a caller.
const LOOK_LIMIT: Duration = Duration::from_secs(3);

/// Follows something by looks that may block: ready while they succeed. The first is made before this returns. Nobody looks
/// any more when `tasks` stop or nobody listens.
pub fn follow<E>(
    tasks: &Tasks,
    look: impl Fn() -> Result<(), E> + Send + Sync + 'static,
) -> watch::Receiver<bool>
where
    E: Display + Send + 'static,
{
    let (sender, ready) = watch::channel(true);
    note(&sender, look());
    let stopping = tasks.stopping();
    tasks.spawn("readiness", async move {
        let looking = keep_looking(&sender, Arc::new(look));
        tokio::select! {
            () = stopping.cancelled() => {}
            () = sender.closed() => {}
            () = looking => {}
        }
    });
    ready
}

async fn keep_looking<E>(
    ready: &watch::Sender<bool>,
    look: Arc<impl Fn() -> Result<(), E> + Send + Sync + 'static>,
) where
    E: Display + Send + 'static,
{
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let look = Arc::clone(&look);
        let mut looking = spawn_blocking(move || look());
        let looked = match timeout(LOOK_LIMIT, &mut looking).await {
            Ok(looked) => looked,
            Err(_) => {
                note(ready, Err("a look at it hangs"));
                // No thread more, while that one waits.
                looking.await
            }
        };
        match looked {
            Ok(looked) => note(ready, looked),
            Err(_) => note(ready, Err("a look at it failed")),
        }
    }
}

fn note(ready: &watch::Sender<bool>, looked: Result<(), impl Display>) {
    let is_ready = looked.is_ok();
    let is_news = ready.send_if_modified(|was| std::mem::replace(was, is_ready) != is_ready);
    match looked {
        Err(problem) if is_news => tracing::warn!(%problem, "the service is not ready"),
        Ok(()) if is_news => tracing::info!("the service is ready again"),
        Ok(()) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    /// For what must come, on a busy machine.
    const SOON: Duration = Duration::from_secs(20);

    async fn becomes(ready: &mut watch::Receiver<bool>, wanted: bool) {
        let told = ready.wait_for(|is_ready| *is_ready == wanted);
        timeout(SOON, told).await.expect("in time").expect("told");
    }

    #[tokio::test]
    async fn what_hangs_is_not_ready_and_is_again_once_it_answers() {
        let (answer, answers) = mpsc::channel::<bool>();
        let answers = Mutex::new(answers);
        let tasks = Tasks::new();
        answer.send(true).expect("taken");
        let mut ready = follow(&tasks, move || {
            let answer = answers.lock().expect("whole").recv();
            answer.is_ok_and(|well| well).then_some(()).ok_or("away")
        });
        assert!(*ready.borrow_and_update());
        // The next look has no answer.
        becomes(&mut ready, false).await;
        answer.send(true).expect("taken");
        becomes(&mut ready, true).await;
        answer.send(false).expect("taken");
        becomes(&mut ready, false).await;
        drop(answer);
        assert!(tasks.shutdown(SOON).await);
    }
}
