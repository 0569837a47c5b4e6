//! Tools that are commands: JSON in, JSON out, never a shell.
//!
//! A command gets its parameters as one JSON document on standard input, which is a file that is
//! complete before the command starts. It may name them in its arguments. What it prints is its
//! output, as JSON if it is JSON, else as a string without the last line end. A non-zero exit is a
//! failure with the tail of standard error; otherwise the tail is kept beside the output.
//!
//! What is described beside them in the same way, and is an HTTP call, is [`super::http`]'s.

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
use secrets::{Redaction, Text, variables};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shared::{
    id::{ToolName, ToolSetName},
    json::parse_lenient,
    schema::{Schema, check_cost},
    tool::{Effect, ErrorCode, ToolDefinition, ToolError},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::timeout,
};
use toolbox::{Tool, ToolContext};

pub use self::argv::{Argv, ParseArgvError};
use self::parameters_file::write_parameters;
use super::http::{HttpRun, HttpTool};

/// How long a command's pipes may stay open once it has ended: something that it started may
/// hold them for ever.
const DRAIN: Duration = Duration::from_secs(1);

/// A tool that is a command or an HTTP call, as the configuration describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandTool {
    /// Its name.
    pub name: ToolName,
    /// Its description.
    #[serde(default)]
    pub description: String,
    /// Sentences that people would say when they want it.
    #[serde(default)]
    pub examples: Vec<String>,
    /// The JSON Schema of its parameters.
    #[serde(default = "no_parameters")]
    pub parameters: Value,
    /// The effect of a second call. Nothing if the HTTP method tells it.
    pub effect: Option<Effect>,
    /// The command or request. A tool without it is known for selection only.
    pub run: Option<Action>,
}

/// The action of a tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub enum Action {
    /// A command on this machine.
    Command(Box<Run>),
    /// A call of a server.
    Http(Box<HttpRun>),
}

/// A map with `http` in it is that; everything else describes a command.
impl TryFrom<Map<String, Value>> for Action {
    type Error = String;

    fn try_from(mut written: Map<String, Value>) -> Result<Self, String> {
        let Some(http) = written.swap_remove("http") else {
            let is_meant = written.contains_key("command");
            let run = serde_json::from_value(Value::Object(joined(written)));
            return run.map(Self::Command).map_err(|err| {
                let hint = " (a call of a server is `{ http: { url: … } }`)";
                format!("{err}{}", if is_meant { "" } else { hint })
            });
        };
        if let Some(other) = written.keys().next() {
            return Err(format!("unknown field `{other}` beside `http`: a tool runs one thing"));
        }
        let run = serde_json::from_value(http).map(Self::Http);
        run.map_err(|err| format!("`http`: {err}"))
    }
}

/// A program and its arguments may stand apart, as those of MCP servers do: `command: date` with
/// `args: [-u]` says what `command: [date, -u]` says.
fn joined(mut written: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::String(program)) = written.get("command") {
        let program = Value::String(program.clone());
        written.insert("command".to_owned(), Value::Array(vec![program]));
    }
    if let (Some(Value::Array(_)), Some(Value::Array(_))) =
        (written.get("command"), written.get("args"))
        && let Some(Value::Array(args)) = written.shift_remove("args")
        && let Some(Value::Array(command)) = written.get_mut("command")
    {
        command.extend(args);
    }
    written
}

impl Action {
    /// Returns what a second call does, as far as that is known.
    fn effect(&self) -> Effect {
        match self {
            Self::Command(_) => Effect::default(),
            Self::Http(run) => run.effect(),
        }
    }

    /// Returns a parameter that it names and that is none of `known`.
    fn unknown_parameter(&self, known: Option<&Map<String, Value>>) -> Option<String> {
        let is_unknown = |name: &str| !known.is_some_and(|all| all.contains_key(name));
        match self {
            Self::Command(run) => {
                run.command.parameters().find(|it| is_unknown(it)).map(str::to_owned)
            }
            Self::Http(run) => run.parameters().into_iter().find(|it| is_unknown(it)),
        }
    }
}

/// The command of a tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The program and its arguments.
    pub command: Argv,
    /// The working directory.
    pub cwd: Option<PathBuf>,
    /// The default working directory: the folder of the file that describes the tool.
    #[serde(skip)]
    pub(crate) base: Option<PathBuf>,
    /// Names of variables of Faber's environment that it gets besides the usual.
    #[serde(default)]
    pub pass: Vec<String>,
    /// Additional environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, Text>,
    /// The limits of the command. By default it has none.
    pub confine: Option<Confinement>,
}

