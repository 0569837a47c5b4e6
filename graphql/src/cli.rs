//! The command line: flags become one [`Config`], commands become operations of the API, and
//! what comes back is shown to a person or printed as JSON.
//!
//! Without `--server` the operations run in this process, over the store itself; with it they go
//! to a running server. Everything in between is the same code.

mod account;
mod answer;
mod args;
pub mod bench;
mod blob;
mod client;
mod confined;
mod doctor;
mod drive;
mod endings;
mod events;
mod explain;
mod failure;
mod follow;
mod house;
mod inspect;
mod lists;
mod login;
mod mcp;
mod missing_tools;
mod models;
mod onward;
mod paint;
mod plain;
mod planning;
mod printed;
mod progress;
mod prune;
mod remote;
mod render;
mod repeated_calls;
mod report;
mod run;
mod saved;
mod screen;
mod select;
mod serve;
mod shape;
mod signals;
mod stage;
mod steer;
mod suggestion;
mod table;
mod toolkit;
mod tools;
mod tree;
mod written_plan;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
};

use clap::{CommandFactory, Parser, error::ErrorKind};
use shared::clock::WallClock;
use tracing::Metadata;
use tracing_subscriber::{
    EnvFilter,
    filter::{LevelFilter, filter_fn},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use self::{
    args::{Cli, Command},
    failure::Failure,
    screen::Screen,
};
use crate::{
    blog_mcp,
    config::{Config, Environment},
    schema,
};

/// Crates that log tokens or whole messages, and the most that is logged of them at any log level.
const HELD_BACK: [(&str, LevelFilter); 1] = [("rmcp", LevelFilter::ERROR)];

/// How a command ended, as the status of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It did what it was asked.
    Done,
    /// The execution failed or was cancelled.
    Failed,
    /// A part of what it was asked for is not there; the rest was done.
    NotFound,
    /// Something is missing or cannot be reached.
    Unreachable,
    /// The execution waits for a person.
    Waiting,
    /// The user left; what was begun is in the store.
    Detached,
}

impl Ending {
    fn status(self) -> u8 {
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

/// What a command works with.
struct Session {
    config: Config,
    environment: Environment,
    screen: Screen,
}

/// Runs the command line of this process.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(status) = confined::confined(&arguments) {
        return status;
    }
    let environment = Environment::of_process();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(err) => return refuse(&suggestion::improve(err, &arguments), &arguments, &environment),
    };
    if let Err(failure) = log(&environment) {
        return ExitCode::from(Screen::new(cli.globals.json, &environment).fail(&failure));
    }
    if let Err(err) = sandbox::keep_to_itself() {
        tracing::warn!(%err, "other processes of this user can read the environment of this one");
    }
    let screen = Screen::new(cli.globals.json, &environment);
    let ended = match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let ended = runtime.block_on(dispatch(cli, environment, screen.clone()));
            // A thread that still reads standard input must not keep the process.
            runtime.shutdown_background();
            ended
        }
        Err(err) => Err(Failure::new("INTERNAL", format!("no threads can be started: {err}"))),
    };
    match ended {
        Ok(ending) => ExitCode::from(ending.status()),
        Err(failure) => ExitCode::from(screen.fail(&failure)),
    }
}

