//! Hands tasks to the server's loop. The loop owns all tasks: no task runs detached.

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of tasks that wait for the loop. The loop takes them without delay, so few wait.
const MAX_WAITING_TASKS: usize = 64;

pub(super) type TaskFuture = BoxFuture<'static, ()>;

/// A task and the threads that run it.
pub(super) enum Task {
    /// On the threads that serve ordinary requests.
    Request(TaskFuture),
    /// On the threads of large requests, so it delays no other request.
    Large(TaskFuture),
    /// On the threads of subscriptions, so thousands of subscriptions delay no request.
    Subscription(TaskFuture),
}

/// The sender of tasks to the loop.
#[derive(Debug, Clone)]
pub(super) struct TaskSender {
    tasks: mpsc::Sender<Task>,
}

pub(super) fn task_channel() -> (TaskSender, mpsc::Receiver<Task>) {
    let (tasks, adoptions) = mpsc::channel(MAX_WAITING_TASKS);
    (TaskSender { tasks }, adoptions)
}

impl TaskSender {
    /// Runs a subscription. After shutdown, the future is dropped.
    pub(super) async fn send_subscription(&self, work: TaskFuture) {
        self.send_task(Task::Subscription(work)).await;
    }

    async fn send_task(&self, task: Task) {
        // The send fails only after shutdown.
        let _ = self.tasks.send(task).await;
    }

    /// Runs `future` until it finishes, even if the caller leaves.
    ///
    /// Returns `None` if the server shut down first.
    pub(super) async fn finish<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
        is_large: bool,
    ) -> Option<T> {
        let (answer, result) = oneshot::channel();
        let task = async move {
            // Sending fails if the client has closed its connection, which is not an error.
            let _ = answer.send(future.await);
        };
        let task: TaskFuture = Box::pin(task);
        self.send_task(if is_large { Task::Large(task) } else { Task::Request(task) }).await;
        result.await.ok()
    }

    /// Runs `future` on the threads of large requests while the caller waits.
    ///
    /// Returns `None` if the server shut down first.
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
