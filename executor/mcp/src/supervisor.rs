//! Supervises an MCP server: starts it, lists its tools, and starts it again after it died.

use std::{sync::Arc, time::Duration};

use sandbox::Launcher;
use shared::id::ToolSetName;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use toolbox::{ReadyTool, SetStatus, Toolbox};

use super::{
    Availability, McpServer,
    availability::State,
    oauth::{BackgroundTasks, Logins},
    server::{Host, Server},
    session::Session,
    tools,
};

/// Time limit for a server's start and its first list of tools.
pub const CONNECT: Duration = Duration::from_secs(30);
/// Time limit for a new list of tools.
const REFRESH: Duration = Duration::from_secs(30);
/// Delay before the tools are read again, so that several changes are read once.
const GATHER: Duration = Duration::from_millis(50);
/// Delay before the second start in a row. Doubles with each start, up to [`BACKOFF_MAX`].
const BACKOFF: Duration = Duration::from_millis(500);
/// The longest delay before a start.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Retry interval for a server whose tools are unknown, since no call can ask for it.
const RETRY: Duration = Duration::from_mins(1);
/// A server that was up for this long starts again without delay.
const HEALTHY: Duration = Duration::from_secs(30);

/// Owns one server.
#[derive(Debug)]
pub struct Supervisor {
    set: ToolSetName,
    spec: McpServer,
    logins: Option<Logins>,
    /// Token requests, which outlive the connection that needs them.
    background: BackgroundTasks,
    launcher: Launcher,
    toolbox: Toolbox,
    most: usize,
    availability: Arc<Availability>,
    /// The number of short runs in a row.
    failures: u32,
}

/// Why a server is no longer up.
enum End {
    Died(String),
    Stopped,
}

impl Supervisor {
    /// Supervises a server whose outputs have at most `most` bytes.
    pub fn new(set: ToolSetName, spec: McpServer, toolbox: Toolbox, most: usize) -> Self {
        let (launcher, availability) = (Launcher::none(), Arc::new(Availability::new()));
        let background = BackgroundTasks::default();
        Self {
            set,
            spec,
            logins: None,
            background,
            launcher,
            toolbox,
            most,
            availability,
            failures: 0,
        }
    }

    /// Sets the launcher, which ends the server with this process.
    #[must_use]
    pub fn with_launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = launcher;
        self
    }

    /// Sets the logins of people.
    #[must_use]
    pub fn with_logins(mut self, logins: Option<Logins>) -> Self {
        self.logins = logins;
        self
    }

    /// Returns the state in which calls wait for the server.
    pub fn availability(&self) -> Arc<Availability> {
        Arc::clone(&self.availability)
    }

    /// Runs the server until `stop` fires.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let started = Instant::now();
            let End::Died(error) = Box::pin(self.serve(&stop)).await else { break };
            let lived = started.elapsed();
            self.failures = if lived >= HEALTHY { 0 } else { self.failures.saturating_add(1) };
            let retry_at = Instant::now() + backoff(self.failures);
            tracing::warn!(set = %self.set, %error, "the MCP server is down");
            self.availability.set(State::Down { error: error.into(), retry_at });
            tokio::select! {
                () = self.wanted(retry_at) => self.availability.set(State::Starting),
                () = stop.cancelled() => break,
            }
        }
        self.availability.set(State::Stopped);
        self.background.end().await;
    }

    /// Waits until the server should start again.
    async fn wanted(&self, retry_at: Instant) {
        if self.tools().is_empty() {
            // No call can request a server whose tools are unknown.
            let _ = timeout(RETRY, self.availability.wanted()).await;
        } else {
            self.availability.wanted().await;
        }
        sleep_until(retry_at).await;
    }

    /// Starts the server, and runs it until it dies or `stop` fires.
    async fn serve(&self, stop: &CancellationToken) -> End {
        let (logins, launcher) = (self.logins.as_ref(), &self.launcher);
        let host = Host { set: &self.set, logins, background: &self.background, launcher };
        let (mut server, wire) = match Server::open(host, &self.spec, self.most) {
            Ok(spawned) => spawned,
            Err(error) => return self.fail(stop, error),
        };
        let connected = tokio::select! {
            connected = timeout(CONNECT, server.connect(wire)) => connected,
            () = stop.cancelled() => {
                server.stop().await;
                return End::Stopped;
            }
        };
        let (session, offers) = match connected {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return self.fail(stop, error),
            Err(_) => {
                let (name, wait) = (server.name(), CONNECT.as_secs());
                let error = format!("`{name}` did not answer as an MCP server within {wait} s");
                return self.fail(stop, server.with_last_words(error));
            }
        };
        self.settle(stop, offers);
        let session = Arc::new(session);
        self.availability.set(State::Up(Arc::clone(&session)));
        self.watch(server, &session, stop).await
    }

    async fn watch(&self, mut server: Server, session: &Session, stop: &CancellationToken) -> End {
        loop {
            tokio::select! {
                () = server.closed() => return End::Died(server.complaint("it closed its output").await),
                () = server.changed() => {}
                () = stop.cancelled() => {
                    server.stop().await;
                    return End::Stopped;
                }
            }
            let asked = async {
                sleep(GATHER).await;
                timeout(REFRESH, server.offers(session)).await
            };
            let asked = tokio::select! {
                asked = asked => asked,
                () = stop.cancelled() => {
                    server.stop().await;
                    return End::Stopped;
                }
            };
            match asked {
                Ok(Ok(offers)) => self.settle(stop, offers),
                Ok(Err(error)) => self.keep_tools(&error),
                Err(_) => self.keep_tools("no answer"),
            }
        }
    }

    fn keep_tools(&self, error: &str) {
        tracing::warn!(set = %self.set, %error, "cannot refresh the tools of the MCP server, they stay unchanged");
    }

    fn settle(&self, stop: &CancellationToken, offers: Vec<rmcp::model::Tool>) {
        let tools = tools(&self.set, &self.availability, offers).into_iter().map(ReadyTool::new);
        self.toolbox.settle_unless(stop, &self.set, SetStatus::Ready, tools.collect());
    }

    /// Reports the set as failed. Its known tools stay.
    fn fail(&self, stop: &CancellationToken, error: String) -> End {
        let status = SetStatus::Failed { error: error.clone() };
        self.toolbox.settle_unless(stop, &self.set, status, self.tools());
        End::Died(error)
    }

    fn tools(&self) -> Vec<ReadyTool> {
        self.toolbox.tools(&self.set)
    }
}

/// Returns the delay before a start. The first restart has none, and each further delay doubles.
fn backoff(failures: u32) -> Duration {
    match failures.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => BACKOFF.saturating_mul(2_u32.saturating_pow(doublings)).min(BACKOFF_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_put_off_ever_longer() {
        let seconds: Vec<_> = [0, 1, 2, 3, 4, 7, 8, 9, u32::MAX]
            .map(|failures| backoff(failures).as_secs_f32())
            .into();
        assert_eq!(seconds, [0.0, 0.0, 0.5, 1.0, 2.0, 16.0, 30.0, 30.0, 30.0]);
    }
}
