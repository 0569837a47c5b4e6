use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::http::StatusCode;

use super::{
    refusal::Refusal,
    refusal_log::{RefusalLog, RefusedRequest},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestKind {
    Query,
    Mutation,
    Subscription,
    WebSocket,
    Member,
    Invalid,
    Forbidden,
}

impl RequestKind {
    fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Mutation => "mutation",
            Self::Subscription => "subscription",
            Self::WebSocket => "websocket",
            Self::Member => "member",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Metrics {
    requests: Mutex<BTreeMap<(RequestKind, u16), u64>>,
    websocket_count: AtomicU64,
    stream_count: AtomicU64,
    refusals: RefusalLog,
}

impl Metrics {
    pub(super) fn count_request(&self, kind: RequestKind, status: StatusCode) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((kind, status.as_u16())).or_default() += 1;
    }

    pub(super) fn count_refusal(&self, refusal: &Refusal, request: &RefusedRequest<'_>) {
        self.count_request(RequestKind::Forbidden, refusal.status);
        self.log_refusal(refusal, request);
    }

    pub(super) fn log_refusal(&self, refusal: &Refusal, request: &RefusedRequest<'_>) {
        self.refusals.log(refusal, request);
    }

    /// Counts a WebSocket as open until the returned guard is dropped.
    pub(super) fn count_open_websocket(self: &Arc<Self>) -> GaugeGuard {
        GaugeGuard::new(Arc::clone(self), |metrics| &metrics.websocket_count)
    }

    /// Counts a subscription as running until the returned guard is dropped.
    pub(super) fn count_running_subscription(self: &Arc<Self>) -> GaugeGuard {
        GaugeGuard::new(Arc::clone(self), |metrics| &metrics.stream_count)
    }

    pub(super) fn render_metrics(&self) -> String {
        let mut text = String::from(
            "# HELP faber_http_requests_total Requests answered, by kind.\n\
             # TYPE faber_http_requests_total counter\n",
        );
        for ((kind, status), count) in
            self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter()
        {
            let kind = kind.name();
            let _ = writeln!(
                text,
                "faber_http_requests_total{{kind=\"{kind}\",status=\"{status}\"}} {count}"
            );
        }
        let gauges = [
            ("faber_websockets_open", "WebSockets open now.", &self.websocket_count),
            ("faber_subscriptions_running", "Subscriptions running now.", &self.stream_count),
        ];
        for (name, help, gauge) in gauges {
            let value = gauge.load(Ordering::Relaxed);
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
        text
    }
}

#[derive(Debug)]
pub(super) struct GaugeGuard {
    metrics: Arc<Metrics>,
    gauge: fn(&Metrics) -> &AtomicU64,
}

impl GaugeGuard {
    fn new(metrics: Arc<Metrics>, gauge: fn(&Metrics) -> &AtomicU64) -> Self {
        gauge(&metrics).fetch_add(1, Ordering::Relaxed);
        Self { metrics, gauge }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn metrics_are_rendered_as_text() {
        let metrics = Arc::new(Metrics::default());
        metrics.count_request(RequestKind::Query, StatusCode::OK);
        metrics.count_request(RequestKind::Query, StatusCode::OK);
        metrics.count_request(RequestKind::Forbidden, StatusCode::FORBIDDEN);
        let open = metrics.count_open_websocket();
        drop(metrics.count_running_subscription());
        expect![[r#"
            # HELP faber_http_requests_total Requests answered, by kind.
            # TYPE faber_http_requests_total counter
            faber_http_requests_total{kind="query",status="200"} 2
            faber_http_requests_total{kind="forbidden",status="403"} 1
            # HELP faber_websockets_open WebSockets open now.
            # TYPE faber_websockets_open gauge
            faber_websockets_open 1
            # HELP faber_subscriptions_running Subscriptions running now.
            # TYPE faber_subscriptions_running gauge
            faber_subscriptions_running 0
        "#]]
        .assert_eq(&metrics.render_metrics());
        drop(open);
    }
}
