//! Tools that are commands. No shell is involved.

mod argv;
mod parameters_file;

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use sandbox::{
    Confinement, Launcher,
    process::{ProcessGroup, Program, Tail, describe_status, read_tail},
    refusal_reason,
};
use secrets::{Redaction, TextOrSecret, resolve_variables};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shared::{
    id::{ToolName, ToolSetName},
    json::parse_lenient,
    placed_error::read_placed,
    schema::{Schema, check_cost},
    tool::{Effect, ErrorCode, ToolDefinition, ToolError},
    trace::current_scope,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::timeout,
};
use toolbox::{Tool, ToolContext};

pub use self::argv::Argv;
use self::parameters_file::write_parameters;
use super::{
    checked_output::check_outputs,
    http::{HttpRun, HttpTool},
};

/// Time limit for reading the pipes of a command that has exited. A process that the command
/// started may keep them open forever.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandTool {
    pub name: ToolName,
    #[serde(default)]
    pub description: String,
    /// Sentences with which people would ask for the tool.
    #[serde(default)]
    pub examples: Vec<String>,
    #[serde(default = "no_parameters")]
    pub parameters: Value,
    /// JSON Schema of the output. An output that does not fit this schema makes the call fail.
    #[serde(default, rename = "outputSchema")]
    pub output_schema: Option<Value>,
    /// The effect of a second call. By default the HTTP method decides, and a command is `once`.
    pub effect: Option<Effect>,
    /// The action. A tool without an action can be selected, but not called.
    pub run: Option<Action>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub enum Action {
    Command(Box<CommandRun>),
    Http(Box<HttpRun>),
}

/// Reads the action. A map with the key `http` is an HTTP call, and any other map describes a
/// command.
impl TryFrom<Map<String, Value>> for Action {
    type Error = String;

    fn try_from(mut settings: Map<String, Value>) -> Result<Self, String> {
        let Some(http) = settings.swap_remove("http") else {
            refuse_command_line(&settings)?;
            let has_command = settings.contains_key("command");
            let run = read_placed(Value::Object(join_command_and_args(settings)));
            return run.map(Self::Command).map_err(|err| {
                let hint = " (for an HTTP call, write `{ http: { url: … } }`)";
                format!("{err}{}", if has_command { "" } else { hint })
            });
        };
        if let Some(other) = settings.keys().next() {
            return Err(format!(
                "unknown field `{other}` beside `http`: a tool has either `command` or `http`"
            ));
        }
        read_placed(http).map(Self::Http).map_err(|err| err.inside("http").to_string())
    }
}

/// Refuses a program with its arguments in one text, because no shell splits it.
fn refuse_command_line(settings: &Map<String, Value>) -> Result<(), String> {
    let Some(Value::String(line)) = settings.get("command") else { return Ok(()) };
    let words: Vec<&str> = line.split_whitespace().collect();
    let [program, arguments @ ..] = words.as_slice() else { return Ok(()) };
    if arguments.is_empty() || is_path_with_spaces(program, arguments) {
        return Ok(());
    }
    Err(format!("`command` is the text `{line}`: write it as a list, [{}]", words.join(", ")))
}

/// Returns `true` if the words look like one path with spaces, such as `/opt/my tools/run`.
fn is_path_with_spaces(program: &str, arguments: &[&str]) -> bool {
    program.contains('/')
        && arguments.last().is_some_and(|word| word.contains('/'))
        && !arguments.iter().any(|word| word.starts_with(['/', '-']))
}

/// Joins `command: date` and `args: [-u]` to `command: [date, -u]`. Configurations of MCP servers
/// use the first form.
fn join_command_and_args(mut settings: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::String(program)) = settings.get("command") {
        let program = Value::String(program.clone());
        settings.insert("command".to_owned(), Value::Array(vec![program]));
    }
    if let (Some(Value::Array(_)), Some(Value::Array(_))) =
        (settings.get("command"), settings.get("args"))
        && let Some(Value::Array(args)) = settings.shift_remove("args")
        && let Some(Value::Array(command)) = settings.get_mut("command")
    {
        command.extend(args);
    }
    settings
}

