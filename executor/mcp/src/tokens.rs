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
pub(super) struct Tokens {
    next: AtomicI64,
    calls: Mutex<BTreeMap<i64, Call>>,
}

/// The listener of a call, and the secrets to remove from reports.
type Call = (Reporter, Arc<Secrets>);

/// The token of one call. Reports after its drop are ignored.
#[derive(Debug)]
pub(super) struct Token {
    number: i64,
    tokens: Arc<Tokens>,
}

impl Tokens {
    /// Creates a token. Its reports go to `reporter`, without the secrets in `seen`.
    pub(super) fn draw(self: &Arc<Self>, reporter: Reporter, seen: Arc<Secrets>) -> Token {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.calls().insert(number, (reporter, seen));
        Token { number, tokens: Arc::clone(self) }
    }

    /// Delivers a report to its call, if that is still running.
    pub(super) fn hear(&self, report: ProgressNotificationParam) {
        let ProgressToken(NumberOrString::Number(number)) = report.progress_token else { return };
        let Some((reporter, seen)) = self.calls().get(&number).cloned() else { return };
        let message = report.message.map(|text| seen.clean(text).into());
        reporter.report(Progress { progress: report.progress, total: report.total, message });
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<i64, Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Token {
    /// Returns the token in the form of MCP.
    pub(super) fn value(&self) -> ProgressToken {
        ProgressToken(NumberOrString::Number(self.number))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.tokens.calls().remove(&self.number);
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
        let tokens = Arc::new(Tokens::default());
        let (reporter, mut other) = pipe();
        let _other = tokens.draw(reporter, Arc::default());
        let (reporter, mut listener) = pipe();
        let mut seen = Redaction::default();
        seen.note("KEY", "the secret");
        let token = tokens.draw(reporter, Arc::new(Secrets::new(seen)));
        let mut hear = |token: ProgressToken| {
            tokens.hear(ProgressNotificationParam::new(token, 1.0).with_message("x: the secret"));
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
        assert_eq!(tokens.calls().len(), 1);
    }
}
