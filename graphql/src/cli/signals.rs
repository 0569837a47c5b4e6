//! Signals of the terminal and of the system.

use std::{fs, io};

use tokio::signal::unix::{SignalKind, signal};

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
///
/// If the process was started with SIGHUP ignored, as `nohup` does, it stays ignored.
pub(crate) fn await_end_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut sighup = match fs::read_to_string("/proc/self/status") {
        Ok(status) if ignores_hang_up(&status) => None,
        _ => Some(signal(SignalKind::hangup())?),
    };
    Ok(async move {
        let hung_up = async {
            match &mut sighup {
                Some(sighup) => drop(sighup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
            () = hung_up => (),
        }
    })
}

/// Reads `/proc/self/status`. SIGHUP is signal 1, the lowest bit of the mask.
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_whether_hang_up_is_ignored() {
        for (mask, expected) in
            [("0000000000001001", true), ("0000000000001000", false), ("none", false)]
        {
            let status = format!("Name:\tfaber\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
            assert_eq!(ignores_hang_up(&status), expected, "{mask}");
        }
    }
}
