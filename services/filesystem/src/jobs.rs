//! Blocking work on files, off the runtime and bounded.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use postern_kit::Failure;
use tokio::sync::Semaphore;

use crate::refusal;

/// Locks, also after a panic elsewhere: what these mutexes hold is whole at every step.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs blocking work, so many jobs at once; so many callers may wait, and who comes after them is refused.
#[derive(Debug)]
pub(crate) struct Jobs {
    callers: Semaphore,
    running: Arc<Semaphore>,
}

impl Jobs {
    pub(crate) fn new(running: usize, waiting: usize) -> Self {
        Self {
            callers: Semaphore::new(running + waiting),
            running: Arc::new(Semaphore::new(running)),
        }
    }

    /// Runs one job. It goes on to its end when the caller goes away.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.run_within(Duration::MAX, job).await
    }

    /// As [`Self::run`], but refused when the job cannot begin within `wait`.
    pub(crate) async fn run_within<T: Send + 'static>(
        &self,
        wait: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let too_many = || refusal::busy("Too many file operations are waiting. Try again.");
        let _caller = self.callers.try_acquire().map_err(|_| too_many())?;
        let permit = Arc::clone(&self.running).acquire_owned();
        let permit = tokio::time::timeout(wait, permit)
            .await
            .map_err(|_| too_many())?
            .map_err(|_| refusal::internal())?;
        tokio::task::spawn_blocking(move || {
            let answer = job();
            drop(permit);
            answer
        })
        .await
        .map_err(|error| {
            tracing::error!(panicked = error.is_panic(), "a file job did not end");
            refusal::internal()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use postern_types::ErrorCode;
    use pretty_assertions::assert_eq;

    use super::*;

    #[tokio::test]
    async fn who_comes_after_the_bound_is_refused() {
        let jobs = Arc::new(Jobs::new(1, 1));
        let (release, released) = mpsc::channel::<()>();
        let running = jobs.run(move || released.recv());
        let waiting = jobs.run(|| ());
        tokio::pin!(running, waiting);
        assert!(futures_poll(running.as_mut()).await);
        assert!(futures_poll(waiting.as_mut()).await);
        let refused = jobs.run(|| ()).await.expect_err("refused");
        assert_eq!(refused.code, ErrorCode::Busy);
        release.send(()).expect("sent");
        running.await.expect("done").expect("released");
        waiting.await.expect("done");
    }

    #[tokio::test]
    async fn who_waits_too_long_is_refused_and_the_next_one_served() {
        let jobs = Arc::new(Jobs::new(1, 1));
        let (release, released) = mpsc::channel::<()>();
        let running = jobs.run(move || released.recv());
        tokio::pin!(running);
        assert!(futures_poll(running.as_mut()).await);
        let refused = jobs.run_within(Duration::from_millis(20), || ()).await;
        assert_eq!(refused.expect_err("refused").code, ErrorCode::Busy);
        release.send(()).expect("sent");
        running.await.expect("done").expect("released");
        let served = jobs.run_within(Duration::from_secs(20), || ()).await;
        served.expect("done");
    }

    /// Polls once; tells whether the future still waits.
    async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(future.as_mut().poll(context).is_pending())
        })
        .await
    }

    #[tokio::test]
    async fn a_panic_is_told_as_an_unknown_effect() {
        let jobs = Jobs::new(1, 1);
        let failure = jobs.run(|| panic!("test")).await.expect_err("failed");
        assert_eq!(
            (failure.code, failure.effect),
            (ErrorCode::Internal, postern_kit::Effect::Unknown)
        );
    }
}
