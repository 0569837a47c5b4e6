//! Hands tasks to the server's loop, which owns them all: nothing runs detached.

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

/// How many tasks may wait to be adopted; the loop takes them at once, so few ever do.
const WAITING: usize = 64;

/// What a task does, without a result.
pub(super) type Work = BoxFuture<'static, ()>;

/// A task, and where it runs.
pub(super) enum Task {
    /// Beside the requests.
    Request(Work),
    /// On the threads of large requests, so that reading and checking megabytes delays no other.
    Large(Work),
    /// On the threads of subscriptions, so that thousands of them delay no request.
    Subscription(Work),
}

/// The way to the loop that owns the tasks.
#[derive(Debug, Clone)]
pub(super) struct Nursery {
    tasks: mpsc::Sender<Task>,
}

/// Makes a nursery and the end from which its owner takes tasks.
pub(super) fn nursery() -> (Nursery, mpsc::Receiver<Task>) {
    let (tasks, adoptions) = mpsc::channel(WAITING);
    (Nursery { tasks }, adoptions)
}

impl Nursery {
    /// Has the server run what is sent bit by bit; a server that is gone drops it.
    pub(super) async fn adopt_subscription(&self, work: Work) {
        self.adopt(Task::Subscription(work)).await;
    }

    async fn adopt(&self, task: Task) {
        // The only failure is that nobody is there to run anything any more.
        let _ = self.tasks.send(task).await;
    }

    /// Runs `future` to its end even if whoever asked goes away meanwhile.
    ///
    /// `None` means that the server shut down before it ended.
    pub(super) async fn finish<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
        is_large: bool,
    ) -> Option<T> {
        let (answer, result) = oneshot::channel();
        let task = async move {
            // Nobody may be waiting any more; the work is done all the same.
            let _ = answer.send(future.await);
        };
        let task: Work = Box::pin(task);
        self.adopt(if is_large { Task::Large(task) } else { Task::Request(task) }).await;
        result.await.ok()
    }

    /// Runs `future` on the threads of large requests, for as long as whoever asked waits.
    ///
    /// `None` means that the server shut down before it ended.
    pub(super) async fn run_large<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (mut answer, result) = oneshot::channel();
        let task = async move {
            tokio::select! {
                done = future => drop(answer.send(done)),
                () = answer.closed() => {}
            }
        };
        self.adopt(Task::Large(Box::pin(task))).await;
        result.await.ok()
    }
}