/// A command tool that cannot be called as it is described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandToolError {
    /// Its command names a parameter that it does not have.
    #[error(
        "the command of `{tool}` names `{{{{{parameter}}}}}`, which is none of its parameters: add it to the properties in `parameters`"
    )]
    UnknownParameter {
        /// The tool.
        tool: ToolName,
        /// The parameter.
        parameter: String,
    },
    /// Its HTTP call names a parameter that it does not have.
    #[error(
        "the HTTP call of `{tool}` names `{{{{{parameter}}}}}`, which is none of its parameters: add it to the properties in `parameters`"
    )]
    UnknownInCall {
        /// The tool.
        tool: ToolName,
        /// The parameter.
        parameter: String,
    },
    /// It is to be confined, and nothing can do that.
    #[error(
        "`{tool}` is to be confined, and this program cannot do that: let it name a `faber` binary, or leave out `confine`"
    )]
    NotConfined {
        /// The tool.
        tool: ToolName,
    },
    /// The schema of its parameters costs too much to check.
    #[error("the `parameters` of `{tool}` are refused: {why}")]
    Costly {
        /// The tool.
        tool: ToolName,
        /// Why.
        why: String,
    },
    /// Its parameters have no schema.
    #[error("the `parameters` of `{tool}` are no JSON Schema: {error}")]
    Schema {
        /// The tool.
        tool: ToolName,
        /// The reason.
        error: String,
    },
    /// Its parameters are no object, so that no call could ever fit.
    #[error(
        "the `parameters` of `{tool}` describe no object: say `type: object`, with a property for each parameter"
    )]
    NoObject {
        /// The tool.
        tool: ToolName,
    },
}

/// Returns whether a schema leaves room for an object, as far as its `type` says.
fn may_be_object(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == "object",
        Some(Value::Array(several)) => several.iter().any(|it| it == "object"),
        _ => *schema != Value::Bool(false),
    }
}

fn no_parameters() -> Value {
    json!({ "type": "object", "properties": {} })
}

impl CommandTool {
    /// Returns the secrets that it names.
    pub fn secrets(&self) -> Vec<&str> {
        match &self.run {
            None => Vec::new(),
            Some(Action::Http(run)) => run.secrets(),
            Some(Action::Command(run)) => run.env.values().filter_map(Text::secret).collect(),
        }
    }

    /// Returns the variables of Faber's environment that it passes on.
    pub fn passed(&self) -> impl Iterator<Item = &str> {
        let run = match &self.run {
            Some(Action::Command(run)) => Some(run),
            _ => None,
        };
        let confined = run.into_iter().flat_map(|it| &it.confine).flat_map(|it| &it.pass);
        let passed = run.into_iter().flat_map(|it| &it.pass);
        passed.chain(confined).map(String::as_str)
    }

    /// Returns what its command may do, where that is less than everything.
    pub(crate) fn confinement(&self) -> Option<&Confinement> {
        match &self.run {
            Some(Action::Command(run)) => run.confine.as_ref(),
            _ => None,
        }
    }

    /// Returns the program that it runs, where that is a path.
    pub(crate) fn program(&self) -> Option<PathBuf> {
        let Some(Action::Command(run)) = &self.run else { return None };
        let program = run.command.program();
        program.contains('/').then(|| program.into())
    }

    /// Makes a tool that can be called and prints at most `most` bytes. `launcher` starts it where
    /// it is confined.
    pub fn into_tool(
        self,
        set: &ToolSetName,
        most: usize,
        launcher: &Launcher,
    ) -> Result<Arc<dyn Tool>, CommandToolError> {
        let known = self.parameters.get("properties").and_then(Value::as_object);
        let unknown = self.run.as_ref().and_then(|it| it.unknown_parameter(known));
        if let Some(parameter) = unknown {
            let tool = self.name;
            return Err(match self.run {
                Some(Action::Http(_)) => CommandToolError::UnknownInCall { tool, parameter },
                _ => CommandToolError::UnknownParameter { tool, parameter },
            });
        }
        let is_confined = matches!(&self.run, Some(Action::Command(run)) if run.confine.is_some());
        if is_confined && !launcher.can_confine() {
            return Err(CommandToolError::NotConfined { tool: self.name });
        }
        if let Err(why) = check_cost(&self.parameters) {
            return Err(CommandToolError::Costly { tool: self.name, why });
        }
        if let Err(error) = Schema::new(&self.parameters) {
            return Err(CommandToolError::Schema { tool: self.name, error });
        }
        if !may_be_object(&self.parameters) {
            return Err(CommandToolError::NoObject { tool: self.name });
        }
        let definition = ToolDefinition {
            name: self.name,
            set: set.clone(),
            description: self.description,
            input_schema: self.parameters,
            output_schema: None,
            effect: self.effect.or(self.run.as_ref().map(Action::effect)).unwrap_or_default(),
            examples: self.examples,
            is_callable: self.run.is_some(),
        };
        let run = match self.run {
            Some(Action::Http(run)) => return Ok(Arc::new(HttpTool::new(definition, *run, most))),
            Some(Action::Command(run)) => Some(*run),
            None => None,
        };
        Ok(Arc::new(CommandRunner {
            definition: Arc::new(definition),
            run,
            most,
            launcher: launcher.clone(),
        }))
    }
}

