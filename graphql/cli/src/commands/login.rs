mod browser;
mod callback;

use std::{io::IsTerminal, net::Ipv4Addr, time::Duration};

use client::failure::Failure;
use mcp::{
    McpServer,
    oauth::{LoggedIn, Login, LoginError, Logins},
};
use serde_json::json;
use shared::id::ToolSetName;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines, Stdin},
    net::TcpListener,
    time::{Instant, sleep_until},
};
use toolsets::{
    registry,
    sources::{SetConfig, Source},
};

use self::callback::{Callback, Page};
use super::failed_sets::unknown_set_failure;
use crate::{
    App, ExitStatus,
    local_engine::{missing_store, open_store},
    signals,
};

const LOGIN_TIMEOUT: Duration = Duration::from_mins(10);

pub(crate) async fn log_in(app: &App, name: &str, no_browser: bool) -> Result<ExitStatus, Failure> {
    refuse_server(app, "login")?;
    let set = find_set(app, name).await?;
    let (logins, server) = (app.config.open_logins(), mcp_server_of(&set)?);
    let listener = bind_callback(&logins, &set.name, server).await?;
    let callback = Callback::serve(listener).map_err(|err| listen_failure(&err))?;
    let login = Login::start(&logins, &set.name, server, callback.address()).await;
    let login = login.map_err(|err| login_failure(&err))?;
    show_address(app, name, login.url(), no_browser);
    tokio::select! {
        logged_in = await_login(app, &login, callback, name) => print_login(app, name, &logged_in?),
        () = signals::await_interrupt() => app.detach("the login was not completed"),
    }
}

pub(crate) async fn log_out(app: &App, name: &str) -> Result<ExitStatus, Failure> {
    refuse_server(app, "logout")?;
    let set = find_set(app, name).await?;
    let forgotten = app.config.open_logins().log_out(&set.name, mcp_server_of(&set)?).await;
    let forgotten = forgotten.map_err(|err| login_failure(&err))?;
    let screen = &app.screen;
    if screen.json {
        screen.print_json(&json!({ "toolset": name, "forgotten": forgotten }))?;
    } else if forgotten {
        screen.print(&format!("the login to `{name}` was removed"))?;
    } else {
        screen.say(&format!("there was no login to `{name}`"));
    }
    Ok(ExitStatus::Done)
}

fn refuse_server(app: &App, command: &str) -> Result<(), Failure> {
    let Some(server) = &app.config.server else { return Ok(()) };
    let server = &server.value;
    Err(Failure::usage(format!(
        "a login is stored on the machine that calls the tools: run `faber {command}` there, not with `{server}`"
    )))
}

async fn find_set(app: &App, name: &str) -> Result<SetConfig, Failure> {
    let configured = &app.config.toolsets.value;
    let missing = || unknown_set_failure(name, configured.iter().map(|set| set.name.as_str()));
    let parsed: ToolSetName = name.parse().map_err(|_| missing())?;
    if let Some(set) = configured.iter().find(|set| set.name == parsed) {
        return Ok(set.clone());
    }
    if missing_store(app.setup()).is_some() {
        return Err(missing());
    }
    let store = open_store(app.setup()).await?;
    registry::find_added_set(&*store, &parsed).await?.ok_or_else(missing)
}

fn mcp_server_of(set: &SetConfig) -> Result<&McpServer, Failure> {
    match &set.source {
        Source::Mcp(server) => Ok(server),
        _ => Err(Failure::usage(format!("`{}` has no login: it is not an MCP server", set.name))),
    }
}

async fn bind_callback(
    logins: &Logins,
    set: &ToolSetName,
    server: &McpServer,
) -> Result<TcpListener, Failure> {
    let wanted = logins.preferred_port(set, server).map_err(|err| login_failure(&err))?;
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted.unwrap_or(0))).await;
    match bound {
        Err(_) if !has_callback_port(server) => {
            // The configuration sets no port, so any port is good. `wanted` was only the port of
            // the previous login.
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|err| listen_failure(&err))
        }
        bound => bound.map_err(|err| listen_failure(&err)),
    }
}

fn has_callback_port(server: &McpServer) -> bool {
    let McpServer::Http(server) = server else { return false };
    server.oauth().is_some_and(mcp::oauth::OAuth::has_callback_port)
}

