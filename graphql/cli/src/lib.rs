//! The command line. Most commands are operations of the API, which a [`Client`](client::Client)
//! sends to the engine of this process or to a running server.

mod args;
mod bench;
pub mod blog_mcp;
mod commands;
pub mod config;
mod live_view;
mod local_engine;
mod log_control;
mod memory;
mod model_server;
mod plan_test;
mod reload;
mod screen;
mod session;
mod signals;
mod suggestion;
mod tracing_export;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    pin::Pin,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};
use client::{failure::Failure, view::plain};
use graphql::schema;
use shared::{
    clock::WallClock,
    metrics::{Build, set_build},
    trace::SpanSink,
};

use self::{
    args::{Cli, Command, ConfigCommand, ToolkitCommand, Tools, Toolsets, TraceCommand},
    commands::{
        add_toolset, audit, backup, config as config_command, counts, debug, doctor, fork, list,
        login, manual, models, plan, run, serve, settle, steer, test, toolkit, tools,
    },
    screen::Screen,
    session::{Need, Session},
};
use crate::{
    config::{Config, Environment, Flags, LogFormat},
    local_engine::Setup,
    log_control::LogControl,
    tracing_export::TraceExport,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    Done,
    Failed,
    /// Some of the named objects do not exist or cannot be changed. The command changed the other
    /// objects.
    NotFound,
    Unreachable,
    Waiting,
    /// A signal such as Ctrl-C ended the command. A started execution stays in the store.
    Detached,
}

impl ExitStatus {
    fn to_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::NotFound => 2,
            Self::Unreachable => 3,
            Self::Waiting => 4,
            Self::Detached => 130,
        }
    }
}

pub(crate) struct App {
    config: Config,
    flags: Flags,
    environment: Environment,
    screen: Screen,
    log: LogControl,
    span_sink: Option<Arc<dyn SpanSink>>,
}

impl App {
    fn setup(&self) -> Setup<'_> {
        let (config, environment) = (&self.config, &self.environment);
        Setup { config, environment, span_sink: self.span_sink.as_ref() }
    }

    fn detach(&self, message: &str) -> Result<ExitStatus, Failure> {
        if self.screen.json {
            return Err(Failure::new("DETACHED", message));
        }
        self.screen.say(message);
        Ok(ExitStatus::Detached)
    }
}

/// Time after which an idle thread for blocking work ends. Each thread keeps freed memory, and the
/// short reads of an idle server would keep all threads alive for longer.
const BLOCKING_THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// Runs the command line of this process.
///
/// This function is not generic over the arguments, because the crate of the binary would then
/// compile all commands again.
///
/// `build` is the commit and its date, such as `c1bbd1a0f00d 2026-11-28`, if the build knew them.
pub fn main(arguments: &[OsString], build: Option<&'static str>) -> ExitCode {
    // This hidden subcommand confines this process and then becomes the command of a tool. It runs
    // before any thread starts, because threads that exist already would not be confined.
    if let [_, first, rest @ ..] = arguments
        && first == sandbox::SUBCOMMAND
    {
        return sandbox::run_confined(rest.iter().cloned());
    }
    memory::start_release_thread();
    let environment = Environment::from_process();
    let cli = match parse_arguments(arguments, build.and_then(Build::parse)) {
        Ok(cli) => cli,
        Err(err) => {
            return report_usage(
                &suggestion::add_suggestion(err, arguments),
                arguments,
                &environment,
            );
        }
    };
    let log = LogFormat::choose(&cli.flags(), &environment).map_err(Failure::from);
    let log = log.and_then(|format| {
        LogControl::start(&environment, default_log_filter(&cli.command), format)
    });
    let log = match log {
        Ok(log) => log,
        Err(failure) => {
            return ExitCode::from(Screen::new(cli.globals.json, &environment).fail(&failure));
        }
    };
    if let Err(err) = sandbox::hide_process_memory() {
        tracing::warn!(%err, "other processes of this user can read the environment of this one");
    }
    let screen = Screen::new(cli.globals.json, &environment);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_keep_alive(BLOCKING_THREAD_KEEP_ALIVE)
        .build();
    let result = match runtime {
        Ok(runtime) => {
            // The type is erased, because otherwise `block_on` would compile all commands once for
            // each kind of runtime.
            let program: Pin<Box<dyn Future<Output = _>>> =
                Box::pin(dispatch(cli, environment, screen.clone(), log));
            let result = runtime.block_on(program);
            // Does not wait for a thread that still reads standard input.
            runtime.shutdown_background();
            result
        }
        Err(err) => {
            Err(Failure::new("INTERNAL", format!("the system cannot start threads: {err}")))
        }
    };
    match result {
        Ok(status) => ExitCode::from(status.to_code()),
        Err(failure) => ExitCode::from(screen.fail(&failure)),
    }
}

