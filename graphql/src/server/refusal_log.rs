//! Logs rejected requests. A client can send very many of them, so at most one line per second is
//! logged.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{extract::Request, http::request::Parts};

use super::{peer::Peer, refusal::Refusal};

const LINE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct RefusalLog(Mutex<RefusedRequests>);

#[derive(Debug, Default)]
struct RefusedRequests {
    logged_at: Option<Instant>,
    left_out: u64,
}

#[derive(Debug)]
pub(super) struct RefusedRequest<'a> {
    path: &'a str,
    peer: Option<IpAddr>,
}

impl<'a> From<&'a Parts> for RefusedRequest<'a> {
    fn from(parts: &'a Parts) -> Self {
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.0);
        Self { path: parts.uri.path(), peer }
    }
}

impl<'a> From<&'a Request> for RefusedRequest<'a> {
    fn from(request: &'a Request) -> Self {
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
        Self { path: request.uri().path(), peer }
    }
}

impl RefusalLog {
    pub(super) fn log(&self, refusal: &Refusal, request: &RefusedRequest<'_>) {
        let Some(left_out) = self.take_turn(Instant::now()) else { return };
        tracing::info!(
            target: "faber::refusal",
            code = refusal.code,
            status = refusal.status.as_u16(),
            path = request.path,
            peer = request.peer.map(|peer| peer.to_string()),
            left_out,
            "request refused: {}",
            refusal.message
        );
    }

    /// Returns `None` if it is too early for the next line. Otherwise returns the number of
    /// rejected requests without a line since the last line.
    fn take_turn(&self, now: Instant) -> Option<u64> {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = refused.logged_at.is_some_and(|at| now.duration_since(at) < LINE_INTERVAL);
        if is_early {
            refused.left_out += 1;
            return None;
        }
        refused.logged_at = Some(now);
        Some(std::mem::take(&mut refused.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refusals_share_a_line() {
        let (log, now) = (RefusalLog::default(), Instant::now());
        let turns = [0, 100, 999, 1_000, 1_001, 5_000]
            .map(|after| log.take_turn(now + Duration::from_millis(after)));
        assert_eq!(turns, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
