use client::{
    failure::Failure,
    types::Worker,
    view::{format::format_second, paint::Paint},
};
use serde_json::Value;

use crate::{ExitStatus, session::Session};

const HEADINGS: &[&str] = &["WORKER", "NODE", "EXECUTIONS", "LEASE UNTIL"];

pub(super) async fn list_workers(session: &Session<'_>) -> Result<ExitStatus, Failure> {
    let workers: Value = session.client.query("workers", &[], Worker::FIELDS).await?;
    session.screen.print_list(&workers, HEADINGS, worker_row)
}

fn worker_row(worker: &Worker, _: Paint) -> Vec<String> {
    vec![
        worker.worker_id.to_string(),
        worker.node.to_string(),
        worker.executions.to_string(),
        format_second(&worker.lease_until),
    ]
}
