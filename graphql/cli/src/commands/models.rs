//! `faber models`: downloads and lists embedding models.

use client::{failure::Failure, view::plain};
use console::Term;
use planner::embed::pull::{self, HUB, Places, Progress, PullError, Pulled, Request};
use serde_json::json;

use crate::{App, ExitStatus, args::Models, signals};

pub(crate) async fn manage_models(app: &App, what: Models) -> Result<ExitStatus, Failure> {
    match what {
        Models::List => list_models(app),
        Models::Pull { name, sha256 } => tokio::select! {
            pulled = pull_model(app, Request { name: &name, sha256: sha256.as_deref() }) => pulled,
            () = signals::await_interrupt() => {
                app.detach("the downloaded part is kept: the same command continues the download")
            }
        },
    }
}

fn list_models(app: &App) -> Result<ExitStatus, Failure> {
    let (screen, directory) = (&app.screen, app.config.models());
    let models = pull::list(&directory);
    if screen.json {
        let models =
            models.iter().map(|model| json!({ "name": model, "path": directory.join(model) }));
        screen.print_json(&models.collect())?;
    } else if models.is_empty() {
        screen.say("no model is downloaded: `faber models pull all-MiniLM-L6-v2` downloads one");
    } else {
        screen.print(
            &models.iter().map(|model| plain::safe_line(model)).collect::<Vec<_>>().join("\n"),
        )?;
    }
    Ok(ExitStatus::Done)
}

async fn pull_model(app: &App, request: Request<'_>) -> Result<ExitStatus, Failure> {
    let (screen, environment) = (&app.screen, &app.environment);
    let places = Places {
        hub: environment.hub.clone().unwrap_or_else(|| HUB.to_owned()),
        models: app.config.models(),
    };
    let terminal = Term::stderr();
    let mut report = |progress: Progress| {
        let Progress { file, bytes, of } = progress;
        let whole = of.map_or_else(String::new, |bytes| format!(" of {}", format_megabytes(bytes)));
        let line = format!("{file}: {}{whole}", format_megabytes(bytes));
        if screen.is_live {
            // If the line cannot be cleared, the next one appears below.
            let _ =
                terminal.clear_line().and_then(|()| terminal.write_str(&plain::safe_line(&line)));
        } else if of == Some(bytes) {
            screen.say(&line);
        }
    };
    let pulled = pull::pull(request, &places, &mut report).await;
    let name = request.name;
    if screen.is_live {
        let _ = terminal.clear_line();
    }
    let Pulled { path, model, from } = pulled.map_err(|err| pull_failure(&err))?;
    if screen.json {
        screen.print_json(&json!({ "name": name, "path": path, "model": model, "from": from }))?;
        return Ok(ExitStatus::Done);
    }
    let how =
        from.map_or_else(|| "already downloaded".to_owned(), |source| format!("from {source}"));
    screen.print(&format!(
        "{} ({model}, {how})\nuse it with `embedding: {{ model: {name} }}` in the configuration",
        path.display()
    ))?;
    Ok(ExitStatus::Done)
}

fn format_megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

fn pull_failure(err: &PullError) -> Failure {
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
