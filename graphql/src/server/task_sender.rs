//! Sends tasks to the server's loop, which owns all tasks. So the server can wait for all of them
//! at shutdown.

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of tasks that wait for the loop. It is small, because the loop starts each task
/// without delay.
const MAX_WAITING_TASKS: usize = 64;

pub(super) type TaskFuture = BoxFuture<'static, ()>;

pub(super) enum Task {
    Request(TaskFuture),
    /// Runs on the thread of large requests, so that it delays only other large requests.
    Large(TaskFuture),
    /// Runs on the threads of subscriptions, so that thousands of subscriptions delay no request.
    Subscription(TaskFuture),
}

#[derive(Debug, Clone)]
pub(super) struct TaskSender {
    tasks: mpsc::Sender<Task>,
}

pub(super) fn task_channel() -> (TaskSender, mpsc::Receiver<Task>) {
    let (tasks, adoptions) = mpsc::channel(MAX_WAITING_TASKS);
    (TaskSender { tasks }, adoptions)
}

impl TaskSender {
    /// Starts a task for a subscription. After shutdown, drops the future instead.
    pub(super) async fn send_subscription(&self, work: TaskFuture) {
        self.send_task(Task::Subscription(work)).await;
    }

    async fn send_task(&self, task: Task) {
        // Ignores a failure, because sending fails only after shutdown.
        let _ = self.tasks.send(task).await;
    }

    /// Runs `future` until it finishes, even if the caller drops the returned future. Returns
    /// `None` if the server shut down first.
    pub(super) async fn run_to_end<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
        is_large: bool,
    ) -> Option<T> {
        let (answer, result) = oneshot::channel();
        let task = async move {
            // Ignores a failure: sending fails if the caller no longer waits, because the client
            // has closed its connection.
            let _ = answer.send(future.await);
        };
        let task: TaskFuture = Box::pin(task);
        self.send_task(if is_large { Task::Large(task) } else { Task::Request(task) }).await;
        result.await.ok()
    }

    /// Runs `future` on the thread of large requests while the caller waits. Returns `None` if the
    /// server shut down first.
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
        self.send_task(Task::Large(Box::pin(task))).await;
        result.await.ok()
    }
}
