//! What the terminal and the system tell a process.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Listens from now on; the future that it returns waits for Ctrl-C. Where that cannot be heard, the
/// system ends the process as ever.
pub(super) fn interrupted() -> impl Future<Output = ()> + Send {
    let interrupt = signal(SignalKind::interrupt());
    async move {
        match interrupt {
            Ok(mut interrupt) => drop(interrupt.recv().await),
            Err(_) => std::future::pending().await,
        }
    }
}

/// Listens from now on; the future that it returns waits for Ctrl-C or for being told to end.
pub(super) fn told_to_end() -> io::Result<impl Future<Output = ()> + Send> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
    })
}