/// Answers what `clap` did not take for a command.
fn refuse(err: &clap::Error, arguments: &[OsString], environment: &Environment) -> ExitCode {
    let is_help = matches!(err.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if is_help || !arguments.iter().any(|it| it == "--json") {
        say(err, environment);
        return ExitCode::from(if is_help { 0 } else { 2 });
    }
    let text = err.to_string();
    let message = text.trim().trim_start_matches("error: ");
    let failure = Failure::new("INVALID_ARGUMENT", message);
    ExitCode::from(Screen::new(true, environment).fail(&failure))
}

/// Prints what `clap` has to say, in its colours; it repeats what was typed.
fn say(err: &clap::Error, environment: &Environment) {
    let is_coloured = if err.use_stderr() {
        screen::err_has_colours(environment)
    } else {
        screen::out_has_colours(environment)
    };
    let text = err.render();
    let text = if is_coloured { text.ansi().to_string() } else { text.to_string() };
    let lines: Vec<String> = text.lines().map(plain::coloured).collect();
    let text = lines.join("\n");
    // Whoever closed the stream does not want to read it.
    let _ = if err.use_stderr() {
        writeln!(io::stderr(), "{text}")
    } else {
        writeln!(io::stdout(), "{text}")
    };
}

fn log(environment: &Environment) -> Result<(), Failure> {
    let filter = log_filter(environment.log.as_deref().unwrap_or("warn"))?;
    let is_let_through = filter_fn(is_let_through);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| screen::Log)
        .with_ansi(screen::err_has_colours(environment))
        .with_target(false);
    let logging = tracing_subscriber::registry().with(filter).with(is_let_through).with(lines);
    // Tests may have installed another; theirs is as good.
    let _ = logging.try_init();
    Ok(())
}

/// Reads `FABER_LOG`. A lone word that is no level would be taken for the name of a module, and
/// nothing would be logged.
fn log_filter(wanted: &str) -> Result<EnvFilter, Failure> {
    let refuse = |why: String| {
        let levels = "`error`, `warn`, `info`, `debug`, `trace` or `off`";
        Failure::usage(format!(
            "`FABER_LOG` is `{wanted}`: {why}; write {levels}, for one module `executor=debug`"
        ))
    };
    let mut lone = wanted.split(',').map(str::trim).filter(|part| !part.is_empty());
    let is_plain = |part: &&str| part.chars().all(|letter| letter.is_ascii_alphanumeric());
    if let Some(part) = lone.find(|part| is_plain(part) && part.parse::<LevelFilter>().is_err()) {
        return Err(refuse(format!("`{part}` is no level")));
    }
    EnvFilter::try_new(wanted).map_err(|err| refuse(err.to_string()))
}

/// Returns whether nobody is [held back](HELD_BACK) from logging this.
fn is_let_through(it: &Metadata<'_>) -> bool {
    HELD_BACK.iter().all(|(who, most)| !it.target().starts_with(who) || it.level() <= most)
}

async fn dispatch(cli: Cli, environment: Environment, screen: Screen) -> Result<Ending, Failure> {
    match cli.command {
        Command::BlogMcp { file } => return blog(file, &environment).await,
        Command::Completions { shell } => return completions(shell, &screen),
        Command::Schema => return text(&screen, "schema", &schema::sdl()),
        _ => (),
    }
    let flags = cli.flags();
    if let Command::Doctor { ready } = cli.command {
        let (config, faults) = Config::load_what_works(&flags, &environment)?;
        let session = Session { config, environment, screen };
        return if ready {
            doctor::ready(&session).await
        } else {
            doctor::doctor(&session, faults).await
        };
    }
    let config = Config::load(&flags, &environment)?;
    let session = Session { config, environment, screen };
    match cli.command {
        Command::Serve { .. } => serve::serve(&session).await,
        Command::Worker => serve::worker(&session).await,
        Command::Run(args) => run::run(&session, args).await,
        Command::Plan(args) => planning::plan(&session, args).await,
        Command::Agent(args) => run::agent(&session, args).await,
        Command::Revise { plan, file } => planning::revise(&session, &plan, &file).await,
        Command::Execute(args) => run::execute(&session, args).await,
        Command::Watch { id } => run::watch(&session, &id).await,
        Command::Resume { id, wait } => steer::resume(&session, &id, wait).await,
        Command::Retry(args) => steer::retry(&session, args).await,
        Command::Replan { id, planning } => steer::replan(&session, &id, &planning).await,
        Command::Save(args) => saved::save(&session, args).await,
        Command::Unsave { name } => saved::unsave(&session, &name).await,
        Command::Export(args) => saved::export(&session, args).await,
        Command::Mcp => Box::pin(mcp::mcp(&session)).await,
        Command::Prune { older_than } => prune::prune(&session, &older_than).await,
        Command::Cancel { id, reason } => steer::cancel(&session, &id, reason).await,
        Command::Pause { id } => steer::pause(&session, &id).await,
        Command::Approve(args) => answer::approve(&session, args).await,
        Command::Signal(args) => answer::signal(&session, args).await,
        Command::Debug(args) => inspect::debug(&session, &args).await,
        Command::List { what } => lists::list(&session, what).await,
        Command::Blob { id, output } => blob::blob(&session, &id, output.as_deref()).await,
        Command::Tools { what } => tools::tools(&session, what).await,
        Command::Login { set, no_browser } => login::login(&session, &set, no_browser).await,
        Command::Logout { set } => login::logout(&session, &set).await,
        Command::Models { what } => models::models(&session, what).await,
        Command::Toolsets { what } => tools::toolsets(&session, what).await,
        Command::Toolkit { what } => toolkit::toolkit(&session, what).await,
        Command::Bench(args) => doctor::bench(&session, &args).await,
        Command::Config => doctor::config(&session),
        Command::Doctor { .. }
        | Command::BlogMcp { .. }
        | Command::Completions { .. }
        | Command::Schema => {
            unreachable!("answered before there was a configuration")
        }
    }
}

