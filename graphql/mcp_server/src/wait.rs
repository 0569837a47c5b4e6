use std::{sync::Arc, time::Duration};

use client::{
    Client,
    failure::Failure,
    watcher::{ExecutionPhase, Update, Watcher},
};
use shared::store::Store;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::progress::ProgressReporter;

pub(crate) struct ExecutionWait<'a> {
    pub(crate) client: &'a Client,
    pub(crate) store: Option<&'a Arc<dyn Store>>,
    pub(crate) timeout: Duration,
    /// Cancelled when the caller cancels the call or disconnects. The execution continues.
    pub(crate) caller_gone: &'a CancellationToken,
}

impl ExecutionWait<'_> {
    /// Waits until the execution is finished or needs a person. Also returns after the timeout, and
    /// if the caller cancels the call or disconnects.
    pub(crate) async fn wait_until_done(
        &self,
        id: &str,
        reports: &mut ProgressReporter,
    ) -> Result<(), Failure> {
        let waited = tokio::select! {
            watched = time::timeout(self.timeout, self.watch(id, reports)) => watched,
            () = self.caller_gone.cancelled() => return Ok(()),
        };
        reports.flush().await;
        waited.unwrap_or(Ok(()))
    }

    async fn watch(&self, id: &str, reports: &mut ProgressReporter) -> Result<(), Failure> {
        let mut watcher = Watcher::new(self.client, self.store, id.to_owned());
        loop {
            tokio::select! {
                update = watcher.next() => match update? {
                    Update::News { news, .. } => {
                        reports.report_news(&news, watcher.tree().root().finished_step_count).await;
                    }
                    Update::Ended if watcher.is_finished().await? => return Ok(()),
                    Update::Ended => continue,
                    Update::Event | Update::Poll => (),
                },
                () = reports.send_when_due() => continue,
            }
            // `true` means that each answer of a person has a reader: the queue of this process or
            // another worker.
            if watcher.load_phase(async |_| Ok(true)).await? != ExecutionPhase::Running {
                return Ok(());
            }
        }
    }
}
