//! Progress reports on their way from a tool to the driver.
//!
//! A report passes two places. Each of them keeps the newest report of a call only:
//!
//! ```text
//! tool ── cx.progress(…) ──► Reporter ═ Listener ──► the call ──► ProgressSink ═ Reports ──► driver
//!                            newest of this call     paces,       newest of each call
//!                                                    watches idle time
//! ```
//!
//! The call reads at most one report every
//! [`limits::PROGRESS_INTERVAL`](shared::limits::PROGRESS_INTERVAL), so a tool that floods does not
//! wake the driver more often. Tools and calls never wait for a reader. A newer report replaces an
//! unread one, and the end of a call drops its unread report.
//!
//! A driver has one [`Reports`] for all calls of its execution. Each call gets a [`Reports::sink`]
//! under its own key, the task and the attempt. The driver has one arm in its `select!`:
//!
//! ```
//! # use toolbox::progress::Reports;
//! # use shared::{id::Attempt, tool::Progress};
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! # let (task, attempt) = (7, Attempt::FIRST);
//! let mut reports = Reports::default();
//! let sink = reports.sink((task, attempt));
//! sink.send(Progress { progress: 1.0, total: None, message: None });
//! tokio::select! {
//!     ((task, attempt), progress) = reports.recv() => {
//!         assert_eq!((task, attempt, progress.progress), (7, Attempt::FIRST, 1.0));
//!     }
//! }
//! # });
//! ```

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use shared::tool::Progress;
use tokio::{sync::Notify, time::Instant};

/// The sender of a call's reports. The default sender drops them.
#[derive(Clone, Debug, Default)]
pub struct Reporter(Option<Weak<LatestReport>>);

/// Receives the newest report of one call.
#[derive(Debug)]
pub struct Listener(Arc<LatestReport>);

/// The newest report of one call. Every call makes this value and most calls report nothing, so the
/// value is small.
#[derive(Debug, Default)]
struct LatestReport {
    report: Mutex<Option<Report>>,
    report_added: Notify,
}

/// A progress report, and the time at which the tool made it.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug)]
pub struct Report {
    pub progress: Progress,
    pub at: Instant,
}

/// Makes the channel for the reports of one call.
pub fn report_channel() -> (Reporter, Listener) {
    let newest = Arc::new(LatestReport::default());
    (Reporter(Some(Arc::downgrade(&newest))), Listener(newest))
}

impl Reporter {
    /// Replaces a report that has not been received.
    pub fn report(&self, progress: Progress) {
        // Ignores the report if the listener was dropped.
        let Some(newest) = self.0.as_ref().and_then(Weak::upgrade) else { return };
        if let Some(progress) = progress.shortened_for_log() {
            newest.report().replace(Report { progress, at: Instant::now() });
            newest.report_added.notify_one();
        }
    }
}

impl Listener {
    /// Waits for a new report.
    ///
    /// Dropping the future loses no report.
    pub async fn next(&mut self) -> Report {
        loop {
            if let Some(report) = self.0.report().take() {
                return report;
            }
            self.0.report_added.notified().await;
        }
    }
}

impl LatestReport {
    fn report(&self) -> MutexGuard<'_, Option<Report>> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports of many calls, each with a key.
#[derive(Debug)]
pub struct Reports<K: Copy + Ord> {
    latest_reports: Arc<LatestReports<K>>,
    /// The call whose report was read last. Calls take turns, so that no report waits forever.
    last_key: Option<K>,
}

/// The sender of one call's reports. Dropping it withdraws an unread report.
#[derive(Debug)]
pub struct ProgressSink<K: Copy + Ord> {
    key: K,
    latest_reports: Arc<LatestReports<K>>,
}

#[derive(Debug)]
struct LatestReports<K> {
    unread: Mutex<BTreeMap<K, Progress>>,
    report_added: Notify,
}

impl<K: Copy + Ord> Default for Reports<K> {
    fn default() -> Self {
        let latest_reports =
            LatestReports { unread: Mutex::default(), report_added: Notify::new() };
        Self { latest_reports: Arc::new(latest_reports), last_key: None }
    }
}

impl<K: Copy + Ord> Reports<K> {
    /// Makes the sink of a call. Running calls must have different keys.
    pub fn sink(&self, key: K) -> ProgressSink<K> {
        ProgressSink { key, latest_reports: Arc::clone(&self.latest_reports) }
    }