impl Action {
    fn effect(&self) -> Effect {
        match self {
            Self::Command(_) => Effect::default(),
            Self::Http(run) => run.effect(),
        }
    }

    fn unknown_parameter(&self, properties: Option<&Map<String, Value>>) -> Option<String> {
        let is_unknown = |name: &str| !properties.is_some_and(|all| all.contains_key(name));
        match self {
            Self::Command(run) => {
                run.command.parameters().find(|name| is_unknown(name)).map(str::to_owned)
            }
            Self::Http(run) => run.parameter_names().into_iter().find(|name| is_unknown(name)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRun {
    pub command: Argv,
    pub cwd: Option<PathBuf>,
    /// The default working directory: the folder of the file that describes the tool.
    #[serde(skip)]
    pub(crate) base: Option<PathBuf>,
    /// Variables of Faber's environment that the command gets, too.
    #[serde(default)]
    pub pass: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, TextOrSecret>,
    /// The sandbox of the command. By default there is no sandbox.
    pub confine: Option<Confinement>,
}

fn may_be_object(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == "object",
        Some(Value::Array(several)) => several.iter().any(|kind| kind == "object"),
        _ => *schema != Value::Bool(false),
    }
}

fn no_parameters() -> Value {
    json!({ "type": "object", "properties": {} })
}

impl CommandTool {
    pub(crate) fn secrets(&self) -> Vec<&str> {
        self.texts().into_iter().filter_map(TextOrSecret::secret).collect()
    }

    pub(crate) fn texts(&self) -> Vec<&TextOrSecret> {
        match &self.run {
            None => Vec::new(),
            Some(Action::Http(run)) => run.secrets(),
            Some(Action::Command(run)) => run.env.values().collect(),
        }
    }

    pub(crate) fn texts_mut(&mut self) -> Vec<&mut TextOrSecret> {
        match &mut self.run {
            None => Vec::new(),
            Some(Action::Http(run)) => run.secrets_mut(),
            Some(Action::Command(run)) => run.env.values_mut().collect(),
        }
    }

    pub(crate) fn passed_variables(&self) -> impl Iterator<Item = &str> {
        let run = match &self.run {
            Some(Action::Command(run)) => Some(run),
            _ => None,
        };
        let confined =
            run.into_iter().flat_map(|run| &run.confine).flat_map(|confinement| &confinement.pass);
        let passed_variables = run.into_iter().flat_map(|run| &run.pass);
        passed_variables.chain(confined).map(String::as_str)
    }

    pub(crate) fn confinement(&self) -> Option<&Confinement> {
        match &self.run {
            Some(Action::Command(run)) => run.confine.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn program(&self) -> Option<PathBuf> {
        let Some(Action::Command(run)) = &self.run else { return None };
        let program = run.command.program();
        program.contains('/').then(|| program.into())
    }

    /// Checks that the program of a command exists. The error names a remedy.
    pub(crate) fn check_program(&self) -> Result<(), String> {
        let Some(Action::Command(run)) = &self.run else { return Ok(()) };
        let cwd = run.cwd.as_deref().or(run.base.as_deref());
        let (name, env) = (run.command.program(), &BTreeMap::new());
        let program = Program { name, cwd, readable_folder: None, pass: &[], env };
        program.check().map_err(|error| format!("`{}`: {error}", self.name))
    }

    /// Builds the tool, whose output has at most `max_bytes` bytes. The error describes the mistake
    /// in the configuration.
    pub(crate) fn into_tool(
        self,
        set: &ToolSetName,
        max_bytes: usize,
        launcher: &Launcher,
    ) -> Result<Arc<dyn Tool>, String> {
        self.check(launcher)?;
        let definition = ToolDefinition {
            name: self.name,
            set: set.clone(),
            description: self.description,
            input_schema: self.parameters,
            output_schema: self.output_schema,
            effect: self.effect.or(self.run.as_ref().map(Action::effect)).unwrap_or_default(),
            examples: self.examples,
            is_callable: self.run.is_some(),
        };
        let run = match self.run {
            Some(Action::Http(run)) => {
                return check_outputs(Arc::new(HttpTool::new(definition, *run, max_bytes)));
            }
            Some(Action::Command(run)) => Some(*run),
            None => None,
        };
        let (definition, launcher) = (Arc::new(definition), launcher.clone());
        check_outputs(Arc::new(CommandRunner { definition, run, max_bytes, launcher }))
    }

    fn check(&self, launcher: &Launcher) -> Result<(), String> {
        let tool = &self.name;
        let properties = self.parameters.get("properties").and_then(Value::as_object);
        if let Some(run) = &self.run
            && let Some(parameter) = run.unknown_parameter(properties)
        {
            let action_name = if matches!(run, Action::Http(_)) { "HTTP call" } else { "command" };
            return Err(format!(
                "the {action_name} of `{tool}` contains `{{{{{parameter}}}}}`, but the tool has no such \
                 parameter: add it to the properties in `parameters`"
            ));
        }
        if self.confinement().is_some() && !launcher.can_confine() {
            return Err(format!(
                "`{tool}` has `confine`, but this program cannot confine commands: name a `faber` \
                 binary as the launcher, or leave out `confine`"
            ));
        }
        check_cost(&self.parameters)
            .map_err(|error| format!("the `parameters` of `{tool}` are refused: {error}"))?;
        Schema::new(&self.parameters)
            .map_err(|err| format!("the `parameters` of `{tool}` are not a JSON Schema: {err}"))?;
        if !may_be_object(&self.parameters) {
            return Err(format!(
                "the `parameters` of `{tool}` do not describe an object: write `type: object`, \
                 with a property for each parameter"
            ));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct CommandRunner {
    definition: Arc<ToolDefinition>,
    run: Option<CommandRun>,
    max_bytes: usize,
    launcher: Launcher,
}

#[async_trait]
impl Tool for CommandRunner {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        let run = self.run.as_ref().ok_or_else(|| self.not_callable_error())?;
        let mut redaction = Redaction::default();
        let env = resolve_variables(&run.env, &mut redaction)?;
        self.launcher.add_passed_secrets(&run.pass, &mut redaction);
        if let Some(confinement) = &run.confine {
            self.launcher.add_passed_secrets(&confinement.pass, &mut redaction);
        }
        let mut running = RunningProcess::start(run, &env, &self.launcher, &parameters, &cx)?;
        let ended = tokio::select! {
            biased;
            // Checks the exit first, because a command that has exited has a result even if the
            // call is cancelled at the same time.
            ended = running.wait_for_end(self.max_bytes) => Some(ended),
            () = cx.cancel.cancelled() => None,
        };
        let Some(ended) = ended else {
            return Err(stopped_error(run.command.program(), running.group.stop().await));
        };
        let stderr = running.stderr.redacted_text(&redaction);
        let answer = running.read_answer(run.command.program(), ended, self.max_bytes, &redaction);
        if answer.is_ok() {
            cx.aside.leave(stderr);
        }
        redaction.redact_result(answer)
    }
}

/// Makes the error for a cancelled command. The outcome is unknown even with status 0: a program
/// may exit with 0 after its work or after a cleanup.
fn stopped_error(program: &str, status: Option<ExitStatus>) -> ToolError {
    let how = status.map_or_else(|| "did not".to_owned(), describe_status);
    let message = format!(
        "Faber told `{program}` to stop, and the program {how}: it is unknown whether its work was \
         done"
    );
    ToolError::new(ErrorCode::CANCELLED, message).with_unknown_outcome()
}

impl CommandRunner {
    fn not_callable_error(&self) -> ToolError {
        let name = &self.definition.name;
        let message = format!("`{name}` has no `run`: add it");
        ToolError::new(ErrorCode::UNAVAILABLE, message).without_retry()
    }
}

struct RunningProcess {
    group: ProcessGroup,
    output: Vec<u8>,
    stderr: Tail,
}

enum ProcessEnd {
    Exited(std::process::ExitStatus),
    PrintedTooMuch,
    Lost(io::Error),
}

struct OutputTooLarge;

impl RunningProcess {
    fn start(
        run: &CommandRun,
        env: &BTreeMap<String, String>,
        launcher: &Launcher,
        parameters: &Value,
        cx: &ToolContext,
    ) -> Result<Self, ToolError> {
        let readable_folder = run.cwd.as_deref();
        let (name, cwd) = (run.command.program(), readable_folder.or(run.base.as_deref()));
        let program = Program { name, cwd, readable_folder, pass: &run.pass, env };
        let to_start_error = |err: io::Error| {
            let code = match err.kind() {
                io::ErrorKind::InvalidInput | io::ErrorKind::ArgumentListTooLong => {
                    ErrorCode::INVALID_PARAMETERS
                }
                _ => ErrorCode::UNAVAILABLE,
            };
            ToolError::new(code, program.start_error(&err))
        };
        let command = match &run.confine {
            Some(confinement) => program.confined_command(launcher, confinement),
            None => program.watched_command(launcher),
        };
        let mut command = command.map_err(to_start_error)?;
        command.args(run.command.arguments(parameters));
        set_context_variables(&mut command, cx);
        command.stdin(Stdio::from(write_parameters(parameters).map_err(to_start_error)?));
        let group = ProcessGroup::spawn(&mut command).map_err(to_start_error)?;
        Ok(Self { group, output: Vec::new(), stderr: Tail::default() })
    }

    async fn wait_for_end(&mut self, max_bytes: usize) -> ProcessEnd {
        let Self { group, output, stderr: tail } = self;
        let child = group.child();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return ProcessEnd::Lost(io::Error::other("its streams are not piped"));
        };
        let mut streams = pin!(async {
            tokio::try_join!(
                async {
                    read_tail(stderr, tail).await;
                    Ok(())
                },
                read_output(stdout, output, max_bytes),
            )
        });
        let status = tokio::select! {
            read = &mut streams => match read {
                Ok(_) => group.wait().await,
                Err(OutputTooLarge) => return ProcessEnd::PrintedTooMuch,
            },
            status = group.wait() => {
                // Kills the remaining processes of the group, because they must not outlive the
                // command or keep its pipes open.
                group.kill();
                if let Ok(Err(OutputTooLarge)) = timeout(DRAIN_TIMEOUT, streams).await {
                    return ProcessEnd::PrintedTooMuch;
                }
                status
            }
        };
        status.map_or_else(ProcessEnd::Lost, ProcessEnd::Exited)
    }

    fn read_answer(
        self,
        program: &str,
        ended: ProcessEnd,
        max_bytes: usize,
        redaction: &Redaction,
    ) -> Result<Value, ToolError> {
        let status = match ended {
            ProcessEnd::Exited(status) => status,
            ProcessEnd::PrintedTooMuch => {
                let message = format!(
                    "`{program}` printed more than {max_bytes} bytes and was stopped: \
                     let it write a file and print the file's name"
                );
                return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, message));
            }
            ProcessEnd::Lost(err) => {
                let message = format!("it is unknown how `{program}` ended: {err}");
                return Err(ToolError::failed(message).with_unknown_outcome());
            }
        };
        if status.success() {
            return Ok(parse_output(&self.output));
        }
        let text = self.stderr.redacted_text(redaction);
        if let Some(reason) = refusal_reason(status.code(), &text) {
            let message = format!("`{program}` was not started: {reason}");
            return Err(ToolError::new(ErrorCode::UNAVAILABLE, message).without_retry());
        }
        let detail = match text {
            text if text.is_empty() => String::new(),
            text => format!(": {text}"),
        };
        let error = ToolError::failed(format!("`{program}` {}{detail}", describe_status(status)));
        // The outcome is known only after an exit status, which the command chooses itself. A
        // signal may stop the command at any point.
        Err(if status.code().is_some() { error } else { error.with_unknown_outcome() })
    }
}

/// Sets variables that name the step, the attempt and the idempotency key of the call, and the
/// trace context.
fn set_context_variables(command: &mut Command, cx: &ToolContext) {
    if let Some(scope) = current_scope() {
        command.env("TRACEPARENT", scope.span.traceparent());
        if let Some(state) = &scope.span.state {
            command.env("TRACESTATE", &**state);
        }
    }
    let Some(call) = &cx.call else { return };
    command.env("FABER_EXECUTION_ID", call.execution.to_string());
    command.env("FABER_STEP_ID", call.step.as_str());
    command.env("FABER_ATTEMPT", call.attempt.to_string());
    if let Some(key) = cx.idempotency_key() {
        command.env("FABER_IDEMPOTENCY_KEY", key);
    }
}

async fn read_output(
    stdout: impl AsyncRead + Unpin,
    output: &mut Vec<u8>,
    max_bytes: usize,
) -> Result<(), OutputTooLarge> {
    let mut stdout = stdout.take(max_bytes as u64 + 1);
    // A broken pipe ends the output without an error, because the exit status tells the reason.
    let _ = stdout.read_to_end(output).await;
    if output.len() > max_bytes { Err(OutputTooLarge) } else { Ok(()) }
}

fn parse_output(output: &[u8]) -> Value {
    parse_lenient(output).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(output);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        Value::from(text.strip_suffix('\r').unwrap_or(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_have_its_arguments_in_args() {
        let read =
            |run: Value| serde_json::from_value::<Action>(run).map_err(|err| err.to_string());
        let expected = read(json!({ "command": ["echo", "{{who}}", "-n"] })).unwrap();
        for same in [
            json!({ "command": "echo", "args": ["{{who}}", "-n"] }),
            json!({ "command": ["echo"], "args": ["{{who}}", "-n"] }),
        ] {
            assert_eq!(read(same).unwrap(), expected);
        }
        assert_eq!(read(json!({ "command": "date" })), read(json!({ "command": ["date"] })));
        for wrong in [json!({ "command": "echo", "args": "x" }), json!({ "args": ["x"] })] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    /// A command must not read an empty document if Faber is killed while it starts the command.
    #[tokio::test]
    async fn the_parameters_are_complete_before_the_command_starts() {
        let folder = tempfile::tempdir().unwrap();
        let (copy, done) = (folder.path().join("copy"), folder.path().join("done"));
        let script =
            format!("cat > '{}'; mv '{}' '{}'", copy.display(), copy.display(), done.display());
        let run = serde_json::from_value(json!({ "command": ["sh", "-c", script] })).unwrap();
        let parameters = json!({ "text": "x".repeat(1 << 20) });
        let (env, cx) = (BTreeMap::new(), ToolContext::detached());
        // The test blocks the runtime from here on, so no task reads or writes for the command.
        let running =
            RunningProcess::start(&run, &env, &Launcher::unconfined(), &parameters, &cx).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while !done.exists() {
            assert!(std::time::Instant::now() < until, "the command waits for its parameters");
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_to_string(&done).unwrap(), parameters.to_string());
        drop(running);
    }

    #[tokio::test]
    async fn a_secret_in_a_passed_variable_is_redacted() {
        let run = json!({ "command": ["env"], "pass": ["CARGO_PKG_NAME", "CARGO_PKG_VERSION"] });
        let tool = serde_json::from_value::<CommandTool>(json!({ "name": "t", "run": run }));
        let secrets = ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"].map(str::to_owned);
        let launcher = Launcher::unconfined().with_secrets(secrets.into());
        let tool = tool.unwrap().into_tool(&"s".parse().unwrap(), 1 << 20, &launcher).unwrap();
        let output = tool.call(Arc::new(json!({})), ToolContext::detached()).await.unwrap();
        let output: Vec<_> = output.as_str().unwrap().lines().collect();
        assert!(output.contains(&"CARGO_PKG_NAME=***CARGO_PKG_NAME***"), "{output:?}");
        let version = format!("CARGO_PKG_VERSION={}", env!("CARGO_PKG_VERSION"));
        assert!(output.contains(&version.as_str()), "{output:?}");
    }
}
