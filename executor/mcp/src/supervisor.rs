//! Supervises an MCP server: starts it, lists its tools, and starts it again after it died.

use std::{sync::Arc, time::Duration};

use sandbox::Launcher;
use shared::id::ToolSetName;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use toolbox::{LOG_TARGET, ReadyTool, SetStatus, SourceTools, Toolbox, effect_rules::EffectRules};

use super::{
    Availability, McpServer, make_tools,
    oauth::{BackgroundTasks, Logins},
    server::{Server, ServerHost},
    session::ServerState,
    session::Session,
};

/// Time limit for a server's start and its first list of tools.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const REFRESH_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the checks whether a stopped server still has running calls.
const CALL_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time that a stopped server waits for its running calls.
const MAX_CALL_WAIT: Duration = Duration::from_hours(1);
/// Delay before the tools are read again, so that several changes are read once.
const REFRESH_DELAY: Duration = Duration::from_millis(50);
/// Delay before the second restart in a row. Doubles with each restart, up to
/// [`MAX_RESTART_DELAY`].
const MIN_RESTART_DELAY: Duration = Duration::from_millis(500);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(30);
/// Retry interval for a server whose tools are unknown, if nothing asks for the server earlier.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// A server that was up for this long starts again without delay.
const MIN_HEALTHY_RUN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Supervisor {
    set: ToolSetName,
    spec: McpServer,
    logins: Option<Logins>,
    /// Token requests, which outlive the connection that needs them.
    background: BackgroundTasks,
    launcher: Launcher,
    effects: EffectRules,
    toolbox: Toolbox,
    max_output_bytes: usize,
    availability: Arc<Availability>,
    /// Cancelled when the process stops. Until then, running calls of a stopped server may end.
    process_stop: CancellationToken,
    /// The number of short runs in a row.
    failure_count: u32,
}

enum ServerEnd {
    Died(String),
    Stopped,
}

impl Supervisor {
    pub fn new(
        set: ToolSetName,
        spec: McpServer,
        toolbox: Toolbox,
        max_output_bytes: usize,
    ) -> Self {
        let (launcher, availability) = (Launcher::unconfined(), Arc::new(Availability::new()));
        let background = BackgroundTasks::default();
        let process_stop = CancellationToken::new();
        process_stop.cancel();
        Self {
            process_stop,
            set,
            spec,
            logins: None,
            background,
            launcher,
            effects: EffectRules::default(),
            toolbox,
            max_output_bytes,
            availability,
            failure_count: 0,
        }
    }

