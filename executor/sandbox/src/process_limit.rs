//! Counts the processes and threads of a command, because the kernel does not limit the processes
//! of `root`.

use std::{collections::BTreeMap, fs};

use nix::unistd::getpid;

/// Number of entries that are read between two checks of the limit.
const CHECK_INTERVAL: usize = 64;

pub(super) fn count_all() -> Option<u64> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_whitespace().nth(3)?.split('/').nth(1)?.parse().ok()
}

pub(super) struct ProcessLimit {
    pub(super) max_processes: u64,
    /// The lowest number of processes on the machine since the command started, or since the last
    /// complete count.
    baseline: u64,
}

impl ProcessLimit {
    /// Must be called before the command starts, because the baseline must not include the
    /// command's processes.
    pub(super) fn new(max_processes: u64) -> Self {
        Self { max_processes, baseline: count_all().unwrap_or(u64::MAX) }
    }

    /// Returns `true` if the machine has gained more processes than the limit. Comes first, because
    /// counting the command's own processes takes too long during a fork bomb.
    pub(super) fn may_be_exceeded(&mut self) -> bool {
        let Some(now) = count_all() else { return false };
        self.baseline = self.baseline.min(now);
        now - self.baseline > self.max_processes
    }

    /// Returns `true` if the command exceeds the limit. Stops counting if the machine gains many
    /// processes in the meantime.
    pub(super) fn is_exceeded(&mut self) -> bool {
        // Skips the count if the whole machine has fewer processes than the limit.
        if count_all().is_some_and(|count| count <= self.max_processes) {
            return false;
        }
        let max_processes = self.max_processes;
        count_descendants(|| self.may_be_exceeded()).is_some_and(|count| count > max_processes)
    }

    /// Returns `true` if the command exceeds the limit. Always counts to the end, so the caller
    /// must stop the command first.
    pub(super) fn is_certainly_exceeded(&mut self) -> bool {
        self.baseline = count_all().unwrap_or(u64::MAX);
        count_descendants(|| false).is_some_and(|count| count > self.max_processes)
    }
}

/// Counts the processes and threads that descend from this process. Returns `None` if `should_stop`
/// returns `true`.
fn count_descendants(mut should_stop: impl FnMut() -> bool) -> Option<u64> {
    let mut children: BTreeMap<i32, Vec<(i32, u64)>> = BTreeMap::new();
    for (n, (id, parent, threads)) in list_processes().enumerate() {
        if n % CHECK_INTERVAL == 0 && should_stop() {
            return None;
        }
        children.entry(parent).or_default().push((id, threads));
    }
    let (mut count, mut next) = (0, vec![getpid().as_raw()]);
    while let Some(id) = next.pop() {
        // Removes each visited entry, because the loop must end even if an id was reused during the
        // count.
        for (child, threads) in children.remove(&id).into_iter().flatten() {
            count += threads;
            next.push(child);
        }
    }
    Some(count)
}

fn list_processes() -> impl Iterator<Item = (i32, i32, u64)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: i32| {
        let (parent, threads) = parse_stat(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
        Some((id, parent, threads))
    })
}

/// Parses the parent and the number of threads in a `stat` file. A zombie has no threads, but it
/// counts as one thread.
fn parse_stat(stat: &str) -> Option<(i32, u64)> {
    // The process name is in parentheses and may contain any character, so the last `)` ends the
    // name.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let threads: u64 = fields.nth(15)?.parse().ok()?;
    Some((parent, threads.max(1)))
}

pub(super) fn list_children() -> impl Iterator<Item = i32> {
    let own_pid = getpid().as_raw();
    list_processes().filter(move |process| process.1 == own_pid).map(|process| process.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_status_is_parsed_for_any_process_name() {
        let rest = "S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 12 0 99 1 2";
        for name in ["sh", "a b", ") R 1 1 (", ""] {
            assert_eq!(parse_stat(&format!("42 ({name}) {rest}")), Some((7, 12)), "{name}");
        }
        let dead = "Z 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 0 0 99 1 2";
        assert_eq!(parse_stat(&format!("42 (sh) {dead}")), Some((7, 1)));
        assert_eq!(parse_stat("42 (sh) S 7"), None);
    }
}
