//! Counting the processes and threads of a command. The kernel does not limit those of `root`.

use std::{collections::BTreeMap, fs};

use nix::unistd::getpid;

/// Entries to read between two checks of the limit.
const SOME: usize = 64;

/// Returns the number of processes and threads of the machine.
pub(super) fn all() -> Option<u64> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_whitespace().nth(3)?.split('/').nth(1)?.parse().ok()
}

/// The limit of a command, and the number of other processes.
pub(super) struct ProcessLimit {
    pub(super) most: u64,
    /// The lowest number of processes on the machine since the start of the command or the last
    /// complete count.
    before: u64,
}

impl ProcessLimit {
    /// Must be called before the command starts.
    pub(super) fn new(most: u64) -> Self {
        Self { most, before: all().unwrap_or(u64::MAX) }
    }

    /// Returns whether the machine has gained more processes than the limit. This check is cheap:
    /// during a fork bomb, counting the command's own processes takes too long.
    pub(super) fn has_come(&mut self) -> bool {
        let Some(now) = all() else { return false };
        self.before = self.before.min(now);
        now - self.before > self.most
    }

    /// Returns whether the command exceeds the limit. Stops counting if the machine gains many
    /// processes meanwhile.
    pub(super) fn is_over(&mut self) -> bool {
        // The command cannot have more than the machine.
        if all().is_some_and(|it| it <= self.most) {
            return false;
        }
        let most = self.most;
        family(|| self.has_come()).is_some_and(|it| it > most)
    }

    /// Counts completely, however long it takes. Processes of others that exist now are not counted
    /// as new later.
    pub(super) fn is_over_for_certain(&mut self) -> bool {
        self.before = all().unwrap_or(u64::MAX);
        family(|| false).is_some_and(|it| it > self.most)
    }
}

/// Counts the processes and threads that descend from this process. Returns `None` if `should_stop`
/// says so.
fn family(mut is_useless: impl FnMut() -> bool) -> Option<u64> {
    let mut children: BTreeMap<i32, Vec<(i32, u64)>> = BTreeMap::new();
    for (n, (id, parent, threads)) in processes().enumerate() {
        if n % SOME == 0 && is_useless() {
            return None;
        }
        children.entry(parent).or_default().push((id, threads));
    }
    let (mut count, mut next) = (0, vec![getpid().as_raw()]);
    while let Some(id) = next.pop() {
        // Removing the entry ends the loop if an id was reused meanwhile.
        for (child, threads) in children.remove(&id).into_iter().flatten() {
            count += threads;
            next.push(child);
        }
    }
    Some(count)
}

/// Returns the id, parent and number of threads of all processes.
fn processes() -> impl Iterator<Item = (i32, i32, u64)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: i32| {
        let (parent, threads) = read(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
        Some((id, parent, threads))
    })
}

/// Parses the parent and the number of threads in a `stat` file. A zombie has no threads but counts
/// as one.
fn read(stat: &str) -> Option<(i32, u64)> {
    // The process name before this is in parentheses and may contain any character.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let threads: u64 = fields.nth(15)?.parse().ok()?;
    Some((parent, threads.max(1)))
}

/// Returns the processes that this one started or adopted.
pub(super) fn children() -> impl Iterator<Item = i32> {
    let own = getpid().as_raw();
    processes().filter(move |it| it.1 == own).map(|it| it.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let rest = "S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 12 0 99 1 2";
        for name in ["sh", "a b", ") R 1 1 (", ""] {
            assert_eq!(read(&format!("42 ({name}) {rest}")), Some((7, 12)), "{name}");
        }
        let dead = "Z 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 0 0 99 1 2";
        assert_eq!(read(&format!("42 (sh) {dead}")), Some((7, 1)));
        assert_eq!(read("42 (sh) S 7"), None);
    }
}
