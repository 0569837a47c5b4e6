//! `faber doctor` checks the configuration, the store and the tools. `faber config` prints the
//! configuration.

mod clashes;
mod models;
mod safety;

use executor::call_limits::{CallLimits, LimitedCalls};
use mcp::oauth::NEEDS_LOGIN;
use planner::embed::Choice;
use serde_json::{Value, json};
use shared::clock::{Clock as _, WallClock, describe_difference};
use toolbox::{SetStatus, ToolSet, Toolbox};

use crate::{
    cli::{
        App, ExitStatus,
        client::{remote::Remote, types::ToolSet as RemoteSet},
        failure::Failure,
        session::{Need, Session},
        view::{format::count, paint::Paint, plain},
    },
    config::{Config, Faults, Origin, age, variable},
    local_engine::{LocalEngine, open_store},
};

/// Prints the effective configuration and the origin of each value.
pub(crate) fn print_config(app: &App) -> Result<ExitStatus, Failure> {
    let screen = &app.screen;
    let shown = app.config.to_json();
    if screen.json {
        screen.print_json(&shown)?;
        return Ok(ExitStatus::Done);
    }
    let paint = screen.out;
    let file = app.config.file.as_ref().map(|file| plain::safe_line(&file.display().to_string()));
    let mut lines = vec![format!("file: {}", file.unwrap_or_else(|| paint.dim("none")))];
    for (key, value) in shown.as_object().into_iter().flatten().filter(|(key, _)| *key != "file") {
        match value.get("from") {
            Some(_) => lines.push(setting(key, value, "", paint)),
            None if value.is_null() => lines.push(format!("{key}: {}", paint.dim("none"))),
            None => {
                lines.push(format!("{key}:"));
                let limits = value.as_object().into_iter().flatten();
                lines.extend(limits.map(|(key, value)| setting(key, value, "  ", paint)));
            }
        }
    }
    screen.print(&lines.join("\n"))?;
    Ok(ExitStatus::Done)
}

fn setting(key: &str, setting: &Value, lead: &str, paint: Paint) -> String {
    let from = plain::safe_line(setting["from"].as_str().unwrap_or_default());
    let note = paint.dim(format!("# {from}"));
    match &setting["value"] {
        Value::Array(items) => {
            let mut lines = vec![format!("{lead}{key}:  {note}")];
            lines.extend(
                items
                    .iter()
                    .map(|item| format!("{lead}  - {}", plain::safe_line(&item.to_string()))),
            );
            lines.join("\n")
        }
        Value::String(text) => format!("{lead}{key}: {}  {note}", plain::safe_line(text)),
        other => format!("{lead}{key}: {}  {note}", plain::safe_line(&other.to_string())),
    }
}

struct Check {
    name: String,
    /// The finding, or the problem.
    found: Result<String, String>,
    /// The remedy of the problem.
    help: &'static str,
}

/// Checks everything. If settings are wrong, checks the parts that do not depend on them.
pub(crate) async fn check_all(app: &App, faults: Faults) -> Result<ExitStatus, Failure> {
    let mut checks = configuration(app, &faults.wrong);
    let config = &app.config;
    if let Some(server) = &config.server {
        checks.push(server_ready(app, &server.value).await);
        checks.extend(server_answers(app, &server.value).await);
    } else {
        let sets = &config.toolsets.value;
        checks.push(safety::confinement(sets, sandbox::support()));
        // A wrong setting has its default value here. That value needs no check.
        if faults.knows("access") {
            let access = (&config.access.value, sets.as_slice());
            checks.push(safety::access(access, config.listen.value, variable));
        }
        checks.extend(safety::secrets(sets, variable));
        if faults.knows("planner") {
            checks.extend(models::planner(config).await);
        }
        let mut works = faults.knows("toolsets");
        if faults.knows("store") || config.store.origin != Origin::Default {
            let store = store_works(app).await;
            works &= store.found.is_ok();
            checks.push(store);
            if works {
                checks.extend(clock_agrees(app).await);
            }
        } else {
            works = false;
        }
        if works {
            checks.extend(toolsets_connect(app, &faults).await?);
        }
    }
    conclude(app, &checks)
}

/// Checks the server alone. A health check must not restart a service because a tool source is
/// unavailable.
pub(crate) async fn check_readiness(app: &App) -> Result<ExitStatus, Failure> {
    let Some(server) = &app.config.server else {
        let why = "`faber doctor --ready` asks a server: name it with `--server`";
        return Err(Failure::usage(why.to_owned()));
    };
    conclude(app, &[server_ready(app, &server.value).await])
}

fn conclude(app: &App, checks: &[Check]) -> Result<ExitStatus, Failure> {
    print(app, checks)?;
    let is_well = checks.iter().all(|check| check.found.is_ok());
    Ok(if is_well { ExitStatus::Done } else { ExitStatus::Unreachable })
}

