//! Confined commands: the real binary on the kernel of this machine.

mod files;
mod hidden_files;
mod isolation;
mod process_ends;
mod refusals;
mod system_secrets;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use builtin::system::{SystemConfig, tools};
use sandbox::{Confinement, Launcher, Lifetime};
use serde_json::{Value, json};
use shared::tool::ToolError;
use tempfile::TempDir;
use tests::{
    binary::faber,
    toolset::{Connected, MAX_WAIT},
};
use tokio::time::timeout;
use toolbox::ToolContext;

/// The built-in system tools, confined to a folder.
struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::write(folder.path().join("secret"), "the secret").unwrap();
        Self { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn secret_path(&self) -> String {
        self.folder.path().join("secret").display().to_string()
    }

    async fn call(
        &self,
        config: SystemConfig,
        tool: &str,
        parameters: Value,
    ) -> Result<String, ToolError> {
        self.call_with(Launcher::with_binary(faber().to_owned()), config, tool, parameters).await
    }

    async fn call_bash_hiding(&self, hidden: &[&str], command: &str) -> Result<String, ToolError> {
        let launcher = self.launcher_hiding(hidden);
        self.call_with(launcher, SystemConfig::default(), "bash", json!({ "command": command }))
            .await
    }

    fn launcher_hiding(&self, hidden: &[&str]) -> Launcher {
        let hidden = hidden.iter().map(|name| self.root().join(name)).collect();
        Launcher::with_binary(faber().to_owned()).with_hidden(hidden)
    }

    async fn call_with(
        &self,
        launcher: Launcher,
        config: SystemConfig,
        tool: &str,
        parameters: Value,
    ) -> Result<String, ToolError> {
        let tools = tools(&self.root(), config, launcher).unwrap();
        let tool =
            tools.iter().find(|candidate| candidate.definition().name.as_str() == tool).unwrap();
        let value = tool.call(Arc::new(parameters), ToolContext::detached()).await?;
        Ok(value.as_str().unwrap().to_owned())
    }

    async fn start_in_the_background(&self, hidden: &[&str]) -> Result<String, ToolError> {
        let (launcher, config) = (self.launcher_hiding(hidden), SystemConfig::default());
        self.call_with(launcher, config, "bash_background", json!({ "command": "true" })).await
    }

    /// Starts a background command again until its refusal is returned. On a busy machine, the
    /// first answers can report that the command runs.
    async fn expect_background_refusal(&self, hidden: &[&str]) -> ToolError {
        let refused = async {
            loop {
                if let Err(err) = self.start_in_the_background(hidden).await {
                    return err;
                }
            }
        };
        timeout(MAX_WAIT, refused).await.expect("the command is refused")
    }

    async fn call_bash(&self, command: &str) -> Result<String, ToolError> {
        self.call(SystemConfig::default(), "bash", json!({ "command": command })).await
    }

    async fn call_bash_with(
        &self,
        confine: Confinement,
        command: &str,
    ) -> Result<String, ToolError> {
        let config = SystemConfig { confine, ..SystemConfig::default() };
        self.call(config, "bash", json!({ "command": command })).await
    }

    fn pid(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.root().join(name)).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    }
}

/// Expects a refusal if the kernel enforces the restriction, and success otherwise.
fn expect_refusal_if(result: Result<String, ToolError>, is_enforced: bool) {
    match result {
        Err(err) if is_enforced => {
            let text = err.message.to_lowercase();
            let is_refusal = ["permission denied", "not permitted", "read-only file system"]
                .iter()
                .any(|reason| text.contains(reason));
            assert!(is_refusal, "{err}");
        }
        Ok(_) if !is_enforced => (),
        other => panic!("held: {is_enforced}, but {other:?}"),
    }
}

/// Returns the instruction that the launcher passes to the binary, as a shell argument. `caller` is
/// the process id of the process that starts the binary.
fn confinement_order(confinement: &Confinement, hidden: Vec<PathBuf>, caller: &str) -> String {
    let launcher = Launcher::with_binary(faber().to_owned()).with_hidden(hidden);
    let command = launcher.confined_command(confinement, Lifetime::Watched, "sh".as_ref()).unwrap();
    let order =
        command.as_std().get_envs().find(|variable| variable.0 == "FABER_CONFINED").unwrap();
    let order = order.1.unwrap().to_str().unwrap();
    order.replace(&format!("\"caller\":{}", std::process::id()), &format!("\"caller\":{caller}"))
}

fn confined_tool(confine: &Value, command: &[&str], root: &Path) -> Connected {
    let run = json!({ "command": command, "cwd": root, "confine": confine });
    let launcher = Launcher::with_binary(faber().to_owned());
    Connected::start_connecting_with(&json!({ "tools": [{ "name": "t", "run": run }] }), launcher)
}
