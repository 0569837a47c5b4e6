//! Reports of progress to whoever waits for a call, where it asked for them.

use std::time::Duration;

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use tokio::time::{self, Interval, MissedTickBehavior};

use super::super::{events::News, paint::Paint, progress, render};

/// How long between two reports: what comes sooner waits, and the newest is told.
const BETWEEN: Duration = Duration::from_millis(100);
/// After so many times that, silence is broken: clients may take it for the end.
const SILENCE: u32 = 100;
/// How long a client may take to read a report.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most characters of a report.
const TEXT: usize = 300;

/// What a client that waits is told.
pub(super) struct Reports {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    ticks: Interval,
    total: Option<f64>,
    /// Steps that are over.
    over: f64,
    /// Reports since the last of them.
    within: f64,
    /// What is not told yet.
    held: Option<String>,
    /// Whether it may be told at once.
    may: bool,
    quiet: u32,
}

impl Reports {
    /// Returns what reports to whoever made a call.
    pub(super) fn to(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        let mut ticks = time::interval(BETWEEN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            to: token.map(|it| (context.peer.clone(), it)),
            ticks,
            total: None,
            over: 0.0,
            within: 0.0,
            held: None,
            may: true,
            quiet: 0,
        }
    }

    /// Says how many steps there are.
    pub(super) fn of(&mut self, total: Option<f64>) {
        self.total = total.filter(|it| *it > 0.0);
    }

    /// Reports something, now or soon.
    pub(super) async fn tell(&mut self, news: &News, over: usize) {
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

    /// Waits for the time to report what was held back, and does so.
    pub(super) async fn tick(&mut self) {
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

    /// Reports that something goes on while it does.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = self.tick() => (),
            }
        }
    }

    /// Reports what is held back.
    pub(super) async fn flush(&mut self) {
        let (Some(text), Some((peer, token))) = (self.held.take(), &self.to) else { return };
        // It has to grow with every report, and reaches the next step only when that is over.
        let far = self.over + self.within / (self.within + 1.0);
        self.within += 1.0;
        (self.may, self.quiet) = (false, 0);
        let mut report = ProgressNotificationParam::new(token.clone(), far).with_message(text);
        report.total = self.total;
        // Who does not read has the answer to wait for, or has left.
        let _ = time::timeout(PATIENCE, peer.notify_progress(report)).await;
    }
}

fn message(news: &News) -> String {
    let plain = Paint::new(false);
    let text = match news {
        News::Started { step, .. } => format!("{step} started"),
        News::Allowed { step } => format!("{step} may go on"),
        News::Progress { step, far } => format!("{step}  {}", progress::progress(far)),
        other => progress::line(other, 0, plain).unwrap_or_default(),
    };
    render::clip(&text, TEXT)
}