fn configuration(app: &App, wrong: &[String]) -> Vec<Check> {
    let check = |found| Check {
        name: "configuration".to_owned(),
        found,
        help: "correct the file; no other command works with it",
    };
    if wrong.is_empty() {
        let found = match &app.config.file {
            Some(file) => file.display().to_string(),
            None => "no file; every setting has its default".to_owned(),
        };
        return vec![check(Ok(found))];
    }
    wrong.iter().map(|why| check(Err(why.clone()))).collect()
}

async fn server_ready(app: &App, url: &str) -> Check {
    let asked = async { Remote::new(url, app.environment.token.as_ref())?.check_readiness().await };
    let found = asked.await.map(|()| format!("{url} is ready")).map_err(|err| err.message);
    let help = "start it with `faber serve`, and check that it can write its store";
    Check { name: "server".to_owned(), found, help }
}

/// Checks the toolsets of a server.
async fn server_answers(app: &App, url: &str) -> Vec<Check> {
    let asked = async {
        let session = Session::open(app, Need::Store).await?;
        let fields = "name active status error tools { name }";
        session.client.query::<Vec<RemoteSet>>("toolSets", &[], fields).await
    };
    match asked.await {
        Ok(sets) => sets.iter().map(check_remote_set).collect(),
        Err(failure) => vec![Check {
            name: "server".to_owned(),
            found: Err(format!("{url}: {}", failure.message)),
            help: "start it with `faber serve`, and set FABER_TOKEN if it needs a token",
        }],
    }
}

fn check_remote_set(set: &RemoteSet) -> Check {
    let error = || set.error.as_ref().map(ToString::to_string).unwrap_or_default();
    let tools = count(set.tools.len(), "tool");
    let found = match (&*set.status, set.active) {
        ("failed", true) => Err(error()),
        ("failed", false) => Ok(format!("inactive; {}", error())),
        ("connecting", true) => Err("does not answer in time".to_owned()),
        ("hidden", _) => Ok("hidden, because its condition does not hold".to_owned()),
        _ if set.error.is_some() => Err(format!("{tools}, but some are left out: {}", error())),
        (_, false) => Ok(format!("{tools}, inactive")),
        (_, true) => Ok(tools),
    };
    Check {
        name: format!("toolset {}", set.name),
        found,
        help: "see on the server's machine that its `source` starts by hand, or remove the set",
    }
}

async fn store_works(app: &App) -> Check {
    let opened = async {
        let store = open_store(app.setup()).await?;
        store.check_writable().await?;
        Ok::<_, Failure>(())
    };
    let name = app.config.store_name();
    let found = opened.await.map(|()| format!("{name} opens and can be written"));
    Check {
        name: "store".to_owned(),
        found: found.map_err(|failure| format!("{name}: {}", failure.message)),
        help: "name a working store with `--store` or FABER_STORE, such as `sqlite:./faber.db`",
    }
}

/// Compares the time of the store with the clock of this machine. Returns `None` if they agree.
async fn clock_agrees(app: &App) -> Option<Check> {
    let store = open_store(app.setup()).await.ok()?;
    let difference = describe_difference(store.shared_time().await.ok()?, WallClock.now())?;
    Some(Check {
        name: "clock".to_owned(),
        found: Err(difference),
        help: "stop every process that uses the store, and start them again",
    })
}

async fn toolsets_connect(app: &App, faults: &Faults) -> Result<Vec<Check>, Failure> {
    let local = LocalEngine::open(app.setup(), Need::Tools).await?;
    local.engine.tools.catalog().await;
    let toolbox = local.engine.tools.inventory.toolbox();
    let mut checks: Vec<Check> = toolbox.sets().iter().map(of_set).collect();
    let complaints = local.engine.tools.inventory.registry().complaints().await?;
    checks.extend(complaints.into_iter().map(not_as_asked));
    checks.push(clashes::names(toolbox));
    let config = &app.config;
    if faults.knows("access") {
        let (access, sets) = (&config.access.value, &config.toolsets.value);
        checks.extend(safety::patterns(access, sets, &toolbox.sets()));
    }
    checks.push(limits_hold(config.limits.calls(), toolbox));
    let choice = local.engine.selection.embedders().choose().await;
    checks.push(embedding(&choice));
    checks.push(retention(config));
    local.close().await;
    Ok(checks)
}

fn not_as_asked((name, why): (String, String)) -> Check {
    Check {
        name: format!("toolset {name}"),
        found: Err(why),
        help: "correct it in the configuration, or remove what was added by that name with \
               `removeToolSet` or `removeTool`, on a node whose configuration has none of it",
    }
}

