//! Embedding models: fetching them, and which are there.

use console::Term;
use planner::embed::pull::{self, HUB, Places, Progress, PullError, Pulled, Request};
use serde_json::json;

use super::{Ending, Session, args::Models, endings::left, failure::Failure, plain, signals};

/// Does something with the models.
pub(super) async fn models(session: &Session, what: Models) -> Result<Ending, Failure> {
    match what {
        Models::List => list(session),
        Models::Pull { name, sha256 } => tokio::select! {
            pulled = fetch(session, Request { name: &name, sha256: sha256.as_deref() }) => pulled,
            () = signals::interrupted() => {
                left(session, "what was fetched is kept: the same command goes on with it")
            }
        },
    }
}

fn list(session: &Session) -> Result<Ending, Failure> {
    let (screen, directory) = (&session.screen, session.config.models());
    let models = pull::list(&directory);
    if screen.json {
        let models = models.iter().map(|it| json!({ "name": it, "path": directory.join(it) }));
        screen.print_json(&models.collect())?;
    } else if models.is_empty() {
        screen.say("there are none: `faber models pull all-MiniLM-L6-v2` fetches one");
    } else {
        screen.print(&models.iter().map(|it| plain::line(it)).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(Ending::Done)
}

async fn fetch(session: &Session, request: Request<'_>) -> Result<Ending, Failure> {
    let (screen, environment) = (&session.screen, &session.environment);
    let places = Places {
        hub: environment.hub.clone().unwrap_or_else(|| HUB.to_owned()),
        models: session.config.models(),
    };
    let terminal = Term::stderr();
    let mut report = |progress: Progress| {
        let Progress { file, bytes, of } = progress;
        let whole = of.map_or_else(String::new, |it| format!(" of {}", megabytes(it)));
        let line = format!("{file}: {}{whole}", megabytes(bytes));
        if screen.is_live {
            // A line that cannot be drawn again is drawn below.
            let _ = terminal.clear_line().and_then(|()| terminal.write_str(&plain::line(&line)));
        } else if of == Some(bytes) {
            screen.say(&line);
        }
    };
    let pulled = pull::pull(request, &places, &mut report).await;
    let name = request.name;
    if screen.is_live {
        let _ = terminal.clear_line();
    }
    let Pulled { path, model, from } = pulled.map_err(|err| failure(&err))?;
    if screen.json {
        screen.print_json(&json!({ "name": name, "path": path, "model": model, "from": from }))?;
        return Ok(Ending::Done);
    }
    let how = from.map_or_else(|| "it was there".to_owned(), |it| format!("from {it}"));
    screen.print(&format!(
        "{} ({model}, {how})\nuse it with `embedding: {{ model: {name} }}` in the configuration",
        path.display()
    ))?;
    Ok(Ending::Done)
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

fn failure(err: &PullError) -> Failure {
    let message = err.to_string();
    match err {
        PullError::Name(_) | PullError::Checksum(_) => Failure::usage(message),
        PullError::Missing(_) => Failure::new("NOT_FOUND", message),
        PullError::Unreachable { .. } => Failure::unreachable(message),
        PullError::Wrong(_) | PullError::Disk { .. } | PullError::Unusable(_) => {
            Failure::new("INTERNAL", message)
        }
    }
}
