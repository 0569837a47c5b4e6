//! OAuth 2.1 for MCP servers over HTTP.
//!
//! rmcp makes most of the requests. An `AuthHttp` of this crate sends them, so that the network
//! rules of all other sources apply.

mod bearer;
mod client_credentials;
mod config;
mod discovery;
mod login;
mod source;
mod token_error;
mod token_store;
mod web;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use shared::id::ToolSetName;
use tokio::{sync::oneshot, task::JoinSet, time::timeout};

pub(super) use self::bearer::Bearer;
pub use self::{
    config::OAuth,
    login::{LoggedIn, Login, LoginError},
    token_store::Logins,
};

pub const NEEDS_LOGIN: &str = "needs a login";

#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) set: &'a ToolSetName,
    pub(crate) logins: Option<&'a Logins>,
    pub(crate) background: &'a BackgroundTasks,
}

pub(super) fn check_server(server: &reqwest::Url) -> Result<(), String> {
    web::check_secure(server).map_err(|err| err.to_string())
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "tokens end by the clock of the machine, as the server that grants them counts"
)]
fn unix_time() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

const MAX_TASKS: usize = 64;
/// Time limit for running requests when the supervisor ends. A token that arrives in time is
/// stored.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
pub(crate) struct BackgroundTasks(Arc<Mutex<JoinSet<()>>>);

impl BackgroundTasks {
    /// Runs a task that continues if this future is dropped. Returns its result, or `None` if too
    /// many tasks are running or the tasks were stopped.
    pub(super) async fn run_task<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        {
            let mut all = self.lock_tasks();
            while all.try_join_next().is_some() {}
            if all.len() >= MAX_TASKS {
                return None;
            }
            all.spawn(async move {
                // Ignores the error, because the receiver may have been dropped.
                let _ = done.send(task.await);
            });
        }
        outcome.await.ok()
    }

    /// Waits for running tasks up to [`FINISH_TIMEOUT`], and stops the tasks that still run then.
    pub(crate) async fn finish_all(&self) {
        let mut all = std::mem::take(&mut *self.lock_tasks());
        let _ = timeout(FINISH_TIMEOUT, async { while all.join_next().await.is_some() {} }).await;
    }

    fn lock_tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BackgroundTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BackgroundTasks").field(&self.lock_tasks().len()).finish()
    }
}

#[cfg(test)]
pub(super) mod tests {
    pub(crate) mod test_server;

    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn background_tasks_are_awaited_for_a_limited_time() {
        let (background, go, is_done) =
            (BackgroundTasks::default(), Arc::new(Notify::new()), Arc::default());
        let task = {
            let (go, is_done) = (Arc::clone(&go), Arc::<AtomicBool>::clone(&is_done));
            async move {
                go.notified().await;
                is_done.store(true, Ordering::Relaxed);
            }
        };
        assert!(
            timeout(Duration::ZERO, background.run_task(task)).await.is_err(),
            "the caller gives up waiting"
        );
        go.notify_one();
        background.finish_all().await;
        assert!(is_done.load(Ordering::Relaxed));
        assert!(
            timeout(Duration::ZERO, background.run_task(std::future::pending::<()>()))
                .await
                .is_err()
        );
        background.finish_all().await;
        assert_eq!(background.run_task(async { 1 }).await, Some(1));
    }

    #[tokio::test]
    async fn a_background_task_beyond_the_limit_does_not_run() {
        let background = BackgroundTasks::default();
        for _ in 0..MAX_TASKS {
            let never = background.run_task(std::future::pending::<()>());
            assert!(timeout(Duration::ZERO, never).await.is_err());
        }
        assert_eq!(background.run_task(async {}).await, None);
    }
}
