use std::path::PathBuf;

use client::{
    failure::Failure,
    view::{paint::Paint, plain},
};
use planner::compile::plan_file_schema;
use serde_json::{Value, json};

use crate::{
    App, ExitStatus,
    config::{self, ConfigError, Environment, Flags},
    plan_test::schema::test_file_schema,
    screen::Screen,
};

pub(crate) fn print_config(app: &App) -> Result<ExitStatus, Failure> {
    let screen = &app.screen;
    let settings = app.config.to_json();
    if screen.json {
        screen.print_json(&settings)?;
        return Ok(ExitStatus::Done);
    }
    let paint = screen.out;
    let file = app.config.file.as_ref().map(|file| plain::safe_line(&file.display().to_string()));
    let mut lines = vec![format!("file: {}", file.unwrap_or_else(|| paint.dim("none")))];
    for (key, value) in settings.as_object().into_iter().flatten().filter(|(key, _)| *key != "file")
    {
        match value.get("from") {
            Some(_) => lines.push(draw_setting(key, value, "", paint)),
            None if value.is_null() => lines.push(format!("{key}: {}", paint.dim("none"))),
            None => {
                lines.push(format!("{key}:"));
                let limits = value.as_object().into_iter().flatten();
                lines.extend(limits.map(|(key, value)| draw_setting(key, value, "  ", paint)));
            }
        }
    }
    screen.print(&lines.join("\n"))?;
    Ok(ExitStatus::Done)
}

fn draw_setting(key: &str, setting: &Value, lead: &str, paint: Paint) -> String {
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

/// Checks a file, and prints every mistake. Does not load the configuration, because other commands
/// refuse a wrong file with one line.
pub(crate) fn check_config(
    file: Option<PathBuf>,
    flags: &Flags,
    environment: &Environment,
    screen: &Screen,
) -> Result<ExitStatus, Failure> {
    let mistakes = match config::check_file(file, flags, environment) {
        Ok(file) => {
            let text = match &file {
                Some(file) => format!("`{}` is valid", file.display()),
                None => "there is no file, so every setting has its default".to_owned(),
            };
            if screen.json {
                screen.print_json(&json!({ "file": file, "valid": true }))?;
            } else {
                screen.print(&plain::safe_line(&text))?;
            }
            return Ok(ExitStatus::Done);
        }
        Err(mistakes) => mistakes,
    };
    if screen.json {
        return Err(ConfigError::from(mistakes).into());
    }
    let mut failures: Vec<Failure> = mistakes.messages().map(Failure::usage).collect();
    let last = failures.pop().unwrap_or_else(|| Failure::usage(String::new()));
    for failure in &failures {
        screen.fail(failure);
    }
    Err(last)
}

pub(crate) fn print_schema(
    is_plan: bool,
    is_test: bool,
    screen: &Screen,
) -> Result<ExitStatus, Failure> {
    let schema = match (is_plan, is_test) {
        (true, _) => plan_file_schema(),
        (false, true) => test_file_schema(),
        (false, false) => config::config_schema(),
    };
    screen.print_json(&schema)?;
    Ok(ExitStatus::Done)
}
