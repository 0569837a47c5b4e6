//! Progress notifications for a client that asks for them.

use std::time::Duration;

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use tokio::time::{self, Interval, MissedTickBehavior};

use crate::cli::{
    client::types::StepState,
    view::{format::clip, live_view, news::News, paint::Paint},
};

/// The shortest interval between two reports. In between, only the newest news is kept.
const BETWEEN: Duration = Duration::from_millis(100);
/// Quiet intervals before a report without news, which keeps clients from giving up.
const SILENCE: u32 = 100;
/// Timeout of sending a report.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most characters of a report.
const TEXT: usize = 300;

/// The progress reports of one call.
pub(crate) struct Reports {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    ticks: Interval,
    total: Option<f64>,
    /// Finished steps.
    over: f64,
    /// Reports since the last step finished.
    within: f64,
    /// News that are not reported yet.
    held: Option<String>,
    /// Whether the interval since the last report has passed.
    may: bool,
    quiet: u32,
}

impl Reports {
    pub(crate) fn to(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        let mut ticks = time::interval(BETWEEN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            to: token.map(|token| (context.peer.clone(), token)),
            ticks,
            total: None,
            over: 0.0,
            within: 0.0,
            held: None,
            may: true,
            quiet: 0,
        }
    }

    pub(crate) fn of(&mut self, total: Option<f64>) {
        self.total = total.filter(|total| *total > 0.0);
    }

    /// Reports news, now or at the next interval.
    pub(crate) async fn tell(&mut self, news: &News, over: usize) {
        #[expect(clippy::cast_precision_loss, reason = "plans have no more steps than 2^52")]
        let over = over as f64;
        if over > self.over {
            (self.over, self.within) = (over, 0.0);
        }
        self.held = Some(message(news));
        if self.may {
            self.flush().await;
        }
    }

    /// Waits for the next interval and reports pending news.
    pub(crate) async fn tick(&mut self) {
        if self.to.is_none() {
            return std::future::pending().await;
        }
        self.ticks.tick().await;
        self.may = true;
        self.quiet += 1;
        if self.quiet >= SILENCE {
            self.held.get_or_insert_with(|| "goes on".to_owned());
        }
        self.flush().await;
    }

    /// Sends reports while `work` runs.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = self.tick() => (),
            }
        }
    }

    /// Reports pending news.
    pub(crate) async fn flush(&mut self) {
        let (Some(text), Some((peer, token))) = (self.held.take(), &self.to) else { return };
        // Progress must grow with each report, and stays below the next step until that one
        // finishes.
        let far = self.over + self.within / (self.within + 1.0);
        self.within += 1.0;
        (self.may, self.quiet) = (false, 0);
        let mut report = ProgressNotificationParam::new(token.clone(), far).with_message(text);
        report.total = self.total;
        // A client that does not read reports still gets the result.
        let _ = time::timeout(PATIENCE, peer.notify_progress(report)).await;
    }
}

fn message(news: &News) -> String {
    let plain = Paint::new(false);
    let text = match news {
        News::Step { name, view } if view.state == StepState::Running => format!("{name} started"),
        News::Allowed { name } => format!("{name} may go on"),
        News::Progress { name, progress } => format!("{name}  {}", progress.draw()),
        other => live_view::news_line(other, 0, plain).unwrap_or_default(),
    };
    clip(&text, TEXT)
}
