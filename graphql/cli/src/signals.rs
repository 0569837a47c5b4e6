use std::{
    fs, io,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Mutex, Notify},
    time,
};

const TERMINAL_CHECK_DELAY: Duration = Duration::from_millis(100);

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

pub(crate) fn await_end_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let signals = EndSignals::listen()?;
    Ok(async move { signals.dispatch().await })
}

/// Receives Ctrl-C, SIGTERM and SIGHUP. If the process was started with SIGHUP ignored, as `nohup`
/// does, SIGHUP stays ignored.
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
        if !is_hang_up_ignored() {
            kinds.push(SignalKind::hangup());
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceSignal {
    End,
    Reload,
}

/// Receives the signals of a server or a worker. SIGHUP ends the process if its terminal was
/// closed, and otherwise reloads the configuration.
#[derive(Debug)]
pub(crate) struct ServiceSignals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the process was started with SIGHUP ignored.
    hang_up: Option<Signal>,
    had_terminal: bool,
}

impl ServiceSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        let hang_up = if is_hang_up_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up,
            had_terminal: has_terminal(),
        })
    }

    /// Waits for Ctrl-C or SIGTERM. Keeps a SIGHUP for the next [`receive`](Self::receive).
    pub(crate) async fn receive_end(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }

    pub(crate) async fn receive(&mut self) -> ServiceSignal {
        let Self { interrupt, terminate, hang_up, .. } = self;
        let hang_up = async {
            match hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => return ServiceSignal::End,
            _ = terminate.recv() => return ServiceSignal::End,
            _ = hang_up => {}
        }
        time::sleep(TERMINAL_CHECK_DELAY).await;
        if self.had_terminal && !has_terminal() {
            ServiceSignal::End
        } else {
            ServiceSignal::Reload
        }
    }
}

fn has_terminal() -> bool {
    fs::File::open("/dev/tty").is_ok()
}

fn is_hang_up_ignored() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hang_up(&status))
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