async fn blog(
    file: Option<std::path::PathBuf>,
    environment: &Environment,
) -> Result<Ending, Failure> {
    let named = file.or_else(|| environment.blog_file.clone());
    let file = match named {
        Some(file) => file,
        None => blog_mcp::default_file(&environment.data_root()?),
    };
    let served = blog_mcp::serve(file, Arc::new(WallClock)).await;
    served.map_err(|err| Failure::new("INTERNAL", err.to_string()))?;
    Ok(Ending::Done)
}

fn completions(shell: clap_complete::Shell, screen: &Screen) -> Result<Ending, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "faber", &mut script);
    text(screen, "script", &String::from_utf8_lossy(&script))
}

/// Prints a text, as a JSON document where one is wanted.
fn text(screen: &Screen, name: &str, text: &str) -> Result<Ending, Failure> {
    if screen.json {
        screen.print_json(&serde_json::json!({ name: text }))?;
    } else {
        screen.document(text.trim_end())?;
    }
    Ok(Ending::Done)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::subscriber::with_default;
    use tracing_subscriber::{Layer, layer::Context};

    use super::*;

    /// Keeps who said what was let through.
    struct Heard(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber> Layer<S> for Heard {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let about = event.metadata();
            self.0.lock().unwrap().push(format!("{} {}", about.level(), about.target()));
        }
    }

    #[test]
    fn a_log_level_that_is_none_is_refused() {
        for good in ["warn", "", "INFO", "off", "executor=debug,warn", "graphql::cli=trace", "0"] {
            assert!(log_filter(good).is_ok(), "{good}");
        }
        for bad in ["loud", "warn,verbose", "executor=loud", "a=b=c"] {
            let failure = log_filter(bad).unwrap_err();
            assert!(failure.message.starts_with(&format!("`FABER_LOG` is `{bad}`")), "{bad}");
            assert_eq!(failure.status(), 2);
        }
    }

    #[test]
    fn whole_messages_of_servers_are_not_logged() {
        let heard = Arc::default();
        let layer = filter_fn(is_let_through);
        let logging = tracing_subscriber::registry().with(layer).with(Heard(Arc::clone(&heard)));
        with_default(logging, || {
            tracing::info!(target: "rmcp::service", "received notification");
            tracing::warn!(target: "rmcp::service::client", "Received unexpected message");
            tracing::warn!(target: "rmcp::transport::auth", "a token");
            tracing::error!(target: "rmcp::service", "fail to close sink");
            tracing::trace!(target: "executor", "ours");
        });
        assert_eq!(*heard.lock().unwrap(), ["ERROR rmcp::service", "TRACE executor"]);
    }
}
