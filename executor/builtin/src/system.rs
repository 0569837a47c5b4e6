//! The toolset `system_tools`: a shell, processes, logs, system information and a task list.

mod background;
mod bash;
mod captured_output;
mod info;
mod kill;
mod list;
mod logs;
mod processes;
mod system_root;
mod todo;

use std::{ffi::OsStr, io, path::Path, sync::Arc};

use sandbox::{Confinement, Launcher, Lifetime, OWN_FOLDER_ADVICE};
use schemars::JsonSchema;
use secrets::Redaction;
use serde::{Deserialize, de::DeserializeOwned};
use shared::tool::{Effect, ErrorCode, ToolError};
use tokio::process::Command;
use toolbox::{Tool, ToolContext, function};

use self::{background::Background, system_root::SystemRoot};

pub const SET: &str = "system_tools";

const OWN_FOLDER_EXAMPLE: &str = " (make that folder, and write into `faber.yaml`: `toolsets: [{ name: system_tools, \
    source: { builtin: system_tools, root: ./work } }]`)";

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SystemConfig {
    /// Permissions of commands. Writing below the root is always allowed.
    pub confine: Confinement,
    /// Lets `process_kill` end processes that Faber has not started.
    pub kill_any: bool,
}

/// Returns the tools for the folder `root`.
///
/// # Errors
///
/// If the folder cannot be opened.
pub fn tools(
    root: &Path,
    config: SystemConfig,
    launcher: Launcher,
) -> io::Result<Vec<Arc<dyn Tool>>> {
    let system = Arc::new(System::new(root, config, launcher)?);
    let shared = &system;
    Ok(vec![
        make_tool(shared, "bash", bash::DESCRIPTION, Effect::Once, bash::run_bash),
        make_tool(
            shared,
            "bash_background",
            background::DESCRIPTION,
            Effect::Once,
            background::start,
        ),
        // A kill is `once`, because another process may have the process id by the time of a second
        // call.
        make_tool(shared, "process_kill", kill::DESCRIPTION, Effect::Once, kill::kill_processes),
        make_tool(shared, "process_list", list::DESCRIPTION, Effect::Read, list::list_processes),
        make_tool(shared, "read_logs", logs::DESCRIPTION, Effect::Read, logs::read_logs),
        make_tool(shared, "system_info", info::DESCRIPTION, Effect::Read, info::describe_system),
        make_tool(shared, "todo_write", todo::DESCRIPTION, Effect::Idempotent, todo::write_todos),
    ])
}

fn make_tool<Args, Fut>(
    system: &Arc<System>,
    name: &'static str,
    description: &'static str,
    effect: Effect,
    run: fn(Arc<System>, Args, ToolContext) -> Fut,
) -> Arc<dyn Tool>
where
    Args: DeserializeOwned + JsonSchema + Send + 'static,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    let system = Arc::clone(system);
    function(SET, name, description, effect, move |args, cx| {
        let (system, running) = (Arc::clone(&system), run(Arc::clone(&system), args, cx));
        async move { system.redact_result(running.await) }
    })
}

#[derive(Debug)]
struct System {
    root: SystemRoot,
    launcher: Launcher,
    confinement: Confinement,
    kill_any: bool,
    background: Background,
}

impl System {
    fn new(root: &Path, config: SystemConfig, launcher: Launcher) -> io::Result<Self> {
        let root = SystemRoot::new(root, &launcher.protected_paths())?;
        let mut confinement = config.confine;
        confinement.write.push(root.root_path().to_owned());
        Ok(Self {
            root,
            launcher,
            confinement,
            kill_any: config.kill_any,
            background: Background::default(),
        })
    }

    fn passed_secrets(&self) -> Redaction {
        let mut redaction = Redaction::default();
        self.launcher.add_passed_secrets(&self.confinement.pass, &mut redaction);
        redaction
    }

    fn redact_result(&self, result: Result<String, ToolError>) -> Result<String, ToolError> {
        let redaction = self.passed_secrets();
        result.map(|text| redaction.redact(text)).map_err(|err| {
            let message = redaction.redact(err.message.to_string()).into();
            ToolError { message, ..err }
        })
    }

    /// Prepares a shell command. Its temporary files are below the root.
    fn shell_command(
        &self,
        text: &str,
        lifetime: Lifetime,
        cwd: &Path,
    ) -> Result<Command, ToolError> {
        let unusable = |err: io::Error| {
            let message = format!("`bash` cannot be prepared: {err}");
            ToolError::new(ErrorCode::UNAVAILABLE, message)
        };
        let temporary = self.root.create_own_folder("tmp").map_err(unusable)?;
        if self.confinement.user.is_some() {
            self.root.make_writable_by_all("tmp").map_err(unusable)?;
        }
        let mut command = self
            .launcher
            .confined_command(&self.confinement, lifetime, OsStr::new("bash"))
            .map_err(unusable)?;
        command.arg("-c").arg(text).current_dir(cwd).env("TMPDIR", temporary);
        Ok(command)
    }
}

fn start_error(err: &io::Error) -> ToolError {
    let code = match err.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::ArgumentListTooLong => {
            ErrorCode::INVALID_PARAMETERS
        }
        _ => ErrorCode::UNAVAILABLE,
    };
    ToolError::new(code, format!("`bash` could not be started: {err}"))
}

fn confinement_error(reason: &str) -> ToolError {
    let how = if reason.ends_with(OWN_FOLDER_ADVICE) { OWN_FOLDER_EXAMPLE } else { "" };
    let message = format!("`bash` was not started: {reason}{how}");
    ToolError::new(ErrorCode::UNAVAILABLE, message).without_retry()
}

fn cancelled_error(subject: &str) -> ToolError {
    ToolError::new(ErrorCode::CANCELLED, format!("{subject} was cancelled"))
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|err| {
        Err(ToolError::failed(format!("it ended early: {err}")).with_unknown_outcome())
    })
}

fn clip_text(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(limit)])
}

#[cfg(test)]
mod tests;
