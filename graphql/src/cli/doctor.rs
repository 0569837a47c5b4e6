//! What this process works with: the configuration, whether it works, and how fast.

mod clashes;
mod models;
mod safety;

use std::{
    fs,
    path::{Path, PathBuf},
};

use executor::limits::{CallLimits, Limited};
use mcp::oauth::NEEDS_LOGIN;
use planner::embed::Choice;
use serde_json::{Value, json};
use shared::clock::{Clock as _, WallClock, describe_difference};
use toolbox::{SetStatus, ToolSet, Toolbox};

use super::{
    Ending, Session,
    bench::{self, BenchArgs},
    endings::left,
    failure::Failure,
    house::{House, Local, Need, open_store},
    paint::Paint,
    plain,
    remote::Remote,
    serve::refuse_server,
};
use crate::config::{Config, Faults, Origin, age, variable};

/// Prints the effective configuration, and where each value came from.
pub(super) fn config(session: &Session) -> Result<Ending, Failure> {
    let screen = &session.screen;
    let shown = session.config.to_json();
    if screen.json {
        screen.print_json(&shown)?;
        return Ok(Ending::Done);
    }
    let paint = screen.out;
    let file = session.config.file.as_ref().map(|it| plain::line(&it.display().to_string()));
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
    Ok(Ending::Done)
}

fn setting(key: &str, setting: &Value, lead: &str, paint: Paint) -> String {
    let from = plain::said(&setting["from"]);
    let note = paint.dim(format!("# {from}"));
    match &setting["value"] {
        Value::Array(items) => {
            let mut lines = vec![format!("{lead}{key}:  {note}")];
            lines.extend(
                items.iter().map(|it| format!("{lead}  - {}", plain::line(&it.to_string()))),
            );
            lines.join("\n")
        }
        Value::String(text) => format!("{lead}{key}: {}  {note}", plain::line(text)),
        other => format!("{lead}{key}: {}  {note}", plain::line(&other.to_string())),
    }
}

/// One thing that was looked at.
struct Check {
    name: String,
    /// What was found, or what is wrong.
    found: Result<String, String>,
    /// How to mend it.
    help: &'static str,
}

/// Says what is missing or unreachable, and how to mend it. Where something is wrong with the
/// configuration, the rest is looked at as far as it is known.
pub(super) async fn doctor(session: &Session, faults: Faults) -> Result<Ending, Failure> {
    let mut checks = configuration(session, &faults.wrong);
    let config = &session.config;
    if let Some(server) = &config.server {
        checks.push(server_ready(session, &server.value).await);
        checks.extend(server_answers(session, &server.value).await);
    } else {
        let sets = &config.toolsets.value;
        checks.push(safety::confinement(sets, sandbox::support()));
        // What stands in the place of a setting that is wrong is nothing that anybody wants.
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
            let store = store_works(session).await;
            works &= store.found.is_ok();
            checks.push(store);
            if works {
                checks.extend(clock_agrees(session).await);
            }
        } else {
            works = false;
        }
        if works {
            checks.extend(toolsets_connect(session, &faults).await?);
        }
    }
    conclude(session, &checks)
}

/// Says whether a server can work, and nothing about its tools: a health check must not restart a
/// service because a tool's source is away.
pub(super) async fn ready(session: &Session) -> Result<Ending, Failure> {
    let Some(server) = &session.config.server else {
        let why = "`faber doctor --ready` asks a server: name it with `--server`";
        return Err(Failure::usage(why.to_owned()));
    };
    conclude(session, &[server_ready(session, &server.value).await])
}

fn conclude(session: &Session, checks: &[Check]) -> Result<Ending, Failure> {
    print(session, checks)?;
    let is_well = checks.iter().all(|check| check.found.is_ok());
    Ok(if is_well { Ending::Done } else { Ending::Unreachable })
}

fn configuration(session: &Session, wrong: &[String]) -> Vec<Check> {
    let check = |found| Check {
        name: "configuration".to_owned(),
        found,
        help: "correct the file; until then no other command works with it",
    };
    if wrong.is_empty() {
        let found = match &session.config.file {
            Some(file) => file.display().to_string(),
            None => "no file; everything as it comes".to_owned(),
        };
        return vec![check(Ok(found))];
    }
    wrong.iter().map(|it| check(Err(it.clone()))).collect()
}

async fn server_ready(session: &Session, url: &str) -> Check {
    let asked =
        async { Remote::new(url, session.environment.token.as_ref())?.check_readiness().await };
    let found = asked.await.map(|()| format!("{url} is ready")).map_err(|err| err.message);
    let help = "start it with `faber serve`, and see that it can write its store";
    Check { name: "server".to_owned(), found, help }
}