    /// Waits for a report of a running call.
    ///
    /// Dropping the future loses no report.
    pub async fn recv(&mut self) -> (K, Progress) {
        loop {
            if let Some(report) = self.take() {
                return report;
            }
            self.latest_reports.report_added.notified().await;
        }
    }

    fn take(&mut self) -> Option<(K, Progress)> {
        let mut unread = self.latest_reports.lock_unread();
        let after = self.last_key.map_or(Bound::Unbounded, Bound::Excluded);
        let next = unread.range((after, Bound::Unbounded)).next().or(unread.iter().next());
        let key = *next?.0;
        self.last_key = Some(key);
        unread.remove_entry(&key)
    }
}

impl<K: Copy + Ord> ProgressSink<K> {
    /// Replaces a report that has not been read.
    pub fn send(&self, progress: Progress) {
        self.latest_reports.lock_unread().insert(self.key, progress);
        self.latest_reports.report_added.notify_one();
    }
}

impl<K: Copy + Ord> Drop for ProgressSink<K> {
    fn drop(&mut self) {
        self.latest_reports.lock_unread().remove(&self.key);
    }
}

impl<K> LatestReports<K> {
    fn lock_unread(&self) -> MutexGuard<'_, BTreeMap<K, Progress>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn report(progress: f64) -> Progress {
        Progress { progress, total: None, message: None }
    }

    #[test]
    fn a_newer_report_replaces_an_unread_one() {
        let (reporter, mut listener) = report_channel();
        assert!(listener.next().now_or_never().is_none());
        for progress in [1.0, 2.0, f64::NAN, 3.0, f64::INFINITY] {
            reporter.report(report(progress));
        }
        assert_eq!(listener.next().now_or_never().unwrap().progress, report(3.0));
        assert!(listener.next().now_or_never().is_none());
        reporter.report(report(4.0));
        drop(reporter);
        assert_eq!(listener.next().now_or_never().unwrap().progress, report(4.0));
        assert!(listener.next().now_or_never().is_none());
    }

    #[test]
    fn reports_without_a_reader_are_dropped() {
        Reporter::default().report(report(1.0));
        let (reporter, listener) = report_channel();
        drop(listener);
        reporter.report(report(1.0));
        assert!(reporter.0.unwrap().upgrade().is_none());
    }

    #[test]
    fn calls_are_read_in_turn_with_their_newest_report() {
        let mut reports = Reports::default();
        let sinks = [1, 2, 3].map(|key| reports.sink(key));
        let all = |progress| sinks.iter().for_each(|sink| sink.send(report(progress)));
        let mut next = || reports.recv().now_or_never().map(|(key, report)| (key, report.progress));
        all(1.0);
        all(2.0);
        assert_eq!(next(), Some((1, 2.0)));
        all(3.0);
        assert_eq!([next(), next(), next()], [2, 3, 1].map(|key| Some((key, 3.0))));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_finished_call_reports_no_progress() {
        let mut reports = Reports::default();
        let (finished, running) = (reports.sink(1), reports.sink(2));
        finished.send(report(1.0));
        running.send(report(2.0));
        drop(finished);
        assert_eq!(reports.recv().now_or_never(), Some((2, report(2.0))));
        assert_eq!(reports.recv().now_or_never(), None);
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken() {
        let mut reports = Reports::default();
        let sink = reports.sink(1);
        let (received, ()) = tokio::join!(reports.recv(), async { sink.send(report(1.0)) });
        assert_eq!(received, (1, report(1.0)));
    }
}
