//! Alerts about suspicious callers: rate-limited log lines, and a counter for each kind.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// An alert is raised when one peer has sent this number of unknown tokens within
/// [`ATTEMPT_WINDOW`].
const ALARMING_BAD_TOKENS: u32 = 5;
/// Time after which the count of a peer starts again.
const ATTEMPT_WINDOW: Duration = Duration::from_mins(1);
/// Minimum time between two log lines about the same kind of alert and the same caller.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of remembered peers, and of remembered callers for each kind of alert. It limits
/// the memory, because a client can use many addresses.
const MAX_CALLERS: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AlertKind {
    BadTokens,
    ForbiddenTool,
    Limit,
}

impl AlertKind {
    pub(super) const ALL: [Self; 3] = [Self::BadTokens, Self::ForbiddenTool, Self::Limit];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BadTokens => "bad_tokens",
            Self::ForbiddenTool => "forbidden_tool",
            Self::Limit => "limit",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Alerts {
    counts: [AtomicU64; AlertKind::ALL.len()],
    callers: Mutex<Callers>,
}

#[derive(Debug, Default)]
struct Callers {
    attempts: BTreeMap<IpAddr, (Instant, u32)>,
    /// Times of the last log lines by caller. Each kind of alert has a map of its own, so that many
    /// alerts of one kind do not suppress log lines about another kind.
    last_logged_at: [BTreeMap<String, Instant>; AlertKind::ALL.len()],
}

impl Alerts {
    pub(super) fn count(&self, kind: AlertKind) -> u64 {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    pub(super) fn report_bad_token(&self, peer: IpAddr, now: Instant) {
        if self.count_attempt(peer, now) >= ALARMING_BAD_TOKENS {
            let details = "one peer sends unknown access tokens";
            self.raise(AlertKind::BadTokens, &peer.to_string(), details, now);
        }
    }

    /// Counts an alert. Logs it unless there was a log line about this kind and caller, or about
    /// this kind and [`MAX_CALLERS`] other callers, within [`LOG_INTERVAL`].
    pub(super) fn raise(&self, kind: AlertKind, caller: &str, details: &str, now: Instant) {
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
        if self.should_log(kind, caller, now) {
            tracing::warn!(target: "faber::alert", kind = kind.name(), caller, "{details}");
        }
    }

    fn count_attempt(&self, peer: IpAddr, now: Instant) -> u32 {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.attempts.len() >= MAX_CALLERS {
            callers
                .attempts
                .retain(|_, (since, _)| now.saturating_duration_since(*since) < ATTEMPT_WINDOW);
        }
        if callers.attempts.len() >= MAX_CALLERS {
            callers.attempts.pop_first();
        }
        let (since, count) = callers.attempts.entry(peer).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= ATTEMPT_WINDOW {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count
    }

    fn should_log(&self, kind: AlertKind, caller: &str, now: Instant) -> bool {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let last_logged_at = &mut callers.last_logged_at[kind as usize];
        if last_logged_at.len() >= MAX_CALLERS {
            last_logged_at.retain(|_, at| now.saturating_duration_since(*at) < LOG_INTERVAL);
        }
        if last_logged_at.len() >= MAX_CALLERS {
            return false;
        }
        if last_logged_at
            .get(caller)
            .is_some_and(|at| now.saturating_duration_since(*at) < LOG_INTERVAL)
        {
            return false;
        }
        last_logged_at.insert(caller.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_needs_several_unknown_tokens() {
        let (alerts, now) = (Alerts::default(), Instant::now());
        let peer = |last| IpAddr::from([10, 0, 0, last]);
        for _ in 0..4 {
            alerts.report_bad_token(peer(1), now);
            alerts.report_bad_token(peer(2), now);
        }
        assert_eq!(alerts.count(AlertKind::BadTokens), 0);
        alerts.report_bad_token(peer(1), now + ATTEMPT_WINDOW);
        assert_eq!(alerts.count(AlertKind::BadTokens), 0, "the count restarts after a minute");
        alerts.report_bad_token(peer(2), now);
        assert_eq!(alerts.count(AlertKind::BadTokens), 1);
    }

    #[test]
    fn repeated_alerts_are_logged_rarely() {
        let (alerts, now) = (Alerts::default(), Instant::now());
        assert!(alerts.should_log(AlertKind::Limit, "ci", now));
        assert!(!alerts.should_log(AlertKind::Limit, "ci", now));
        assert!(alerts.should_log(AlertKind::ForbiddenTool, "ci", now));
        assert!(alerts.should_log(AlertKind::Limit, "other", now));
        assert!(alerts.should_log(AlertKind::Limit, "ci", now + LOG_INTERVAL));
        for n in 0..10_000_u32 {
            alerts.should_log(AlertKind::BadTokens, &n.to_string(), now);
            alerts.count_attempt(IpAddr::from(n.to_be_bytes()), now);
        }
        assert!(
            alerts.should_log(AlertKind::Limit, "late", now),
            "an alert of another kind is still logged"
        );
        let callers = alerts.callers.lock().unwrap();
        assert!(
            callers.last_logged_at.iter().all(|last_logged_at| last_logged_at.len() <= MAX_CALLERS)
                && callers.attempts.len() <= MAX_CALLERS
        );
    }
}
