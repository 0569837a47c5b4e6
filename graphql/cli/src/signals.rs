//! Signals of the terminal and of the system.

use std::{
    fs, io,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Mutex, Notify},
};

/// Starts to listen for Ctrl-C. The returned future waits for it. If listening fails, Ctrl-C ends
/// the process.
pub(crate) fn await_interrupt() -> impl Future<Output = ()> + Send {
    let interrupt = signal(SignalKind::interrupt());
    async move {
        match interrupt {
            Ok(mut interrupt) => drop(interrupt.recv().await),
            Err(_) => std::future::pending().await,
        }
    }
}

/// Starts to listen for Ctrl-C, SIGTERM and SIGHUP. The returned future waits for one of them.
pub(crate) fn await_end_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let signals = EndSignals::listen()?;
    Ok(async move { signals.dispatch().await })
}

/// Receives Ctrl-C, SIGTERM and SIGHUP. As soon as this value exists, the signals no longer end the
/// process.
///
/// If the process was started with SIGHUP ignored, as `nohup` does, SIGHUP stays ignored.
#[derive(Debug)]
pub(crate) struct EndSignals {
    signals: Mutex<Vec<Signal>>,
    received: Notify,
    waiter_count: AtomicUsize,
}

struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    fn new(waiters: &'a AtomicUsize) -> Self {
        waiters.fetch_add(1, Ordering::Relaxed);
        Self(waiters)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EndSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
        match fs::read_to_string("/proc/self/status") {
            Ok(status) if ignores_hang_up(&status) => (),
            _ => kinds.push(SignalKind::hangup()),
        }
        let signals = kinds.into_iter().map(signal).collect::<io::Result<_>>()?;
        let signals = Mutex::new(signals);
        Ok(Self { signals, received: Notify::new(), waiter_count: AtomicUsize::new(0) })
    }

    /// Waits for a signal. Another task must [dispatch](Self::dispatch) at the same time.
    pub(crate) async fn receive(&self) {
        let _waiter = Waiter::new(&self.waiter_count);
        self.received.notified().await;
    }

    /// Passes each signal to a caller of [`receive`](Self::receive). Returns if a signal arrives
    /// while no caller waits.
    pub(crate) async fn dispatch(&self) {
        let mut signals = self.signals.lock().await;
        loop {
            let received = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
            let _ = futures::future::select_all(received).await;
            if self.waiter_count.load(Ordering::Relaxed) == 0 {
                return;
            }
            self.received.notify_one();
        }
    }
}

/// Returns whether the process ignores SIGHUP, given the text of `/proc/self/status`. SIGHUP is
/// signal 1, so it is the lowest bit of the mask `SigIgn`.
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hang_up_signal_is_read_from_the_process_status() {
        for (mask, expected) in
            [("0000000000001001", true), ("0000000000001000", false), ("none", false)]
        {
            let status = format!("Name:\tfaber\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
            assert_eq!(ignores_hang_up(&status), expected, "{mask}");
        }
    }
}
