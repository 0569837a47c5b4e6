mod clashes;
mod models;
mod safety;

use std::{path::Path, sync::Arc};

use client::{
    Client,
    failure::Failure,
    remote::Remote,
    types::ToolSet as ApiToolSet,
    view::{format::count_noun, paint::Paint, plain},
};
use engine::{age, retention::RetentionAges};
use executor::call_limits::{CallLimits, LimitedCalls};
use mcp::oauth::NEEDS_LOGIN;
use nix::unistd::{AccessFlags, access};
use planner::embed::{EmbedError, Embedding};
use serde_json::{Value, json};
use shared::{
    clock::{Clock as _, WallClock, describe_difference},
    store::memory::Memory,
};
use toolbox::Toolbox;

use crate::{
    App, ExitStatus,
    config::{Config, Faults, Origin, variable},
    local_engine::{LocalEngine, missing_store, open_store},
    session::{Need, Session},
};

const SET_FIELDS: &str = "name active status error tools { name }";

struct Check {
    name: String,
    result: Result<String, String>,
    help: &'static str,
    is_warning: bool,
}

impl Check {
    fn new(name: impl Into<String>, result: Result<String, String>, help: &'static str) -> Self {
        Self { name: name.into(), result, help, is_warning: false }
    }

    fn warning(name: impl Into<String>, problem: String, help: &'static str) -> Self {
        Self { is_warning: true, ..Self::new(name, Err(problem), help) }
    }
}

pub(crate) async fn check_all(app: &App, faults: Faults) -> Result<ExitStatus, Failure> {
    let mut checks = check_configuration(app, &faults.wrong_settings);
    let config = &app.config;
    if let Some(server) = &config.server {
        checks.push(check_server(app, &server.value).await);
        checks.extend(check_server_sets(app, &server.value).await);
    } else {
        let sets = &config.toolsets.value;
        checks.push(safety::check_confinement(sets, sandbox::kernel_support()));
        // Some checks below are skipped if their setting is wrong, because the loader has replaced
        // it by its default.
        checks.extend(safety::check_sign_in(config, variable));
        let has_sign_in = config.http_server.value.oidc.is_some();
        if faults.has_valid_setting("access") && (!has_sign_in || !config.access.value.is_empty()) {
            let access = &config.access.value;
            checks.push(safety::check_access(access, sets, config.listen.value, variable));
        }
        checks.extend(safety::check_secrets(sets, variable));
        if faults.has_valid_setting("planner") {
            checks.extend(models::check_planner(config).await);
        }
        let mut works = faults.has_valid_setting("toolsets");
        if faults.has_valid_setting("store") || config.store.origin != Origin::Default {
            let store = check_store(app).await;
            works &= store.result.is_ok();
            checks.push(store);
            if works && missing_store(app.setup()).is_none() {
                checks.extend(check_clock(app).await);
            }
        } else {
            works = false;
        }
        if works {
            checks.extend(check_local(app, &faults).await?);
        }
    }
    finish_checks(app, &checks)
}

pub(crate) async fn check_readiness(app: &App) -> Result<ExitStatus, Failure> {
    let Some(server) = &app.config.server else {
        let reason = "`faber doctor --ready` asks a server: name it with `--server`";
        return Err(Failure::usage(reason.to_owned()));
    };
    finish_checks(app, &[check_server(app, &server.value).await])
}

fn finish_checks(app: &App, checks: &[Check]) -> Result<ExitStatus, Failure> {
    print_checks(app, checks)?;
    let is_well = checks.iter().all(|check| check.result.is_ok() || check.is_warning);
    Ok(if is_well { ExitStatus::Done } else { ExitStatus::Unreachable })
}

fn check_configuration(app: &App, wrong_settings: &[String]) -> Vec<Check> {
    let help = "correct the file; until then, no other command works";
    let check = |result| Check::new("configuration", result, help);
    if !wrong_settings.is_empty() {
        return wrong_settings.iter().map(|reason| check(Err(reason.clone()))).collect();
    }
    let file = app.config.file.as_ref().map(|file| file.display().to_string());
    vec![check(Ok(file.unwrap_or_else(|| "no file; every setting has its default".to_owned())))]
}

async fn check_server(app: &App, url: &str) -> Check {
    let readiness =
        async { Remote::new(url, app.environment.token.as_ref())?.check_readiness().await };
    let result = readiness.await.map(|()| format!("{url} is ready")).map_err(|err| err.message);
    let help = "start it with `faber serve`, and check that it can write its store";
    Check::new("server", result, help)
}

async fn check_server_sets(app: &App, url: &str) -> Vec<Check> {
    let toolsets = async {
        let session = Session::open(app, Need::Store).await?;
        session.client.query::<Vec<ApiToolSet>>("toolSets", &[], SET_FIELDS).await
    };
    match toolsets.await {
        Ok(sets) => {
            let help = "check on the server's machine that its `source` starts, or remove the set";
            sets.iter().map(|set| check_set(set, help)).collect()
        }
        Err(failure) => {
            let help = "start it with `faber serve`, and set FABER_TOKEN if it needs a token";
            vec![Check::new("server", Err(format!("{url}: {}", failure.message)), help)]
        }
    }
}

