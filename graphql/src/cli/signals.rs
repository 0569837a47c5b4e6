//! Signals of the terminal and of the system.

use std::{fs, io};

use tokio::signal::unix::{SignalKind, signal};

/// Listens from now on; the future that it returns waits for Ctrl-C. Where that cannot be heard, the
/// system ends the process as ever.
pub(crate) fn interrupted() -> impl Future<Output = ()> + Send {
    let interrupt = signal(SignalKind::interrupt());
    async move {
        match interrupt {
            Ok(mut interrupt) => drop(interrupt.recv().await),
            Err(_) => std::future::pending().await,
        }
    }
}

/// Listens from now on; the future that it returns waits for Ctrl-C, SIGTERM or SIGHUP.
///
/// A SIGHUP that the process was started to ignore, as `nohup` does, stays ignored.
pub(crate) fn told_to_end() -> io::Result<impl Future<Output = ()> + Send> {
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

/// Returns whether a process ignores SIGHUP, by what the kernel says of its state. SIGHUP is signal
/// 1, the lowest bit of the mask.
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
