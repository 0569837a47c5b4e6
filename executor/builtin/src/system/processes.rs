//! The processes of Faber's user on this machine.

use std::collections::BTreeSet;

use sysinfo::{Pid, Process, ProcessRefreshKind, ProcessesToUpdate, System as Machine, UpdateKind};

use super::{System, background::mark};

/// A snapshot of the user's processes.
pub(super) struct Processes {
    machine: Machine,
    own: Pid,
    /// Background sessions of this Faber.
    started: BTreeSet<Pid>,
    /// Processes with the marker of a background command, possibly of an earlier Faber.
    marked: BTreeSet<Pid>,
}

impl Processes {
    /// Takes a snapshot. With CPU usage it takes two and waits between them.
    pub(super) fn look(system: &System, with_use: bool) -> Option<Self> {
        let mut machine = Machine::new().ok()?;
        refresh(&mut machine);
        if with_use {
            std::thread::sleep(sysinfo::MINIMUM_CPU_UPDATE_INTERVAL);
            refresh(&mut machine);
        }
        let started = system.background.ids().into_iter().map(Pid::from_u32).collect();
        let mark = mark(system.place.root());
        let is_marked = |it: &&Process| it.environ().contains(&mark);
        let marked = machine.processes().values().filter(is_marked).map(Process::pid).collect();
        Some(Self { machine, own: Pid::from_u32(std::process::id()), started, marked })
    }

    /// Returns the user's processes, ordered by id.
    pub(super) fn all(&self) -> Vec<&Process> {
        let user = self.machine.process(self.own).and_then(Process::effective_user_id);
        let all = self.machine.processes().values();
        let mut all: Vec<_> = all
            .filter(|it| user.is_some() && it.effective_user_id() == user)
            .filter(|it| it.thread_kind().is_none())
            .collect();
        all.sort_by_key(|it| it.pid());
        all
    }

    /// Returns whether Faber started a process or one of its ancestors.
    pub(super) fn is_started(&self, process: &Process) -> bool {
        let is_ours = |it: &Pid| self.started.contains(it);
        process.session_id().as_ref().is_some_and(is_ours)
            || self.line(process.pid()).iter().any(|it| is_ours(it) || self.marked.contains(it))
    }

    /// Returns the remaining processes of a background command that has ended.
    pub(super) fn left_by(&self, id: i64) -> Vec<&Process> {
        let is_its = |it: &&Process| {
            let session = it.session_id().filter(|it| i64::from(it.as_u32()) == id);
            // In a session of an earlier Faber, only processes with the marker belong to the
            // command.
            session.is_some_and(|it| self.started.contains(&it)) || {
                session.is_some() && self.marked.contains(&it.pid())
            }
        };
        self.all().into_iter().filter(is_its).collect()
    }

    /// Returns whether a process is a background command and leads its process group.
    pub(super) fn leads(&self, process: &Process) -> bool {
        let id = process.pid();
        let leads_group = || {
            let pid = i32::try_from(id.as_u32()).ok().map(nix::unistd::Pid::from_raw);
            pid.is_some() && nix::unistd::getpgid(pid).ok() == pid
        };
        self.started.contains(&id) || (self.marked.contains(&id) && leads_group())
    }

    /// Returns whether a process is this process or an ancestor of it.
    pub(super) fn is_above(&self, process: &Process) -> bool {
        self.line(self.own).contains(&process.pid())
    }

    /// Returns a process and its ancestors.
    fn line(&self, from: Pid) -> BTreeSet<Pid> {
        let mut line = BTreeSet::new();
        let mut next = Some(from);
        while let Some(pid) = next.filter(|it| line.insert(*it)) {
            next = self.machine.process(pid).and_then(Process::parent);
        }
        line
    }
}

fn refresh(machine: &mut Machine) {
    let wanted = ProcessRefreshKind::nothing()
        .with_cpu()
        .with_memory()
        .with_cmd(UpdateKind::OnlyIfNotSet)
        .with_user(UpdateKind::OnlyIfNotSet)
        .with_environ(UpdateKind::OnlyIfNotSet)
        .without_tasks();
    machine.refresh_processes_specifics(ProcessesToUpdate::All, true, wanted);
}

/// Returns the arguments of a process. Without arguments, returns its name.
pub(super) fn called(process: &Process) -> String {
    let words: Vec<_> = process.cmd().iter().map(|it| it.to_string_lossy()).collect();
    if words.is_empty() {
        return format!("[{}]", process.name().to_string_lossy());
    }
    words.join(" ").chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}