fn listen_failure(err: &std::io::Error) -> Failure {
    let reason = "cannot listen for the browser on 127.0.0.1";
    Failure::new("INTERNAL", format!("{reason}: {err}; see `callback_port` of `auth`"))
}

fn show_address(app: &App, name: &str, url: &str, no_browser: bool) {
    let screen = &app.screen;
    let is_open = !no_browser && browser::open_browser(&app.environment, screen.is_live, url);
    let how = if is_open { "if the browser does not open, go to" } else { "go to" };
    screen.say(&format!("to log in to `{name}` {how}\n\n{url}\n"));
    if std::io::stdin().is_terminal() {
        screen.say(
            "if the browser is on another machine, paste here the last address that it shows \
             (http://127.0.0.1…)",
        );
    }
}

async fn await_login(
    app: &App,
    login: &Login,
    mut callback: Callback,
    name: &str,
) -> Result<LoggedIn, Failure> {
    let ends = Instant::now() + LOGIN_TIMEOUT;
    let mut pasted =
        std::io::stdin().is_terminal().then(|| BufReader::new(tokio::io::stdin()).lines());
    loop {
        let (address, page) = tokio::select! {
            Some((address, page)) = callback.next_return() => (address, Some(page)),
            Some(address) = next_line(&mut pasted) => (address, None),
            () = sleep_until(ends) => {
                let minutes = LOGIN_TIMEOUT.as_secs() / 60;
                let reason = format!("the login was not completed within {minutes} minutes");
                return Err(Failure::new("LOGIN_REFUSED", reason));
            }
        };
        let finished = login.finish(address.trim()).await;
        let was_pasted = page.is_none();
        if let Some(page) = page {
            page.send_page(match &finished {
                Ok(_) => Page::Done(name),
                Err(LoginError::UnrelatedCallback) => Page::Stray,
                Err(_) => Page::Failed(name),
            });
        }
        match finished {
            Err(LoginError::UnrelatedCallback) if was_pasted => app
                .screen
                .say("this address does not belong to the current login: paste the whole address"),
            Err(LoginError::UnrelatedCallback) => {}
            finished => {
                callback.close().await;
                return finished.map_err(|err| login_failure(&err));
            }
        }
    }
}

/// Returns the next line from standard input. Never returns after the end of the input, or if the
/// input is not a terminal.
async fn next_line(input_lines: &mut Option<Lines<BufReader<Stdin>>>) -> Option<String> {
    loop {
        let Some(lines) = input_lines else { return std::future::pending().await };
        match lines.next_line().await {
            Ok(Some(line)) if line.trim().is_empty() => {}
            Ok(Some(line)) => return Some(line),
            Ok(None) | Err(_) => *input_lines = None,
        }
    }
}

fn print_login(app: &App, name: &str, logged_in: &LoggedIn) -> Result<ExitStatus, Failure> {
    let LoggedIn { issuer, scopes, lifetime, has_refresh_token } = logged_in;
    let screen = &app.screen;
    if screen.json {
        screen.print_json(&json!({
            "toolset": name,
            "issuer": issuer,
            "scopes": scopes,
            "expiresInSeconds": lifetime.map(|lifetime| lifetime.as_secs()),
            "isRenewed": has_refresh_token,
        }))?;
        return Ok(ExitStatus::Done);
    }
    let allows =
        if scopes.is_empty() { String::new() } else { format!(", for {}", scopes.join(" ")) };
    let until = match lifetime {
        _ if *has_refresh_token => String::new(),
        Some(lifetime) => format!("; it expires in {} min", lifetime.as_secs().div_ceil(60)),
        None => String::new(),
    };
    screen.print(&format!("logged in to `{name}`{allows}{until}"))?;
    Ok(ExitStatus::Done)
}

fn login_failure(err: &LoginError) -> Failure {
    let message = err.to_string();
    match err {
        LoginError::NotForPeople(_) => Failure::usage(message),
        LoginError::Refused(_) | LoginError::UnrelatedCallback => {
            Failure::new("LOGIN_REFUSED", message)
        }
        LoginError::Unreachable(_) => Failure::unreachable(message),
        LoginError::NotStored(_) => Failure::new("INTERNAL", message),
    }
}