#[derive(Debug)]
struct CommandRunner {
    definition: Arc<ToolDefinition>,
    run: Option<Run>,
    most: usize,
    launcher: Launcher,
}

#[async_trait]
impl Tool for CommandRunner {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        let run = self.run.as_ref().ok_or_else(|| self.not_callable())?;
        let mut seen = Redaction::default();
        let env = variables(&run.env, &mut seen)?;
        self.launcher.note_passed_secrets(&run.pass, &mut seen);
        if let Some(confinement) = &run.confine {
            self.launcher.note_passed_secrets(&confinement.pass, &mut seen);
        }
        let mut running = Running::start((run, &env), &self.launcher, &parameters, &cx)?;
        let ended = tokio::select! {
            biased;
            // One that has ended by itself has answered, however late it is heard.
            ended = running.finish(self.most) => Some(ended),
            () = cx.cancel.cancelled() => None,
        };
        let Some(ended) = ended else {
            return Err(stopped(run.command.program(), running.group.stop().await));
        };
        let said = running.stderr.redacted_text(&seen);
        let answer = running.answer(run.command.program(), ended, self.most, &seen);
        if answer.is_ok() {
            cx.aside.leave(said);
        }
        seen.clean_result(answer)
    }
}

/// Makes the error for a cancelled command.
///
/// How it ended is no answer, not even with status 0: so end programs that had done their work, and
/// so do those that tidied up and did not do it.
fn stopped(program: &str, status: Option<ExitStatus>) -> ToolError {
    let how = status.map_or_else(|| "did not".to_owned(), describe_status);
    let message = format!(
        "`{program}` was told to stop and {how}: whether it had done its work by then is not known"
    );
    ToolError::new(ErrorCode::CANCELLED, message).with_unknown_outcome()
}

impl CommandRunner {
    fn not_callable(&self) -> ToolError {
        let name = &self.definition.name;
        let message = format!("`{name}` has nothing to run: add `run` to its description");
        ToolError::new(ErrorCode::UNAVAILABLE, message).without_retry()
    }
}

/// A command under way.
struct Running {
    group: ProcessGroup,
    output: Vec<u8>,
    stderr: Tail,
}

/// The end of a command.
enum Ended {
    Exited(std::process::ExitStatus),
    PrintedTooMuch,
    Lost(io::Error),
}

/// More was printed than an output may have.
struct TooMuch;

impl Running {
    fn start(
        (run, env): (&Run, &BTreeMap<String, String>),
        launcher: &Launcher,
        parameters: &Value,
        cx: &ToolContext,
    ) -> Result<Self, ToolError> {
        let reads = run.cwd.as_deref();
        let (name, cwd) = (run.command.program(), reads.or(run.base.as_deref()));
        let program = Program { name, cwd, reads, pass: &run.pass, env };
        let complain = |err: io::Error| {
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
        let mut command = command.map_err(complain)?;
        command.args(run.command.arguments(parameters));
        tell_context(&mut command, cx);
        command.stdin(Stdio::from(write_parameters(parameters).map_err(complain)?));
        let group = ProcessGroup::spawn(&mut command).map_err(complain)?;
        Ok(Self { group, output: Vec::new(), stderr: Tail::default() })
    }

    /// Reads the command's output until it has ended.
    async fn finish(&mut self, most: usize) -> Ended {
        let Self { group, output, stderr: tail } = self;
        let child = group.child();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Ended::Lost(io::Error::other("its streams are not piped"));
        };
        let mut streams = pin!(async {
            tokio::try_join!(
                async {
                    read_tail(stderr, tail).await;
                    Ok(())
                },
                read_output(stdout, output, most),
            )
        });
        let status = tokio::select! {
            read = &mut streams => match read {
                Ok(_) => group.wait().await,
                Err(TooMuch) => return Ended::PrintedTooMuch,
            },
            status = group.wait() => {
                // What the command has started must not outlive it, nor keep its pipes open.
                group.kill();
                if let Ok(Err(TooMuch)) = timeout(DRAIN, streams).await {
                    return Ended::PrintedTooMuch;
                }
                status
            }
        };
        status.map_or_else(Ended::Lost, Ended::Exited)
    }

