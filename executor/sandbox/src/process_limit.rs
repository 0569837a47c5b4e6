//! How many processes and threads a command has, for whom the kernel does not count them: it lets
//! `root` have any number.

use std::{collections::BTreeMap, fs};

use nix::unistd::getpid;

/// Entries to read between two checks of the limit.
const SOME: usize = 64;

/// Returns the number of all processes and threads of the machine.
pub(super) fn all() -> Option<u64> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_whitespace().nth(3)?.split('/').nth(1)?.parse().ok()
}

/// The limit of a command, and its distance from it.
pub(super) struct ProcessLimit {
    most: u64,
    /// The fewest there were on the machine, since the command began or was last counted for that.
    before: u64,
}

impl ProcessLimit {
    /// Begins with a command that is not there yet.
    pub(super) fn new(most: u64) -> Self {
        Self { most, before: all().unwrap_or(u64::MAX) }
    }

    /// Returns how many it may be.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// Returns whether so many have come to the machine that the command may be too many. That costs
    /// next to nothing, and has to: where each of thousands wants the processor there is no time to
    /// count them.
    pub(super) fn has_come(&mut self) -> bool {
        let Some(now) = all() else { return false };
        self.before = self.before.min(now);
        now - self.before > self.most
    }

    /// Returns whether the command is too many, as far as that can be counted before more come.
    pub(super) fn is_over(&mut self) -> bool {
        // Of all there are, the command's are a part.
        if all().is_some_and(|it| it <= self.most) {
            return false;
        }
        let most = self.most;
        family(|| self.has_come()).is_some_and(|it| it > most)
    }

    /// Returns the same, however long it takes. Those that have come and are somebody else's are not
    /// looked at again.
    pub(super) fn is_over_for_certain(&mut self) -> bool {
        self.before = all().unwrap_or(u64::MAX);
        family(|| false).is_some_and(|it| it > self.most)
    }
}

/// Counts the processes and threads of those that this process has started; none where there is no
/// `/proc`. Gives up where that is of no use any more.
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
        // Each is counted once, also where a number was used again between two looks.
        for (child, threads) in children.remove(&id).into_iter().flatten() {
            count += threads;
            next.push(child);
        }
    }
    Some(count)
}

/// Returns the processes there are, with their parents and how many threads they have.
fn processes() -> impl Iterator<Item = (i32, i32, u64)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: i32| {
        let (parent, threads) = read(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
        Some((id, parent, threads))
    })
}

/// Reads of a process's `stat` who its parent is and how many threads it has. One that is dead and
/// not buried has none, and takes a place all the same.
fn read(stat: &str) -> Option<(i32, u64)> {
    // The name before it is in brackets and may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let threads: u64 = fields.nth(15)?.parse().ok()?;
    Some((parent, threads.max(1)))
}

/// Returns those that this process has started or adopted; none where there is no `/proc`.
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