fn check_set(set: &ApiToolSet, help: &'static str) -> Check {
    let error = || set.error.as_ref().map(ToString::to_string).unwrap_or_default();
    let tools = count_noun(set.tools.len(), "tool");
    let (mut help, mut result) = (help, Ok(tools.clone()));
    match (&*set.status, set.active) {
        ("failed", true) => result = Err(error()),
        ("failed", false) => result = Ok(format!("inactive; {}", error())),
        ("connecting", true) => result = Err("does not answer in time".to_owned()),
        ("hidden", _) => result = Ok("hidden, because its condition does not hold".to_owned()),
        _ if set.error.is_some() => {
            result =
                Err(format!("{tools}, but some are left out or not checked in full: {}", error()));
            help = "correct the tool where it is described, or remove it";
        }
        (_, false) => result = Ok(format!("{tools}, inactive")),
        (_, true) => (),
    }
    Check::new(format!("toolset {}", set.name), result, help)
}

async fn check_store(app: &App) -> Check {
    let help = "name a working store with `--store` or FABER_STORE, such as `sqlite:./faber.db`";
    if let Some(path) = missing_store(app.setup()) {
        return Check::new("store", check_missing_store(&path), help);
    }
    let opened = async {
        let store = open_store(app.setup()).await?;
        store.check_writable().await?;
        Ok::<_, Failure>(())
    };
    let name = app.config.store_name();
    let result = opened.await.map(|()| format!("{name} opens and can be written"));
    let result = result.map_err(|failure| format!("{name}: {}", failure.message));
    Check::new("store", result, help)
}

fn check_missing_store(path: &Path) -> Result<String, String> {
    let display_path = path.display();
    let folder = path.ancestors().skip(1).find(|folder| folder.exists());
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match access(folder, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Ok(format!("`{display_path}` does not exist yet: `faber run` creates it")),
        Err(err) => {
            let folder = folder.display();
            Err(format!("`{display_path}` cannot be created in `{folder}`: {}", err.desc()))
        }
    }
}

/// Compares the time of the store with the clock of this machine. Returns `None` if they agree or
/// if the store cannot be read.
async fn check_clock(app: &App) -> Option<Check> {
    let store = open_store(app.setup()).await.ok()?;
    let difference = describe_difference(store.shared_time().await.ok()?, WallClock.now())?;
    let help = "stop all processes that use the store, and start them again";
    Some(Check::new("clock", Err(difference), help))
}

async fn open_engine(app: &App) -> Result<LocalEngine, Failure> {
    if missing_store(app.setup()).is_none() {
        return LocalEngine::open(app.setup(), Need::Tools).await;
    }
    LocalEngine::open_over(app.setup(), Need::Tools, Arc::new(Memory::new())).await
}

async fn check_local(app: &App, faults: &Faults) -> Result<Vec<Check>, Failure> {
    let local = open_engine(app).await?;
    local.engine.tools.catalog().await;
    let toolbox = local.engine.tools.inventory.toolbox();
    let sets: Vec<ApiToolSet> =
        Client::local(local.schema.clone()).query("toolSets", &[], SET_FIELDS).await?;
    let help = |set: &ApiToolSet| match set.error.as_deref() {
        Some(error) if error.contains(NEEDS_LOGIN) => {
            "log in on this machine, as the user that runs Faber, or remove the set"
        }
        _ => "check that its `source` in the configuration starts, or remove the set",
    };
    let mut checks: Vec<Check> = sets.iter().map(|set| check_set(set, help(set))).collect();
    report_missing_programs(&local, &mut checks).await?;
    let complaints = local.engine.tools.inventory.registry().complaints().await?;
    let help = "correct it in the configuration; if it was added through the API, remove it with \
                `removeToolSet` or `removeTool`, on a node whose configuration does not have it";
    let complaints = complaints.into_iter();
    checks.extend(
        complaints.map(|(set, error)| Check::new(format!("toolset {set}"), Err(error), help)),
    );
    checks.push(clashes::check_shared_names(toolbox));
    checks.extend(check_effects(&local).await?);
    let config = &app.config;
    if faults.has_valid_setting("access") {
        let (access, sets) = (&config.access.value, &config.toolsets.value);
        checks.extend(safety::check_patterns(access, sets, &toolbox.sets()));
    }
    checks.push(check_limits(config.limits.call_limits(), toolbox));
    checks.push(check_embedding(local.engine.selection.embedder().open().await));
    checks.push(check_retention(config));
    local.close().await;
    Ok(checks)
}

async fn report_missing_programs(local: &LocalEngine, checks: &mut [Check]) -> Result<(), Failure> {
    for (set, reasons) in local.engine.tools.inventory.registry().missing_programs().await? {
        let name = format!("toolset {set}");
        if let Some(check) =
            checks.iter_mut().find(|check| check.name == name && check.result.is_ok())
        {
            check.result = Err(reasons.join("; "));
            check.help = "install the program, or correct `run.command` of the tool";
        }
    }
    Ok(())
}

