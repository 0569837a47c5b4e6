//! Progress tokens and their calls.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use rmcp::model::{NumberOrString, ProgressNotificationParam, ProgressToken};
use shared::tool::Progress;
use toolbox::progress::Reporter;

use super::secrets::Secrets;

/// The tokens of a server's running calls.
#[derive(Debug, Default)]
pub(super) struct ProgressTokens {
    next: AtomicI64,
    calls: Mutex<BTreeMap<i64, ProgressListener>>,
}

/// The listener of a call, and the secrets to remove from reports.
type ProgressListener = (Reporter, Arc<Secrets>);

/// The token of one call. Reports after its drop are ignored.
#[derive(Debug)]
pub(super) struct CallToken {
    number: i64,
    tokens: Arc<ProgressTokens>,
}

impl ProgressTokens {
    /// Creates a token. Its reports go to `reporter`, without the secrets in `seen`.
    pub(super) fn register_call(
        self: &Arc<Self>,
        reporter: Reporter,
        seen: Arc<Secrets>,
    ) -> CallToken {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock_calls().insert(number, (reporter, seen));
        CallToken { number, tokens: Arc::clone(self) }
    }

    /// Delivers a report to its call, if that is still running.
    pub(super) fn deliver_report(&self, report: ProgressNotificationParam) {
        let ProgressToken(NumberOrString::Number(number)) = report.progress_token else { return };
        let Some((reporter, seen)) = self.lock_calls().get(&number).cloned() else { return };
        let message = report.message.map(|text| seen.clean(text).into());
        reporter.report(Progress { progress: report.progress, total: report.total, message });
    }

    fn lock_calls(&self) -> MutexGuard<'_, BTreeMap<i64, ProgressListener>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallToken {
    /// Returns the token in the form of MCP.
    pub(super) fn value(&self) -> ProgressToken {
        ProgressToken(NumberOrString::Number(self.number))
    }
}

impl Drop for CallToken {
    fn drop(&mut self) {
        self.tokens.lock_calls().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use secrets::Redaction;
    use toolbox::progress::pipe;

    use super::*;

    #[test]
    fn only_the_call_of_a_token_hears_its_reports() {
        let tokens = Arc::new(ProgressTokens::default());
        let (reporter, mut other) = pipe();
        let _other = tokens.register_call(reporter, Arc::default());
        let (reporter, mut listener) = pipe();
        let mut seen = Redaction::default();
        seen.note("KEY", "the secret");
        let token = tokens.register_call(reporter, Arc::new(Secrets::new(seen)));
        let mut hear = |token: ProgressToken| {
            tokens.deliver_report(
                ProgressNotificationParam::new(token, 1.0).with_message("x: the secret"),
            );
            listener.next().now_or_never().map(|report| report.progress)
        };
        let expected =
            Progress { progress: 1.0, total: None, message: Some("x: ***KEY***".into()) };
        assert_eq!(hear(token.value()), Some(expected));
        assert_eq!(hear(ProgressToken(NumberOrString::Number(i64::MAX))), None);
        assert_eq!(hear(ProgressToken(NumberOrString::String("1".into()))), None);
        let late = token.value();
        drop(token);
        assert_eq!(hear(late), None);
        assert!(other.next().now_or_never().is_none());
        assert_eq!(tokens.lock_calls().len(), 1);
    }
}