    fn answer(
        self,
        program: &str,
        ended: Ended,
        most: usize,
        seen: &Redaction,
    ) -> Result<Value, ToolError> {
        let status = match ended {
            Ended::Exited(status) => status,
            Ended::PrintedTooMuch => {
                let message = format!(
                    "`{program}` printed more than {most} bytes and was stopped: \
                     let it write a file and print the file's name"
                );
                return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, message));
            }
            Ended::Lost(err) => {
                let message = format!("nobody knows how `{program}` ended: {err}");
                return Err(ToolError::failed(message).with_unknown_outcome());
            }
        };
        if status.success() {
            return Ok(parse(&self.output));
        }
        let text = self.stderr.redacted_text(seen);
        if let Some(why) = refusal_reason(status.code(), &text) {
            let message = format!("`{program}` was not started: {why}");
            return Err(ToolError::new(ErrorCode::UNAVAILABLE, message).without_retry());
        }
        let said = match text {
            text if text.is_empty() => String::new(),
            text => format!(": {text}"),
        };
        let error = ToolError::failed(format!("`{program}` {}{said}", describe_status(status)));
        // An exit status is the command's own word; a signal cuts it off anywhere.
        Err(if status.code().is_some() { error } else { error.with_unknown_outcome() })
    }
}

/// Tells the command whose call it serves.
fn tell_context(command: &mut Command, cx: &ToolContext) {
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
    most: usize,
) -> Result<(), TooMuch> {
    let mut stdout = stdout.take(most as u64 + 1);
    // A pipe that breaks has ended; the exit status says how.
    let _ = stdout.read_to_end(output).await;
    if output.len() > most { Err(TooMuch) } else { Ok(()) }
}

/// Reads what a command printed: JSON if it is JSON, else a string without the last line end.
fn parse(output: &[u8]) -> Value {
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
    fn arguments_may_stand_beside_the_program() {
        let read = |run: Value| serde_json::from_value::<Action>(run).map_err(|it| it.to_string());
        let joined = read(json!({ "command": ["echo", "{{who}}", "-n"] })).unwrap();
        for same in [
            json!({ "command": "echo", "args": ["{{who}}", "-n"] }),
            json!({ "command": ["echo"], "args": ["{{who}}", "-n"] }),
        ] {
            assert_eq!(read(same).unwrap(), joined);
        }
        assert_eq!(read(json!({ "command": "date" })), read(json!({ "command": ["date"] })));
        for wrong in [json!({ "command": "echo", "args": "x" }), json!({ "args": ["x"] })] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    /// The command read an empty document when Faber was killed before it wrote: once a command
    /// has started, nothing is left to do for it.
    #[tokio::test]
    async fn the_parameters_are_complete_before_the_command_starts() {
        let folder = tempfile::tempdir().unwrap();
        let (copy, done) = (folder.path().join("copy"), folder.path().join("done"));
        let script =
            format!("cat > '{}'; mv '{}' '{}'", copy.display(), copy.display(), done.display());
        let run = serde_json::from_value(json!({ "command": ["sh", "-c", script] })).unwrap();
        let parameters = json!({ "text": "x".repeat(1 << 20) });
        let (env, cx) = (BTreeMap::new(), ToolContext::detached());
        // Nothing reads or writes for the command from here on.
        let running =
            Running::start((&run, &env), &Launcher::unconfined(), &parameters, &cx).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while !done.exists() {
            assert!(std::time::Instant::now() < until, "the command waits for its parameters");
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_to_string(&done).unwrap(), parameters.to_string());
        drop(running);
    }

    /// What `pass` passes on was shown, though it was listed as a secret.
    #[tokio::test]
    async fn a_variable_that_is_a_secret_is_not_shown() {
        let run = json!({ "command": ["env"], "pass": ["CARGO_PKG_NAME", "CARGO_PKG_VERSION"] });
        let tool = serde_json::from_value::<CommandTool>(json!({ "name": "t", "run": run }));
        let secrets = ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"].map(str::to_owned);
        let launcher = Launcher::unconfined().with_secrets(secrets.into());
        let tool = tool.unwrap().into_tool(&"s".parse().unwrap(), 1 << 20, &launcher).unwrap();
        let said = tool.call(Arc::new(json!({})), ToolContext::detached()).await.unwrap();
        let said: Vec<_> = said.as_str().unwrap().lines().collect();
        assert!(said.contains(&"CARGO_PKG_NAME=***CARGO_PKG_NAME***"), "{said:?}");
        let version = format!("CARGO_PKG_VERSION={}", env!("CARGO_PKG_VERSION"));
        assert!(said.contains(&version.as_str()), "{said:?}");
    }
}