/// Checks that every limit on calls names an existing tool or toolset.
fn limits_hold(limits: &CallLimits, toolbox: &Toolbox) -> Check {
    let sets = toolbox.sets();
    let is_there = |of: &LimitedCalls| match of {
        LimitedCalls::Set(name) => sets.iter().any(|set| set.name == *name),
        LimitedCalls::Tool(name) => {
            let mut tools = sets.iter().flat_map(|set| &set.tools);
            tools.any(|tool| tool.definition().qualified_name() == *name)
        }
    };
    let lost = limits.rules().iter().map(|limited| &limited.of).find(|limited| !is_there(limited));
    Check {
        name: "limits on calls".to_owned(),
        found: match lost {
            None => Ok(count(limits.rules().len(), "rule")),
            Some(LimitedCalls::Set(name)) => Err(format!("there is no toolset `{name}`")),
            Some(LimitedCalls::Tool(name)) => Err(format!("no toolset has a tool `{name}`")),
        },
        help: "correct `limits.calls` in the configuration: `faber tools list` lists the tools",
    }
}

/// Reports the embedder, and why Faber passed over preferred ones.
fn embedding(choice: &Choice) -> Check {
    let used = match &choice.embedding {
        Some(embedding) => format!("{} (`{}`)", embedding.source, embedding.texts.model()),
        None => "tools are selected by words alone".to_owned(),
    };
    let why: Vec<String> = choice.passed_over.iter().map(|source| source.why.to_string()).collect();
    let why = why.join("; ");
    Check {
        name: "embedding".to_owned(),
        found: if why.is_empty() { Ok(used) } else { Err(format!("{why}; instead: {used}")) },
        help: "correct `embedding` in the configuration, or download a model: \
               `faber models pull all-MiniLM-L6-v2`",
    }
}

fn retention(config: &Config) -> Check {
    let found = match config.retention.value {
        Some(kept) => format!("finished executions are kept for {}", age::text(kept)),
        None => "finished executions are kept for ever; set `retention: 30d` in the configuration to prune them"
            .to_owned(),
    };
    Check { name: "retention".to_owned(), found: Ok(found), help: "" }
}

fn of_set(set: &ToolSet) -> Check {
    let found = match &set.status {
        SetStatus::Ready if !set.left_out.is_empty() => {
            let (tools, why) = (count(set.tools.len(), "tool"), set.left_out.join("; "));
            Err(format!("{tools}, but some are left out: {why}"))
        }
        SetStatus::Ready => {
            let active = if set.is_active { "" } else { ", inactive" };
            Ok(count(set.tools.len(), "tool") + active)
        }
        SetStatus::Connecting => Err("does not answer in time".to_owned()),
        SetStatus::Hidden => Ok("hidden, because its condition does not hold".to_owned()),
        // An inactive toolset is not used. Activation checks it again.
        SetStatus::Failed { error } if !set.is_active => Ok(format!("inactive; {error}")),
        SetStatus::Failed { error } => Err(error.clone()),
    };
    Check {
        name: format!("toolset {}", set.name),
        found,
        help: if set.left_out.is_empty() {
            help_of(&set.status)
        } else {
            "correct the tool where it is described, or remove it"
        },
    }
}

fn help_of(status: &SetStatus) -> &'static str {
    match status {
        SetStatus::Failed { error } if error.contains(NEEDS_LOGIN) => {
            "log in on this machine, as the user that runs Faber, or remove the set"
        }
        _ => "see that its `source` in the configuration starts by hand, or remove the set",
    }
}

fn print(app: &App, checks: &[Check]) -> Result<(), Failure> {
    let screen = &app.screen;
    if screen.json {
        let checks = checks.iter().map(|check| match &check.found {
            Ok(found) => json!({ "name": check.name, "ok": true, "detail": found }),
            Err(why) => {
                json!({ "name": check.name, "ok": false, "detail": why, "help": check.help })
            }
        });
        return screen.print_json(&Value::Array(checks.collect()));
    }
    screen.print(&for_people(checks, screen.out))
}

fn for_people(checks: &[Check], paint: Paint) -> String {
    let lines = checks.iter().map(|check| {
        let name = plain::safe_line(&check.name);
        match &check.found {
            Ok(found) => {
                let found = paint.dim(plain::safe_line(found));
                format!("{} {name}  {found}", paint.green("✓"))
            }
            Err(why) => {
                let (mark, why) = (paint.red("✗"), plain::safe_line(why));
                format!("{mark} {name}  {why}\n  {} {}", paint.cyan("= help:"), check.help)
            }
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn checks_say_what_was_found_and_how_to_mend_it() {
        let check = |name: &str, found: Result<&str, &str>| Check {
            name: name.to_owned(),
            found: found.map(str::to_owned).map_err(str::to_owned),
            help: "start it with `faber serve`",
        };
        let checks = [
            check("store", Ok("sqlite:./faber.db opens and can be written")),
            check("server", Err("does not answer:\nfaber approve \u{1b}[2J")),
        ];
        expect![[r"
            ✓ store  sqlite:./faber.db opens and can be written
            ✗ server  does not answer:⏎faber approve ␛[2J
              = help: start it with `faber serve`"]]
        .assert_eq(&for_people(&checks, Paint::new(false)));
    }
}