fn parse_arguments(arguments: &[OsString], build: Option<Build>) -> Result<Cli, clap::Error> {
    static VERSION: OnceLock<String> = OnceLock::new();
    if let Some(build) = build {
        set_build(build);
    }
    let version = VERSION.get_or_init(|| Build::describe_version(build));
    let mut command = Cli::command().version(version.as_str());
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|err| err.format(&mut command))
}

fn report_usage(err: &clap::Error, arguments: &[OsString], environment: &Environment) -> ExitCode {
    let is_help = matches!(err.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if is_help || !arguments.iter().any(|argument| argument == "--json") {
        print_clap_text(err, environment);
        return ExitCode::from(if is_help { 0 } else { 2 });
    }
    let text = err.to_string();
    let message = text.trim().trim_start_matches("error: ");
    let failure = Failure::new("INVALID_ARGUMENT", message);
    ExitCode::from(Screen::new(true, environment).fail(&failure))
}

/// Prints a text of `clap` in its colours. The text repeats arguments, so it is escaped.
fn print_clap_text(err: &clap::Error, environment: &Environment) {
    let is_coloured = if err.use_stderr() {
        screen::has_stderr_colours(environment)
    } else {
        screen::has_stdout_colours(environment)
    };
    let text = err.render();
    let text = if is_coloured { text.ansi().to_string() } else { text.to_string() };
    let lines: Vec<String> = text.lines().map(plain::safe_coloured).collect();
    let text = lines.join("\n");
    // Ignores a failure, because the reader of the output is allowed to close it.
    let _ = if err.use_stderr() {
        writeln!(io::stderr(), "{text}")
    } else {
        writeln!(io::stdout(), "{text}")
    };
}

/// Returns the log filter of a command if none is configured. A server, a worker and `faber mcp`
/// log failed toolsets, because they have no other way to report them.
fn default_log_filter(command: &Command) -> String {
    match command {
        Command::Serve { .. } | Command::Worker { .. } | Command::Mcp => "warn".to_owned(),
        _ => format!("warn,{}=off", toolbox::LOG_TARGET),
    }
}

async fn dispatch(
    cli: Cli,
    environment: Environment,
    screen: Screen,
    log: LogControl,
) -> Result<ExitStatus, Failure> {
    let flags = cli.flags();
    match cli.command {
        Command::Config { subcommand: Some(ConfigCommand::Check { file }) } => {
            return config_command::check_config(file, &flags, &environment, &screen);
        }
        Command::Config { subcommand: Some(ConfigCommand::Schema { plan, test }) } => {
            return config_command::print_schema(plan, test, &screen);
        }
        Command::BlogMcp { file } => return serve_blog(file, &environment).await,
        Command::Completions { shell } => return print_completions(shell, &screen),
        Command::Man { folder } => return manual::write_pages(&folder, &screen),
        Command::Schema => return print_text(&screen, "schema", &schema::schema_text()),
        _ => (),
    }
    if let Command::Doctor { ready } = cli.command {
        let (config, faults) = Config::load_valid_settings(&flags, &environment)?;
        let app = App { config, flags, environment, screen, log, span_sink: None };
        return if ready {
            doctor::check_readiness(&app).await
        } else {
            doctor::check_all(&app, faults).await
        };
    }
    let config = Config::load(&flags, &environment)?;
    log.set_level(config.log_level.value.as_deref());
    let export = TraceExport::start(&environment, &config.node.value);
    let app = App { config, flags, environment, screen, log, span_sink: export.sink() };
    let name = span_name(&cli.command);
    export.run_command(name, Box::pin(run_command(&app, cli.command))).await
}

/// Returns the name of a command that plans or starts executions. Other commands have no span.
fn span_name(command: &Command) -> Option<&'static str> {
    match command {
        Command::Run(_) => Some("run"),
        Command::Plan(_) => Some("plan"),
        Command::Agent(_) => Some("agent"),
        Command::Execute(_) => Some("execute"),
        Command::Retry(_) => Some("retry"),
        Command::Fork(_) => Some("fork"),
        Command::Replan { .. } => Some("replan"),
        _ => None,
    }
}

async fn run_command(app: &App, command: Command) -> Result<ExitStatus, Failure> {
    match command {
        Command::Serve { .. } => serve::serve_api(app).await,
        Command::Worker { .. } => serve::run_worker(app).await,
        Command::Mcp => Box::pin(serve::serve_mcp(app)).await,
        Command::Run(args) => run::run(app, args).await,
        Command::Revise { plan, file } => plan::revise(app, &plan, &file).await,
        Command::Save(args) => plan::save(app, args).await,
        Command::Test(args) => test::test(app, args).await,
        Command::Approve(args) => steer::approve(app, args).await,
        Command::Settle(args) => settle::settle(app, args).await,
        Command::Signal(args) => steer::send_signal(app, args).await,
        Command::Cancel { id, reason } => steer::cancel(app, &id, reason).await,
        Command::Login { set, no_browser } => login::log_in(app, &set, no_browser).await,
        Command::Logout { set } => login::log_out(app, &set).await,
        Command::Models { subcommand } => models::manage_models(app, subcommand).await,
        Command::Bench(args) => commands::bench::bench(app, &args).await,
        Command::Backup { file } => backup::write_backup(app, &file).await,
        Command::Restore { file } => backup::restore(app, &file).await,
        Command::Import { file } => backup::import(app, &file).await,
        Command::Rekey => commands::rekey::rekey(app).await,
        Command::Export(args) if args.since.is_some() => backup::export_history(app, args).await,
        Command::Config { .. } => config_command::print_config(app),
        Command::Tools { subcommand: Tools::Add { new } } => {
            add_toolset::add_toolset(app, new).await
        }
        command => {
            let session = open_session(app, &command).await?;
            session.close_after(async |session| run_in_session(session, command).await).await
        }
    }
}

