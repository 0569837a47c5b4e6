use std::time::Duration;

use client::{
    types::ShownState,
    view::{
        format::clip_text,
        news::{self, News},
        paint::Paint,
    },
};
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use tokio::time::{self, Interval, MissedTickBehavior};

/// The shortest interval between two reports. If several news items arrive within an interval, only
/// the last one is reported.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Number of intervals without news after which a report is sent, so that the client does not give
/// up.
const MAX_QUIET_TICKS: u32 = 100;
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_MESSAGE_CHARS: usize = 300;

/// Sends the progress of one call. Does nothing if the client sent no progress token.
pub(crate) struct ProgressReporter {
    client: Option<(Peer<RoleServer>, ProgressToken)>,
    ticks: Interval,
    total_steps: Option<f64>,
    finished_steps: f64,
    reports_since_step: f64,
    pending_message: Option<String>,
    can_send: bool,
    quiet_ticks: u32,
}

impl ProgressReporter {
    pub(crate) fn for_request(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        let mut ticks = time::interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client: token.map(|token| (context.peer.clone(), token)),
            ticks,
            total_steps: None,
            finished_steps: 0.0,
            reports_since_step: 0.0,
            pending_message: None,
            can_send: true,
            quiet_ticks: 0,
        }
    }

    pub(crate) fn set_total(&mut self, total: Option<f64>) {
        self.total_steps = total.filter(|total| *total > 0.0);
    }

    /// Reports news now, or at the next interval if the last report is too recent.
    pub(crate) async fn report_news(&mut self, news: &News, finished_steps: usize) {
        #[expect(clippy::cast_precision_loss, reason = "plans have no more steps than 2^52")]
        let finished_steps = finished_steps as f64;
        if finished_steps > self.finished_steps {
            (self.finished_steps, self.reports_since_step) = (finished_steps, 0.0);
        }
        self.pending_message = Some(describe_news(news));
        if self.can_send {
            self.flush().await;
        }
    }

    pub(crate) async fn send_when_due(&mut self) {
        if self.client.is_none() {
            return std::future::pending().await;
        }
        self.ticks.tick().await;
        self.can_send = true;
        self.quiet_ticks += 1;
        if self.quiet_ticks >= MAX_QUIET_TICKS {
            self.pending_message.get_or_insert_with(|| "still running".to_owned());
        }
        self.flush().await;
    }

    pub(crate) async fn report_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = self.send_when_due() => (),
            }
        }
    }

    pub(crate) async fn flush(&mut self) {
        let (Some(text), Some((peer, token))) = (self.pending_message.take(), &self.client) else {
            return;
        };
        // Progress must grow with each report, and must stay below the next whole number until the
        // next step finishes.
        let progress =
            self.finished_steps + self.reports_since_step / (self.reports_since_step + 1.0);
        self.reports_since_step += 1.0;
        (self.can_send, self.quiet_ticks) = (false, 0);
        let mut report = ProgressNotificationParam::new(token.clone(), progress).with_message(text);
        report.total = self.total_steps;
        // A failure is ignored, because a client that does not read reports still gets the result.
        let _ = time::timeout(SEND_TIMEOUT, peer.notify_progress(report)).await;
    }
}

fn describe_news(news: &News) -> String {
    let plain = Paint::new(false);
    let text = match news {
        News::Step { name, view } if view.state == ShownState::Running => format!("{name} started"),
        News::Approved { name } => format!("{name} was approved"),
        News::Progress { name, progress } => format!("{name}  {}", progress.draw()),
        other => news::format_news(other, 0, plain).unwrap_or_default(),
    };
    clip_text(&text, MAX_MESSAGE_CHARS)
}