/// Asks a server for its toolsets and says of each whether it works.
async fn server_answers(session: &Session, url: &str) -> Vec<Check> {
    let asked = async {
        let house = House::open(session, Need::Store).await?;
        let query = "{ toolSets { name active status error tools { name } } }";
        let sets = house.client().field(query, json!({})).await?;
        house.close().await;
        Ok::<_, Failure>(sets)
    };
    match asked.await {
        Ok(sets) => sets.as_array().into_iter().flatten().map(of_remote_set).collect(),
        Err(failure) => vec![Check {
            name: "server".to_owned(),
            found: Err(format!("{url}: {}", failure.message)),
            help: "start it with `faber serve`, and show it a token with FABER_TOKEN if it asks \
                   for one",
        }],
    }
}

fn of_remote_set(set: &Value) -> Check {
    let is_active = set["active"] == true;
    let error = || plain::said(&set["error"]);
    let count = set["tools"].as_array().map_or(0, Vec::len);
    let found = match (set["status"].as_str(), is_active) {
        (Some("failed"), true) => Err(error()),
        (Some("failed"), false) => Ok(format!("switched off; {}", error())),
        (Some("connecting"), true) => Err("does not answer in time".to_owned()),
        (Some("hidden"), _) => Ok("not there, as its condition does not hold".to_owned()),
        _ if !set["error"].is_null() => {
            let tools = plain::count(count, "tool");
            Err(format!("{tools}, and these are left out: {}", error()))
        }
        (_, false) => Ok(format!("{}, switched off", plain::count(count, "tool"))),
        (_, true) => Ok(plain::count(count, "tool")),
    };
    Check {
        name: format!("toolset {}", plain::said(&set["name"])),
        found,
        help: "see on the server's machine that its `source` starts by hand, or remove the set",
    }
}

async fn store_works(session: &Session) -> Check {
    let opened = async {
        let store = open_store(session).await?;
        store.check().await?;
        Ok::<_, Failure>(())
    };
    let name = session.config.store_name();
    let found = opened.await.map(|()| format!("{name} opens and can be written"));
    Check {
        name: "store".to_owned(),
        found: found.map_err(|it| format!("{name}: {}", it.message)),
        help: "name one that works with `--store` or FABER_STORE, such as `sqlite:./faber.db`",
    }
}

/// Compares the time of the store with the clock of this machine. Says nothing if they agree.
async fn clock_agrees(session: &Session) -> Option<Check> {
    let store = open_store(session).await.ok()?;
    let difference = describe_difference(store.time().await.ok()?, WallClock.now())?;
    Some(Check {
        name: "clock".to_owned(),
        found: Err(difference),
        help: "stop every process that uses the store, and start them again",
    })
}

async fn toolsets_connect(session: &Session, faults: &Faults) -> Result<Vec<Check>, Failure> {
    let local = Local::open(session, Need::Tools).await?;
    local.engine.catalog().await;
    let toolbox = local.engine.toolbox();
    let mut checks: Vec<Check> = toolbox.sets().iter().map(of_set).collect();
    let complaints = local.engine.registry().complaints().await?;
    checks.extend(complaints.into_iter().map(not_as_asked));
    checks.push(clashes::names(toolbox));
    let config = &session.config;
    if faults.knows("access") {
        let (access, sets) = (&config.access.value, &config.toolsets.value);
        checks.extend(safety::patterns(access, sets, &toolbox.sets()));
    }
    checks.push(limits_hold(config.limits.calls(), toolbox));
    let choice = local.engine.embedders().choose().await;
    checks.push(embedding(&choice));
    checks.push(retention(config));
    local.close().await;
    Ok(checks)
}

/// Says that a set cannot be here what somebody asked for.
fn not_as_asked((name, why): (String, String)) -> Check {
    Check {
        name: format!("toolset {name}"),
        found: Err(why),
        help: "correct it in the configuration, or remove what was added by that name with \
               `removeToolSet` or `removeTool`, on a node whose configuration has none of it",
    }
}

/// Says whether every limit on calls is on something that there is.
fn limits_hold(limits: &CallLimits, toolbox: &Toolbox) -> Check {
    let sets = toolbox.sets();
    let is_there = |of: &Limited| match of {
        Limited::Set(name) => sets.iter().any(|it| it.name == *name),
        Limited::Tool(name) => {
            let mut tools = sets.iter().flat_map(|it| &it.tools);
            tools.any(|it| it.definition().qualified() == *name)
        }
    };
    let lost = limits.rules().iter().map(|it| &it.of).find(|it| !is_there(it));
    Check {
        name: "limits on calls".to_owned(),
        found: match lost {
            None => Ok(plain::count(limits.rules().len(), "rule")),
            Some(Limited::Set(name)) => Err(format!("there is no toolset `{name}`")),
            Some(Limited::Tool(name)) => Err(format!("no toolset has a tool `{name}`")),
        },
        help: "correct `limits.calls` in the configuration: `faber tools list` lists the tools",
    }
}