async fn check_effects(local: &LocalEngine) -> Result<Option<Check>, Failure> {
    let idle = local.engine.tools.inventory.registry().unmatched_effects().await?;
    let help = "correct the pattern in `source.effects` of the toolset: `faber tools list` lists \
                the tools";
    let reason = format!("no tool matches {}", idle.join(", "));
    Ok((!idle.is_empty()).then(|| Check::warning("effects", reason, help)))
}

fn check_limits(limits: &CallLimits, toolbox: &Toolbox) -> Check {
    let sets = toolbox.sets();
    let exists = |calls: &LimitedCalls| match calls {
        LimitedCalls::Set(name) => sets.iter().any(|set| set.name == *name),
        LimitedCalls::Tool(name) => {
            let mut tools = sets.iter().flat_map(|set| &set.tools);
            tools.any(|tool| tool.definition().qualified_name() == *name)
        }
    };
    let missing =
        limits.rules().iter().map(|limited| &limited.calls).find(|limited| !exists(limited));
    let result = match missing {
        None => Ok(count_noun(limits.rules().len(), "rule")),
        Some(LimitedCalls::Set(name)) => Err(format!("there is no toolset `{name}`")),
        Some(LimitedCalls::Tool(name)) => Err(format!("no toolset has a tool `{name}`")),
    };
    let help = "correct `limits.calls` in the configuration: `faber tools list` lists the tools";
    Check::new("limits on calls", result, help)
}

fn check_embedding(opened: Result<Option<Embedding>, EmbedError>) -> Check {
    const BY_WORDS: &str = "tools are selected by words alone";
    let result = match opened {
        Ok(Some(embedding)) => Ok(format!("{} (`{}`)", embedding.source, embedding.texts.model())),
        Ok(None) => Ok(BY_WORDS.to_owned()),
        Err(error) => Err(format!("{error}; {BY_WORDS}")),
    };
    let help = "correct `embedding` in the configuration, or download a model: \
                `faber models pull all-MiniLM-L6-v2`";
    Check::new("embedding", result, help)
}

fn check_retention(config: &Config) -> Check {
    let describe = |age: Option<_>| age.map_or_else(|| "for ever".to_owned(), age::format);
    let result = match &config.retention.value {
        Some(policy) if let Some(age) = policy.single_age() => {
            format!("finished executions are kept for {}", age::format(age))
        }
        Some(policy) => {
            let RetentionAges { completed, failed, cancelled } = policy.ages;
            let rules = match policy.rules.len() {
                0 => String::new(),
                rules => format!("; {} by labels", count_noun(rules as u64, "rule")),
            };
            format!(
                "executions are kept: succeeded {}, failed {}, cancelled {}{rules}",
                describe(completed),
                describe(failed),
                describe(cancelled)
            )
        }
        None => "finished executions are kept forever; set `retention: 30d` in the configuration \
                 to prune them"
            .to_owned(),
    };
    Check::new("retention", Ok(result), "")
}

fn print_checks(app: &App, checks: &[Check]) -> Result<(), Failure> {
    let screen = &app.screen;
    if screen.json {
        let checks = checks.iter().map(|check| match &check.result {
            Ok(result) => json!({ "name": check.name, "ok": true, "detail": result }),
            Err(error) => {
                let mut entry =
                    json!({ "name": check.name, "ok": false, "detail": error, "help": check.help });
                if check.is_warning {
                    (entry["ok"], entry["warning"]) = (json!(true), json!(true));
                }
                entry
            }
        });
        return screen.print_json(&Value::Array(checks.collect()));
    }
    screen.print(&draw_checks(checks, screen.out))
}

fn draw_checks(checks: &[Check], paint: Paint) -> String {
    let lines = checks.iter().map(|check| {
        let name = plain::safe_line(&check.name);
        match &check.result {
            Ok(result) => {
                let result = paint.dim(plain::safe_line(result));
                format!("{} {name}  {result}", paint.green("✓"))
            }
            Err(error) => {
                let mark = if check.is_warning { paint.yellow("!") } else { paint.red("✗") };
                let reason = plain::safe_line(error);
                format!("{mark} {name}  {reason}\n  {} {}", paint.cyan("= help:"), check.help)
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
    fn a_check_prints_its_finding_and_remedy() {
        let check = |name: &str, result: Result<&str, &str>| Check {
            name: name.to_owned(),
            result: result.map(str::to_owned).map_err(str::to_owned),
            help: "start it with `faber serve`",
            is_warning: false,
        };
        let checks = [
            check("store", Ok("sqlite:./faber.db opens and can be written")),
            check("server", Err("does not answer:\nfaber approve \u{1b}[2J")),
        ];
        expect![[r"
            ✓ store  sqlite:./faber.db opens and can be written
            ✗ server  does not answer:⏎faber approve ␛[2J
              = help: start it with `faber serve`"]]
        .assert_eq(&draw_checks(&checks, Paint::new(false)));
    }
}
