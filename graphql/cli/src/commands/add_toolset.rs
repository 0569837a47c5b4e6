use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use client::{failure::Failure, view::format::count_noun};
use serde_json::{Value, json};
use shared::{id::ToolSetName, placed_error::read_placed};
use tempfile::NamedTempFile;
use toolbox::{SetStatus, Toolbox, dispatch, flow, tool_names::TOOL_SET};
use toolsets::sources::{SetConfig, Sources};

use crate::{
    App, ExitStatus,
    args::NewToolset,
    config::{self, Origin},
    local_engine::build_launcher,
};

pub(crate) async fn add_toolset(app: &App, new: NewToolset) -> Result<ExitStatus, Failure> {
    if app.config.server.is_some() {
        let reason = "`faber tools add` writes a file of this machine, so it needs no `--server`";
        return Err(Failure::usage(reason));
    }
    let written = to_setting(new);
    let set: SetConfig =
        read_placed(written.clone()).map_err(|err| Failure::usage(err.to_string()))?;
    refuse_existing(app, &set.name)?;
    let path = app.config.file_or_default();
    let text = read_text(&path)?;
    // Edits the text before the test, because a server can take long to start.
    let edited = config::add_toolset(&text, &written)
        .map_err(|reason| Failure::usage(format!("`{}`: {reason}", path.display())))?;
    let (name, tool_count) = (set.name.clone(), count_tools(app, set).await?);
    replace_text(&path, &text, &edited).map_err(|err| {
        Failure::new("INTERNAL", format!("`{}` cannot be written: {err}", path.display()))
    })?;
    report_added(app, &name, &path, tool_count)
}

fn to_setting(new: NewToolset) -> Value {
    match new {
        NewToolset::Mcp { name, command } => {
            let mut words = command.into_iter();
            let program = words.next().unwrap_or_default();
            let mut server = json!({ "command": program });
            let arguments: Vec<String> = words.collect();
            if !arguments.is_empty() {
                server["args"] = json!(arguments);
            }
            json!({ "name": name, "source": { "mcp": server } })
        }
        NewToolset::Openapi { name, document } => {
            json!({ "name": name, "source": { "openapi": { "document": document } } })
        }
    }
}

fn refuse_existing(app: &App, name: &ToolSetName) -> Result<(), Failure> {
    let configured = &app.config.toolsets;
    // The demo exists only as long as the file has no toolsets.
    let mut names = configured.value.iter().filter(|_| configured.origin == Origin::File);
    let is_taken = [flow::SET, TOOL_SET, dispatch::SET].contains(&name.as_str())
        || names.any(|set| set.name == *name);
    if is_taken {
        let reason = format!("a toolset called `{name}` exists already: use another name");
        return Err(Failure::new("CONFLICT", reason));
    }
    Ok(())
}

async fn count_tools(app: &App, set: SetConfig) -> Result<usize, Failure> {
    let config = &app.config;
    let base = config.base_folder().map_err(|err| Failure::usage(err.to_string()))?;
    let (name, toolbox) = (set.name.clone(), Toolbox::default());
    let sources = Sources::new(&toolbox, config.limits.options().output_bytes)
        .with_launcher(build_launcher(config, &base))
        .with_logins(config.open_logins());
    sources.put(set.rooted(&base));
    let status = toolbox.wait_for_set(&name, config.limits.connect_timeout()).await;
    let tool_count = toolbox.tools(&name).len();
    sources.close().await;
    let reason = match status {
        Some(SetStatus::Ready) => return Ok(tool_count),
        Some(SetStatus::Failed { error }) => error,
        _ => "it does not answer in time".to_owned(),
    };
    let message = format!("`{name}` does not work, so the file is unchanged: {reason}");
    Err(Failure::new("TOOL_UNAVAILABLE", message))
}

fn read_text(path: &Path) -> Result<String, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(err) => Err(Failure::usage(format!("`{}` cannot be read: {err}", path.display()))),
    }
}

/// Creates a file, or replaces it as a whole and keeps its permissions. Fails if its content is no
/// longer `text`.
fn replace_text(path: &Path, text: &str, edited: &str) -> io::Result<()> {
    if !path.exists() {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(edited.as_bytes())?;
        return file.sync_all();
    }
    let path: PathBuf = path.canonicalize()?;
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(edited.as_bytes())?;
    file.as_file().set_permissions(fs::metadata(&path)?.permissions())?;
    file.as_file().sync_all()?;
    if fs::read_to_string(&path)? != text {
        return Err(io::Error::other("it was changed at the same time: try again"));
    }
    file.persist(&path)?;
    Ok(())
}

fn report_added(
    app: &App,
    name: &ToolSetName,
    path: &Path,
    tool_count: usize,
) -> Result<ExitStatus, Failure> {
    let screen = &app.screen;
    if screen.json {
        let added = json!({ "toolSet": name.as_str(), "file": path, "tools": tool_count });
        screen.print_json(&added)?;
        return Ok(ExitStatus::Done);
    }
    let tools = count_noun(tool_count, "tool");
    screen.print(&format!("added `{name}` to `{}`: {tools}", path.display()))?;
    let configured = &app.config.toolsets;
    if configured.origin == Origin::Default {
        let demo = configured.value.iter().map(|set| format!("`{}`", set.name));
        let demo: Vec<String> = demo.collect();
        screen.hint(&format!("the file has toolsets now, so the demo {} is gone", demo.join(", ")));
    }
    Ok(ExitStatus::Done)
}