/// Says which embedder is used, and why no other that is wanted more.
fn embedding(choice: &Choice) -> Check {
    let used = match &choice.embedding {
        Some(embedding) => format!("{} (`{}`)", embedding.source, embedding.texts.model()),
        None => "tools are chosen by their words alone".to_owned(),
    };
    let why: Vec<String> = choice.passed_over.iter().map(|it| it.why.to_string()).collect();
    let why = why.join("; ");
    Check {
        name: "embedding".to_owned(),
        found: if why.is_empty() { Ok(used) } else { Err(format!("{why}; instead: {used}")) },
        help: "correct `embedding` in the configuration, or fetch a model: \
               `faber models pull all-MiniLM-L6-v2`",
    }
}

fn retention(config: &Config) -> Check {
    let found = match config.retention.value {
        Some(kept) => format!("what is over is kept for {}", age::text(kept)),
        None => "what is over is kept for ever; `retention: 30d` in the configuration removes it"
            .to_owned(),
    };
    Check { name: "retention".to_owned(), found: Ok(found), help: "" }
}

fn of_set(set: &ToolSet) -> Check {
    let found = match &set.status {
        SetStatus::Ready if !set.left_out.is_empty() => {
            let (tools, why) = (plain::count(set.tools.len(), "tool"), set.left_out.join("; "));
            Err(format!("{tools}, and these are left out: {why}"))
        }
        SetStatus::Ready => {
            let active = if set.is_active { "" } else { ", switched off" };
            Ok(plain::count(set.tools.len(), "tool") + active)
        }
        SetStatus::Connecting => Err("does not answer in time".to_owned()),
        SetStatus::Hidden => Ok("not there, as its condition does not hold".to_owned()),
        // Nobody uses it: whoever switches it on asks again.
        SetStatus::Failed { error } if !set.is_active => Ok(format!("switched off; {error}")),
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

fn print(session: &Session, checks: &[Check]) -> Result<(), Failure> {
    let screen = &session.screen;
    if screen.json {
        let checks = checks.iter().map(|it| match &it.found {
            Ok(found) => json!({ "name": it.name, "ok": true, "detail": found }),
            Err(why) => json!({ "name": it.name, "ok": false, "detail": why, "help": it.help }),
        });
        return screen.print_json(&Value::Array(checks.collect()));
    }
    screen.print(&for_people(checks, screen.out))
}

fn for_people(checks: &[Check], paint: Paint) -> String {
    let lines = checks.iter().map(|it| {
        let name = plain::line(&it.name);
        match &it.found {
            Ok(found) => {
                let found = paint.dim(plain::line(found));
                format!("{} {name}  {found}", paint.green("✓"))
            }
            Err(why) => {
                let (mark, why) = (paint.red("✗"), plain::line(why));
                format!("{mark} {name}  {why}\n  {} {}", paint.cyan("= help:"), it.help)
            }
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Measures the engine. Where no store is named, on one of its own that does not stay.
pub(super) async fn bench(session: &Session, args: &BenchArgs) -> Result<Ending, Failure> {
    refuse_server(session, "bench")?;
    let config = &session.config;
    let own = own_store(config)?;
    let url = match &own {
        Some(own) => format!("sqlite:{}", own.0.display()),
        None => config.store.value.clone(),
    };
    let measured = tokio::select! {
        measured = bench::run(args, &url) => Some(measured),
        () = super::signals::interrupted() => None,
    };
    drop(own);
    let Some(measured) = measured else { return left(session, "nothing was measured to its end") };
    session.screen.print_json(&measured?)?;
    Ok(Ending::Done)
}

/// A database that goes when this does.
struct OwnStore(PathBuf);

fn own_store(config: &Config) -> Result<Option<OwnStore>, Failure> {
    if config.store.origin != Origin::Default {
        return Ok(None);
    }
    fs::create_dir_all(&config.data).map_err(|err| {
        let place = config.data.display();
        Failure::new("STORE_UNAVAILABLE", format!("`{place}` cannot be made: {err}"))
    })?;
    Ok(Some(OwnStore(config.data.join(format!("bench-{}.db", std::process::id())))))
}

impl Drop for OwnStore {
    fn drop(&mut self) {
        remove_with_siblings(&self.0);
    }
}

/// Removes a database and what lies beside it under its name.
fn remove_with_siblings(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|it| it.to_str()))
    else {
        return;
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_sibling = entry.file_name().to_str().is_some_and(|it| it.starts_with(name));
        if is_sibling && let Err(err) = remove(&entry.path()) {
            tracing::warn!(path = %entry.path().display(), %err, "cannot be removed");
        }
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
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