    #[must_use]
    pub fn with_launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = launcher;
        self
    }

    /// Lets running calls end after the server was stopped, until `process_stop` is cancelled. By
    /// default, a stop interrupts them.
    #[must_use]
    pub fn finishing_calls_until(mut self, process_stop: CancellationToken) -> Self {
        self.process_stop = process_stop;
        self
    }

    #[must_use]
    pub fn with_logins(mut self, logins: Option<Logins>) -> Self {
        self.logins = logins;
        self
    }

    /// Sets effects that replace the effects from the server's annotations.
    #[must_use]
    pub fn with_effects(mut self, effects: EffectRules) -> Self {
        self.effects = effects;
        self
    }

    pub fn availability(&self) -> Arc<Availability> {
        Arc::clone(&self.availability)
    }

    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let started = Instant::now();
            let ServerEnd::Died(error) = Box::pin(self.run_server(&stop)).await else { break };
            let lived = started.elapsed();
            self.failure_count =
                if lived >= MIN_HEALTHY_RUN { 0 } else { self.failure_count.saturating_add(1) };
            let retry_at = Instant::now() + restart_delay(self.failure_count);
            tracing::warn!(target: LOG_TARGET, set = %self.set, %error, "the MCP server is down");
            self.availability.set_state(ServerState::Down { error: error.into(), retry_at });
            tokio::select! {
                () = self.wait_for_restart(retry_at) => self.availability.set_state(ServerState::Starting),
                () = self.wait_for_unneeded_start(&stop) => break,
            }
        }
        self.availability.set_state(ServerState::Stopped);
        self.background.finish_all().await;
    }

    async fn wait_for_restart(&self, retry_at: Instant) {
        if self.known_tools().is_empty() {
            // A timer retries, too, because few calls ask for a server whose tools are unknown.
            let _ = timeout(RETRY_INTERVAL, self.availability.wait_for_demand()).await;
        } else {
            self.availability.wait_for_demand().await;
        }
        sleep_until(retry_at).await;
    }

    async fn run_server(&self, stop: &CancellationToken) -> ServerEnd {
        let (logins, launcher) = (self.logins.as_ref(), &self.launcher);
        let host = ServerHost { set: &self.set, logins, background: &self.background, launcher };
        let (mut server, transport) = match Server::open(host, &self.spec, self.max_output_bytes) {
            Ok(spawned) => spawned,
            Err(error) => return self.publish_failure(stop, error),
        };
        let connected = tokio::select! {
            connected = timeout(CONNECT_TIMEOUT, server.connect(transport)) => connected,
            () = self.wait_for_unneeded_start(stop) => {
                server.stop().await;
                return ServerEnd::Stopped;
            }
        };
        let (session, offers) = match connected {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return self.publish_failure(stop, error),
            Err(_) => {
                let (name, wait) = (server.name(), CONNECT_TIMEOUT.as_secs());
                let error = format!("`{name}` did not answer as an MCP server within {wait} s");
                return self.publish_failure(stop, server.with_stderr_tail(error));
            }
        };
        self.publish_tools(stop, offers);
        let session = Arc::new(session);
        self.availability.set_state(ServerState::Up(Arc::clone(&session)));
        self.watch_server(server, &session, stop).await
    }

    async fn watch_server(
        &self,
        mut server: Server,
        session: &Arc<Session>,
        stop: &CancellationToken,
    ) -> ServerEnd {
        loop {
            tokio::select! {
                () = server.wait_for_close() => return ServerEnd::Died(server.describe_failure("it closed its output").await),
                () = server.wait_for_change() => {}
                () = stop.cancelled() => return self.stop_server(server, session).await,
            }
            let listing = async {
                sleep(REFRESH_DELAY).await;
                timeout(REFRESH_TIMEOUT, server.list_tools(session)).await
            };
            let listed = tokio::select! {
                result = listing => result,
                () = stop.cancelled() => return self.stop_server(server, session).await,
            };
            match listed {
                Ok(Ok(offers)) => self.publish_tools(stop, offers),
                Ok(Err(error)) => self.log_refresh_failure(&error),
                Err(_) => self.log_refresh_failure("no answer"),
            }
        }
    }

    /// Waits until the server is stopped and no call waits for its start. A call that waits already
    /// was promised this server, because its set changed only afterwards.
    async fn wait_for_unneeded_start(&self, stop: &CancellationToken) {
        stop.cancelled().await;
        while !self.process_stop.is_cancelled() && self.availability.has_waiting_calls() {
            sleep(CALL_CHECK_INTERVAL).await;
        }
    }

    /// Stops the server after its running calls have ended. Calls that begin later fail.
    async fn stop_server(&self, server: Server, session: &Arc<Session>) -> ServerEnd {
        let calls_end = async {
            // The calls that waited for the start get the session before the state changes.
            while !session.is_closed() && self.availability.has_waiting_calls() {
                sleep(CALL_CHECK_INTERVAL).await;
            }
            self.availability.set_state(ServerState::Stopped);
            // Each call holds the session until it ends.
            while Arc::strong_count(session) > 1 {
                sleep(CALL_CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            () = self.process_stop.cancelled() => (),
            // Ignores the timeout. The calls that still run then fail.
            _ = timeout(MAX_CALL_WAIT, calls_end) => (),
        }
        self.availability.set_state(ServerState::Stopped);
        server.stop().await;
        ServerEnd::Stopped
    }

    fn log_refresh_failure(&self, error: &str) {
        tracing::warn!(target: LOG_TARGET, set = %self.set, %error, "cannot refresh the tools of the MCP server, so they stay unchanged");
    }

    fn publish_tools(&self, stop: &CancellationToken, offers: Vec<rmcp::model::Tool>) {
        let made = make_tools(&self.set, &self.effects, &self.availability, offers);
        self.toolbox.update_set_unless(stop, &self.set, made);
    }

    /// Reports the set as failed. Its known tools stay.
    fn publish_failure(&self, stop: &CancellationToken, error: String) -> ServerEnd {
        let failed = SourceTools {
            status: SetStatus::Failed { error: error.clone() },
            tools: self.known_tools(),
            left_out: Vec::new(),
        };
        self.toolbox.update_set_unless(stop, &self.set, failed);
        ServerEnd::Died(error)
    }

    fn known_tools(&self) -> Vec<ReadyTool> {
        self.toolbox.tools(&self.set)
    }
}

/// Returns the delay before a start. The first restart has no delay, and each further delay
/// doubles.
fn restart_delay(failures: u32) -> Duration {
    match failures.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => {
            MIN_RESTART_DELAY.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX_RESTART_DELAY)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_restart_delay_grows_up_to_thirty_seconds() {
        let seconds: Vec<_> = [0, 1, 2, 3, 4, 7, 8, 9, u32::MAX]
            .map(|failures| restart_delay(failures).as_secs_f32())
            .into();
        assert_eq!(seconds, [0.0, 0.0, 0.5, 1.0, 2.0, 16.0, 30.0, 30.0, 30.0]);
    }
}
