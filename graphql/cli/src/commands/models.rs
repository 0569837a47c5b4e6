use std::io::{self, IsTerminal};

use client::{failure::Failure, view::plain};
use console::Term;
use planner::{
    embed::pull::{self, DEFAULT_HUB, Progress, PullError, PullLocations, Pulled, Request},
    model::pull::{self as planning, Offer, PLANNER_MODEL},
};
use serde_json::json;

use super::steer::ask_person;
use crate::{App, ExitStatus, args::Models, signals};

const RESUME_HINT: &str = "the downloaded part is kept: the same command continues the download";

pub(crate) async fn manage_models(app: &App, subcommand: Models) -> Result<ExitStatus, Failure> {
    match subcommand {
        Models::List => list_models(app),
        Models::Pull { name, url, sha256, yes } if name == PLANNER_MODEL => tokio::select! {
            pulled = pull_planner(app, url.as_deref(), sha256.as_deref(), yes) => pulled,
            () = signals::await_interrupt() => app.detach(RESUME_HINT),
        },
        Models::Pull { url: Some(_), .. } => {
            Err(Failure::usage(format!("`--url` is for `faber models pull {PLANNER_MODEL}` only")))
        }
        Models::Pull { name, sha256, .. } => tokio::select! {
            pulled = pull_model(app, Request { name: &name, sha256: sha256.as_deref() }) => pulled,
            () = signals::await_interrupt() => app.detach(RESUME_HINT),
        },
    }
}

fn list_models(app: &App) -> Result<ExitStatus, Failure> {
    let (screen, directory) = (&app.screen, app.config.models_folder());
    let mut models = pull::list_models(&directory);
    if planning::find_downloaded(&directory).is_some() {
        models.push(PLANNER_MODEL.to_owned());
    }
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
    let places = PullLocations {
        hub: environment.hub.clone().unwrap_or_else(|| DEFAULT_HUB.to_owned()),
        models: app.config.models_folder(),
    };
    let mut report = |progress: Progress| show_progress(app, progress);
    let pulled = pull::pull(request, &places, &mut report).await;
    let name = request.name;
    clear_progress(app);
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

async fn pull_planner(
    app: &App,
    url: Option<&str>,
    sha256: Option<&str>,
    is_confirmed: bool,
) -> Result<ExitStatus, Failure> {
    let (screen, models) = (&app.screen, app.config.models_folder());
    let hub = app.environment.hub.as_deref().unwrap_or(DEFAULT_HUB);
    let offer = planning::find_offer(hub, url, sha256).await.map_err(|err| pull_failure(&err))?;
    let Offer { url, bytes, licence, sha256, .. } = &offer;
    let size = bytes.map_or_else(|| "unknown".to_owned(), format_megabytes);
    let licence = licence.unwrap_or("unknown: read it at the address");
    let checksum = sha256.as_deref().unwrap_or("unknown: pass `--sha256 HEX` to check the file");
    screen.say(&plain::safe_block(&format!(
        "model    {url}\nsize     {size}\nlicence  {licence}\nSHA-256  {checksum}"
    )));
    if !is_confirmed {
        if screen.json || !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            let message = "nothing was downloaded, because nobody confirmed the download: add \
                `--yes`";
            return Err(Failure::usage(message));
        }
        if !ask_person("Download it? [y/N] ").await? {
            return Ok(ExitStatus::Done);
        }
    }
    let pulled =
        planning::pull(&offer, &models, &mut |progress| show_progress(app, progress)).await;
    clear_progress(app);
    let is_new = pulled.map_err(|err| pull_failure(&err))?;
    let path = models.join(PLANNER_MODEL).join(&offer.file);
    if screen.json {
        screen.print_json(&json!({
            "name": PLANNER_MODEL, "path": path, "url": url.as_str(), "sha256": sha256, "isNew": is_new,
        }))?;
        return Ok(ExitStatus::Done);
    }
    let how = if is_new { "downloaded" } else { "already downloaded" };
    screen.print(&format!(
        "{} ({how})\nuse it with `planner: {{ provider: local }}` in the configuration",
        path.display()
    ))?;
    Ok(ExitStatus::Done)
}

fn show_progress(app: &App, progress: Progress) {
    let Progress { file, bytes, of } = progress;
    let whole = of.map_or_else(String::new, |bytes| format!(" of {}", format_megabytes(bytes)));
    let line = format!("{file}: {}{whole}", format_megabytes(bytes));
    if app.screen.is_live {
        let terminal = Term::stderr();
        // Ignores a failure. If the line cannot be cleared, the next line appears below it.
        let _ = terminal.clear_line().and_then(|()| terminal.write_str(&plain::safe_line(&line)));
    } else if of == Some(bytes) {
        app.screen.say(&line);
    }
}

fn clear_progress(app: &App) {
    if app.screen.is_live {
        let _ = Term::stderr().clear_line();
    }
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