/// Opens the parts of the engine that a command needs. If the store does not exist, only commands
/// that plan, call tools, or change tools, toolsets or the toolkit create it.
async fn open_session<'a>(app: &'a App, command: &Command) -> Result<Session<'a>, Failure> {
    match command {
        Command::Agent(_) | Command::Tools { subcommand: Tools::Call { .. } } => {
            // These commands call tools. A call of a tool with a limit needs a permit, and only a
            // worker can have permits.
            Session::open(app, Need::Driving).await
        }
        Command::Plan(_)
        | Command::Tools { subcommand: Tools::Load { .. } }
        | Command::Toolsets {
            subcommand: Toolsets::Activate { .. } | Toolsets::Deactivate { .. },
        }
        | Command::Toolkit { subcommand: ToolkitCommand::Load { .. } } => {
            Session::open(app, Need::Tools).await
        }
        Command::Tools { .. } | Command::Toolsets { .. } | Command::Toolkit { .. } => {
            Session::open_existing(app, Need::Tools).await
        }
        Command::Execute(_)
        | Command::Resume { .. }
        | Command::Retry(_)
        | Command::Fork(_)
        | Command::Replan { .. } => Session::open_existing(app, Need::Driving).await,
        Command::Pause { .. } => Session::open_existing(app, Need::Stopping).await,
        _ => Session::open_existing(app, Need::Store).await,
    }
}

async fn run_in_session(session: &Session<'_>, command: Command) -> Result<ExitStatus, Failure> {
    match command {
        Command::Plan(args) => plan::plan(session, args).await,
        Command::Agent(args) => run::run_agent(session, args).await,
        Command::Execute(args) => run::execute(session, args).await,
        Command::Watch { id } => run::watch(session, &id).await,
        Command::Resume { id, wait } => steer::resume(session, &id, wait).await,
        Command::Retry(args) => steer::retry(session, args).await,
        Command::Fork(args) => fork::fork(session, args).await,
        Command::Replan { id, planning } => steer::replan(session, &id, &planning).await,
        Command::Pause { id } => steer::pause(session, &id).await,
        Command::Unsave { name } => plan::unsave(session, &name).await,
        Command::Export(args) => plan::export(session, args).await,
        Command::Prune { older_than } => list::prune(session, &older_than).await,
        Command::Audit(args) => audit::list_audit(session, args).await,
        Command::Debug(args) => debug::debug(session, &args).await,
        Command::Trace { subcommand: TraceCommand::Export { id } } => {
            debug::export_trace(session, &id).await
        }
        Command::Blob { id, output } => debug::print_blob(session, &id, output.as_deref()).await,
        Command::Counts(args) => counts::count_executions(session, args).await,
        Command::List { subcommand } => list::list(session, subcommand).await,
        Command::Tools { subcommand } => tools::run_tools_command(session, subcommand).await,
        Command::Toolsets { subcommand } => tools::run_toolsets_command(session, subcommand).await,
        Command::Toolkit { subcommand } => toolkit::run_toolkit_command(session, subcommand).await,
        _ => unreachable!("commands without a session were dispatched before"),
    }
}

async fn serve_blog(
    file: Option<std::path::PathBuf>,
    environment: &Environment,
) -> Result<ExitStatus, Failure> {
    let named = file.or_else(|| environment.blog_file.clone());
    let file = match named {
        Some(file) => file,
        None => blog_mcp::default_file(&environment.data_root()?),
    };
    let served = blog_mcp::serve(file, Arc::new(WallClock)).await;
    served.map_err(|err| Failure::new("INTERNAL", err.to_string()))?;
    Ok(ExitStatus::Done)
}

fn print_completions(shell: clap_complete::Shell, screen: &Screen) -> Result<ExitStatus, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "faber", &mut script);
    print_text(screen, "script", &String::from_utf8_lossy(&script))
}

fn print_text(screen: &Screen, name: &str, text: &str) -> Result<ExitStatus, Failure> {
    if screen.json {
        screen.print_json(&serde_json::json!({ name: text }))?;
    } else {
        screen.print_document(text.trim_end())?;
    }
    Ok(ExitStatus::Done)
}
