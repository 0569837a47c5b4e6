//! `faber prune`: removes what is over and old.

use serde_json::json;

use crate::{
    cli::{
        App, ExitStatus,
        client::{Client, types::Pruned},
        failure::Failure,
        session::{Need, Session},
        view::plain,
    },
    config::age,
};

/// Removes finished executions that are older than an age, then plans and requests without one.
pub(crate) async fn prune(app: &App, older_than: &str) -> Result<ExitStatus, Failure> {
    age::parse(older_than).map_err(Failure::usage)?;
    let removed = Session::with_existing(app, Need::Store, async |session| {
        remove_old(session.client(), older_than).await
    });
    let removed = removed.await?;
    if app.screen.json {
        app.screen.print_json(&json!(removed))?;
    } else {
        let executions = plain::count(removed.executions, "execution");
        let plans = plain::count(removed.plans, "plan");
        let requests = plain::count(removed.requests, "request");
        app.screen.print(&format!("removed {executions}, {plans}, {requests}"))?;
    }
    Ok(ExitStatus::Done)
}

async fn remove_old(client: &Client, older_than: &str) -> Result<Pruned, Failure> {
    let mut all = Pruned::default();
    loop {
        let arguments = [("olderThan: String!", json!(older_than))];
        let some: Pruned = client.mutate("prune", &arguments, Pruned::FIELDS).await?;
        all.executions += some.executions;
        all.plans += some.plans;
        all.requests += some.requests;
        if !some.more {
            return Ok(all);
        }
    }
}
